"""Hostile homes, damaged files, kills and races: what must hold whatever the agents, the disk or the user do."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
import zstandard
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from store import A, B, C, Store, claude_lines

from prosa.cli.indexing import IndexProjector
from prosa.events import codec
from prosa.events.catalogue import Event
from prosa.events.erasing import execute, plan_session
from prosa.events.locks import held
from prosa.events.log import Draft, Log
from prosa.events.raw import RawStore
from prosa.events.verify import preserved, verify_log, verify_raws
from prosa.ingest import importing
from prosa.ingest import run as running
from prosa.ingest.cache import Cache
from prosa.ingest.report import SyncOptions, SyncSummary
from prosa.ingest.run import sync
from prosa.projections.index import open_index

PATH = os.pathsep.join([str(Path(__file__).parent), *(place for place in sys.path if place)])
COMMANDS = (["--all", "--last", "4000d"], ["search", "answer", "--all"], ["show", A])


def environment(store: Store) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": PATH, **store.env}


def prosa(store: Store, *words: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """One command in a process of its own. What it says is never a traceback nor longer than it may be."""
    done = subprocess.run(
        [*before, sys.executable, "-m", "prosa", *words],
        env=environment(store), capture_output=True, text=True, errors="replace", timeout=60, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert "prosa has a bug" not in done.stderr + done.stdout
    return done


def whole(store: Store) -> bool:
    """The chain, the bodies, the raw copies; and the index is what a rebuild gives."""
    with store.log() as log:
        assert [*verify_log(log), *verify_raws(RawStore(store.home.raw), preserved(log))] == []
    return store.serving() == store.rebuilt()


def transcript(session: str, turns: int, **more: Any) -> bytes:
    return b"".join(claude_lines(session, turns, **more))


def with_usage(session: str, count: object) -> bytes:
    records = [json.loads(line) for line in claude_lines(session, 2)]
    for record in records:
        if record["type"] == "assistant":
            record["message"]["usage"] = {"input_tokens": count, "cache_creation_input_tokens": count}
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def rollout(native: str, prompts: int, text: str) -> bytes:
    """A Codex transcript."""
    stamp = "2026-05-01T10:00:00.000Z"
    records: list[dict[str, Any]] = [
        {"timestamp": stamp, "type": "session_meta", "payload": {"id": native, "timestamp": stamp, "cwd": "/x"}}
    ]
    for n in range(prompts):
        message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": f"{n} {text}"}]}
        records.append({"timestamp": stamp, "type": "response_item", "payload": message})
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def serving_file(store: Store) -> Path:
    return store.home.index / (store.home.index / "current").read_text().strip()


def garble(path: Path, start: int, size: int) -> None:
    data = bytearray(path.read_bytes())
    data[start : start + size] = b"\xa5" * len(data[start : start + size])
    path.write_bytes(data)


def synced(store: Store, **profiles: dict[str, Path]) -> SyncSummary:
    """A sync with configured profiles of Claude Code."""
    named = {"claude-code": profiles["claude"]}
    *_, last = sync(
        store.home, named, SyncOptions(), lambda *_: None, lambda log: IndexProjector(store.home, log, {}), store.env
    )
    assert isinstance(last, SyncSummary)
    return last


# raw copies


def test_two_sessions_that_continue_one_content_keep_both_raws(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "SMALL", 2000)
    base = transcript(A, 20)
    store.write(A, base)
    store.write(B, base)
    store.sync()
    store.write(A, base + transcript(A, 10, start=30))
    store.sync()
    store.write(B, base + transcript(A, 12, start=50))
    store.sync()
    assert whole(store)


def test_an_erased_session_leaves_nothing_in_the_raw_of_another(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "SMALL", 2000)
    base = transcript(A, 20)
    store.write(A, base)
    store.write(B, base)
    store.sync()
    store.write(A, base + transcript(A, 10, start=30, text="secret"))
    store.sync()
    raws = RawStore(store.home.raw)
    with store.log() as log:
        execute(log, raws, plan_session(log, raws, f"claude-code/{A}"), "me")
    left = list(store.home.raw.glob("*/*"))
    assert len(left) == 1
    with left[0].open("rb") as file:
        reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(file, read_across_frames=True)
        assert b"secret" not in reader.read(1 << 24)
    assert list(verify_raws(raws, {left[0].stem: len(base)})) == []


def test_an_erased_session_is_in_no_file_and_stays_away(store: Store) -> None:
    store.write(B, transcript(B, 3))
    for turns in (4, 8, 20):
        store.write(A, transcript(A, turns, text="secretword"))
        assert prosa(store, "sync").returncode == 0
    title = store.projects / A
    title.mkdir()
    (title / "custom-title.json").write_text('{"customTitle": "secretword", "by": "user"}')
    store.write(A, transcript(A, 21, text="secretword"))
    assert prosa(store, "sync").returncode == 0
    assert prosa(store, "log", "erase", A, "--yes").returncode == 0
    for turns in (21, 22):
        store.write(A, transcript(A, turns, text="secretword"))
        prosa(store, "sync")
        prosa(store, "rebuild")
        for path in (store.root / "prosa").rglob("*"):
            data = path.read_bytes() if path.is_file() else b""
            assert b"secretword" not in data, path
            for found in re.finditer(re.escape(zstandard.FRAME_HEADER), data):
                try:
                    reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
                    plain = reader.decompress(data[found.start() :])
                except zstandard.ZstdError:
                    continue
                assert b"secretword" not in plain, path
    assert sorted(store.sessions()) == [B]
    assert whole(store)


# values


@pytest.mark.parametrize("count", [10**15, 2**62, 2**63, 2**64 - 1, 2**70])
def test_a_count_that_cannot_be_costs_that_count_alone(store: Store, count: int) -> None:
    store.write(A, with_usage(A, count))
    store.write(B, transcript(B, 2))
    assert store.sync().failed == 0
    assert {row[3] for row in store.sessions().values()} == {2}
    assert store.rows("SELECT input FROM sessions ORDER BY id") == [(0,), (21,)]
    assert whole(store)


@pytest.mark.parametrize("count", [-5, 1e30, float("inf"), "7", [1], {"a": 1}, True, None])
def test_a_count_of_another_type_costs_nothing_else(store: Store, count: object) -> None:
    store.write(A, with_usage(A, count))
    assert store.sync().failed == 0
    assert [row[3] for row in store.sessions().values()] == [2]
    assert whole(store)


@pytest.mark.parametrize(
    "junk",
    [
        b"\0" * 5000, b"\n" * 500, b"[" * 100_000 + b"]" * 100_000 + b"\n", b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b'1\n"x"\nnull\n[]\n[1]\ntrue\n{}\n', b'{"type": "user", "message": [1, {}], "uuid": 5, "cwd": 7}\n',
        b'{"type": "user", "uuid": "q", "cwd": "/a\\u0000b", "message": {"content": [[null], 5, {"type": 7}]}}\n',
        b'{"type": "\\udcff", "timestamp": 1e400, "message": {"role": {}, "content": 5}}\n', b"\xff\xfe{\0}\0\n\0",
    ],
)  # fmt: skip
def test_junk_before_a_transcript_costs_itself(store: Store, junk: bytes) -> None:
    store.write(A, junk + b"\n" + transcript(A, 2))
    store.write(B, junk)
    assert store.sync().failed == 0
    assert store.sessions()[A][3] >= 2
    assert whole(store)
    assert store.sync().events == 0


def test_an_importer_that_fails_on_one_source_imports_the_others(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from prosa.ingest.claude_code.fold import Fold

    feed = Fold.feed

    def fails(fold: Any, data: bytes) -> None:
        if b"poison" in data:
            raise KeyError("unexpected")
        feed(fold, data)

    monkeypatch.setattr(Fold, "feed", fails)
    store.write(A, transcript(A, 2, text="poison"))
    store.write(B, transcript(B, 2))
    done = store.sync()
    assert (done.failed, done.imported, done.status) == (1, 1, "partial")
    monkeypatch.setattr(Fold, "feed", feed)
    assert store.sync().imported == 1
    assert whole(store)


def test_an_id_of_a_hundred_thousand_characters_stops_nobody_else(store: Store) -> None:
    folder = store.user / ".codex" / "sessions"
    folder.mkdir(parents=True)
    (folder / f"rollout-2026-05-01T10-00-00-{C}.jsonl").write_bytes(rollout("i" * 100_000, 1, "hi"))
    store.write(A, transcript(A, 1))
    assert store.sync().failed == 0
    assert list(store.sessions()) == [A]


def test_a_line_of_many_megabytes_is_one_turn(store: Store) -> None:
    message = {"role": "user", "content": "word " * 4_000_000}
    record = {"type": "user", "uuid": "big", "sessionId": A, "message": message}
    store.write(A, transcript(A, 1) + json.dumps(record).encode() + b"\n" + transcript(A, 1, start=5))
    assert store.sync().failed == 0
    assert store.sessions()[A][3] == 3
    assert whole(store)


# homes


def test_links_devices_pipes_and_names_cost_only_themselves(store: Store) -> None:
    place = store.projects.parent
    store.write(A, transcript(A, 1))
    (place / "dangling").symlink_to("/nowhere")
    (place / "loop").symlink_to("loop")
    (place / "up").symlink_to("..")
    os.mkfifo(store.projects / f"{B}.jsonl")
    (store.projects / f"{C}.jsonl").symlink_to("/dev/zero")
    long = place / ("n" * 255)
    long.mkdir()
    (long / f"{'e' * 8}-1111-4111-8111-{'e' * 12}.jsonl").write_bytes(transcript("e" * 8, 1))
    odd = place / "a\nb\x1b[31m\tc"
    odd.mkdir()
    (odd / f"{'f' * 8}-1111-4111-8111-{'f' * 12}.jsonl").write_bytes(transcript("f" * 8, 1))
    said = prosa(store, "sync")
    assert said.returncode == 1
    assert "\x1b" not in said.stdout + said.stderr
    assert all(line.split("\t")[0] in ("imported", "failed") for line in said.stdout.splitlines())
    assert len(store.sessions()) == 3
    assert prosa(store, "sync").stderr.count("imported") == 0


def test_a_name_that_is_not_utf8_can_be_said_as_json(store: Store) -> None:
    store.write(A, transcript(A, 1))
    name = os.fsdecode(b"lo\xffop")
    (store.projects.parent / name).symlink_to(name)
    said = prosa(store, "sync", "--json")
    said_of = [json.loads(line) for line in said.stdout.splitlines()]
    assert said_of[-1]["type"] == "summary"
    assert {Path(item["path"]).name for item in said_of[:-1]} == {r"lo\xffop", f"{A}.jsonl"}


@pytest.mark.parametrize("name", [".claude/history.jsonl", ".codex/session_index.jsonl"])
def test_a_pipe_in_place_of_a_shared_file_is_never_opened(store: Store, name: str) -> None:
    store.write(A, transcript(A, 1))
    (store.user / name).parent.mkdir(exist_ok=True)
    os.mkfifo(store.user / name)
    child = subprocess.Popen(
        [sys.executable, "-m", "prosa", "sync"], env=environment(store), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        child.communicate(timeout=15)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        pytest.fail("it waits for a writer")
    assert list(store.sessions()) == [A]


def test_a_folder_that_two_profiles_reach_is_read_once(store: Store) -> None:
    store.write(A, transcript(A, 2))
    assert synced(store, claude={"work": store.user / ".claude" / "projects"}).imported == 1
    again = synced(store, claude={"work": store.user / ".claude" / "projects"})
    assert (again.events, again.bytes) == (0, 0)


def test_a_copied_home_with_another_title_says_nothing_new_at_each_sync(store: Store) -> None:
    store.write(A, transcript(A, 1))
    other = store.user / "copy"
    shutil.copytree(store.user / ".claude", other)
    for home, title in ((store.user / ".claude", "one"), (other, "two")):
        place = home / "projects" / store.projects.name / A
        place.mkdir()
        (place / "custom-title.json").write_text(json.dumps({"customTitle": title, "by": "user"}))
    synced(store, claude={"copy": other})
    for turns in (1, 2, 3):
        store.write(B, transcript(B, turns))
        synced(store, claude={"copy": other})
    described = [event.stream for event in store.events("session_described")]
    assert described == [f"session-claude-code/{A}"]


# sources that go


def test_sources_of_equal_content_vanish_in_one_sync(store: Store) -> None:
    for letter in "def0":
        store.write(f"{letter * 8}-1111-4111-8111-{letter * 12}", b"")
    store.write(A, transcript(A, 1))
    store.sync()
    for path in store.projects.iterdir():
        path.unlink()
    assert store.sync().vanished == 5
    assert store.sync().events == 0


def test_a_move_that_was_killed_before_it_was_said_is_said_later(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store.write(A, transcript(A, 1))
    store.write(B, transcript(B, 1))
    store.sync()
    (store.projects.parent / "-other").mkdir()
    path.rename(store.projects.parent / "-other" / path.name)
    commit = running.Sync._commit

    def killed(self: running.Sync) -> Any:
        if any(item.type == "source_moved" for item in self._batch):
            raise KeyboardInterrupt
        return commit(self)

    monkeypatch.setattr(running.Sync, "_commit", killed)
    with pytest.raises(KeyboardInterrupt):
        store.sync()
    monkeypatch.setattr(running.Sync, "_commit", commit)
    store.sync()
    assert [state for (state,) in store.rows("SELECT state FROM sources ORDER BY state")] == [
        "moved", "present", "present",
    ]  # fmt: skip


# the log and the index


def test_a_log_restored_after_a_killed_sync_gets_back_what_it_lost(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write(A, transcript(A, 1))
    store.sync()
    older = store.home.log.read_bytes()
    store.write(B, transcript(B, 1))
    settle = IndexProjector.settle

    def killed(self: IndexProjector) -> None:
        if self._log.stream_version(f"session-claude-code/{B}"):
            raise KeyboardInterrupt
        settle(self)

    monkeypatch.setattr(IndexProjector, "settle", killed)
    with pytest.raises(KeyboardInterrupt):
        store.sync()
    monkeypatch.setattr(IndexProjector, "settle", settle)
    store.home.log.write_bytes(older)
    for suffix in ("-wal", "-shm"):
        store.home.log.with_name(f"log.db{suffix}").unlink(missing_ok=True)
    store.sync()
    assert sorted(store.sessions()) == [A, B]
    assert whole(store)


class _Later(Event, frozen=True, kw_only=True):
    """An event of a newer prosa."""

    TYPE = "thing_of_the_future"
    VERSION = 1
    SCOPE = "shared"


def with_unknown_event(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write(A, transcript(A, 2))
    store.sync()
    with monkeypatch.context() as patch, store.log() as log:
        patch.setitem(codec.BY_TYPE, _Later.TYPE, _Later)
        log.append([Draft("thing-1", 0, _Later())])


def test_reads_go_on_with_an_event_of_a_newer_prosa(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with_unknown_event(store, monkeypatch)
    for words in COMMANDS:
        done = prosa(store, *words)
        assert done.returncode == 0
        assert done.stdout


def test_sync_and_rebuild_stop_at_an_event_of_a_newer_prosa(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with_unknown_event(store, monkeypatch)
    store.write(A, transcript(A, 3))
    with store.log() as log:
        head = log.head()
    for words in (["sync"], ["rebuild"]):
        said = prosa(store, *words)
        assert (said.returncode, said.stdout) == (3, "")
        assert "Upgrade prosa" in said.stderr
    with store.log() as log:
        assert log.head() == head
    shutil.rmtree(store.home.index)
    assert prosa(store, "sync").returncode == 3
    assert list(store.home.index.glob("*.db")) == []


def test_a_log_of_a_newer_prosa_is_not_written(store: Store) -> None:
    store.write(A, transcript(A, 2))
    store.sync()
    db = apsw.Connection(str(store.home.log))
    db.pragma("user_version", 9)
    db.close()
    store.write(A, transcript(A, 3))
    said = prosa(store, "sync")
    assert said.returncode == 3
    assert "newer prosa" in said.stderr


def test_verify_finds_damage_in_the_logs_search_trees(store: Store) -> None:
    store.write(A, transcript(A, 2))
    store.sync()
    db = apsw.Connection(str(store.home.log))
    roots = [root for (root,) in db.execute("SELECT rootpage FROM sqlite_schema WHERE type = 'index' AND rootpage")]
    size = db.pragma("page_size")
    db.close()
    for root in roots:
        garble(store.home.log, (root - 1) * size + 8, 1000)
    done = prosa(store, "log", "verify", "--deep")
    assert done.returncode == 1


def test_a_sync_says_that_the_log_was_cut(store: Store) -> None:
    store.write(A, transcript(A, 2))
    store.sync()
    store.home.log.unlink()
    assert "was cut or replaced" in prosa(store, "sync").stderr


def test_a_session_united_for_years_never_runs_out_of_numbers(store: Store) -> None:
    lines = claude_lines(A, 6)
    store.write(A, b"".join(lines))
    store.sync()
    store.write(A, b"".join(lines[3:]))
    store.sync()
    db = open_index(store.home.index)
    db.execute("UPDATE sessions SET next = (1 << 24) - 5")
    db.close()
    store.write(A, b"".join(lines[3:]) + transcript(A, 3, start=20))
    store.sync()
    assert store.found("prompt 21") == [A]
    assert whole(store)


@pytest.mark.parametrize("damage", ["all", "half", "nothing", "current", "name", "gone"])
def test_an_index_that_is_no_database_is_built_again(store: Store, damage: str) -> None:
    store.write(A, transcript(A, 4))
    store.sync()
    before, path = store.serving(), serving_file(store)
    match damage:
        case "all":
            garble(path, 0, path.stat().st_size)
        case "half":
            os.truncate(path, path.stat().st_size // 8192 * 4096)
        case "nothing":
            os.truncate(path, 0)
        case "current":
            (store.home.index / "current").write_bytes(b"\xff\0garbage")
        case "name":
            (store.home.index / "current").write_text("../log.db")
        case _:
            (store.home.index / "current").write_text("99.db")
    assert prosa(store, *COMMANDS[0]).returncode == 0
    assert prosa(store, "sync").returncode == 0
    assert store.serving() == before
    assert whole(store)


def test_an_index_with_damaged_pages_says_how_to_make_it_again(store: Store) -> None:
    store.write(A, transcript(A, 4))
    store.sync()
    garble(serving_file(store), 4096 * 3, 4096 * 20)
    said = prosa(store, *COMMANDS[0])
    assert said.returncode == 1
    assert "prosa rebuild" in said.stderr
    assert len(said.stderr.splitlines()) <= 3
    assert prosa(store, "rebuild").returncode == 0
    assert prosa(store, *COMMANDS[0]).returncode == 0


@pytest.mark.parametrize("damage", ["pages", "tables"])
def test_a_damaged_cache_is_begun_anew(store: Store, damage: str) -> None:
    store.write(A, transcript(A, 4))
    store.sync()
    if damage == "pages":
        garble(store.home.cache, 4096, 1 << 20)
    else:
        store.home.cache.unlink()
        db = apsw.Connection(str(store.home.cache))
        db.pragma("user_version", 1)
        db.close()
    assert store.sync().events == 0
    assert store.sync().bytes == 0


@pytest.mark.parametrize("size", [0, 10, 4000])
def test_a_cache_that_is_no_database_is_begun_anew(store: Store, size: int) -> None:
    store.write(A, transcript(A, 4))
    store.sync()
    store.home.cache.write_bytes(b"x" * size)
    assert store.sync().events == 0
    assert store.sync().bytes == 0


# the disk


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="drops root's rights with setpriv")
def test_a_store_that_cannot_be_written_still_answers(store: Store) -> None:
    store.write(A, transcript(A, 2))
    assert prosa(store, "sync").returncode == 0
    for path in [store.home.data, *store.home.data.rglob("*")]:
        path.chmod(0o500 if path.is_dir() else 0o400)
    rights = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
    try:
        for words in (*COMMANDS, ["log"], ["log", "verify", "--deep"]):
            done = prosa(store, *words, before=rights)
            assert done.returncode == 0, done.stderr
        assert prosa(store, "sync", before=rights).returncode == 1
    finally:
        for path in [store.home.data, *store.home.data.rglob("*")]:
            path.chmod(0o700 if path.is_dir() else 0o600)


def test_a_full_disk_is_said_and_costs_nothing(store: Store) -> None:
    store.write(A, transcript(A, 400, text="some words " * 30))
    script = f"ulimit -f 60; exec {sys.executable} -m prosa sync"
    done = subprocess.run(["bash", "-c", script], env=environment(store), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "has a bug" not in done.stderr
    assert len(done.stderr.splitlines()) <= 3
    assert prosa(store, "sync").returncode == 0
    assert store.sessions()[A][3] == 400
    assert whole(store)
    assert list(store.home.raw.glob(".new-*")) == []


@pytest.mark.parametrize("umask", ["000", "077"])
def test_whatever_the_umask_nobody_else_can_read(store: Store, umask: str) -> None:
    store.write(A, transcript(A, 2))
    words = f"{sys.executable} -m prosa"
    script = f"umask {umask}; {words} sync && {words} rebuild && {words} log && {words} profiles list"
    subprocess.run(["bash", "-c", script], env=environment(store), capture_output=True, check=True)
    found = [store.home.data, *store.home.data.rglob("*")]
    assert [path for path in found if path.stat().st_mode & 0o077] == []


# processes


def large(store: Store, count: int = 4) -> None:
    """More than is read in one process, and more than is held in memory."""
    for k in range(count):
        native = f"{k}" * 8 + "-1111-4111-8111-" + f"{k}" * 12
        store.write(native, b"".join(transcript(native, 50, start=50 * n, text="many words " * 1500) for n in range(6)))


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def test_two_files_of_one_session_are_read_whoever_reads_them(store: Store) -> None:
    """Their names do not say that the session is the same, and there is so much that two processes read."""
    folder = store.user / ".codex" / "sessions"
    folder.mkdir(parents=True)
    for letter in "ab":
        native = f"{letter * 8}-1111-4111-8111-{letter * 12}"
        data = rollout(C, 60, f"{letter} " + "many words " * 28_000)
        (folder / f"rollout-2026-05-01T10-00-00-{native}.jsonl").write_bytes(data)
    done = store.sync()
    assert (done.imported, done.failed) == (2, 0)
    assert list(store.sessions()) == [C]
    assert store.sync().events == 0
    assert whole(store)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds the child processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
def test_a_killed_sync_and_its_readers_end_without_a_word(store: Store, how: signal.Signals) -> None:
    large(store)
    for pause in (0.2, 0.4, 0.7):
        child = subprocess.Popen(
            [sys.executable, "-m", "prosa", "sync"], env=environment(store), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        while child.poll() is None and len(children(child.pid)) < 2:
            time.sleep(0.01)
        time.sleep(pause)
        if how == signal.SIGINT:
            os.killpg(child.pid, how)  # as a terminal does
        else:
            child.send_signal(how)
        _, said = child.communicate()
        assert child.returncode in (130, -how, 0)
        assert b"Traceback" not in said
        assert b"Broken pipe" not in said
    assert prosa(store, "sync").returncode == 0
    once = Store(store.root / "once")
    large(once)
    once.sync()
    assert store.sessions() == once.sessions()
    assert whole(store)
    assert store.sync().events == 0


@pytest.mark.parametrize("order", [b"", b"\x83\xa4data"])
def test_a_reader_whose_asker_went_before_it_had_asked_ends_without_a_word(store: Store, order: bytes) -> None:
    words = [sys.executable, "-m", "prosa.ingest.worker"]
    done = subprocess.run(words, input=order, env=environment(store), capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds the child processes in /proc")
def test_a_reader_that_was_killed_is_said_and_the_next_sync_goes_on(store: Store) -> None:
    large(store)
    child = subprocess.Popen(
        [sys.executable, "-m", "prosa", "sync"], env=environment(store), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    while child.poll() is None and len(children(child.pid)) < 2:
        time.sleep(0.01)
    if found := children(child.pid):
        os.kill(found[0], signal.SIGKILL)
    _, said = child.communicate()
    assert child.returncode in (0, 1)
    assert b"Traceback" not in said
    assert prosa(store, "sync").returncode == 0
    assert len(store.sessions()) == 4
    assert whole(store)


def test_syncs_rebuilds_and_reads_at_once_apply_every_event_once(store: Store) -> None:
    names = [f"{letter * 8}-1111-4111-8111-{letter * 12}" for letter in "0123456789ab"]
    for turns in (3, 6):
        for native in names:
            store.write(native, transcript(native, turns))
        words = [["sync"], ["sync"], *([[*COMMANDS[0]]] * 4), ["rebuild"], ["rebuild", "--check"], ["sync"]]
        running = [
            subprocess.Popen(
                [sys.executable, "-m", "prosa", *line], env=environment(store), stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, text=True,
            )
            for line in words
        ]  # fmt: skip
        for line, child in zip(words, running, strict=True):
            _, said = child.communicate()
            assert "has a bug" not in said, line
            assert "Traceback" not in said, line
            assert child.returncode in (0, 5), (line, said)
        store.sync()
        assert {row[3] for row in store.sessions().values()} == {turns}
        assert whole(store)


def test_a_reader_keeps_its_index_while_another_takes_its_place(store: Store) -> None:
    store.write(A, transcript(A, 3))
    store.sync()
    reader = open_index(store.home.index)
    turns = reader.execute("SELECT count(*) FROM turns").fetchone()
    for _ in range(3):
        assert prosa(store, "rebuild").returncode == 0
    assert reader.execute("SELECT count(*) FROM turns").fetchone() == turns
    reader.close()
    assert prosa(store, "rebuild").returncode == 0
    assert len(list(store.home.index.glob("*.db"))) == 1
    assert whole(store)


def test_an_index_is_built_anew_twice_in_one_sync_where_the_log_changed_twice(store: Store) -> None:
    """A restored log that then takes a new origin."""
    store.write(A, transcript(A, 1))
    store.sync()
    with store.log() as log:
        projector = IndexProjector(store.home, log, {})
        for _ in range(2):
            projector._db.execute("UPDATE checkpoint SET hash = zeroblob(32)")
            projector.settle()
            with held(store.home.locks, "rebuild"):
                pass
        projector.close(complete=True)
    assert whole(store)


def test_a_writer_that_never_rests_does_not_disturb_the_reading(store: Store) -> None:
    """Grown by half lines, cut, replaced and deleted while they are read; when it is quiet, all is as it should be."""
    script = """
