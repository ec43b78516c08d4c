"""The log as people read it: pages of records, one event, the history of a session. Never transcript text.

A page ends at its limit or at PAGE_BYTES of bodies: a parse can be 16 MB, and only its counts are said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import asyncpg

from prosa.events import codec
from prosa.events.catalogue import EVENTS
from prosa.events.errors import UsageError
from prosa.events.log import Recorded
from prosa.projections.asking import LogPage, ShownEvent
from prosa.projections.event_texts import record
from prosa.projections.history import AROUND, is_about, own_stream
from prosa.projections.queries import Session
from prosa.server.state import Connection, Server

PAGE_BYTES: Final = 8 * 1024 * 1024
FETCHED: Final = 10
"""Rows read at a time: so many bodies are held, of at most 16 MB each."""

COLUMNS: Final = ", ".join("body" if name == "stored" else name for name in Recorded._fields)
AFTER: Final = f"SELECT {COLUMNS} FROM events WHERE owner = $1 AND position > $2 {{}} ORDER BY position"
BEFORE: Final = f"SELECT {COLUMNS} FROM events WHERE owner = $1 AND position < $2 {{}} ORDER BY position DESC"
ONE: Final = f"SELECT {COLUMNS} FROM events WHERE owner = $1 AND position = $2"
CHOSEN: Final = """
AND ($3::text[] IS NULL OR type = ANY($3)) AND ($4::bigint IS NULL OR at_us >= $4)
AND ($5::bigint IS NULL OR at_us < $5)"""
TOLD: Final = f"""
SELECT {COLUMNS} FROM events WHERE owner = $1 AND position > $2 AND stream = $3
UNION ALL
SELECT {COLUMNS} FROM events
WHERE owner = $1 AND position > $2 AND type IN ({", ".join(repr(name) for name in AROUND)}) AND stream <> $3
ORDER BY position"""
"""The types are constants: so the planner sees that the index events_around has them all."""
HEAD: Final = "SELECT position FROM log_head WHERE owner = $1"
ORIGINS: Final = "SELECT number, encode(origin, 'hex') AS name FROM origins WHERE owner = $1"
HAS_TYPE: Final = "SELECT EXISTS (SELECT 1 FROM events WHERE owner = $1 AND type = $2)"


class Chosen(NamedTuple):
    """Which events of the log are wanted."""

    types: list[str] | None = None
    since_us: int | None = None
    until_us: int | None = None


async def page(server: Server, chosen: Chosen, limit: int, *, after: int = 0, before: int | None = None) -> LogPage:
    """Events behind a position, or with `before` the last ones in front of it; in order of arrival either way."""
    await _check_types(server, chosen.types)
    if before is None:
        return await _page(server, AFTER.format(CHOSEN), (after, *chosen), limit)
    found = await _page(server, BEFORE.format(CHOSEN), (before, *chosen), limit)
    return LogPage(found.events[::-1], found.next, found.head)


async def history(server: Server, session: Session, limit: int, after: int = 0) -> LogPage:
    """What made the session what it is."""
    values = (after, own_stream(session))
    return await _page(server, TOLD, values, limit, lambda event: is_about(event, session))


async def event(server: Server, position: int) -> ShownEvent:
    """Raises UsageError where the log has not got so far."""
    async with server.pool.acquire() as conn:
        row = await conn.fetchrow(ONE, server.owner, position)
        head = await conn.fetchval(HEAD, server.owner)
        origins = await _origins(conn, server)
    if row is None:
        raise UsageError(f"There is no event {position}.", "", f"The last one is {head}.")
    found = Recorded._make(row)
    return ShownEvent(record(origins, found), found.body_hash.hex(), found.hash.hex())


async def _page(
    server: Server,
    sql: str,
    values: tuple[Any, ...],
    limit: int,
    wanted: Callable[[Recorded], bool] = lambda event: True,
) -> LogPage:
    """`next` is where to go on: the position of the last event that was looked at."""
    found: list[dict[str, Any]] = []
    size, last, more = 0, 0, False
    async with server.pool.acquire() as conn, conn.transaction(isolation="repeatable_read", readonly=True):
        head = await conn.fetchval(HEAD, server.owner)
        origins = await _origins(conn, server)
        cursor = await conn.cursor(sql, server.owner, *values)
        while not more and (rows := await cursor.fetch(FETCHED)):
            for said, position, weight in await asyncio.to_thread(_records, rows, origins, wanted):
                if len(found) == limit or (found and size > PAGE_BYTES):
                    more = True
                    break
                size, last = size + weight, position
                if said is not None:
                    found.append(said)
    return LogPage(found, last if more else None, head)


def _records(
    rows: Iterable[asyncpg.Record], origins: dict[int, str], wanted: Callable[[Recorded], bool]
) -> list[tuple[dict[str, Any] | None, int, int]]:
    """Of each row its record if it is wanted, its position and the bytes of its body."""
    events = map(Recorded._make, rows)
    return [(record(origins, e) if wanted(e) else None, e.position, codec.plain_size(e.stored or b"")) for e in events]


async def _origins(conn: Connection, server: Server) -> dict[int, str]:
    return {row["number"]: row["name"] for row in await conn.fetch(ORIGINS, server.owner)}


async def _check_types(server: Server, types: list[str] | None) -> None:
    known = {event.TYPE for event in EVENTS}
    for name in sorted(set(types or ()) - known):
        if "\0" in name or not await server.pool.fetchval(HAS_TYPE, server.owner, name):
            raise UsageError(f"There is no event type {name!r}.", "", f"Types: {', '.join(sorted(known))}.")
