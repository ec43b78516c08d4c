"""The files of the index: `index/<n>.db`, and `index/current`, which names the one that serves.

Names are never used again and nothing is renamed over an open database: an old write-ahead file would be replayed
into the new one (measured: both are mixed, and integrity_check says ok).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import apsw

from prosa.events.database import Database, connect
from prosa.events.errors import DamageError, UpgradeError
from prosa.events.home import private_file, private_folder, sync_folder
from prosa.projections.records import create_texts

SCHEMA_VERSION = 2
"""Raise it when a table or what goes into it changes: the next start builds a new index beside the old one."""
APPLICATION_ID = 0x70726F69  # "proi"
CACHE_KIB = 16 * 1024
HASH_BYTES = 16 * 1024 * 1024

SCHEMA = Path(__file__).with_name("schema.sql")


class IndexMissing(Exception):
    """There is no index that serves, or it is of an older schema: build one."""


def serving(folder: Path) -> Path | None:
    """The file that `current` names."""
    try:
        name = (folder / "current").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return folder / name if name.removesuffix(".db").isdigit() else None


def open_index(folder: Path, *, read_only: bool = False, busy_ms: int = 10_000) -> Database:
    """The index that serves. Raises IndexMissing where it must be built, UpgradeError where a newer prosa made it."""
    for _ in range(3):
        path = serving(folder)
        if path is None:
            raise IndexMissing
        try:
            db = connect(path, read_only=read_only, busy_ms=busy_ms)
        except FileNotFoundError:
            continue  # retired between the two: read `current` again
        except DamageError:
            raise IndexMissing from None
        version = db.pragma("user_version")
        if db.pragma("application_id") != APPLICATION_ID or version < SCHEMA_VERSION:
            db.close()
            raise IndexMissing
        if version > SCHEMA_VERSION:
            db.close()
            raise UpgradeError(
                f"The index was made by a newer prosa (schema {version}; this one knows {SCHEMA_VERSION}).",
                "Nothing was changed.",
                "Upgrade prosa.",
            )
        # durable enough: what a power cut takes is applied again
        db.pragma("synchronous", "normal")
        db.pragma("cache_size", -CACHE_KIB)
        db.pragma("journal_size_limit", 4 * 1024 * 1024)
        return db
    raise IndexMissing


def lay_out(db: Database, texts: Callable[[Database], None] = create_texts) -> None:
    """Make the tables of an empty index; `texts` makes those of the full text."""
    for _ in db.execute(SCHEMA.read_text(encoding="utf-8")):
        pass
    texts(db)
    db.pragma("application_id", APPLICATION_ID)
    db.pragma("user_version", SCHEMA_VERSION)


class NewIndex:
    """An index being built beside the serving one. `publish` or `discard` ends it."""

    def __init__(self, folder: Path) -> None:
        private_folder(folder)
        self._folder = folder
        self.path = private_file(folder / f"{_next_number(folder)}.db")
        self.db = connect(self.path)
        for name, value in (("journal_mode", "off"), ("synchronous", 0), ("cache_size", -CACHE_KIB)):
            self.db.pragma(name, value)
        self.db.pragma("locking_mode", "exclusive")
        lay_out(self.db)

    def finish(self) -> None:
        """Leave the file as a reader expects it: in write-ahead mode, closed, durable."""
        self.db.pragma("locking_mode", "normal")
        self.db.pragma("journal_mode", "wal")
        self.db.close()
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        sync_folder(self._folder)

    def publish(self) -> None:
        """Make this the serving index."""
        aside = private_file(self._folder / "current.new")
        aside.write_text(self.path.name + "\n", encoding="ascii")
        with aside.open("rb") as file:
            os.fsync(file.fileno())
        aside.replace(self._folder / "current")
        sync_folder(self._folder)
        retire(self._folder)

    def discard(self) -> None:
        with contextlib.suppress(apsw.Error):
            self.db.close(True)
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)


def retire(folder: Path) -> None:
    """Remove indexes that no longer serve and that nobody has open. Hold the rebuild lock."""
    current = serving(folder)
    for path in sorted(folder.glob("*.db")):
        if path == current:
            continue
        try:
            db = connect(path, busy_ms=0)
            alone = db.pragma("journal_mode", "delete") == "delete"
            db.close()
        except (apsw.Error, DamageError):
            alone = True
        except FileNotFoundError:
            continue
        if alone:
            for suffix in ("", "-wal", "-shm", "-journal"):
                Path(f"{path}{suffix}").unlink(missing_ok=True)


def _next_number(folder: Path) -> int:
    """One above every number that is or was in use here."""
    taken = [int(path.stem) for path in folder.glob("*.db") if path.stem.isdigit()]
    current = serving(folder)
    if current is not None:
        taken.append(int(current.stem))
    return max(taken, default=0) + 1
