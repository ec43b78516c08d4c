"""The three ways out: rendered for a terminal, TSV for a pipe, NDJSON for `--json`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Literal

from prosa.cli.terminal import is_terminal
from prosa.cli.text import one_line

Mode = Literal["terminal", "pipe", "json"]


def mode(as_json: bool) -> Mode:
    """How this run answers."""
    return "json" if as_json else "terminal" if is_terminal() else "pipe"


def record(item: Any) -> None:
    """One NDJSON line; flushed, because whoever reads may wait for it."""
    records((item,))
    sys.stdout.flush()


def records(items: Iterable[Any]) -> None:
    """NDJSON, written as the items come."""
    import msgspec

    encoder = msgspec.json.Encoder()
    sys.stdout.flush()
    write = sys.stdout.buffer.write
    line = bytearray()
    for item in items:
        encoder.encode_into(item, line)
        line += b"\n"
        write(line)
    sys.stdout.buffer.flush()


def rows(items: Iterable[Iterable[object]]) -> None:
    """TSV without a header: one record a line, nothing for unknown, no control characters."""
    write = sys.stdout.write
    for cells in items:
        write("\t".join(cell(value) for value in cells) + "\n")


def cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(cell(item) for item in value)
    return one_line(str(value))


def lines(items: Iterable[str]) -> None:
    """Rendered lines."""
    write = sys.stdout.write
    for line in items:
        write(line + "\n")
