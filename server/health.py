"""/healthz: the process is alive; /readyz: Postgres and the raw store answered within the last seconds."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

if TYPE_CHECKING:
    from prosa.server.state import Server

FRESH_S: Final = 5.0
"""An answer holds so long: probes cost the store nothing."""
WAIT_S: Final = 3.0

log = logging.getLogger(__name__)


class Health:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._looked = -FRESH_S
        self._found: dict[str, bool] = {}
        self._lock = asyncio.Lock()

    async def alive(self, _: Request) -> Response:
        return JSONResponse({"alive": True})

    async def ready(self, _: Request) -> Response:
        async with self._lock:
            if time.monotonic() - self._looked >= FRESH_S:
                self._found = {"postgres": await _answers(self._postgres()), "raw": await _answers(self._raw())}
                self._looked = time.monotonic()
        return JSONResponse(self._found, 200 if all(self._found.values()) else 503)

    async def _postgres(self) -> None:
        async with self._server.pool.acquire(timeout=WAIT_S) as connection:
            await connection.fetchval("SELECT 1", timeout=WAIT_S)

    async def _raw(self) -> None:
        await self._server.raws.check()


async def _answers(asked: Awaitable[None]) -> bool:
    try:
        async with asyncio.timeout(WAIT_S):
            await asked
    except Exception as down:  # whatever a client library raises: it did not answer
        log.warning("not ready", extra={"error": type(down).__name__})
        return False
    return True
