"""What one server process holds: its settings, its pool of connections, the raw it keeps, whose log it serves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from prosa.server.limits import Limit
from prosa.server.metrics import Metrics
from prosa.server.settings import Settings
from prosa.server.wakeups import Hub

if TYPE_CHECKING:
    from prosa.server.raws import Raws
    from prosa.server.worker import Worker

OWNER = 1
"""One owner a server; every table has the column, so that more is a matter of routing and not of tables."""
ASKED_AT_ONCE = 4
"""Questions that are worked on; the others wait, so that pushes always find a thread and a connection."""

CHECKED_AT_ONCE = 2
"""Large bodies that are decoded and hashed, in threads that questions and the worker need too."""

Connection = asyncpg.Connection | PoolConnectionProxy


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
        self.login_limit = Limit(60)
        self.metrics, self.hub = Metrics(), Hub()
        self.appending = asyncio.Lock()
        """Held by one append of this process at a time: the others wait here, without a connection."""
        self.checking = asyncio.Semaphore(CHECKED_AT_ONCE)
        self.asking = asyncio.Semaphore(ASKED_AT_ONCE)

    @property
    def id(self) -> str:
        """Of the log, as devices know it."""
        return self.log_id.hex()
