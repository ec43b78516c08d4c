"""Who waits for the log to grow, and the one connection of this process that hears of it.

A client has room for one untold position: newer ones replace it, so a slow one costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

import asyncpg

if TYPE_CHECKING:
    from prosa.server.state import Connection, Server

CHANNEL: Final = "prosa_log"
"""NOTIFY with the position: it only wakes, polling is the truth."""
POLL_S: Final = 30.0
HEAD: Final = "SELECT position FROM log_head WHERE owner = $1"

AWAY: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.TransactionRollbackError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)
"""What is raised while Postgres or the raw store cannot be reached, or has no room: another try may go well."""

log = logging.getLogger(__name__)


class Client:
    """One listener; `position` is the newest it has not been told."""

    def __init__(self, told: int) -> None:
        self.told = self.position = told
        self.woken = asyncio.Event()

    def tell(self, position: int) -> None:
        if position > self.position:
            self.position = position
            self.woken.set()


class Hub:
    """Who listens in this process, and the one connection that hears of appended events."""

    def __init__(self) -> None:
        self._clients: set[Client] = set()
        self._task: asyncio.Task[None] | None = None
        self._heard = asyncio.Event()
        self.closed = False

    def __len__(self) -> int:
        return len(self._clients)

    def start(self, server: Server) -> None:
        self._task = asyncio.create_task(self._listen(server))

    def close(self) -> None:
        """End every stream, so that a server that stops waits for nobody."""
        self.closed = True
        for client in self._clients:
            client.woken.set()

    async def stop(self) -> None:
        self.close()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def enter(self, client: Client) -> None:
        self._clients.add(client)

    def leave(self, client: Client) -> None:
        self._clients.discard(client)

    async def _listen(self, server: Server) -> None:
        while not self.closed:
            try:
                async with server.pool.acquire() as connection:
                    await connection.add_listener(CHANNEL, self._hear)
                    try:
                        await self._follow(server, connection)
                    finally:
                        await self._unlisten(connection)
            except (*AWAY, asyncpg.PostgresError) as down:
                log.warning("no word from Postgres", extra={"error": type(down).__name__})
            await asyncio.sleep(1)

    async def _unlisten(self, connection: Connection) -> None:
        try:
            if not connection.is_closed():
                await connection.remove_listener(CHANNEL, self._hear)
        except (*AWAY, asyncpg.PostgresError):
            connection.terminate()  # what cannot be told so must not go back to the pool

    async def _follow(self, server: Server, connection: Connection) -> None:
        while not self.closed:
            self._heard.clear()
            position = await connection.fetchval(HEAD, server.owner)
            for client in self._clients:
                client.tell(position)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):  # wait_for of 3.11 can swallow a cancellation
                    await self._heard.wait()

    def _hear(self, *_: object) -> None:
        self._heard.set()
