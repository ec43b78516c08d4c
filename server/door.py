"""What stands before every request: whether its Host is one of ours, and what is counted and logged of it.

A page of another site can make a browser ask this server under its own name (DNS rebinding): such a Host is refused.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from prosa.events.messages import Problem
from prosa.server.endpoints import problem

if TYPE_CHECKING:
    from prosa.server.settings import Settings
    from prosa.server.state import Server

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
PROBES: Final = ("/healthz", "/readyz")
"""Asked by address, and they tell nothing."""

log = logging.getLogger(__name__)


def allowed_hosts(settings: Settings) -> frozenset[str]:
    """Names without port, in lower case."""
    listed = {hostname(name) for name in (*settings.allowed_hosts, settings.host)}
    names = {*listed, *LOOPBACK, urlsplit(settings.public_url).hostname or ""}
    return frozenset(name for name in names if name and name not in ("0.0.0.0", "::"))  # noqa: S104


def hostname(header: str) -> str:
    """Of a Host header."""
    try:
        return urlsplit(f"//{header.strip().lower()}").hostname or ""
    except ValueError:
        return ""


class Door:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, server: Server, routes: Mapping[Any, str]) -> None:
        """`routes`: endpoint → path as it is declared."""
        self._app, self._server, self._routes = app, server, routes
        self._hosts = allowed_hosts(server.settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.monotonic(), 500

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if self._is_ours(scope):
                await self._app(scope, receive, note)
            else:
                why = Problem("invalid", "This server is not known by that name.", "", "Set PROSA_ALLOWED_HOSTS.")
                answer = problem(Request(scope), why)
                answer.status_code = 421
                await answer(scope, receive, note)
        finally:
            self._count(scope, status, time.monotonic() - start)

    def _is_ours(self, scope: Scope) -> bool:
        if scope["path"] in PROBES:
            return True
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        return len(hosts) == 1 and hostname(hosts[0]) in self._hosts

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = self._routes.get(scope.get("endpoint"), "none")
        self._server.metrics.count_request(f"{scope['method']} {route}", status, seconds)
        if scope["path"] not in PROBES:
            log.info(
                "request",
                extra={"method": scope["method"], "route": route, "status": status, "ms": round(seconds * 1000, 1)},
            )
