"""Events of several origins in any interleaving that keeps each origin's order give the same projections."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store import A, B, C, two_machines

from prosa.events.log import Log
from prosa.projections.building import build
from prosa.projections.digest import Digest

EVENT = "SELECT origin, origin_position, id, stream, stream_version, type, version, at_us, body_hash, hash, salt, body"
PUT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def merged(logs: list[Path], order: list[int], target: Path) -> Path:
    """A log with the events of all, the next one taken from the log that the order names."""
    shutil.copy(logs[0], target)
    db = apsw.Connection(str(target))
    for name in ("events_are_not_deleted", "origins_are_not_deleted"):
        db.execute(f"DROP TRIGGER {name}")
    db.execute("DELETE FROM events")
    db.execute("DELETE FROM origins")
    waiting = []
    for number, path in enumerate(logs):
        source = apsw.Connection(str(path))
        shift = 2 * number
        for origin, name, scope in source.execute("SELECT number, origin, scope FROM origins").fetchall():
            db.execute("INSERT INTO origins VALUES (?, ?, ?)", (origin + shift, name, scope))
        rows = source.execute(f"{EVENT} FROM events ORDER BY position").fetchall()
        waiting.append([(row[0] + shift, *row[1:]) for row in rows])
        source.close()
    position = 0
    for index in [*order, *(n for n, rows in enumerate(waiting) for _ in rows)]:
        if waiting[index]:
            position += 1
            db.execute(PUT, (position, *waiting[index].pop(0)))
    db.close()
    return target


def projected(log: Path, folder: Path) -> Digest:
    with Log(log) as opened:
        building, found = build(folder, opened, {})
        building.discard()
    return found


@given(data=st.data())
@settings(max_examples=15)
def test_any_interleaving_of_two_machines_gives_the_same_sessions(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("machines")
    logs = [store.home.log for store in two_machines(root)]
    straight = projected(merged(logs, [], root / "straight.db"), root / "i1")
    order = data.draw(st.lists(st.integers(0, 1), max_size=40))
    mixed = projected(merged(logs, order, root / "mixed.db"), root / "i2")
    assert mixed == straight


def test_two_machines_count_what_they_share_once(tmp_path: Path) -> None:
    logs = [store.home.log for store in two_machines(tmp_path)]
    log = merged(logs, [0, 1] * 20, tmp_path / "both.db")
    with Log(log) as opened:
        building, _ = build(tmp_path / "index", opened, {})
        rows = building.db.execute("SELECT id, users, input FROM sessions ORDER BY id").fetchall()
        building.discard()
    # the session as both saw it: prompts 0 to 3 of the one, 8 and 9 of the other
    assert [(native, users) for native, users, _ in rows] == [(A, 6), (B, 1), (C, 2)]
    assert {native: tokens for native, _, tokens in rows}[A] == sum((10, 11, 12, 13, 18, 19))
