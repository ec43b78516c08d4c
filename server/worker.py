"""The worker of an owner: keeps the serving projection with the log, one step after the other, in order of positions.

One process at a time does it, by an advisory lock that ends with its connection; who lost that connection cannot
carry, for the projection's row names the working file. A NOTIFY only wakes: whether there is something to do is asked
of the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from typing import Final

import apsw

from prosa.events import codec
from prosa.events.errors import DamageError, LockedError
from prosa.projections.index import SCHEMA_VERSION, IndexMissing
from prosa.server.carrying import Displaced, Held, Place, carry
from prosa.server.projecting import NEWER, Projection
from prosa.server.reading import PgLog
from prosa.server.rebuilding import folder_of, overtake, rebuild, serving, tidy
from prosa.server.state import Connection, Server
from prosa.server.threads import in_thread
from prosa.server.wakeups import CHANNEL

LOCK: Final = 0x70726F77
"""Class of the advisory lock that the worker of an owner holds."""
POLL_S: Final = 2.0
TIDY_S: Final = 300.0
PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
WAIT_POLL_S: Final = 0.1
FAR: Final = 2_000
"""So many events behind, and a third of the log, making all anew is faster than going on step by step."""
FAR_PART: Final = 3
CARRY_S: Final = 1.0
"""With more to do, what so many seconds of steps changed is carried at once."""

HEAD: Final = "SELECT position FROM log_head WHERE owner = $1"
PROJECTED: Final = "SELECT position FROM projections WHERE owner = $1 AND state = 'serving'"
UNKNOWN: Final = """
SELECT DISTINCT e.type, e.version FROM events e JOIN parked p ON p.owner = e.owner AND p.stream = e.stream
WHERE e.owner = $1 AND starts_with(p.reason, $2)"""

DAMAGED: Final = (IndexMissing, apsw.CorruptError, apsw.NotADBError)
"""What a working file of another log (a restored backup) meets, or one that was harmed."""

log = logging.getLogger(__name__)


class Worker:
    """Runs in the server's process, its work in threads. `stop` ends it after the step it is in."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._task: asyncio.Task[None] | None = None
        self._rebuild: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._moved = asyncio.Condition()
        self._stopping = False
        self._made_anew: Place | None = None
        self.position = 0
        """What this process last projected; another one may be ahead."""

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        self._stopping = True
        for task in (self._task, self._rebuild):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def wait_for(self, position: int) -> None:
        """Until the serving projection has the log up to a position, whichever process works on it."""
        while self.position < position:
            found = await self._server.pool.fetchval(PROJECTED, self._server.owner)
            if found is not None and found >= position:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WAIT_POLL_S), self._moved:
                    await self._moved.wait()

    async def _run(self) -> None:
        pause = PAUSE_S
        while not self._stopping:
            began = time.monotonic()
            try:
                async with self._server.pool.acquire() as connection, self._listening(connection):
                    await self._work(connection)
            except Exception:
                log.warning("projecting stopped for a moment", exc_info=True)
            pause = PAUSE_S if time.monotonic() - began > LONGEST_PAUSE_S else min(2 * pause, LONGEST_PAUSE_S)
            await asyncio.sleep(pause)

    @contextlib.asynccontextmanager
    async def _listening(self, connection: Connection) -> AsyncIterator[None]:
        await connection.add_listener(CHANNEL, self._wake)
        try:
            yield
        finally:
            if not connection.is_closed():
                await connection.remove_listener(CHANNEL, self._wake)

    def _wake(self, *_: object) -> None:
        self._woken.set()

    async def _work(self, connection: Connection) -> None:
        owner = self._server.owner
        while not await connection.fetchval("SELECT pg_try_advisory_lock($1, $2)", LOCK, owner):
            await self._pause(POLL_S)
        while projection := await self._adopted(connection) or await self._made(connection):
            try:
                await self._keep_up(connection, projection)
            except Displaced:
                log.info("another projection serves")
            finally:
                projection.close()

    async def _made(self, connection: Connection) -> Projection | None:
        await rebuild(self._server)
        return await self._adopted(connection)

    async def _adopted(self, connection: Connection) -> Projection | None:
        """The serving projection with its working file; None where it must be made anew."""
        now = await serving(connection, self._server.owner)
        if now is None or now.version < SCHEMA_VERSION:
            return None
        place = Place(self._server.owner, now.number, now.worker)
        if not (folder_of(self._server) / f"{now.worker}.db").exists():
            return None
        with contextlib.suppress(DamageError):
            projection = Projection(folder_of(self._server), place)
            with contextlib.suppress(apsw.Error):
                if projection.fits(now.position):
                    return projection
            projection.close()
        return None

    async def _keep_up(self, connection: Connection, projection: Projection) -> None:
        """Returns where the projection must be made anew."""
        tidied = 0.0
        await self._carry(connection, projection)
        if await self._knows_more(connection):
            self._make_anew(projection.place)
        while True:
            self._woken.clear()
            if time.monotonic() - tidied > TIDY_S:
                await tidy(self._server, connection)
                tidied = time.monotonic()
            try:
                if await self._is_far(connection, projection) and await self._overtaken(projection):
                    return
                more = await self._steps(connection, projection)
            except DAMAGED:
                await rebuild(self._server)
                return
            if projection.due:
                self._make_anew(projection.place)
            if not more:
                await self._pause(POLL_S)

    async def _is_far(self, connection: Connection, projection: Projection) -> bool:
        head: int = await connection.fetchval(HEAD, self._server.owner)
        behind = head - projection.position
        return behind > FAR and behind * FAR_PART > head

    async def _overtaken(self, projection: Projection) -> bool:
        """Whether another projection serves now, made up to the head of this moment."""
        try:
            began = time.monotonic()
            position = await overtake(self._server)
        except LockedError:  # a rebuild is at work
            return False
        self._server.metrics.count_projected(position - projection.position, time.monotonic() - began)
        await self._reached(position)
        return True

    async def _steps(self, connection: Connection, projection: Projection) -> bool:
        """Some steps forward, and carried. Returns whether there was something to do."""
        began = time.monotonic()
        until = await connection.fetchval(HEAD, self._server.owner)
        reader = PgLog(connection, asyncio.get_running_loop(), self._server.owner, until=until, ahead=True)
        events = 0
        while time.monotonic() - began < CARRY_S:
            applied = await in_thread(lambda: projection.step(reader), reader.stop)
            if applied is None:
                break
            events += len(applied.events)
        if not events and projection.position == projection.carried:
            if (await serving(connection, self._server.owner) or Place(0, 0, "")).worker != projection.place.worker:
                raise Displaced
            return False
        await self._carry(connection, projection)
        self._server.metrics.count_projected(events, time.monotonic() - began)
        log.info("projected", extra={"events": events, "position": self.position})
        return True

    async def _carry(self, connection: Connection, projection: Projection) -> None:
        while True:
            try:
                await self._reached(await carry(connection, projection.db, projection.place))
                return
            except Held:  # a rebuild compares
                await asyncio.sleep(WAIT_POLL_S)

    async def _reached(self, position: int) -> None:
        self.position = position
        async with self._moved:
            self._moved.notify_all()

    async def _knows_more(self, connection: Connection) -> bool:
        """Whether everything that was passed over for being of a newer prosa is known now."""
        rows = await connection.fetch(UNKNOWN, self._server.owner, NEWER)
        return bool(rows) and all(codec.known(kind, version) for kind, version in rows)

    def _make_anew(self, place: Place) -> None:
        """In the background: the serving projection goes on meanwhile."""
        if self._made_anew != place and (self._rebuild is None or self._rebuild.done()):
            self._rebuild = asyncio.create_task(self._rebuilt(place))

    async def _rebuilt(self, place: Place) -> None:
        try:
            await rebuild(self._server)
            self._made_anew = place
        except LockedError:
            await asyncio.sleep(POLL_S)  # another process does it
        except Exception:
            log.warning("a rebuild failed", exc_info=True)
            await asyncio.sleep(LONGEST_PAUSE_S)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
