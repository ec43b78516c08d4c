"""Projections made anew beside the serving one: filled, compared, switched to; and removing those that served.

Filled up to where the serving projection is, so that both can be compared at one position. What differs is said and
stops nothing: the new one was made from the log alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, NamedTuple

import asyncpg

from prosa.events.errors import LockedError, UpgradeError
from prosa.events.home import private_folder
from prosa.projections.index import SCHEMA_VERSION
from prosa.server.carrying import Place, carry, save_parked
from prosa.server.comparing import digest
from prosa.server.mirror import ddl, fill
from prosa.server.projecting import Projection
from prosa.server.reading import PgLog
from prosa.server.state import Connection, Server
from prosa.server.threads import in_thread
from prosa.server.wakeups import CHANNEL

LOCK: Final = 0x70726F72
"""Class of the advisory lock that one rebuild of an owner holds."""
KEPT_S: Final = 600
"""A projection that served is dropped so much later: who asks it has time to finish."""
DROP_WAIT: Final = "5s"

SERVING: Final = """
SELECT number, version, worker, position FROM projections WHERE owner = $1 AND state = 'serving'"""
LOCK_SERVING: Final = f"{SERVING} FOR UPDATE"
NEW: Final = """
INSERT INTO projections (owner, number, version, schema, worker, state)
SELECT $1, n, $2, 'p' || $1 || '_' || n, $3, 'filling'
FROM (SELECT coalesce(max(number), 0) + 1 AS n FROM projections WHERE owner = $1) AS next RETURNING number"""
PLACED: Final = """
UPDATE projections SET position = $3, hash = $4, prices = $5, changed_at = now() WHERE owner = $1 AND number = $2"""
RETIRE: Final = """
UPDATE projections SET state = 'retired', changed_at = now() WHERE owner = $1 AND state = 'serving'"""
SERVE: Final = """
UPDATE projections SET state = 'serving', changed_at = now() WHERE owner = $1 AND number = $2"""
DEAD: Final = "SELECT number, worker FROM projections WHERE owner = $1 AND state = 'filling'"
OLD: Final = f"""
SELECT number, worker FROM projections
WHERE owner = $1 AND state = 'retired' AND changed_at < now() - interval '{KEPT_S} seconds'"""
FORGET: Final = "DELETE FROM projections WHERE owner = $1 AND number = $2"
WORKERS: Final = "SELECT worker FROM projections WHERE owner = $1"

log = logging.getLogger(__name__)


class Serving(NamedTuple):
    number: int
    version: int
    worker: str
    position: int


def folder_of(server: Server) -> Path:
    """Where this server's working files of its owner lie."""
    return private_folder(server.settings.work_folder / str(server.owner))


async def serving(connection: Connection, owner: int, *, lock: bool = False) -> Serving | None:
    """The projection that is asked. Raises UpgradeError where a newer server made it."""
    row = await connection.fetchrow(LOCK_SERVING if lock else SERVING, owner)
    found = Serving(*row) if row else None
    if found and found.version > SCHEMA_VERSION:
        raise UpgradeError(
            f"The projection was made by a newer prosa-server (schema {found.version}; this one knows "
            f"{SCHEMA_VERSION}).",
            "Nothing was changed.",
            "Upgrade prosa-server.",
        )
    return found


async def rebuild(server: Server) -> list[str]:
    """Make the owner's projection anew and switch to it. Returns what differed from the one that served before.

    Raises LockedError while another one runs.
    """
    async with _alone(server) as connection:
        async with _filled(server, connection, await _position(connection, server.owner)) as made:
            found = await _compared(server, connection, made, switch=True)
        await connection.execute("SELECT pg_notify($1, '')", CHANNEL)  # the worker is to look for it
        return found


async def overtake(server: Server) -> int:
    """Make the owner's projection anew up to where the log ends now and switch to it; for its worker, far behind.

    Returns that position. Raises LockedError while a rebuild runs.
    """
    async with _alone(server) as connection, _filled(server, connection, None) as made:
        async with connection.transaction():
            await serving(connection, server.owner, lock=True)
            await _switch(connection, made)
        return made.position


async def check(server: Server) -> list[str]:
    """What differs between the serving projection and one made from the log alone; nothing is switched."""
    async with _alone(server) as connection:
        if await serving(connection, server.owner) is None:
            return ["there is no projection that serves"]
        async with _filled(server, connection, await _position(connection, server.owner)) as made:
            return await _compared(server, connection, made, switch=False)


