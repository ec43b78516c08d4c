"""Work in a thread that never outlives who waits for it: what it uses is closed right after."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T], stop: Callable[[], None] | None = None) -> T:
    """What the work returns. When cancelled, tells it by `stop` and waits until it has ended."""
    doing = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        if stop:
            stop()
        await asyncio.wait([doing])
        if not doing.cancelled():
            doing.exception()  # said by nobody else
        raise
