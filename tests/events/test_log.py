"""The append-only log: fence, chain, triggers, several writers, copies, erasure."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prosa.events.catalogue import LogForked, SourceVanished
from prosa.events.errors import DamageError, ProsaError
from prosa.events.log import Draft, Log, StaleError, batches, prepare
from prosa.events.verify import verify_log


def gone(path: str = "/a") -> SourceVanished:
    return SourceVanished(agent="x", path=path, sha256="0" * 64)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "prosa" / "log.db"


def test_a_new_log_opens_a_pair_of_origins(path: Path) -> None:
    with Log(path, create=True, machine="m", prosa="1") as log:
        assert [event.type for event in log.read()] == ["log_opened", "local_log_opened", "log_located"]
        assert [origin.scope for origin in log.origins] == ["shared", "local"]
        assert log.local.origin != log.shared.origin
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_what_is_appended_is_read_back_in_order(path: Path) -> None:
    with Log(path, create=True) as log:
        log.append([Draft("source-x/1", 0, gone("/a")), Draft("source-x/1", 1, gone("/b"))])
        assert [event.event() for event in log.stream("source-x/1")] == [gone("/a"), gone("/b")]
        assert [event.position for event in log.read()] == [1, 2, 3, 4, 5]


def test_a_draft_for_another_version_of_its_stream_is_refused_whole(path: Path) -> None:
    with Log(path, create=True) as log:
        log.append([Draft("source-x/1", 0, gone())])
        before = log.head()
        with pytest.raises(StaleError):
            log.append([Draft("source-x/2", 0, gone()), Draft("source-x/1", 0, gone())])
        assert log.head() == before
        assert log.stream_version("source-x/2") == 0


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM events WHERE position = 4",
        "UPDATE events SET at_us = 1 WHERE position = 4",
        "UPDATE events SET body = NULL, salt = NULL WHERE position = 4",
        "INSERT OR REPLACE INTO events SELECT * FROM events WHERE position = 4",
        "DELETE FROM origins",
        "UPDATE origins SET scope = 'local'",
    ],
)
def test_nothing_in_the_log_can_be_changed(path: Path, statement: str) -> None:
    with Log(path, create=True) as log:
        log.append([Draft("source-x/1", 0, gone())])
        with pytest.raises(apsw.ConstraintError, match="append-only"):
            log._db.execute(statement)
        assert list(verify_log(log)) == []


def test_an_erased_body_is_gone_from_the_file_and_the_chain_still_verifies(path: Path) -> None:
    with Log(path, create=True) as log:
        log.append([Draft("session-x/1", 0, gone("/a-secret-path")), Draft("session-x/1", 1, gone("/b"))])
        erased = next(iter(log.stream("session-x/1")))
        assert log.erase([erased], "requested", "tester") == 1
        assert log.erase(log.stream("session-x/1"), "requested", "tester") == 1  # only what is left
        assert [event.erased for event in log.stream("session-x/1")] == [True, True]
        with pytest.raises(ProsaError, match="was erased"):
            next(iter(log.stream("session-x/1"))).event()
        assert list(verify_log(log)) == []
    assert b"a-secret-path" not in path.read_bytes()


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_one_changed_byte_is_found_and_named(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("log") / "log.db"
    with Log(path, create=True) as log:
        log.append([Draft(f"source-x/{n}", 0, gone(f"/{n}")) for n in range(5)])
    db = apsw.Connection(str(path))
    db.execute("DROP TRIGGER events_are_not_changed")
    position = data.draw(st.integers(1, 8))
    column = data.draw(st.sampled_from(["body", "salt", "hash", "body_hash", "id"]))
    (value,) = db.execute(f"SELECT {column} FROM events WHERE position = ?", (position,)).fetchone() or (b"",)
    assert isinstance(value, bytes)
    place = data.draw(st.integers(0, len(value) - 1))
    changed = bytearray(value)
    changed[place] ^= data.draw(st.integers(1, 255))
    db.execute(f"UPDATE events SET {column} = ? WHERE position = ?", (bytes(changed), position))
    db.close()
    with Log(path) as log:
        faults = list(verify_log(log))
    assert f"event {position}" in {fault.where for fault in faults}


def test_a_missing_event_is_found(path: Path) -> None:
    with Log(path, create=True) as log:
        log.append([Draft(f"source-x/{n}", 0, gone()) for n in range(5)])
    db = apsw.Connection(str(path))
    db.execute("DROP TRIGGER events_are_not_deleted")
    db.execute("DELETE FROM events WHERE position = 6")
    db.close()
    with Log(path) as log:
        assert any("missing" in fault.what for fault in verify_log(log))


WRITE_MANY = """
for number in range(50):
    log.append([Draft(f"source-{name}/{number}", 0, gone("/a")), Draft(f"source-{name}/{number}", 1, gone("/b"))])
