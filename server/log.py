"""The server's log: appending what devices push, and the server's own events; clearing bodies that were erased.

An append locks the owner's row of log_head first and counts it up, so commits come in the order of positions and
there is no gap: who reads behind a position misses nothing, however long a transaction took.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from prosa import __version__
from prosa.events import codec
from prosa.events.catalogue import Event, LogOpened
from prosa.events.chain import hash_event
from prosa.events.clock import uuid7
from prosa.events.log import Draft, Recorded, prepare
from prosa.events.messages import Head, PushBatch, PushedEvent, Receipt
from prosa.server import batches, entries, erasing
from prosa.server.endpoints import Caller, Refused
from prosa.server.state import Connection, Server
from prosa.server.wakeups import CHANNEL

INLINE_BYTES: Final = 256 * 1024

LOCK_HEAD: Final = "SELECT position FROM log_head WHERE owner = $1 FOR UPDATE"
SET_HEAD: Final = "UPDATE log_head SET position = $2 WHERE owner = $1"
ORIGIN: Final = "SELECT number, device, position, hash FROM origins WHERE owner = $1 AND origin = $2"
OWN_ORIGIN: Final = "SELECT number, origin, position, hash FROM origins WHERE owner = $1 AND device IS NULL"
NEW_ORIGIN: Final = """
INSERT INTO origins (owner, number, origin, device)
SELECT $1, coalesce(max(number), 0) + 1, $2, $3 FROM origins WHERE owner = $1 RETURNING number"""
SET_ORIGIN: Final = """
UPDATE origins SET position = $3, hash = $4, pushed_at = now() WHERE owner = $1 AND number = $2"""
STORED: Final = """
SELECT origin_position, position, hash FROM events
WHERE owner = $1 AND origin = $2 AND origin_position BETWEEN $3 AND $4 ORDER BY origin_position"""
VERSIONS: Final = "SELECT stream, version FROM stream_versions($1, $2, $3::text[])"
COLUMNS: Final = (
    "owner", "position", "origin", "origin_position", "id", "stream", "stream_version", "type", "version", "at_us",
    "body_hash", "hash", "salt", "body",
)  # fmt: skip


class Origin(NamedTuple):
    number: int
    device: str | None
    head: Head


async def append_pushed(server: Server, caller: Caller, batch: PushBatch) -> Receipt:
    """Append a device's batch, once: the same batch again gives the same receipt and appends nothing.

    Raises Refused: `invalid`; `other_device` for another's origin; `forked` where the server has other events at
    these positions; `conflict` where it has not what `expect` names (it lost data, or another process was faster).
    """
    name = await _check(server, batch)
    allowed = await _devices(server, caller, name)
    async with server.appending, server.pool.acquire() as connection, connection.transaction():
        position = await connection.fetchval(LOCK_HEAD, server.owner)
        origin = await _origin(connection, server, name)
        if origin is not None and origin.device not in allowed:
            raise _belongs_to_another(name)
        if origin is None and batch.events and batch.expect == batches.NOTHING:
            number = await connection.fetchval(NEW_ORIGIN, server.owner, name, caller.device)
            origin = Origin(number, caller.device, batches.NOTHING)
        known = await _known(connection, server, origin, batch)
        fresh = batch.events[len(known) :]
        if fresh:
            assert origin is not None
            await _check_versions(connection, server, origin, fresh)
            rows = [_row(server.owner, position + n, origin.number, event) for n, event in enumerate(fresh, 1)]
            head = Head(fresh[-1].origin_position, fresh[-1].hash)
            await _insert(connection, server.owner, origin.number, rows, head)
            for stream, said in await entries.note_pushed(connection, server.owner, _recorded(rows)):
                own = await append_own_in(connection, server, stream, said)
                await entries.note_pushed(connection, server.owner, [own])
            await erasing.clear_late(connection, server.owner, position + 1)
        erased = await erasing.clear_named(connection, server.owner, batch.events)
    server.metrics.count_push(len(fresh), sum(len(event.body or b"") for event in fresh))
    places = [*known, *range(position + 1, position + len(fresh) + 1)]
    if not places:
        return Receipt(batch.expect, 0, 0)
    last = batch.events[-1]
    return Receipt(Head(last.origin_position, last.hash), places[0], places[-1], erased)


async def _check(server: Server, batch: PushBatch) -> bytes:
    """In a thread where there is much to decompress and hash, which lets others run. Elsewhere that thread would only
    take turns with the transaction of another batch, and keep its lock held: 2,300 events a second instead of 9,000.
    """
    if sum(codec.plain_size(event.body or b"") for event in batch.events) > INLINE_BYTES:
        async with server.checking:
            return await asyncio.to_thread(batches.check, batch)
    return batches.check(batch)


async def append_own(server: Server, stream: str, event: Event) -> Recorded:
    """Append an event of the server's own origin."""
    async with server.pool.acquire() as connection, connection.transaction():
        return await append_own_in(connection, server, stream, event)


