"""The server put together: what a process opens when it starts, and the ASGI app made of every room's endpoints."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import asyncpg
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from prosa.events.clock import now_us
from prosa.events.errors import ProsaError
from prosa.events.home import private_folder
from prosa.events.messages import Problem
from prosa.server import login_pages
from prosa.server.auth import authenticate
from prosa.server.collecting import collect_on
from prosa.server.door import Door
from prosa.server.endpoints import problem, route
from prosa.server.health import Health
from prosa.server.migrate import ROLE, migrate
from prosa.server.raws import FolderRaws, Raws
from prosa.server.routes import ENDPOINTS
from prosa.server.settings import Settings
from prosa.server.state import OWNER, Clock, Server
from prosa.server.tables import read_sums
from prosa.server.wakeups import AWAY

LOG_ID: Final = "SELECT log_id FROM owners WHERE owner = $1"
POOL: Final = 20
CLOSE_S: Final = 10.0

log = logging.getLogger(__name__)


async def connect_pool(url: str, size: int = POOL) -> asyncpg.Pool:
    """Connections that work as prosa_app, whatever login they come by."""

    async def as_app(connection: asyncpg.Connection) -> None:
        await connection.execute(f"SET ROLE {ROLE}")
        await read_sums(connection)

    try:
        return await asyncpg.create_pool(url, min_size=1, max_size=size, init=as_app)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as down:
        raise ProsaError(
            f"Postgres does not let the server in: {down}.", "Nothing was started.", "Check PROSA_DB_URL."
        ) from None


@asynccontextmanager
async def open_server(settings: Settings, *, clock: Clock = now_us, working: bool = True) -> AsyncIterator[Server]:
    """Migrate, connect, and start what goes on in the background unless another process does that (`working` False).

    Raises ProsaError where Postgres or the raw store is not as it must be.
    """
    assert settings.db_url is not None
    await migrate(settings.migrate_url or settings.db_url, settings.db_url)
    private_folder(settings.work_folder)
    async with contextlib.AsyncExitStack() as opened:
        raws = await open_raws(settings)
        opened.push_async_callback(raws.close)
        pool = await connect_pool(settings.db_url)
        opened.push_async_callback(_close_pool, pool)
        server = Server(settings, pool, raws, await pool.fetchval(LOG_ID, OWNER), None, clock)
        server.hub.start(server)
        opened.push_async_callback(server.hub.stop)
        if working:
            await opened.enter_async_context(_working(server))
        yield server


@asynccontextmanager
async def _working(server: Server) -> AsyncIterator[None]:
    """The worker that projects, and the collector."""
    from prosa.server.worker import Worker

    server.worker = Worker(server)
    await server.worker.start()
    collector = asyncio.create_task(collect_on(server))
    try:
        yield
    finally:
        collector.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await collector
        await server.worker.stop()


async def _close_pool(pool: asyncpg.Pool) -> None:
    try:
        async with asyncio.timeout(CLOSE_S):
            await pool.close()
    except TimeoutError:
        pool.terminate()


async def open_raws(settings: Settings) -> Raws:
    if settings.s3 is None:
        return FolderRaws(settings.raw_folder)
    from prosa.server.raws_s3 import open_s3

    return await open_s3(settings.s3)


def create_app(server: Server) -> Starlette:
    """The ASGI app of an open server."""
    health = Health(server)

    async def metrics(_: Request) -> Response:
        text = await server.metrics.text(server)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    routes: list[BaseRoute] = [route(server, endpoint, authenticate) for endpoint in ENDPOINTS]
    routes += [
        *login_pages.ROUTES,
        Route("/metrics", metrics, methods=["GET"]),
        Route("/healthz", health.alive, methods=["GET"]),
        Route("/readyz", health.ready, methods=["GET"]),
    ]
    names = {each.endpoint: each.path for each in routes if isinstance(each, Route)}
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Door, server=server, routes=names)],
        exception_handlers={**dict.fromkeys(AWAY, _away), ClientDisconnect: _gone, Exception: _failed},
    )
    app.state.server = server
    return app


async def _away(request: Request, error: Exception) -> Response:
    log.warning("not reached", extra={"error": type(error).__name__})
    why = Problem("unavailable", "The server cannot reach its storage.", "Nothing was lost.", "Try again later.", 10)
    return problem(request, why)


async def _gone(_: Request, __: Exception) -> Response:
    return Response(status_code=499)  # a device that was killed or lost its network while it sent: nobody reads this


async def _failed(request: Request, _: Exception) -> Response:
    """Our bug; the process writes its frames to the log."""
    return problem(request, Problem("failed", "The server failed at this.", "", "Its log says where."))
