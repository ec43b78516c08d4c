"""The promises of the log: idempotent, incremental = full, replay = live, nothing is lost, unfinished never applied."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store import A, B, C, Store, claude_lines, fork_of

from prosa.events.catalogue import LogForked
from prosa.events.facts import Facts
from prosa.events.raw import RawStore
from prosa.events.verify import preserved, verify_log, verify_raws
from prosa.ingest import importing
from prosa.ingest.claude_code import fold as claude_fold
from prosa.ingest.claude_code import importer as claude_code
from prosa.ingest.report import Reparsed, SyncOptions
from prosa.projections.building import check


def test_a_second_sync_appends_and_writes_nothing(store: Store) -> None:
    store.write(A, b"".join(claude_lines(A, 3)))
    store.write(B, b"".join(claude_lines(B, 2)))
    assert store.sync().imported == 2
    before = store.files()
    again = store.sync()
    assert (again.events, again.unchanged, again.bytes) == (0, 2, 0)
    assert store.files() == before


def test_verify_reads_everything_again_and_finds_nothing_to_say(store: Store) -> None:
    store.write(A, b"".join(claude_lines(A, 3)))
    store.sync()
    again = store.sync(SyncOptions(verify=True))
    assert (again.events, again.unchanged) == (0, 1)
    assert again.bytes > 0


def test_a_touched_file_is_read_and_says_nothing(store: Store) -> None:
    path = store.write(A, b"".join(claude_lines(A, 3)))
    store.sync()
    os.utime(path, ns=(1, 1))
    assert store.sync().events == 0
    assert store.sync().bytes == 0


@pytest.mark.parametrize("small", [True, False], ids=["in memory", "streamed"])
def test_every_cut_of_a_growing_file_gives_what_the_whole_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    if not small:
        monkeypatch.setattr(importing, "SMALL", 100)
    whole = b"".join(claude_lines(A, 3))
    once = Store(tmp_path / "once")
    once.write(A, whole)
    once.sync()
    for cut in range(1, len(whole), 61):
        grown = Store(tmp_path / f"cut{cut}")
        grown.write(A, whole[:cut])
        grown.sync()
        grown.write(A, whole)
        grown.sync()
        assert grown.sessions() == once.sessions(), cut
        assert grown.found("prompt") == once.found("prompt"), cut
        assert grown.serving() == grown.rebuilt(), cut
        shutil.rmtree(tmp_path / f"cut{cut}")


@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_any_pieces_give_what_the_whole_gives(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    root = tmp_path_factory.mktemp("pieces")
    whole = b"".join(claude_lines(A, 6))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole)), min_size=1, max_size=4)))
    small = data.draw(st.sampled_from([importing.SMALL, 1000]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importing, "SMALL", small)
        grown = Store(root / "grown")
        for cut in [*cuts, len(whole)]:
            grown.write(A, whole[:cut])
            if data.draw(st.booleans()):
                grown.home.cache.unlink(missing_ok=True)
            grown.sync()
    once = Store(root / "once")
    once.write(A, whole)
    once.sync()
    assert grown.sessions() == once.sessions()
    assert grown.serving() == grown.rebuilt()


def test_a_growing_file_costs_its_growth_in_the_log(store: Store) -> None:
    lines = claude_lines(A, 200, text="some words that take room " * 20)
    store.write(A, b"".join(lines[:-3]))
    store.sync()
    before = {event.position for event in store.events()}
    store.write(A, b"".join(lines))
    assert store.sync().extended == 1
    added = [event for event in store.events() if event.position not in before]
    assert [event.type for event in added] == ["raw_preserved", "session_extended", "source_detected"]
    assert sum(len(event.stored) for event in added) < 2500


def test_only_the_last_raw_of_a_growing_file_is_kept(store: Store) -> None:
    lines = claude_lines(A, 4)
    for count in (3, 6, 12):
        store.write(A, b"".join(lines[:count]))
        store.sync()
    assert len(list((store.root / "prosa" / "raw").rglob("*.zst"))) == 1
    with store.log() as log:
        assert list(verify_raws(RawStore(store.home.raw), preserved(log))) == []


def test_what_an_agent_cut_from_its_file_stays(store: Store) -> None:
    lines = claude_lines(A, 4)
    store.write(A, b"".join(lines))
    store.sync()
    before = store.sessions()[A]
    store.write(A, b"".join(lines[:3]))  # cut to an earlier state
    store.sync()
    assert store.sessions()[A] == before
    store.write(A, b"".join(lines[3:6] + claude_lines(A, 1, start=9)))  # written anew: some of the old, some new
    store.sync()
    after = store.sessions()[A]
    assert after[3] == before[3] + 1  # one prompt more
    assert store.found("prompt") == [A]
    assert len(list((store.root / "prosa" / "raw").rglob("*.zst"))) == 2
    assert store.serving() == store.rebuilt()


def test_a_deleted_file_is_an_event_and_loses_nothing(store: Store) -> None:
    path = store.write(A, b"".join(claude_lines(A, 2)))
    store.sync()
    before = store.sessions()
    path.unlink()
    assert store.sync().vanished == 1
    assert store.sessions() == before
    assert store.rows("SELECT source_state FROM sessions") == [("orphaned",)]
    assert store.sync().events == 0
    path.write_bytes(b"".join(claude_lines(A, 2)))
    store.sync()
    assert store.rows("SELECT source_state FROM sessions") == [("present",)]
    assert store.sessions() == before


def test_an_unreadable_home_is_no_deletion(store: Store) -> None:
    store.write(A, b"".join(claude_lines(A, 2)))
    store.sync()
    (store.user / ".claude").rename(store.user / "elsewhere")
    assert store.sync().events == 0


def test_a_renamed_file_is_another_session_and_a_moved_one_the_same(store: Store) -> None:
    path = store.write(A, b"".join(claude_lines(A, 2)))
    store.sync()
    before = store.sessions()
    other = path.parent.with_name("-home-dev-other") / path.name
    other.parent.mkdir()
    path.rename(other)
    assert store.sync().moved == 1
    assert store.sessions() == before
    assert [event.type for event in store.events()][-1] == "source_moved"
    assert store.rows("SELECT source FROM sessions") == [(str(other),)]
    assert store.sync().events == 0
    assert store.serving() == store.rebuilt()


def test_without_its_cache_a_sync_reads_again_and_appends_nothing(store: Store) -> None:
    store.write(A, b"".join(claude_lines(A, 2)))
    store.sync()
    store.home.cache.unlink()
    again = store.sync()
    assert again.events == 0
    assert again.bytes > 0


def test_without_index_and_agents_files_everything_still_answers(store: Store) -> None:
    store.write(A, b"".join(claude_lines(A, 2)))
    store.write(B, b"".join(claude_lines(B, 2)))
    store.sync()
    before, digest = store.sessions(), store.serving()
    shutil.rmtree(store.home.index)
    shutil.rmtree(store.user)
    store.user.mkdir()
    store.sync()
    assert store.sessions() == before
    assert store.serving() == digest


@pytest.mark.parametrize("order", [(A, B, C), (C, B, A), (B, A, C)])
def test_a_fork_counts_only_what_it_added_whatever_comes_first(store: Store, order: tuple[str, ...]) -> None:
    base = claude_lines(A, 3)
    files = {
        A: base,
        B: fork_of(base, A, B) + claude_lines(B, 2, start=5),
        C: fork_of(base, A, C) + fork_of(claude_lines(B, 2, start=5), B, C) + claude_lines(C, 1, start=9),
    }
    for native in order:
        store.write(native, b"".join(files[native]))
        store.sync()
        assert store.serving() == store.rebuilt()
    seen = store.sessions()
    assert {native: row[3] for native, row in seen.items()} == {A: 3, B: 2, C: 1}
    assert {native: row[-1] for native, row in seen.items()} == {A: None, B: A, C: B}
    assert store.rows("SELECT sum(input) FROM sessions") == [(sum(range(10, 13)) + 15 + 16 + 19,)]
    assert store.found("answer") == sorted([A, B, C])
    assert store.rows("SELECT count(*) FROM text_prompt_docsize") == [(6,)]  # each prompt is searchable once


def test_a_copied_installation_goes_on_under_a_new_origin_and_counts_once(store: Store, tmp_path: Path) -> None:
    lines = claude_lines(A, 4)
    store.write(A, b"".join(lines[:6]))
    store.sync()
    other = Store(tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "user")
    shutil.copytree(store.user, other.user)
    shutil.copytree(store.root / "prosa", other.root / "prosa")
    other.home.log.rename(other.home.log.with_suffix(".x"))
    shutil.copy(other.home.log.with_suffix(".x"), other.home.log)
    other.write(A, b"".join(lines))
    other.sync()
    assert [event.type for event in other.events() if event.type == LogForked.TYPE] == ["log_forked"]
    once = Store(tmp_path / "once")
    once.write(A, b"".join(lines))
    once.sync()
    assert other.sessions() == once.sessions()
    assert other.serving() == other.rebuilt()
    assert other.sync().events == 0


def test_rebuild_check_finds_a_changed_index(store: Store) -> None:
    store.write(A, b"".join(claude_lines(A, 2)))
    store.sync()
    with store.log() as log:
        assert check(store.home.index, log, {}) == []
        from prosa.projections.index import open_index

        db = open_index(store.home.index)
        db.execute("UPDATE sessions SET users = users + 1")
        db.execute("DELETE FROM turns WHERE id = (SELECT max(id) FROM turns)")
        db.close()
        assert check(store.home.index, log, {}) == [f"session claude-code/{A}: differs"]


def test_a_log_that_lost_its_end_is_noticed(store: Store) -> None:
    store.write(A, b"".join(claude_lines(A, 2)))
    store.sync()
    shutil.copy(store.home.log, store.root / "old.db")
    store.write(B, b"".join(claude_lines(B, 2)))
    store.sync()
    shutil.copy(store.root / "old.db", store.home.log)
    store.sync()
    assert store.serving() == store.rebuilt()
    assert sorted(store.sessions()) == [A, B]


KILLED = """
import os, signal, sys
from store import Store
from pathlib import Path
{patch}
Store(Path(sys.argv[1])).sync()
"""
DIE = "lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)"
POINTS = {
    "raw half written": "from prosa.events import raw; raw.RawWriter.close = " + DIE,
    "raw written, no event": (
        "from prosa.events.log import Log; Log._insert = lambda self, items: "
        "os.kill(os.getpid(), signal.SIGKILL) if len(items) > 2 else old(self, items)"
    ),
    "events committed, nothing projected": "from prosa.cli.indexing import IndexProjector as P\n"
    "P.appended = P.settle = " + DIE,
    "projection half way": "from prosa.projections import replay; replay.refresh = " + DIE,
    "built, not switched": "from prosa.projections.index import NewIndex; NewIndex.publish = " + DIE,
    "switched, cache not written": "from prosa.ingest.cache import Cache; Cache.write = " + DIE,
    "before the old copy is removed": "from prosa.events.raw import RawStore; RawStore.remove = " + DIE,
}


@pytest.mark.parametrize("grown", [False, True], ids=["first import", "growth"])
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_step_costs_nothing_but_a_second_reading(store: Store, point: str, grown: bool) -> None:
    lines = claude_lines(A, 4)
    if grown:
        store.write(A, b"".join(lines[:6]))
        store.sync()
    store.write(A, b"".join(lines))
    patch = ("from prosa.events.log import Log; old = Log._insert\n" if "old(" in POINTS[point] else "") + POINTS[point]
    script = KILLED.format(patch=patch)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    killed = subprocess.run([sys.executable, "-c", script, str(store.root)], env=env, capture_output=True, check=False)
    assert killed.returncode in (-9, 0), killed.stderr.decode()
    store.sync()
    assert store.sync().events == 0
    once = Store(store.root / "once")
    once.write(A, b"".join(lines))
    once.sync()
    assert store.sessions() == once.sessions()
    assert store.serving() == store.rebuilt()
    with store.log() as log:
        raw = RawStore(store.home.raw)
        assert [*verify_log(log), *verify_raws(raw, preserved(log))] == []
        assert raw.sweep() == 0


def test_a_new_parser_appends_the_difference_and_a_dry_run_shows_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new parser is the old one that leaves the last prompt out."""
    store.write(A, b"".join(claude_lines(A, 3)))
    store.write(B, b"".join(claude_lines(B, 1)))
    store.sync()
    take = claude_fold.Fold.take

    def shorter(fold: claude_fold.Fold) -> Facts:
        facts = take(fold)
        facts.turns = [turn for turn in facts.turns if "prompt 2" not in turn.text]
        return facts

    monkeypatch.setattr(claude_fold.Fold, "take", shorter)
    monkeypatch.setattr(claude_code, "PARSER", "claude-code/next")
    before = store.files()
    shown = [item for item in store.items(SyncOptions(reparse=True, dry_run=True)) if isinstance(item, Reparsed)]
    assert [(item.key, item.before.turns - item.after.turns) for item in shown] == [(f"claude-code/{A}", 1)]
    assert store.files() == before
    for path in store.projects.iterdir():
        path.unlink()  # the preserved raw is enough
    assert store.sync().reparsed == 2
    assert {native: row[3] for native, row in store.sessions().items()} == {A: 2, B: 1}
    assert store.found("prompt 2") == []
    assert store.serving() == store.rebuilt()
    assert store.sync().events == 0
