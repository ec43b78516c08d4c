"""Locks between processes: flock on files that stay, so a killed process leaves nothing behind."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prosa.events.errors import LockedError
from prosa.events.home import private_file


@contextmanager
def held(folder: Path, name: str, *, wait: bool = False) -> Iterator[None]:
    """Hold one lock. Raises LockedError where another process has it, unless `wait`."""
    path = private_file(folder / name)
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            owner = os.pread(handle, 100, 0).decode("utf-8", "replace").strip()
            by = f" (process {owner})" if owner else ""
            raise LockedError(
                f"Another prosa{by} is at work on this: {name}.", "Nothing was changed.", "Try again when it is done."
            ) from None
        mine = f"{os.getpid()}\n".encode()
        if os.pread(handle, len(mine) + 1, 0) != mine:
            os.ftruncate(handle, 0)
            os.pwrite(handle, mine, 0)
        yield
    finally:
        os.close(handle)
