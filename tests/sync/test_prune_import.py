"""What import does with a session whose raw was pruned: only a source that changed brings bytes back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from store import A, B, Store, claude_lines
from test_interleaving import merged

from prosa.events.catalogue import SessionPruned
from prosa.events.log import Draft, Log
from prosa.events.raw import RawStore
from prosa.events.verify import copies, leftovers, verify_raws
from prosa.ingest import importing
from prosa.ingest.claude_code import importer as claude_code
from prosa.ingest.report import SyncOptions
from prosa.projections.building import build

LINES = claude_lines(A, 4)


def pruned(store: Store, *, unlinked: bool = True) -> list[str]:
    """Every raw of every session pruned, as the events say it; the hashes."""
    raws = store.rows("SELECT session, sha256, size, stored FROM raws")
    here = RawStore(store.home.raw)
    gone = [row for row in raws if here.has(row[1])]
    with store.log() as log:
        for session, raw, size, stored in gone:
            event = SessionPruned(
                session=session, raw=raw, size=size, stored=stored, server="http://127.0.0.1", uri=f"raw/{raw}",
                confirmed_at_us=1, rule="older than 30d", actor="dev", plan="0" * 32,
            )  # fmt: skip
            log.append([Draft(f"session-{session}", log.stream_version(f"session-{session}"), event)])
            if unlinked:
                here.remove(raw)
    return [raw for _, raw, _, _ in gone]


def here(store: Store) -> list[str]:
    return [raw for raw, _ in RawStore(store.home.raw).files()]


def faults(store: Store) -> list[str]:
    with store.log() as log:
        known, raw = copies(log), RawStore(store.home.raw)
    return [fault.what for fault in [*verify_raws(raw, known.here), *leftovers(raw, known.pruned)]]


@pytest.fixture(params=[True, False], ids=["in memory", "streamed"])
def grown(store: Store, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A session whose raw grew once and was pruned then."""
    if not request.param:
        monkeypatch.setattr(importing, "SMALL", 100)
    store.write(A, b"".join(LINES[:3]))
    store.sync()
    store.write(A, b"".join(LINES[:6]))
    store.sync()
    pruned(store)
    store.sync()
    return store