@contextlib.asynccontextmanager
async def _alone(server: Server) -> AsyncIterator[Connection]:
    async with server.pool.acquire() as connection:
        if not await connection.fetchval("SELECT pg_try_advisory_lock($1, $2)", LOCK, server.owner):
            raise LockedError("Another rebuild is at work.", "Nothing was changed.", "Try again when it is done.")
        try:
            for number, worker in await connection.fetch(DEAD, server.owner):
                await _drop(server, connection, Place(server.owner, number, worker))
            yield connection
        finally:
            with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):  # it ends with them
                await connection.execute("SELECT pg_advisory_unlock($1, $2)", LOCK, server.owner)


@contextlib.asynccontextmanager
async def _filled(server: Server, connection: Connection, until: int | None) -> AsyncIterator[Projection]:
    """A new projection up to a position, not yet asked; dropped afterwards unless it serves."""
    worker = os.urandom(8).hex()
    number = await connection.fetchval(NEW, server.owner, SCHEMA_VERSION, worker)
    place = Place(server.owner, number, worker)
    made = Projection(folder_of(server), place)
    try:
        reader = PgLog(connection, asyncio.get_running_loop(), server.owner, until=until, ahead=True)
        await in_thread(lambda: made.load(reader), reader.stop)
        await connection.execute(ddl(place.schema))
        rows = await fill(connection, place.schema, made.db)
        await in_thread(made.filled)
        await _save(connection, made)
        log.info("projection filled", extra={"position": made.position, "rows": rows})
        yield made
    finally:
        made.close()
        with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):  # the next one does it
            for dead, its in await connection.fetch(DEAD, server.owner):
                await _drop(server, connection, Place(server.owner, dead, its))


async def _save(connection: Connection, made: Projection) -> None:
    row = made.db.execute("SELECT position, hash, prices FROM checkpoint").fetchone()
    await connection.execute(PLACED, made.place.owner, made.place.number, *row)


async def _compared(server: Server, connection: Connection, made: Projection, *, switch: bool) -> list[str]:
    """Bring the new projection to where the serving one is, which is held there; compare; switch."""
    owner, found = server.owner, list[str]()
    await catch_up(server, connection, made, await _position(connection, owner))
    async with connection.transaction():
        old = await serving(connection, owner, lock=True)
        if old and old.version == SCHEMA_VERSION:
            await catch_up(server, connection, made, old.position)
            if made.position == old.position:
                schema = Place(owner, old.number, old.worker).schema
                found = await _differences(connection, schema, made.place.schema)
            else:
                found = [f"the serving projection is at {old.position}, the new one at {made.position}"]
        if switch:
            await _switch(connection, made)
    log.info("projections compared", extra={"differences": len(found), "switched": switch})
    return found


async def _differences(connection: Connection, serving: str, made: str) -> list[str]:
    """What the tables of two schemas say otherwise. Serving tables that were harmed do not stop the new ones."""
    try:
        async with connection.transaction():
            before = await digest(connection, serving)
    except (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError, asyncpg.DataCorruptedError) as bad:
        return [f"the serving tables cannot be read: {bad}"]
    return before.differences(await digest(connection, made))


async def _switch(connection: Connection, made: Projection) -> None:
    owner = made.place.owner
    await connection.execute(RETIRE, owner)
    await connection.execute(SERVE, owner, made.place.number)
    await save_parked(connection, owner, made.db)


async def _position(connection: Connection, owner: int) -> int | None:
    """Where the serving projection is, if it can be compared with."""
    now = await serving(connection, owner)
    return now.position if now and now.version == SCHEMA_VERSION else None


async def catch_up(server: Server, connection: Connection, made: Projection, until: int | None) -> int:
    """Apply and carry what the log has up to a position. Returns the number of events."""
    done = 0
    reader = PgLog(connection, asyncio.get_running_loop(), server.owner, until=until, ahead=True)
    while applied := await in_thread(lambda: made.step(reader), reader.stop):
        await carry(connection, made.db, made.place)
        done += len(applied.events)
    return done


# projections nobody asks


async def tidy(server: Server, connection: Connection) -> None:
    """Drop projections that served until a while ago, and working files that are nobody's."""
    for number, worker in await connection.fetch(OLD, server.owner):
        with contextlib.suppress(asyncpg.LockNotAvailableError):  # somebody still asks it
            await _drop(server, connection, Place(server.owner, number, worker))
    known = {worker for (worker,) in await connection.fetch(WORKERS, server.owner)}
    for path in folder_of(server).iterdir():
        if path.name.partition(".")[0] not in known:
            path.unlink(missing_ok=True)


async def _drop(server: Server, connection: Connection, place: Place) -> None:
    async with connection.transaction():
        await connection.execute(f"SET LOCAL lock_timeout = '{DROP_WAIT}'")
        await connection.execute(f"DROP SCHEMA IF EXISTS {place.schema} CASCADE")
        await connection.execute(FORGET, place.owner, place.number)
    for path in folder_of(server).glob(f"{place.worker}.*"):
        path.unlink(missing_ok=True)
