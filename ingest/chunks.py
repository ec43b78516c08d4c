"""The bytes of a raw, in pieces of at most CHUNK bytes."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO

CHUNK = 1 << 20


def open_file(path: str | Path) -> BinaryIO:
    """A regular file, to be read. A pipe, which would wait for its writer, or a device is refused. Raises OSError."""
    return open(path, "rb", opener=_regular)


def _regular(path: str, flags: int) -> int:
    number = os.open(path, flags | os.O_NONBLOCK)
    if S_ISREG(os.fstat(number).st_mode):
        return number
    os.close(number)
    raise OSError(errno.EINVAL, "not a regular file", path)


def read_file(path: str | Path) -> bytes:
    """All of a small file. Raises OSError, see `open_file`."""
    with open_file(path) as file:
        return file.read()


def file_chunks(path: str | Path) -> Iterator[bytes]:
    """A file as it is. Raises OSError, see `open_file`."""
    with open(path, "rb", buffering=0, opener=_regular) as file:
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
