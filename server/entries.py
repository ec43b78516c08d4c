"""The list of devices as the server must know it at once: who is who, what it is called, what is merged.

Filled in the transaction of the event that says so, the server's own and pushed ones alike: who is let in cannot wait
for a projection. The rules are those of prosa.projections.aliases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import asyncpg
import msgspec

from prosa.events import catalogue as c
from prosa.events import codec
from prosa.events.errors import DamageError
from prosa.events.log import Recorded
from prosa.projections.aliases import SAME_MACHINE, Aliases, Merge
from prosa.server.state import Connection, Server

NOTED: Final = frozenset(
    {c.DeviceIdentified.TYPE, c.DeviceRenamed.TYPE, c.DeviceMerged.TYPE, c.DeviceMergeReverted.TYPE}
)
DEVICE: Final = "device-"
"""With a fingerprint: the stream of what is said about a device."""

PUT_ENTRY: Final = """
INSERT INTO device_entries (owner, device, hostname, machine, platform) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (owner, device) DO UPDATE
SET hostname = excluded.hostname, machine = excluded.machine, platform = excluded.platform"""
PUT_NAME: Final = """
INSERT INTO device_entries AS e (owner, device, name, named_at_us, named_origin, named_position)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (owner, device) DO UPDATE
SET name = excluded.name, named_at_us = excluded.named_at_us, named_origin = excluded.named_origin,
    named_position = excluded.named_position
WHERE e.named_at_us IS NULL OR (excluded.named_at_us, excluded.named_origin, excluded.named_position)
    > (e.named_at_us, e.named_origin, e.named_position)"""
PUT_MERGE: Final = """
INSERT INTO device_merges (owner, id, device, into_device, evidence, at_us, own) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (owner, id) DO UPDATE
SET device = excluded.device, into_device = excluded.into_device, evidence = excluded.evidence,
    at_us = excluded.at_us, own = excluded.own"""
PUT_REVERT: Final = """
INSERT INTO device_merges (owner, id, device, into_device, evidence, at_us, own, reverted_at_us)
VALUES ($1, $2, '', '', '', 0, false, $3)
ON CONFLICT (owner, id) DO UPDATE SET reverted_at_us = coalesce(device_merges.reverted_at_us, excluded.reverted_at_us)
RETURNING device, into_device"""
OWN_MERGES: Final = """
SELECT id FROM device_merges
WHERE owner = $1 AND own AND reverted_at_us IS NULL AND device = $2 AND into_device = $3 AND evidence = $4"""
ORIGIN: Final = "SELECT origin, device IS NULL AS own FROM origins WHERE owner = $1 AND number = $2"
MERGES: Final = """
SELECT id, device, into_device, evidence, at_us, reverted_at_us IS NOT NULL AS reverted FROM device_merges
WHERE owner = $1"""
ENTRIES: Final = """
SELECT device, hostname, machine, platform, name, named_at_us, revoked_at_us FROM device_entries
WHERE owner = $1 ORDER BY device"""

LONGEST: Final = 500
"""Characters of a fingerprint, name or id."""

Source = Connection | asyncpg.Pool
"""A connection, or for a single statement the pool."""


class Entry(NamedTuple):
    device: str
    hostname: str | None = None
    machine: str = ""
    platform: str | None = None
    name: str | None = None
    named_at_us: int | None = None
    revoked_at_us: int | None = None


async def note_pushed(connection: Connection, owner: int, events: Sequence[Recorded]) -> list[tuple[str, c.Event]]:
    """Take over what appended events say about devices. Returns what the server has to say to that: stream, event.

    A machine whose hostname changed is merged by itself on both sides; where the device takes its merge back, the
    server's goes with it. Bodies that cannot be read change nothing.
    """
    said: list[tuple[str, c.Event]] = []
    for recorded in events:
        if recorded.type in NOTED and (event := read(recorded)) is not None:
            said += await _note(connection, owner, recorded, event)
    return said


def read(recorded: Recorded) -> c.Event | None:
    """What may be taken over; None also for what is longer than any name or id: no index row would take it."""
    if recorded.erased or not codec.known(recorded.type, recorded.version):
        return None
    try:
        event = recorded.event()
    except DamageError:
        return None
    words = (value for value in msgspec.structs.astuple(event) if isinstance(value, str))
    return event if all(len(word) <= LONGEST for word in words) else None


async def _note(connection: Connection, owner: int, recorded: Recorded, event: c.Event) -> list[tuple[str, c.Event]]:
    origin = await connection.fetchrow(ORIGIN, owner, recorded.origin)
    assert origin is not None
    match event:
        case c.DeviceIdentified():
            values = (event.device, event.hostname, event.machine, event.platform)
            await connection.execute(PUT_ENTRY, owner, *map(_text, values))
        case c.DeviceRenamed():
            place = (recorded.at_us, origin["origin"], recorded.origin_position)
            await connection.execute(PUT_NAME, owner, _text(event.device), _text(event.name), *place)
        case c.DeviceMerged():
            values = (recorded.id.hex(), event.device, event.into, event.evidence)
            await connection.execute(PUT_MERGE, owner, *map(_text, values), recorded.at_us, origin["own"])
        case c.DeviceMergeReverted():
            pair = await connection.fetchrow(PUT_REVERT, owner, _text(event.merge), recorded.at_us)
            assert pair is not None
            own = await connection.fetch(OWN_MERGES, owner, *pair, SAME_MACHINE)
            stream = f"{DEVICE}{pair['device']}"
            return [(stream, c.DeviceMergeReverted(merge=row["id"], by=event.by)) for row in own]
    return []


def _text(value: str) -> str:
    """Postgres has no NUL."""
    return value.replace("\0", "\ufffd")


async def aliases(connection: Source, owner: int) -> Aliases:
    return Aliases(Merge(*row) for row in await connection.fetch(MERGES, owner))


async def canonical(server: Server, device: str) -> str:
    """The fingerprint that is shown for this one, through the merges that hold."""
    return (await aliases(server.pool, server.owner)).canonical(device)


async def entries(connection: Source, owner: int) -> dict[str, Entry]:
    """By fingerprint, in order."""
    return {row["device"]: Entry(*row) for row in await connection.fetch(ENTRIES, owner)}