"""
WRITE_ONE_STREAM = """
for number in range(40):
    while log.stream_version("source-x/shared") <= number:
        try:
            log.append([Draft("source-x/shared", number, gone(f"/{number}"))])
        except StaleError:
            pass
"""


def run_writers(path: Path, script: str, names: list[str]) -> None:
    """Several processes, each with its own connection, at the same time."""
    head = """
import sys
from pathlib import Path
from prosa.events.catalogue import SourceVanished
from prosa.events.log import Draft, Log, StaleError
gone = lambda path: SourceVanished(agent="x", path=path, sha256="0" * 64)
name, log = sys.argv[2], Log(Path(sys.argv[1]))
"""
    running = [subprocess.Popen([sys.executable, "-c", head + script, str(path), name]) for name in names]
    assert [process.wait(60) for process in running] == [0] * len(names)


def test_four_writers_at_once_leave_no_gap_and_lose_nothing(path: Path) -> None:
    Log(path, create=True).close()
    run_writers(path, WRITE_MANY, ["a", "b", "c", "d"])
    with Log(path) as log:
        assert list(verify_log(log)) == []
        assert log.head()[0] == 3 + 4 * 50 * 2


def test_writers_of_one_stream_say_everything_once(path: Path) -> None:
    Log(path, create=True).close()
    run_writers(path, WRITE_ONE_STREAM, ["a", "b", "c"])
    with Log(path) as log:
        said = [event.event() for event in log.stream("source-x/shared")]
    assert said == [gone(f"/{number}") for number in range(40)]


def test_a_copied_log_takes_a_new_pair_of_origins_at_its_first_append(path: Path, tmp_path: Path) -> None:
    with Log(path, create=True, machine="m") as log:
        log.append([Draft("source-x/1", 0, gone())])
        old = log.shared.origin
    copy = tmp_path / "copy" / "log.db"
    copy.parent.mkdir()
    shutil.copy(path, copy)
    with Log(copy, machine="m") as log:
        assert log.shared.origin == old  # reading changes nothing
        log.append([Draft("source-x/9", 0, gone())])
        assert log.shared.origin != old
        forked = [event.event() for event in log.read() if event.type == LogForked.TYPE]
        assert isinstance(forked[0], LogForked)
        assert (forked[0].old_origin, forked[0].old_position, forked[0].reason) == (old.hex(), 2, "copied")
        assert list(verify_log(log)) == []
    with Log(path, machine="m") as log:
        log.append([Draft("source-x/9", 0, gone())])
        assert log.shared.origin == old


def test_a_log_on_another_machine_is_a_copy(path: Path) -> None:
    with Log(path, create=True, machine="m1") as log:
        old = log.shared.origin
    with Log(path, machine="m2") as log:
        log.append([Draft("source-x/9", 0, gone())])
        assert log.shared.origin != old
    with Log(path, machine="m2") as log:
        log.append([Draft("source-x/9", 1, gone("/b"))])
        assert len(log.origins) == 4


def test_a_missing_or_foreign_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Log(tmp_path / "none.db")
    (tmp_path / "text.db").write_text("no database at all, but long enough to be looked at" * 40)
    with pytest.raises(DamageError):
        Log(tmp_path / "text.db")
    apsw.Connection(str(tmp_path / "other.db")).execute("CREATE TABLE x (y)")
    with pytest.raises(DamageError):
        Log(tmp_path / "other.db")


def test_batches_keep_within_the_bounds_and_a_large_event_stands_alone() -> None:
    small = [prepare(Draft("source-x/1", n, gone())) for n in range(1001)]
    assert [len(batch) for batch in batches(small)] == [500, 500, 1]
    large = small[0]._replace(stored=bytes(5_000_000))
    assert [len(batch) for batch in batches([small[0], large, small[1]])] == [1, 1, 1]


def test_an_unchanged_observation_and_its_return_are_three_events(path: Path) -> None:
    with Log(path, create=True) as log:
        for number, where in enumerate(("/a", "/b", "/a")):
            log.append([Draft("source-x/1", number, gone(where))])
        assert [event.event() for event in log.stream("source-x/1")] == [gone("/a"), gone("/b"), gone("/a")]
