"""Answers end, also those of a server that sends forever or a byte a minute: its sockets are shut from beside."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any, Final

ANSWER_S: Final = 300.0
"""For a whole answer; a large one that is streamed has so long for each piece."""
SLOWEST: Final = 10_000
"""Bytes a second at least of what is sent."""
ANSWER_BYTES: Final = 64 * 1024 * 1024
"""Of an answer that is read whole."""


class TooMuch(OSError):
    """The answer has no end, as far as anybody can wait for it."""

    def __init__(self) -> None:
        super().__init__("its answer takes too long, or has no end")


class Watch:
    """While the block runs. Timeouts of a socket count from byte to byte; this counts from `again` to `again`."""

    def __init__(self, sockets: list[socket.socket], size: int = 0) -> None:
        """`sockets` may grow meanwhile; `size`: bytes that are sent."""
        self._sockets, self._seconds = sockets, ANSWER_S + size / SLOWEST
        self._timer: threading.Timer | None = None
        self.is_over = False

    def __enter__(self) -> Watch:
        self.again()
        return self

    def __exit__(self, *_: object) -> None:
        self.rest()

    def rest(self) -> None:
        """Until `again`: who reads may take his time."""
        if self._timer is not None:
            self._timer.cancel()

    def again(self) -> None:
        self.rest()
        self._timer = threading.Timer(self._seconds, self._end)
        self._timer.daemon = True
        self._timer.start()

    def _end(self) -> None:
        self.is_over = True
        for each in self._sockets:
            with contextlib.suppress(OSError, ValueError):
                each.shutdown(socket.SHUT_RDWR)  # a close would leave the thread that reads in its call


def new_socket(name: str, info: dict[str, Any]) -> socket.socket | None:
    """Of an event of httpx's trace: the socket that was opened, if it says so."""
    if not name.endswith(("connect_tcp.complete", "start_tls.complete")):
        return None
    found = info["return_value"].get_extra_info("socket")
    return found if isinstance(found, socket.socket) else None
