"""A progress bar on stderr: only on a terminal, at most ten times a second, gone when the work ends."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from prosa.cli.amounts import count, duration, size
from prosa.cli.terminal import columns, is_terminal
from prosa.cli.text import cut, one_line

EVERY_S = 0.1
FIRST_AFTER_S = 0.3
"""Work that is done sooner shows nothing."""
BAR_CELLS = 20


class Bar:
    """`update` is called as often as the work likes; a with block takes the bar away again."""

    def __init__(self, title: str, *, unit: str = "") -> None:
        self._title, self._unit = title, unit
        self._shows = is_terminal(sys.stderr)
        self._start = time.monotonic()
        self._next = self._start + FIRST_AFTER_S
        self._drawn = False

    def update(self, done: int, total: int | None, what: str = "") -> None:
        if not self._shows:
            return
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + EVERY_S
        text = cut(self.line(done, total, what, now - self._start), columns() - 1)
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
        self._drawn = True

    def line(self, done: int, total: int | None, what: str, elapsed_s: float) -> str:
        """`importing ████████░░░░░░░░░░░░ 42 %  1.2 GB of 2.9 GB  110 MB/s  15 s left  codex`."""

        def amount(number: int) -> str:
            return count(number, self._unit) if self._unit else size(number)

        what = one_line(what).rsplit("/", 1)[-1]
        rate = done / elapsed_s if elapsed_s > 0 else 0.0
        speed = f"{amount(int(rate))}/s"
        if not total:
            return f"{self._title}  {amount(done)}  {speed}  {what}".rstrip()
        share = min(1.0, done / total)
        full = int(share * BAR_CELLS)
        left = f"{duration((total - done) / rate)} left" if rate and done < total else ""
        bar = "█" * full + "░" * (BAR_CELLS - full)
        parts = (f"{bar} {share * 100:3.0f} %", f"{amount(done)} of {amount(total)}", speed, left, what)
        return f"{self._title} " + "  ".join(part for part in parts if part)

    def clear(self) -> None:
        """Take the bar away before a line is printed; the next update draws it again."""
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._drawn = False

    def close(self) -> None:
        self.clear()
        self._shows = False

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
