"""The back end over Postgres: the answers of a device, from the projection that serves.

A question runs in a worker thread, over one connection and in one transaction, which sees one commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Final, TypeVar

import asyncpg

from prosa.projections.answers import Answers
from prosa.server.endpoints import Refused
from prosa.server.finding import PgFinder
from prosa.server.reading import LogUnreadable, PgLog
from prosa.server.state import Connection, Server
from prosa.server.tables import PgTables
from prosa.server.threads import in_thread

T = TypeVar("T")

SERVING: Final = "SELECT schema FROM projections WHERE owner = $1 AND state = 'serving'"
HERE: Final = "SELECT sha256 FROM public.raws WHERE owner = :owner AND sha256 IN list(:hashes)"
GONE: Final = (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError, asyncpg.UndefinedColumnError)
"""What a statement meets where its projection was dropped after another one served."""

log = logging.getLogger(__name__)


class ServerBackend(Answers):
    """Answers from one projection of one owner, read by one connection."""

    def __init__(
        self, connection: Connection, loop: asyncio.AbstractEventLoop, schema: str, owner: int, now_us: int
    ) -> None:
        tables = PgTables(connection, loop, schema)
        super().__init__(tables, PgLog(connection, loop, owner), KeptRaws(tables, owner), PgFinder, now_us=now_us)


class KeptRaws:
    """Raws that the server holds."""

    def __init__(self, tables: PgTables, owner: int) -> None:
        self._tables, self._owner = tables, owner

    def here(self, hashes: Collection[str]) -> Collection[str]:
        return {sha256 for (sha256,) in self._tables.execute(HERE, {"owner": self._owner, "hashes": list(hashes)})}


async def ask(server: Server, question: Callable[[ServerBackend], T]) -> T:
    """What the question returns, asked in a thread; what it reads must be read when it returns.

    Raises Refused where no projection serves yet, or Postgres does not answer.
    """
    loop = asyncio.get_running_loop()
    async with server.asking, server.pool.acquire() as connection:
        for last in (False, True):
            schema = await connection.fetchval(SERVING, server.owner)
            if schema is None:
                raise Refused("unavailable", "The server has no projection yet.", "", "Try again soon.", 5)
            backend = ServerBackend(connection, loop, schema, server.owner, server.now_us())
            try:
                return await in_thread(partial(question, backend))
            except GONE:
                if last:
                    raise
                log.info("the projection %s was dropped while it was asked", schema)
            except (asyncpg.QueryCanceledError, LogUnreadable):
                raise Refused("unavailable", "The question took too long.", "", "Narrow it, or try again.") from None
    raise AssertionError
