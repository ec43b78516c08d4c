"""The process that serves: listens, says where, and ends cleanly when it is told to."""

from __future__ import annotations

import logging
import socket
import sys
from types import FrameType
from typing import Final

import msgspec
import uvicorn

from prosa.events.errors import ProsaError
from prosa.server.app import create_app, open_server
from prosa.server.logs import start_logging
from prosa.server.settings import Settings
from prosa.server.state import Server

GRACE_S: Final = 20
"""Requests that are being answered have so long when the server stops; streams end at once."""
BACKLOG: Final = 512
SWITCH_S: Final = 0.0005
"""A thread that computes (the worker's replay) keeps the event loop waiting so long, ten times less than usual."""

log = logging.getLogger(__name__)


async def serve(settings: Settings) -> int:
    """Until SIGTERM or SIGINT. Raises ProsaError where it cannot listen or reach its stores."""
    start_logging()
    sys.setswitchinterval(SWITCH_S)
    with _listening(settings) as listening:
        settings = _as_it_listens(settings, listening)
        if settings.dev_login:
            log.warning("dev login is open: everybody on this machine can sign in")
        async with open_server(settings) as server:
            config = uvicorn.Config(
                create_app(server),
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE_S,
            )
            await Program(config, server).serve(sockets=[listening])
    return 0


class Program(uvicorn.Server):
    """uvicorn's server, which ends streams first and says where it listens."""

    def __init__(self, config: uvicorn.Config, server: Server) -> None:
        super().__init__(config)
        self._prosa = server

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        settings = self._prosa.settings
        raw = f"s3://{settings.s3.bucket}" if settings.s3 else str(settings.raw_folder)
        print(f"prosa-server listens on http://{settings.listen}", flush=True)
        print(f"  as {settings.public_url}, raw in {raw}", flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._prosa.hub.close()
        super().handle_exit(sig, frame)


def _listening(settings: Settings) -> socket.socket:
    host = settings.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, settings.port), family=family, backlog=BACKLOG)
        # accepted ones inherit it; without it an answer's body waits 40 ms for the client to confirm its headers
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as refused:
        raise ProsaError(
            f"Port {settings.port} of {host} cannot be listened on: {refused.strerror}.",
            "Nothing was started.",
            "Set PROSA_LISTEN to another one.",
        ) from None


def _as_it_listens(settings: Settings, listening: socket.socket) -> Settings:
    """Port 0 is whichever was free."""
    if settings.port:
        return settings
    listen = f"{settings.host}:{listening.getsockname()[1]}"
    asked = f"http://{settings.listen}"
    url = f"http://{listen}" if settings.public_url == asked else settings.public_url
    return msgspec.structs.replace(settings, listen=listen, public_url=url)
