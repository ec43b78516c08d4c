"""Agents' databases: one consistent state in every condition they can be found in, and no trace left."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from prosa.ingest.foreign_db import BrokenError, BusyError, read


def rows(path: Path) -> list[int]:
    return read(path, lambda db: [n for (n,) in db.execute("SELECT n FROM t ORDER BY n")])


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def make(path: Path, journal: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(f"PRAGMA journal_mode={journal}")
    db.execute("CREATE TABLE t (n INTEGER)")
    db.execute("INSERT INTO t VALUES (1)")
    return db


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_closed_database_is_read_and_gets_no_neighbours(tmp_path: Path, journal: str) -> None:
    make(tmp_path / "a.db", journal).close()
    before = files(tmp_path)
    assert rows(tmp_path / "a.db") == [1]
    assert files(tmp_path) == before


def test_a_live_writers_newest_rows_are_read(tmp_path: Path) -> None:
    db = make(tmp_path / "a.db", "wal")
    db.execute("INSERT INTO t VALUES (2)")
    assert rows(tmp_path / "a.db") == [1, 2]
    db.execute("INSERT INTO t VALUES (3)")  # the writer goes on undisturbed
    db.close()
    assert rows(tmp_path / "a.db") == [1, 2, 3]


@pytest.mark.parametrize("with_shm", [True, False])
def test_a_copied_or_killed_writers_wal_is_read_and_nothing_changes(tmp_path: Path, with_shm: bool) -> None:
    (tmp_path / "live").mkdir()
    (tmp_path / "dead").mkdir()
    db = make(tmp_path / "live" / "a.db", "wal")
    db.execute("INSERT INTO t VALUES (2)")
    for suffix in ("", "-wal", *(["-shm"] if with_shm else [])):
        shutil.copy(tmp_path / "live" / f"a.db{suffix}", tmp_path / "dead" / f"a.db{suffix}")
    db.close()
    before = files(tmp_path / "dead")
    assert rows(tmp_path / "dead" / "a.db") == [1, 2]
    assert files(tmp_path / "dead") == before


KILLED_WRITER = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA cache_size=1")
db.execute("BEGIN IMMEDIATE")
db.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(2, 20000)])
os.kill(os.getpid(), 9)
"""


def test_a_transaction_that_a_kill_cut_off_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    make(path, "delete").close()
    subprocess.run([sys.executable, "-c", KILLED_WRITER, str(path)], check=False)
    assert Path(f"{path}-journal").stat().st_size > 0
    before = files(tmp_path)
    assert rows(path) == [1]
    assert files(tmp_path) == before


def test_a_locked_database_is_busy_and_never_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prosa.ingest.foreign_db.PAUSE_S", 0)
    path = tmp_path / "a.db"
    db = make(path, "delete")

    def write_meanwhile(reader: sqlite3.Connection) -> list[int]:
        found = [n for (n,) in reader.execute("SELECT n FROM t")]
        db.execute("INSERT INTO t VALUES (7)")
        os.utime(path)
        return found

    with pytest.raises(BusyError):
        read(path, write_meanwhile)
    db.close()


CONTENTS = [b"no database, but long enough to look like one " * 99, b"SQLite format 3\0" * 9]


@pytest.mark.parametrize("content", CONTENTS)
def test_what_is_no_database_is_broken(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.db").write_bytes(content)
    with pytest.raises(BrokenError):
        rows(tmp_path / "a.db")


def test_a_missing_database_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        rows(tmp_path / "none.db")
