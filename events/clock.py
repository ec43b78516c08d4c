"""The clock and the ids made from it."""

from __future__ import annotations

import os
import time


def now_us() -> int:
    """Microseconds since 1970, UTC."""
    return time.time_ns() // 1000


def uuid7(at_us: int) -> bytes:
    """A UUIDv7 (RFC 9562): 48 bits of milliseconds, the rest random."""
    random = os.urandom(10)
    return (
        (at_us // 1000).to_bytes(6, "big")
        + bytes([0x70 | random[0] & 0x0F, random[1], 0x80 | random[2] & 0x3F])
        + random[3:10]
    )