@pytest.mark.parametrize("how", ["again", "verify", "reparse", "no cache", "newer parser", "newer parser, no cache"])
def test_an_unchanged_source_brings_nothing_back(grown: Store, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, events = grown.sessions(), len(grown.events())
    if "no cache" in how:
        grown.home.cache.unlink()
    if "newer parser" in how:
        monkeypatch.setattr(claude_code, "PARSER", "claude-code/next")
    done = grown.sync(SyncOptions(verify=how == "verify", reparse=how == "reparse"))
    assert (here(grown), grown.sessions(), len(grown.events())) == ([], before, events)
    assert done.pruned == (1 if how in ("reparse", "newer parser", "newer parser, no cache") else 0)
    assert faults(grown) == []


def test_a_dry_run_of_a_new_parse_counts_what_it_cannot_read(grown: Store) -> None:
    assert grown.sync(SyncOptions(reparse=True, dry_run=True)).pruned == 1


@pytest.mark.parametrize("how", ["moved", "copied", "an older copy beside it"])
def test_the_same_bytes_elsewhere_bring_nothing_back(grown: Store, how: str) -> None:
    before = grown.sessions()
    path = grown.projects / f"{A}.jsonl"
    other = path.parent.with_name("-home-dev-other") / path.name
    other.parent.mkdir()
    if how == "moved":
        path.rename(other)
    elif how == "copied":
        shutil.copy(path, other)
    else:
        other.write_bytes(b"".join(LINES[:3]))
    grown.sync()
    assert (here(grown), grown.sessions()) == ([], before)
    assert "session_restored" not in [event.type for event in grown.events()]


def test_a_source_that_grew_is_preserved_again_and_says_so(grown: Store) -> None:
    grown.write(A, b"".join(LINES))
    grown.sync()
    (restored,) = grown.events("session_restored")
    assert here(grown) == [restored.event().raw] == [raw for (raw,) in grown.rows("SELECT raw FROM sessions")]
    assert faults(grown) == []
    assert grown.serving() == grown.rebuilt()
    once = Store(grown.root / "once")
    once.write(A, b"".join(LINES))
    once.sync()
    assert grown.sessions() == once.sessions()
    grown.write(A, b"".join([*LINES, *claude_lines(A, 1, start=7)]))
    grown.sync()
    assert len(grown.events("session_restored")) == 1  # it was not pruned any more
    assert grown.sync().events == 0


def test_a_source_that_was_rewritten_is_preserved_again(grown: Store) -> None:
    grown.write(A, b"".join(claude_lines(A, 2, start=6)))
    grown.sync()
    (restored,) = grown.events("session_restored")
    assert here(grown) == [restored.event().raw]
    assert grown.sessions()[A][3] == 4  # the prompts of both
    grown.write(A, b"".join(LINES[:6]))
    grown.sync()
    assert len(here(grown)) == 1  # back to what was pruned: those bytes stay away


def test_a_second_prune_goes_on_where_a_source_came_back(grown: Store) -> None:
    grown.write(A, b"".join(LINES))
    grown.sync()
    pruned(grown)
    assert (grown.sync().events, here(grown), faults(grown)) == (0, [], [])
    assert grown.rows("SELECT count(*), sum(gone) FROM prunes") == [(2, 2)]


@pytest.mark.parametrize("verify", [True, False])
def test_a_pruned_file_that_is_still_there_is_named_and_removed(store: Store, verify: bool) -> None:
    store.write(A, b"".join(LINES))
    store.sync()
    (raw,) = pruned(store, unlinked=False)
    assert faults(store) == ["was pruned and the file is still here: prosa sync --verify removes it"]
    if verify:  # and an earlier sync passed it by
        path = RawStore(store.home.raw).path(raw)
        kept = path.read_bytes()
        store.sync()
        path.write_bytes(kept)
        store.write(B, b"".join(claude_lines(B, 1)))
        store.sync()
        pruned(store)
    store.sync(SyncOptions(verify=verify))
    assert (here(store), faults(store)) == ([], [])
    before = store.files()
    assert store.sync().events == 0
    assert store.files() == before


def test_bytes_that_another_session_names_too_stay(store: Store) -> None:
    """The same transcript under a second id, as a fork's file holds it."""
    store.write(A, b"".join(LINES))
    store.sync()
    (raw,) = pruned(store, unlinked=False)
    store.write(B, b"".join(LINES))  # its file name says B: another session with the same bytes
    store.sync()
    assert store.rows("SELECT count(*) FROM raws") == [(2,)]
    assert here(store) == [raw]
    assert faults(store) == []
    store.sync(SyncOptions(verify=True))
    assert here(store) == [raw]


@pytest.mark.parametrize("order", [[], [1, 0] * 30, [1] * 30], ids=["one first", "in turn", "the other first"])
def test_prunes_of_two_machines_say_the_same_in_any_order(tmp_path: Path, order: list[int]) -> None:
    """Both have the session; both prune it, and on one its source changes then."""
    one, two = Store(tmp_path / "one"), Store(tmp_path / "two")
    for store in (one, two):
        store.write(A, b"".join(LINES[:6]))
        store.sync()
        pruned(store)
    one.write(A, b"".join(LINES))
    one.sync()
    found = []
    for number, interleaved in enumerate(([], order)):
        with Log(merged([one.home.log, two.home.log], interleaved, tmp_path / f"{number}.db")) as log:
            building, digest = build(tmp_path / f"index{number}", log, {})
            found.append((digest.tables["prunes"], building.db.execute("SELECT raw, gone FROM prunes").fetchall()))
            building.discard()
    assert found[0] == found[1]
    assert sorted(gone for _, gone in found[0][1]) == [0, 1]
