"""The list of devices over HTTP: names, merges and their reverts, revoking. Each change is an event of the server's.

A change that was made before is not made twice: its event is the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from prosa.events.catalogue import DeviceMerged, DeviceMergeReverted, DeviceRenamed, DeviceRevoked, Event
from prosa.events.log import Recorded
from prosa.events.messages import DeviceMerge, DeviceName, Devices, DeviceUnmerge, Done, SelfMerge
from prosa.projections.aliases import SAME_MACHINE
from prosa.server.auth import MERGE_SELF
from prosa.server.device_rows import listed
from prosa.server.endpoints import Call, Endpoint, Refused
from prosa.server.entries import DEVICE, PUT_ENTRY, Entry, aliases, canonical, entries, note_pushed, read
from prosa.server.log import LOCK_HEAD, append_own_in
from prosa.server.login import FINGERPRINT
from prosa.server.state import Connection, Server

__all__ = ["ENDPOINTS", "canonical", "note_pushed"]

E = TypeVar("E", bound=Event)

NAME_LENGTH: Final = 100
SAID: Final = """
SELECT position, origin, origin_position, id, stream, stream_version, type, version, at_us, body_hash, hash, salt, body
FROM events WHERE owner = $1 AND stream = $2 AND type = $3 ORDER BY position DESC"""
MERGE: Final = "SELECT device, into_device, reverted_at_us FROM device_merges WHERE owner = $1 AND id = $2"
SAME_PAIR: Final = """
SELECT id FROM device_merges
WHERE owner = $1 AND device = $2 AND into_device = $3 AND reverted_at_us IS NULL ORDER BY id"""
WAS_TAKEN_BACK: Final = """
SELECT EXISTS (
    SELECT FROM device_merges
    WHERE owner = $1 AND device = $2 AND into_device = $3 AND reverted_at_us IS NOT NULL
)"""
REVOKE_ENTRIES: Final = "UPDATE device_entries SET revoked_at_us = $3 WHERE owner = $1 AND device = ANY($2)"
REVOKE_TOKENS: Final = """
UPDATE tokens SET revoked_at_us = $3 WHERE owner = $1 AND device = ANY($2) AND revoked_at_us IS NULL"""


async def _list(call: Call) -> Devices:
    return await listed(call.server)


async def _rename(call: Call) -> Done:
    name = call.question.name.strip()
    if not 1 <= len(name) <= NAME_LENGTH or not name.isprintable():
        raise Refused("invalid", f"The name of a device is 1 to {NAME_LENGTH} printable characters.")
    server = call.server
    async with server.pool.acquire() as connection, connection.transaction():
        known = await _locked(connection, server)
        device = _known(known, call.request.path_params["device"])
        device = (await aliases(connection, server.owner)).canonical(device)
        if device in known and known[device].name == name:
            before = await _said(connection, server, device, DeviceRenamed, lambda event: event.name == name)
            if before is not None:
                return before
        return await _say(connection, server, device, DeviceRenamed(device=device, name=name, by=call.caller.by))


async def _merge(call: Call) -> Done:
    server, question = call.server, call.question
    async with server.pool.acquire() as connection, connection.transaction():
        known = await _locked(connection, server)
        device, into = _known(known, question.device), _known(known, question.into)
        evidence = f"said by {call.caller.by}"
        return await _merged(connection, server, device, into, evidence, call.caller.by)


async def _merge_self(call: Call) -> Done:
    """The machine's own: its hostname changed, so its fingerprint did. Not again once somebody took that back."""
    server, question = call.server, call.question
    if not FINGERPRINT.fullmatch(question.into) or not _is_hostname(question.hostname):
        raise Refused("invalid", "into is no fingerprint, or hostname is not printable.")
    async with server.pool.acquire() as connection, connection.transaction():
        known = await _locked(connection, server)
        device, into = known.get(question.device), known.get(question.into)
        same = (await aliases(connection, server.owner)).canonical
        if device is None or call.caller.device is None or same(call.caller.device) != same(device.device):
            raise Refused("other_device", f"The token that asks is not one of {question.device[:64]}'s.")
        machines = {device.machine, question.machine, into.machine if into else question.machine}
        if len(machines) > 1 or not device.machine:
            raise _not_one(question, "they have not the same machine id")
        if await connection.fetchval(WAS_TAKEN_BACK, server.owner, question.device, question.into):
            raise _not_one(question, "that merge was taken back")
        if into is None:
            entry = (question.into, question.hostname, question.machine, device.platform)
            await connection.execute(PUT_ENTRY, server.owner, *entry)
        return await _merged(connection, server, question.device, question.into, SAME_MACHINE, question.into)


def _is_hostname(text: str) -> bool:
    return len(text) <= 255 and text.isprintable()


