"""How often an address may ask what anybody may ask. In memory, for one process: it slows guessing and flooding."""

from __future__ import annotations

import ipaddress
from collections import deque
from typing import Final

WINDOW_US: Final = 60_000_000
ADDRESSES: Final = 10_000
"""Kept at a time; the one that has been quiet the longest goes first."""
FACTOR: Final = 20
"""All addresses together may do this many times what one may."""


class Limit:
    """At most `most` calls of an address in any minute."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._calls: dict[str, deque[int]] = {}
        self._all: deque[int] = deque()

    def count(self, host: str, now_us: int) -> int:
        """0, and the call is counted; or the seconds after which it may be tried again."""
        name = _customer(host)
        calls = self._calls.pop(name, deque())
        self._calls[name] = calls  # a dict keeps its order: who asked last is at the end
        if len(self._calls) > ADDRESSES:
            del self._calls[next(iter(self._calls))]
        wait_s = max(_wait_s(calls, self._most, now_us), _wait_s(self._all, self._most * FACTOR, now_us))
        if not wait_s:
            calls.append(now_us)
            self._all.append(now_us)
        return wait_s


def _wait_s(calls: deque[int], most: int, now_us: int) -> int:
    while calls and calls[0] <= now_us - WINDOW_US:
        calls.popleft()
    return 0 if len(calls) < most else (calls[0] + WINDOW_US - now_us) // 1_000_000 + 1


def _customer(host: str) -> str:
    """Who has this address: with IPv6 it is a whole /64."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return host if address.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))
