"""ingest's memory between syncs: what sources looked like, the folds of large files. Delete it: files are read again.

Nothing is in here that is not also on disk or in the log. A row is written after the log's commit, so a crash leaves
at worst an old row, and an old row costs a reading of the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import msgspec

from prosa.events.database import Database, connect, use_wal
from prosa.events.errors import DamageError
from prosa.ingest.importer import FileStat

VERSION = 1

SCHEMA = """
CREATE TABLE sources (
    path TEXT PRIMARY KEY, agent TEXT NOT NULL, profile TEXT NOT NULL, files BLOB NOT NULL, sha256 TEXT NOT NULL,
    sessions BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE folds (
    session TEXT NOT NULL, revision INTEGER NOT NULL, parser TEXT NOT NULL, origin INTEGER NOT NULL,
    stream_version INTEGER NOT NULL, raw TEXT NOT NULL, state BLOB NOT NULL, PRIMARY KEY (session, revision)
) STRICT, WITHOUT ROWID;
CREATE TABLE stamps (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
"""
DAMAGED = (apsw.CorruptError, apsw.NotADBError, apsw.SQLError)
_encode = msgspec.msgpack.Encoder().encode
_files = msgspec.msgpack.Decoder(tuple[FileStat, ...]).decode
_names = msgspec.msgpack.Decoder(tuple[str, ...]).decode


class Seen(msgspec.Struct, frozen=True):
    """A source as it was when it was last read; `sessions` is empty where it was rejected."""

    path: str
    agent: str
    profile: str
    files: tuple[FileStat, ...]
    sha256: str
    sessions: tuple[str, ...]


class SavedFold(msgspec.Struct, frozen=True):
    """A fold of a large file, good while the session's stream and raw are what they were."""

    session: str
    revision: int
    parser: str
    origin: int
    stream_version: int
    raw: str
    state: bytes


class Cache:
    """One connection to cache.db; a damaged or old one is replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._db = self._open(path)
            self._db.execute("SELECT 1 FROM sources, folds, stamps LIMIT 1").fetchone()
        except (DamageError, *DAMAGED):
            self._replace()

    def _replace(self) -> None:
        """It is damaged: begin anew. Files are read again."""
        if hasattr(self, "_db"):
            self._db.close(True)
        self._drop(self._path)
        self._db = self._open(self._path)

    def _ask(self, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        """The rows; none where a page of them is damaged."""
        try:
            return self._db.execute(statement, values).fetchall()  # type: ignore[no-any-return]
        except DAMAGED:
            self._replace()
            return []

    def _open(self, path: Path) -> Database:
        db = connect(path, create=True)
        if db.pragma("user_version") not in (0, VERSION):
            db.close()
            self._drop(path)
            db = connect(path, create=True)
        use_wal(db, synchronous="normal")
        if not db.pragma("user_version"):
            with db:
                for _ in db.execute(SCHEMA):
                    pass
                db.pragma("user_version", VERSION)
        return db

    @staticmethod
    def _drop(path: Path) -> None:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)

    def close(self) -> None:
        self._db.close()

    def sources(self) -> dict[str, Seen]:
        rows = self._ask("SELECT path, agent, profile, files, sha256, sessions FROM sources")
        return {
            path: Seen(path, agent, profile, _files(files), sha, _names(keys))
            for path, agent, profile, files, sha, keys in rows
        }

    def fold(self, session: str, revision: int) -> SavedFold | None:
        rows = self._ask(
            "SELECT session, revision, parser, origin, stream_version, raw, state FROM folds "
            "WHERE session = ? AND revision = ?",
            (session, revision),
        )
        return SavedFold(*rows[0]) if rows else None

    def write(self, seen: list[Seen], folds: list[SavedFold], forgotten: list[str]) -> None:
        """One transaction; nothing at all where there is nothing to say."""
        if not (seen or folds or forgotten):
            return
        with self._db:
            self._db.executemany(
                "INSERT OR REPLACE INTO sources VALUES (?, ?, ?, ?, ?, ?)",
                [(s.path, s.agent, s.profile, _encode(s.files), s.sha256, _encode(s.sessions)) for s in seen],
            )
            self._db.executemany(
                "INSERT OR REPLACE INTO folds VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(f.session, f.revision, f.parser, f.origin, f.stream_version, f.raw, f.state) for f in folds],
            )
            self._db.executemany("DELETE FROM sources WHERE path = ?", [(path,) for path in forgotten])

    def clear(self) -> None:
        """Forget everything."""
        with self._db:
            for table in ("sources", "folds", "stamps"):
                self._db.execute(f"DELETE FROM {table}")

    def stamp(self, name: str) -> bytes | None:
        """A small value kept between syncs: what a shared file looked like when it was last read."""
        rows = self._ask("SELECT value FROM stamps WHERE name = ?", (name,))
        return bytes(rows[0][0]) if rows else None

    def set_stamp(self, name: str, value: bytes) -> None:
        self._db.execute("INSERT OR REPLACE INTO stamps VALUES (?, ?)", (name, value))
