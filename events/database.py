"""Opening prosa's own SQLite files. apsw only: a second SQLite library on one file in one process loses its locks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import apsw

from prosa.events.errors import DamageError, ProsaError
from prosa.events.filesystem import network_type
from prosa.events.home import private_file

BUSY_MS = 10_000


class Database(apsw.Connection):
    """A connection whose rows have the types of their tables: those are STRICT, and the reader knows them."""

    if TYPE_CHECKING:

        def execute(self, statements: str, bindings: Any = None) -> Any: ...  # type: ignore[override]


def connect(path: Path, *, create: bool = False, read_only: bool = False, busy_ms: int = BUSY_MS) -> Database:
    """One connection. Raises FileNotFoundError without `create` where there is none, DamageError for no database."""
    if create:
        private_file(path)
    elif not path.exists():
        raise FileNotFoundError(path)
    flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE
    try:
        db = Database(str(path), flags=flags)
        db.set_busy_timeout(busy_ms)
        try:
            db.pragma("schema_version")
        except (apsw.ReadOnlyError, apsw.CantOpenError):
            db.close()
            db = _unwritable(path)
    except (apsw.NotADBError, apsw.CorruptError) as bad:
        raise DamageError(f"{path} is no database any more: {bad}.") from None
    except apsw.CantOpenError:
        raise ProsaError(f"{path} cannot be opened.", next_step="Check its owner and permissions.") from None
    return db


def _unwritable(path: Path) -> Database:
    """A database in a folder where no sidecar can be made: read as it lies there, if nothing waits beside it."""
    wal = path.with_name(f"{path.name}-wal")
    if os.access(path.parent, os.W_OK) or not os.access(path, os.R_OK) or (wal.exists() and wal.stat().st_size):
        raise apsw.CantOpenError
    uri = f"file:{quote(str(path))}?immutable=1"
    db = Database(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    db.pragma("schema_version")
    return db


def refuse_network(folder: Path) -> None:
    """Raises ProsaError where a database in write-ahead mode could be damaged by another host."""
    kind = network_type(folder)
    if kind:
        raise ProsaError(
            f"{folder} lies on a network file system ({kind}), where SQLite's write-ahead log can be damaged.",
            "Nothing was written.",
            "Set PROSA_HOME to a folder on a local disk; machines are joined by sync, not by a shared folder.",
        )


def use_wal(db: Database, *, synchronous: str) -> None:
    """Write-ahead mode with a bounded log file."""
    if db.readonly("main"):
        return
    if db.pragma("journal_mode") != "wal":
        db.pragma("journal_mode", "wal")
    db.pragma("synchronous", synchronous)
    db.pragma("journal_size_limit", 4 * 1024 * 1024)
