"""The sessions of an agent's database, projected a batch at a time into a temporary file.

One short reading serves many sessions, so a database is opened (and one without `-shm` is copied) a few times and not
once a session, no reading holds it for long, and no more than one session is in memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from prosa.ingest import foreign_db
from prosa.ingest.foreign_db import BrokenError

Database = Any
"""A connection of foreign_db.read."""
Project = Callable[[Database, str], Iterable[bytes]]
"""The bytes of one session, by its id."""

BATCH = 64 << 20
"""Bytes after which a reading ends: below half a second at 150 MB/s."""
IN_MEMORY = 4 << 20
CHUNK = 1 << 20


class Spooled(NamedTuple):
    """One session of the batch; `problem` says why it could not be read."""

    id: str
    size: int
    chunks: Callable[[], Iterator[bytes]]
    problem: str | None = None


class Spool:
    """The temporary file. It goes when nobody needs its sessions any more."""

    def __init__(self) -> None:
        from tempfile import SpooledTemporaryFile  # not at the top: a sync with nothing new reads no database

        self._file = SpooledTemporaryFile(max_size=IN_MEMORY, prefix="prosa-")  # noqa: SIM115
        self.size = 0
        weakref.finalize(self, self._file.close)

    def clear(self) -> None:
        self.cut(0)

    def cut(self, size: int) -> None:
        """Forget what was written beyond."""
        self._file.seek(size)
        self._file.truncate()
        self.size = size

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self.size += len(data)

    def chunks(self, start: int, end: int) -> Iterator[bytes]:
        while start < end:
            self._file.seek(start)
            data = self._file.read(min(CHUNK, end - start))
            if not data:
                return
            yield data
            start += len(data)


def spooled(path: Path, ids: Sequence[str], project: Project) -> Iterator[Spooled]:
    """Every session in the order of its id, one of no bytes passed over. Raises BusyError and OSError.

    Where a page is damaged each session is read by itself, so that only those that lie on it are lost.
    """
    rest = list(ids)
    alone = False
    while rest:
        spool = Spool()
        todo = rest[:1] if alone else rest

        def work(db: Database, spool: Spool = spool, todo: list[str] = todo) -> list[int]:
            spool.clear()
            ends = []
            for native in todo:
                for piece in project(db, native):
                    spool.write(piece)
                ends.append(spool.size)
                if spool.size >= BATCH:
                    break
            return ends

        try:
            ends = foreign_db.read(path, work)
        except BrokenError as bad:
            if alone:
                yield Spooled(rest.pop(0), 0, lambda: iter(()), str(bad))
            alone = True
            continue
        start = 0
        for native, end in zip(rest, ends, strict=False):
            if end > start:
                yield Spooled(native, end - start, partial(spool.chunks, start, end))
            start = end
        rest = rest[len(ends) :]


def columns(db: Database, table: str) -> list[str]:
    """The columns a table has here; none where it is missing. Agents add columns one by one."""
    return [str(row[1]) for row in db.execute(f"PRAGMA table_info({table})")]
