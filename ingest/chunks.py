"""The bytes of a raw, in pieces of at most CHUNK bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

CHUNK = 1 << 20


def file_chunks(path: str | Path) -> Iterator[bytes]:
    """A file as it is. Raises OSError."""
    with Path(path).open("rb", buffering=0) as file:
        while data := file.read(CHUNK):
            yield data


def line_chunks(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines joined, short ones together, long ones cut."""
    waiting: list[bytes] = []
    length = 0
    for line in lines:
        if length + len(line) > CHUNK and waiting:
            yield b"".join(waiting)
            waiting, length = [], 0
        if len(line) > CHUNK:
            yield from (line[place : place + CHUNK] for place in range(0, len(line), CHUNK))
        else:
            waiting.append(line)
            length += len(line)
    if waiting:
        yield b"".join(waiting)