async def append_own_in(connection: Connection, server: Server, stream: str, event: Event) -> Recorded:
    """The same in the caller's transaction, so that an event and what it says of tables stand or fall together."""
    position = await connection.fetchval(LOCK_HEAD, server.owner)
    row = await connection.fetchrow(OWN_ORIGIN, server.owner)
    drafts = [(stream, event)]
    if row is None:
        name = uuid7(server.now_us())
        number = await connection.fetchval(NEW_ORIGIN, server.owner, name, None)
        before = batches.NOTHING
        drafts.insert(0, (f"log-{name.hex()}", LogOpened(origin=name.hex(), prosa=__version__)))
    else:
        number, name, before = row["number"], row["origin"], Head(row["position"], row["hash"])
    found = await connection.fetch(VERSIONS, server.owner, number, [stream])
    done: list[Recorded] = []
    for n, (subject, said) in enumerate(drafts, 1):
        version = found[0][1] or 0 if subject == stream else 0
        done.append(_own(server, position + n, number, name, before, Draft(subject, version, said)))
        before = Head(done[-1].origin_position, done[-1].hash)
    await _insert(connection, server.owner, number, [(server.owner, *recorded) for recorded in done], before)
    return done[-1]


async def _devices(server: Server, caller: Caller, name: bytes) -> set[str | None]:
    """The asking machine's fingerprints under which this origin may have been opened."""
    assert caller.device is not None
    row = await server.pool.fetchrow(ORIGIN, server.owner, name)
    if row is None or row["device"] is None or row["device"] == caller.device:
        return {caller.device}
    if await entries.canonical(server, row["device"]) != await entries.canonical(server, caller.device):
        raise _belongs_to_another(name)
    return {caller.device, row["device"]}


def _belongs_to_another(name: bytes) -> Refused:
    return Refused(
        "other_device",
        f"Origin {name.hex()} belongs to another device.",
        "Nothing of the batch was taken.",
        "This log was copied from there: prosa takes a new origin with the next sync.",
    )


async def _origin(connection: Connection, server: Server, name: bytes) -> Origin | None:
    row = await connection.fetchrow(ORIGIN, server.owner, name)
    return Origin(row["number"], row["device"], Head(row["position"], row["hash"])) if row else None


async def _known(connection: Connection, server: Server, origin: Origin | None, batch: PushBatch) -> list[int]:
    """Positions of the batch's first events that are stored already: the reply to an earlier push was lost."""
    head, expect = origin.head if origin else batches.NOTHING, batch.expect
    if expect.position > head.position:
        raise Refused(
            "conflict",
            f"The server has this origin up to {head.position}, not to {expect.position}.",
            "Nothing of the batch was taken.",
            "Ask for the heads again and send what is behind them.",
        )
    if expect == head:
        return []
    assert origin is not None
    last = expect.position + len(batch.events)
    rows = await connection.fetch(STORED, server.owner, origin.number, expect.position, last)
    stored = {row["origin_position"]: row["hash"] for row in rows}
    if expect.position and stored[expect.position] != expect.hash:
        raise _forked(expect.position)
    for event in batch.events[: head.position - expect.position]:
        if stored[event.origin_position] != event.hash:
            raise _forked(event.origin_position)
    return [row["position"] for row in rows if row["origin_position"] > expect.position]


def _forked(position: int) -> Refused:
    return Refused(
        "forked",
        f"The server has another event {position} of this origin: the log was copied or restored.",
        "Nothing was overwritten on either side.",
        "prosa sync takes a new origin and goes on.",
    )


async def _check_versions(connection: Connection, server: Server, origin: Origin, fresh: Sequence[PushedEvent]) -> None:
    """Each stream of an origin goes on where it ended."""
    first: dict[str, PushedEvent] = {}
    for event in fresh:
        first.setdefault(event.stream, event)
    for stream, version in await connection.fetch(VERSIONS, server.owner, origin.number, list(first)):
        event = first[stream]
        if event.stream_version != (version or 0) + 1:
            raise Refused(
                "invalid",
                f"Event {event.origin_position} has version {event.stream_version} of its stream after {version or 0}.",
                "Nothing of the batch was taken.",
            )


def _row(owner: int, position: int, origin: int, event: PushedEvent) -> tuple[object, ...]:
    return (owner, position, origin, *msgspec.structs.astuple(event))


def _recorded(rows: Sequence[tuple[object, ...]]) -> list[Recorded]:
    return [Recorded._make(row[1:]) for row in rows]


async def _insert(
    connection: Connection, owner: int, origin: int, rows: Sequence[tuple[object, ...]], head: Head
) -> None:
    await connection.copy_records_to_table("events", records=rows, columns=COLUMNS)
    await connection.execute(SET_ORIGIN, owner, origin, head.position, head.hash)
    await connection.execute(SET_HEAD, owner, rows[-1][1])
    await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, str(rows[-1][1]))


def _own(server: Server, position: int, origin: int, name: bytes, before: Head, draft: Draft) -> Recorded:
    prepared, at_us = prepare(draft), server.now_us()
    event_id, place, version = uuid7(at_us), before.position + 1, draft.expected + 1
    digest = hash_event(
        name, place, event_id, draft.stream, version, prepared.type, prepared.version, at_us, before.hash,
        prepared.body_hash,
    )  # fmt: skip
    return Recorded(
        position, origin, place, event_id, draft.stream, version, prepared.type, prepared.version, at_us,
        prepared.body_hash, digest, prepared.salt, prepared.stored,
    )  # fmt: skip