def _not_one(question: SelfMerge, why: str) -> Refused:
    return Refused(
        "other_device",
        f"Devices {question.device} and {question.into} are not merged: {why}.",
        "Nothing was done.",
        "Run prosa login on this machine",
    )


async def _unmerge(call: Call) -> Done:
    """Of these two entries: the machine may have said the same merge, and then both are taken back."""
    server, merge = call.server, call.question.merge
    async with server.pool.acquire() as connection, connection.transaction():
        await _locked(connection, server)
        row = await connection.fetchrow(MERGE, server.owner, merge) if merge.isalnum() else None
        if row is None or not row["device"]:
            raise Refused("not_found", f"There is no merge {merge[:64]!r}.")
        if row["reverted_at_us"] is not None:
            before = await _said(
                connection, server, row["device"], DeviceMergeReverted, lambda event: event.merge == merge
            )
            if before is not None:
                return before
        done = await _say(connection, server, row["device"], DeviceMergeReverted(merge=merge, by=call.caller.by))
        for other in await connection.fetch(SAME_PAIR, server.owner, row["device"], row["into_device"]):
            await _say(connection, server, row["device"], DeviceMergeReverted(merge=other["id"], by=call.caller.by))
        return done


async def _revoke(call: Call) -> Done:
    """Of the machine: under every fingerprint that is merged with this one. What it sent stays."""
    server = call.server
    async with server.pool.acquire() as connection, connection.transaction():
        known = await _locked(connection, server)
        device = _known(known, call.request.path_params["device"])
        merged = await aliases(connection, server.owner)
        device, members = merged.canonical(device), merged.members(device)
        now = server.now_us()
        is_revoked = known[device].revoked_at_us is not None if device in known else False
        await connection.execute(REVOKE_TOKENS, server.owner, members, now)
        if is_revoked and (before := await _said(connection, server, device, DeviceRevoked, lambda event: True)):
            return before
        done = await _say(connection, server, device, DeviceRevoked(device=device, by=call.caller.by))
        await connection.execute(REVOKE_ENTRIES, server.owner, members, now)
        return done


# what they share


async def _locked(connection: Connection, server: Server) -> dict[str, Entry]:
    """The entries, which nobody else changes until this transaction ends."""
    await connection.execute(LOCK_HEAD, server.owner)
    return await entries(connection, server.owner)


def _known(known: dict[str, Entry], device: str) -> str:
    if device not in known:
        raise Refused("not_found", f"There is no device {device[:64]!r}.")
    return device


async def _merged(connection: Connection, server: Server, device: str, into: str, evidence: str, by: str) -> Done:
    if device == into:
        raise Refused("invalid", f"Device {device} cannot be merged into itself.")
    merged = await aliases(connection, server.owner)
    if merged.canonical(device) == merged.canonical(into) and merged.canonical(device) != device:
        before = await _said(
            connection, server, device, DeviceMerged, lambda event: (event.device, event.into) == (device, into)
        )
        if before is not None:
            return before
        raise Refused("conflict", f"Devices {device} and {into} are merged already.", "Nothing was changed.")
    event = DeviceMerged(device=device, into=into, evidence=evidence, by=by)
    return await _say(connection, server, device, event)


async def _say(connection: Connection, server: Server, device: str, event: Event) -> Done:
    """Append an event and take over what it says."""
    recorded = await append_own_in(connection, server, f"{DEVICE}{device}", event)
    for stream, answer in await note_pushed(connection, server.owner, [recorded]):
        await note_pushed(connection, server.owner, [await append_own_in(connection, server, stream, answer)])
    return Done(recorded.id.hex(), recorded.position)


async def _said(
    connection: Connection, server: Server, device: str, kind: type[E], matches: Callable[[E], bool]
) -> Done | None:
    """The last event of a type about a device that says so already."""
    for row in await connection.fetch(SAID, server.owner, f"{DEVICE}{device}", kind.TYPE):
        recorded = Recorded._make(row)
        event = read(recorded)
        if isinstance(event, kind) and matches(event):
            return Done(recorded.id.hex(), recorded.position)
    return None


ENDPOINTS: Final = (
    Endpoint("GET", "/v1/devices", "devices", _list, "Every machine, and what is merged", Devices),
    Endpoint("POST", MERGE_SELF, "device", _merge_self, "This machine has another name now", Done, SelfMerge),
    Endpoint("POST", "/v1/devices/merge", "devices", _merge, "Two entries are one machine", Done, DeviceMerge),
    Endpoint("POST", "/v1/devices/unmerge", "devices", _unmerge, "Take a merge back", Done, DeviceUnmerge),
    Endpoint("POST", "/v1/devices/{device}/rename", "devices", _rename, "Name a device", Done, DeviceName),
    Endpoint("POST", "/v1/devices/{device}/revoke", "devices", _revoke, "Take a device's access away", Done),
)
