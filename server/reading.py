"""The server's log as projections read it: a LogReader for a worker thread, over the connections of the event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any, Final, TypeVar

import asyncpg

from prosa.events.chain import START
from prosa.events.log import BATCH_BYTES, BATCH_EVENTS, Origin, Recorded
from prosa.server.state import Connection

T = TypeVar("T")

FIELDS: Final = ", ".join(Recorded._fields[:-2])
COLUMNS: Final = f"{FIELDS}, salt, body"
HEADERS: Final = f"{FIELDS}, NULL, NULL"
SMALL_BYTES: Final = 2_000
"""Bodies that come along with the headers of a whole log, for who reads ahead."""
WITH_SMALL: Final = f"""
{FIELDS}, CASE WHEN octet_length(body) <= {SMALL_BYTES} THEN salt END,
    CASE WHEN octet_length(body) <= {SMALL_BYTES} THEN body END"""
HEADERS_READ: Final = 5_000
NEAR_BYTES: Final = 16 * 1024 * 1024
"""Bodies that are kept because they may be asked for again."""
FOREVER: Final = 2**62

# the bodies of a page stay behind until it is known which of them come along
PAGE: Final = f"""
SELECT {COLUMNS} FROM (
    SELECT *, sum(coalesce(length(body), 0)) OVER (ORDER BY position) - coalesce(length(body), 0) AS before FROM (
        SELECT * FROM events WHERE owner = $1 AND position > $2 AND position <= $3 {{}} ORDER BY position LIMIT $4
    ) AS page
) AS sized WHERE before <= $5 ORDER BY position"""
HEADERS_PAGE: Final = """
SELECT {} FROM events WHERE owner = $1 AND position > $2 AND position <= $3 {} ORDER BY position LIMIT $4"""
OF_STREAM: Final = "AND stream = ${}"
SOME: Final = f"SELECT {COLUMNS} FROM events WHERE owner = $1 AND position = ANY($2)"
ONE: Final = "SELECT {} FROM events WHERE owner = $1 AND position = $2 AND position <= $3"
EXPECTED: Final = f"""
SELECT {", ".join("e." + name for name in Recorded._fields[:-2])}, NULL, NULL, coalesce(octet_length(e.body), 0)
FROM unnest($2::text[], $3::bigint[]) AS asked (stream, after)
JOIN events e ON e.owner = $1 AND e.stream = asked.stream AND e.position > asked.after
WHERE e.position <= $4 ORDER BY e.position LIMIT $5"""
HEAD: Final = """
SELECT position, hash FROM events WHERE owner = $1 AND position <= $2 ORDER BY position DESC LIMIT 1"""
ORIGINS: Final = "SELECT number, origin FROM origins WHERE owner = $1 ORDER BY number"


class LogUnreadable(OSError):
    """Postgres did not answer; nothing is said of any event."""


class PgLog:
    """Implements LogReader. Every method waits for the loop, so it is called from other threads alone.

    With `until` the log ends there, however it grows meanwhile. With `ahead`, reading the headers of a stream brings
    its bodies along: who replays needs them next.
    """

    def __init__(
        self,
        source: asyncpg.Pool | Connection,
        loop: asyncio.AbstractEventLoop,
        owner: int,
        *,
        until: int | None = None,
        ahead: bool = False,
    ) -> None:
        self._source, self._loop, self._owner = source, loop, owner
        self._until = FOREVER if until is None else until
        self._ahead = ahead
        self._stopped = False
        self._near: dict[int, Recorded] = {}
        """The events that were read last, with their bodies."""
        self._near_bytes = 0
        self._expected: dict[tuple[str, int], list[Recorded]] = {}

    def stop(self) -> None:
        """Whoever reads on gets LogUnreadable: the thread that does is to end."""
        self._stopped = True

    @property
    def origins(self) -> list[Origin]:
        rows = self._wait(self._source.fetch(ORIGINS, self._owner))
        return [Origin(row["number"], row["origin"], "shared") for row in rows]

    def head(self) -> tuple[int, bytes]:
        row = self._wait(self._source.fetchrow(HEAD, self._owner, self._until))
        return (row["position"], row["hash"]) if row else (0, START)

    def read(self, after: int = 0, *, bodies: bool = True) -> Iterator[Recorded]:
        return self._pages(after, None, bodies)

    def stream(self, name: str, after: int = 0, *, bodies: bool = True) -> Iterator[Recorded]:
        headers = self._expected.pop((name, after), None)
        if headers is not None and not bodies and all(header.position in self._near for header in headers):
            yield from headers
            return
        for recorded in self._pages(after, name, bodies or self._ahead):
            yield recorded if bodies else recorded._replace(salt=None, stored=None)

    def expect(self, behind: Mapping[str, int]) -> None:
        names, places = list(behind), list(behind.values())
        rows = self._wait(self._source.fetch(EXPECTED, self._owner, names, places, self._until, HEADERS_READ))
        self._expected.clear()
        if len(rows) == HEADERS_READ:
            return
        self._expected = {pair: [] for pair in behind.items()}
        missing: list[int] = []
        size = 0
        for *fields, length in rows:
            header = Recorded._make(fields)
            self._expected[header.stream, behind[header.stream]].append(header)
            if header.position not in self._near and size + length <= NEAR_BYTES // 2:
                missing.append(header.position)
                size += length
        if missing and self._ahead:
            found = self._wait(self._source.fetch(SOME, self._owner, missing))
            self._keep([Recorded._make(row) for row in found], size)

    def at(self, position: int) -> Recorded | None:
        return self._near.get(position) or self._one(COLUMNS, position)

    def header_at(self, position: int) -> Recorded | None:
        near = self._near.get(position)
        return near._replace(salt=None, stored=None) if near else self._one(HEADERS, position)

    def _one(self, columns: str, position: int) -> Recorded | None:
        row = self._wait(self._source.fetchrow(ONE.format(columns), self._owner, position, self._until))
        return Recorded._make(row) if row else None

    def _pages(self, after: int, stream: str | None, bodies: bool) -> Iterator[Recorded]:
        """A page at a time: BATCH_EVENTS events, or those that begin within BATCH_BYTES of bodies."""
        values: list[Any] = [self._owner, after, self._until, BATCH_EVENTS if bodies else HEADERS_READ]
        if bodies:
            values.append(BATCH_BYTES)
        of_stream = OF_STREAM.format(len(values) + 1) if stream else ""
        small = self._ahead and not stream and not bodies
        statement = (
            PAGE.format(of_stream) if bodies else HEADERS_PAGE.format(WITH_SMALL if small else HEADERS, of_stream)
        )
        if stream is not None:
            values.append(stream)
        while page := [Recorded._make(row) for row in self._wait(self._source.fetch(statement, *values))]:
            size = sum(len(recorded.stored or b"") for recorded in page)
            self._keep([recorded for recorded in page if recorded.stored], size)
            yield from (recorded._replace(salt=None, stored=None) for recorded in page) if small else page
            values[1] = page[-1].position
            if len(page) < values[3] and size <= BATCH_BYTES:
                return

    def _keep(self, page: list[Recorded], size: int) -> None:
        if self._near_bytes + size > NEAR_BYTES:
            self._near.clear()
            self._near_bytes = 0
        self._near.update((recorded.position, recorded) for recorded in page)
        self._near_bytes += size

    def _wait(self, asked: Coroutine[Any, Any, T]) -> T:
        if self._stopped:
            asked.close()
            raise LogUnreadable("The server stops.")
        try:
            return asyncio.run_coroutine_threadsafe(asked, self._loop).result()
        except (asyncpg.PostgresError, asyncpg.InterfaceError, concurrent.futures.CancelledError) as down:
            raise LogUnreadable(f"Postgres: {type(down).__name__}: {down}") from down
