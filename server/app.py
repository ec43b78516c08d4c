"""The server put together: what a process opens when it starts, and the ASGI app made of every room's endpoints."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from starlette.applications import Starlette

from prosa.events.clock import now_us
from prosa.events.errors import ProsaError
from prosa.events.home import private_folder
from prosa.server.endpoints import route
from prosa.server.migrate import ROLE, migrate
from prosa.server.raws import FolderRaws, Raws
from prosa.server.settings import Settings
from prosa.server.state import OWNER, Clock, Server

LOG_ID = "SELECT log_id FROM owners WHERE owner = $1"
POOL = 20


async def connect_pool(url: str, size: int = POOL) -> asyncpg.Pool:
    """Connections that work as prosa_app, whatever login they come by."""

    async def as_app(connection: asyncpg.Connection) -> None:
        await connection.execute(f"SET ROLE {ROLE}")

    try:
        return await asyncpg.create_pool(url, min_size=1, max_size=size, init=as_app)
    except (OSError, asyncpg.PostgresError) as down:
        raise ProsaError(
            f"Postgres cannot be reached: {down}.", "Nothing was started.", "Check PROSA_DB_URL."
        ) from None


@asynccontextmanager
async def open_server(settings: Settings, *, clock: Clock = now_us, working: bool = True) -> AsyncIterator[Server]:
    """Migrate, connect, and start the worker unless another process does that work (`working` False).

    Raises ProsaError where Postgres or the raw store is not as it must be.
    """
    assert settings.db_url is not None
    await migrate(settings.migrate_url or settings.db_url, settings.db_url)
    private_folder(settings.work_folder)
    raws = await open_raws(settings)
    pool = await connect_pool(settings.db_url)
    try:
        log_id = await pool.fetchval(LOG_ID, OWNER)
        server = Server(settings, pool, raws, log_id, None, clock)
        yield server
    finally:
        await raws.close()
        await pool.close()


async def open_raws(settings: Settings) -> Raws:
    return FolderRaws(settings.raw_folder)


def create_app(server: Server) -> Starlette:
    """The ASGI app of an open server."""
    from prosa.server.auth import authenticate

    from prosa.server.routes import ENDPOINTS

    return Starlette(routes=[route(server, endpoint, authenticate) for endpoint in ENDPOINTS])