import os, random, sys, time
from pathlib import Path
from store import A, B, Store, claude_lines
store, n = Store(Path(sys.argv[1])), 0
random.seed(1)
for step in range(300):
    session = random.choice([A, B]); path = store.projects / f"{session}.jsonl"; what = random.random()
    if what < 0.7 or not path.exists():
        n += 1; line = b"".join(claude_lines(session, 1, start=n, text="x" * random.randrange(3000)))
        with path.open("ab", buffering=0) as file:
            file.write(line[: len(line) // 2]); time.sleep(0.002); file.write(line[len(line) // 2 :])
    elif what < 0.8: os.truncate(path, random.randrange(path.stat().st_size + 1))
    elif what < 0.95:
        aside = path.with_suffix(".tmp"); aside.write_bytes(path.read_bytes().replace(b"xxxx", b"yyyy", 3))
        aside.replace(path)
    else: path.unlink()
"""
    writer = subprocess.Popen([sys.executable, "-c", script, str(store.root)], env=environment(store))
    while writer.poll() is None:
        store.sync()
    assert writer.returncode == 0
    assert store.sync().failed == 0
    assert store.sync().events == 0
    assert whole(store)


# the laws, whatever happens in whatever order

WHO = st.sampled_from([A, B, C])
KILLS: dict[str, tuple[type, str]] = {
    "before an append": (Log, "_insert"),
    "before the index": (IndexProjector, "settle"),
    "before the cache": (Cache, "write"),
    "between sources": (running.Sync, "_say_source"),
}


class Laws(RuleBasedStateMachine):
    """Three sessions' files, written, cut, deleted, moved and copied; prosa's files dropped; syncs killed."""

    @initialize(small=st.sampled_from([importing.SMALL, 1200, 3000]))
    def start(self, small: int) -> None:
        self.small, self.turns, self.only_grown = small, 0, True
        self.store = Store(Path(tempfile.mkdtemp(prefix="prosa-laws-")))
        self.folders = dict.fromkeys((A, B, C), self.store.projects)
        self.older: dict[str, list[bytes]] = {A: [], B: [], C: []}
        self.ever: set[str] = set()

    def teardown(self) -> None:
        if hasattr(self, "store"):
            shutil.rmtree(self.store.root, ignore_errors=True)

    def path(self, session: str) -> Path:
        return self.folders[session] / f"{session}.jsonl"

    def data(self, session: str) -> bytes:
        return self.path(session).read_bytes() if self.path(session).exists() else b""

    def put(self, session: str, data: bytes, *, grown: bool = False) -> None:
        self.older[session].append(self.data(session))
        self.path(session).write_bytes(data)
        self.only_grown &= grown

    @rule(session=WHO, turns=st.integers(1, 4), torn=st.booleans())
    def append(self, session: str, turns: int, torn: bool) -> None:
        new = b""
        for _ in range(turns):
            self.turns += 1
            new += transcript(session, 1, start=self.turns, text=f"word{self.turns}x")
        self.put(session, self.data(session) + (new[:-20] if torn else new), grown=not torn)

    @rule(session=WHO, part=st.floats(0, 1))
    def cut(self, session: str, part: float) -> None:
        self.put(session, self.data(session)[: int(len(self.data(session)) * part)])

    @rule(session=WHO, part=st.floats(0, 1))
    def rewrite(self, session: str, part: float) -> None:
        lines = self.data(session).splitlines(keepends=True)
        if lines:
            lines.pop(int(part * (len(lines) - 1)))
            self.put(session, b"".join(lines))

    @rule(session=WHO)
    def delete(self, session: str) -> None:
        self.put(session, b"")
        self.path(session).unlink()

    @rule(session=WHO, part=st.floats(0, 1))
    def restore(self, session: str, part: float) -> None:
        if older := self.older[session]:
            self.put(session, older[int(part * (len(older) - 1))])

    @rule(session=WHO)
    def move(self, session: str) -> None:
        if self.path(session).exists():
            before = self.path(session)
            self.folders[session] = self.store.projects.parent / ("-b" if before.parent.name != "-b" else "-a")
            self.folders[session].mkdir(exist_ok=True)
            before.rename(self.path(session))

    @rule(session=WHO, other=WHO)
    def copy(self, session: str, other: str) -> None:
        if session != other:
            self.put(other, self.data(session))

    @rule(session=WHO, other=WHO)
    def fork(self, session: str, other: str) -> None:
        if session != other:
            self.put(other, self.data(session).replace(session.encode(), other.encode()))

    @rule(session=WHO)
    def touch(self, session: str) -> None:
        if self.path(session).exists():
            os.utime(self.path(session), ns=(1, 1))

    @rule()
    def drop_cache(self) -> None:
        self.store.home.cache.unlink(missing_ok=True)

    @rule()
    def drop_index(self) -> None:
        shutil.rmtree(self.store.home.index, ignore_errors=True)

    @rule(verify=st.booleans())
    def sync(self, verify: bool) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(importing, "SMALL", self.small)
            assert self.store.sync(SyncOptions(verify=verify)).failed == 0
            self.hold()

    @rule(where=st.sampled_from(sorted(KILLS)), count=st.integers(0, 4))
    def killed(self, where: str, count: int) -> None:
        cls, name = KILLS[where]
        work: Callable[..., Any] = getattr(cls, name)
        left = [count]

        def dies(*given: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return work(*given, **named)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(importing, "SMALL", self.small)
            with pytest.MonkeyPatch.context() as kill:
                kill.setattr(cls, name, dies)
                with contextlib.suppress(KeyboardInterrupt):
                    self.store.sync()
            self.store.sync()
            self.hold()

    def hold(self) -> None:
        """Idempotent, replay = live, nothing lost, chain and raws whole; what only grew is as if imported at once."""
        for session in (A, B, C):
            for line in self.data(session).split(b"\n")[:-1]:
                try:
                    json.loads(line)
                except ValueError:
                    continue
                self.ever.update(word.decode() for word in re.findall(rb"word\d+x", line))
        again = self.store.sync()
        assert (again.events, again.bytes) == (0, 0)
        assert whole(self.store)
        assert [word for word in sorted(self.ever) if not self.store.found(word)] == []
        if self.only_grown:
            once = Store(self.store.root / "once")
            for session in (A, B, C):
                if self.data(session):
                    once.write(session, self.data(session))
            once.sync()
            assert once.sessions() == self.store.sessions()
            shutil.rmtree(once.root)


def test_the_laws_hold_in_any_order_of_what_can_happen() -> None:
    run_state_machine_as_test(
        Laws,
        settings=settings(
            max_examples=25, stateful_step_count=16, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
