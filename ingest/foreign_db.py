"""Reading the agents' own SQLite databases: a consistent snapshot with what is still in the `-wal`, and no trace left.

The standard library's sqlite3 is used here and nowhere else; prosa's own files are opened with apsw only. Measured
(SQLite 3.40): `mode=ro` on a cleanly closed WAL database creates `-wal` and `-shm` beside it, and `immutable=1` on a
live one silently misses the newest rows. So each state of the files is opened in its own way. A sync that finds no
database does not load the library: it is imported where one is opened.
"""

from __future__ import annotations

import fcntl
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

from prosa.ingest.importer import FileStat

if TYPE_CHECKING:
    import sqlite3

BUSY_S = 5.0
TRIES = 4
PAUSE_S = 0.05
DMS = 128
"""Place in the `-shm` of the lock that every connection holds."""

T = TypeVar("T")


class BusyError(Exception):
    """The agent was writing all the time: nothing is known, try again later. Never to be read as empty."""


class BrokenError(Exception):
    """The file is no database, or so damaged that nothing can be read."""


def database_files(path: Path) -> tuple[FileStat, ...]:
    """The stat of a database and of what SQLite keeps beside it: a change there is a change of it. Raises OSError."""
    found = []
    for name in (str(path), f"{path}-wal", f"{path}-journal"):
        try:
            stat = Path(name).stat()
        except FileNotFoundError:
            if name == str(path):
                raise
            continue
        found.append(FileStat(name, stat.st_size, stat.st_mtime_ns, stat.st_ino))
    return tuple(found)


def read(path: Path, work: Callable[[sqlite3.Connection], T]) -> T:
    """Run `work` on one consistent state of a database and return what it returns; it may run several times.

    `work` must not keep the connection. Text that is not UTF-8 arrives with U+FFFD. Raises BusyError, BrokenError,
    or OSError where the file cannot be read.
    """
    import sqlite3

    problem: Exception | None = None
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE_S * attempt)
        try:
            with _opened(path) as (db, unchanged):
                done = work(db)
                if unchanged():
                    return done
                problem = BusyError(f"{path.name} was written while it was read")
        except sqlite3.OperationalError as bad:
            if "locked" not in str(bad) and "busy" not in str(bad):
                raise BrokenError(str(bad)) from None
            problem = BusyError(str(bad))
        except (sqlite3.DatabaseError, UnicodeDecodeError) as bad:  # the latter: a column's name is damaged
            raise BrokenError(str(bad)) from None
    assert problem is not None
    raise problem


@contextmanager
def _opened(path: Path) -> Iterator[tuple[sqlite3.Connection, Callable[[], bool]]]:
    """A connection, and whether the files are still as they were when it was opened."""
    import shutil
    import sqlite3
    import tempfile

    before = database_files(path)
    beside = {stat.path.removeprefix(str(path)) for stat in before[1:] if stat.size}

    def unchanged() -> bool:
        return database_files(path) == before

    if not beside:
        # nothing outside the file: immutable takes no lock and leaves no file
        with closing(_connect(path, "immutable=1")) as db:
            yield db, unchanged
    elif beside == {"-wal"} and _is_open(f"{path}-shm"):
        # a writer lives: a read transaction is a snapshot by itself
        with closing(_connect(path, "mode=ro")) as db:
            db.execute("BEGIN")
            yield db, lambda: True
    else:
        # the writer died or is in mid-transaction, or the folder was copied: SQLite would have to make a -shm or to
        # roll back, so it does that elsewhere
        with tempfile.TemporaryDirectory(prefix="prosa-") as folder:
            copy = Path(folder) / "copy.db"
            shutil.copyfile(path, copy)
            for suffix in beside:
                shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
            if not unchanged():
                raise sqlite3.OperationalError("database is locked")
            with closing(sqlite3.connect(copy, timeout=BUSY_S, isolation_level=None)) as db:
                db.text_factory = _text
                db.execute("PRAGMA query_only = 1")
                yield db, lambda: True


def _is_open(shm: str) -> bool:
    """Whether a process has the database open: each holds a shared lock on one byte of the `-shm` (SQLite, os_unix.c).

    A killed writer leaves the file behind; to open the database then would write into it.
    """
    if not Path(shm).is_file():
        return False
    try:
        with Path(shm).open("rb") as file:
            if sys.platform == "linux":
                told = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, DMS, 1, 0))
                return bool(struct.unpack("hhqqi4x", told)[0] != fcntl.F_UNLCK)
            if sys.platform == "darwin":
                told = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack("qqihh", DMS, 1, 0, fcntl.F_WRLCK, 0))
                return bool(struct.unpack("qqihh", told)[3] != fcntl.F_UNLCK)
    except FileNotFoundError:
        return False
    return True


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    import sqlite3

    db = sqlite3.connect(f"file:{quote(str(path))}?{mode}", uri=True, timeout=BUSY_S, isolation_level=None)
    db.text_factory = _text
    return db


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
