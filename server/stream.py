"""GET /v1/stream: server-sent events that say how far the log is, so that a page asks again when there is more.

At most one a second; a client that takes nothing for STUCK_S is dropped. The response itself takes and gives back the
slot: a body that never started runs no `finally`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from prosa.server.endpoints import Call, Endpoint, Refused
from prosa.server.wakeups import HEAD, Client, Hub

CLIENTS: Final = 1_000
EVERY_S: Final = 1.0
HEARTBEAT_S: Final = 10.0
STUCK_S: Final = 60.0


class Stream(StreamingResponse):
    """A response that gives its slot back however it ends, also where its body never started."""

    def __init__(self, hub: Hub, client: Client) -> None:
        super().__init__(
            told(hub, client),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )
        self._hub, self._client = hub, client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_soon(message: Message) -> None:
            async with asyncio.timeout(STUCK_S):
                await send(message)

        self._hub.enter(self._client)
        try:
            with contextlib.suppress(TimeoutError):
                await super().__call__(scope, receive, send_soon)
        finally:
            self._hub.leave(self._client)


async def told(hub: Hub, client: Client) -> AsyncIterator[str]:
    """At most one position a second, and a comment where there is nothing to tell."""
    yield f"retry: 3000\nid: {client.told}\nevent: open\ndata: {client.told}\n\n"
    while not hub.closed:
        if client.position > client.told:
            client.told = client.position
            yield f"id: {client.told}\nevent: log\ndata: {client.told}\n\n"
            await asyncio.sleep(EVERY_S)
            continue
        client.woken.clear()
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                await client.woken.wait()
        except TimeoutError:
            yield ": still here\n\n"


async def stream(call: Call) -> Response:
    """From `Last-Event-ID` on, else from the head."""
    hub = call.server.hub
    if hub.closed or len(hub) >= CLIENTS:
        raise Refused("unavailable", "Too many listen already.", "", "Try again later.", retry_after_s=30)
    head = await call.server.pool.fetchval(HEAD, call.server.owner)
    last = call.request.headers.get("last-event-id", "")
    if last and not (last.isascii() and last.isdigit() and len(last) < 19):
        raise Refused("invalid", f"Last-Event-ID is {last[:40]!r}, not a position.")
    client = Client(min(int(last), head) if last else head)
    client.tell(head)
    return Stream(hub, client)


ENDPOINTS: Final = (
    Endpoint("GET", "/v1/stream", "reports", stream, "Server-sent events: the position of the log's last event."),
)
