"""What one server process holds: its settings, its pool of connections, the raw it keeps, whose log it serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import asyncpg

from prosa.server.settings import Settings

if TYPE_CHECKING:
    from prosa.server.raws import Raws
    from prosa.server.worker import Worker

OWNER = 1
"""One owner a server; every table has the column, so that more is a matter of routing and not of tables."""


class Clock(Protocol):
    def __call__(self) -> int:
        """Microseconds since 1970, UTC."""


class Server:
    """Made once, when the process starts; handlers get it with every call."""

    def __init__(
        self, settings: Settings, pool: asyncpg.Pool, raws: Raws, log_id: bytes, worker: Worker | None, now_us: Clock
    ) -> None:
        self.settings, self.pool, self.raws, self.log_id = settings, pool, raws, log_id
        self.worker, self.now_us = worker, now_us
        self.owner = OWNER

    @property
    def id(self) -> str:
        """Of the log, as devices know it."""
        return self.log_id.hex()
