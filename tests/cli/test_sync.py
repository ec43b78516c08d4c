"""Sync and rebuild: what is printed, and how they end."""

from __future__ import annotations

import json
from collections.abc import Callable

from cli_fake import SYNCED_IN_PART, Rooms
from command import Ran

from prosa.cli.progress import Bar
from prosa.events.errors import LockedError
from prosa.ingest.report import Outline, Reparsed, SyncOptions, SyncSummary


def test_json_names_what_was_done_and_ends_with_a_summary(prosa: Callable[..., Ran]) -> None:
    ran = prosa("sync", "--no-push", "--json")
    first, last = map(json.loads, ran.out.splitlines())
    assert ran.code == 0
    assert first == {
        "type": "source", "agent": "claude-code", "path": "/home/dev/a.jsonl", "status": "imported", "reason": None,
        "sessions": ["claude-code/a"],
    }  # fmt: skip
    assert (last["type"], last["status"], last["events"]) == ("summary", "complete", 5)


def test_a_broken_source_is_named_and_the_exit_code_is_1(prosa: Callable[..., Ran], rooms: Rooms) -> None:
    rooms.synced = SYNCED_IN_PART
    as_json = prosa("sync", "--json")
    assert as_json.code == 1
    assert json.loads(as_json.out.splitlines()[-1])["status"] == "partial"
    assert "bad\\u001b[31m.jsonl" in as_json.out
    piped = prosa("sync")
    assert piped.code == 1
    assert "failed codex /home/dev/bad.jsonl: not a transcript: line 1 is no JSON\n" in piped.err
    assert "\x1b" not in piped.out + piped.err


def test_a_terminal_gets_the_summary_and_the_failures(terminal: Callable[..., Ran], rooms: Rooms) -> None:
    rooms.synced = SYNCED_IN_PART
    ran = terminal("sync")
    assert ran.out.splitlines() == [
        "2 sources: 1 imported, 1 failed · 5 events · 0 B read · 1 min",
        "  claude-code   1 imported",
        "  codex         1 failed",
    ]
    assert "bad.jsonl" in ran.err


def test_options_reach_the_sync(prosa: Callable[..., Ran], rooms: Rooms) -> None:
    prosa("sync", "--agent", "codex", "--verify", "--reparse", "--dry-run")
    assert rooms.options == SyncOptions("codex", verify=True, reparse=True, dry_run=True)


def test_a_dry_run_shows_before_and_after(
    prosa: Callable[..., Ran], terminal: Callable[..., Ran], rooms: Rooms
) -> None:
    before = Outline(turns=3, tokens=1_000, title="a")
    same = Reparsed(key="codex/1", before=before, after=before)
    other = Reparsed(key="codex/2", before=before, after=Outline(turns=4, tokens=1_000, title=None))
    rooms.synced = [same, other, SyncSummary(sources=2, seconds=1.0)]
    ran = terminal("sync", "--reparse", "--dry-run")
    assert ran.out.splitlines() == ["codex/2", "    turns: 3 → 4", "    title: a → unknown"]
    assert ran.err == "1 session would change; nothing was appended (1.0 s).\n"


def test_another_sync_is_exit_5(prosa: Callable[..., Ran], rooms: Rooms) -> None:
    rooms.error = LockedError("Another prosa is at work on this: sync.")
    assert prosa("sync", "--json").code == 5


def test_a_rebuild_ends_with_its_digest(prosa: Callable[..., Ran], home: object) -> None:
    (home / "prosa").mkdir()  # type: ignore[operator]
    from prosa.events.log import Log

    Log(home / "prosa" / "log.db", create=True).close()  # type: ignore[operator]
    ran = prosa("rebuild", "--json")
    assert (ran.code, json.loads(ran.out)) == (0, {"digest": "ab" * 32, "events": 12, "seconds": 0.5})


def test_a_check_fails_if_anything_differs(prosa: Callable[..., Ran], rooms: Rooms, home: object) -> None:
    from prosa.events.log import Log

    (home / "prosa").mkdir()  # type: ignore[operator]
    Log(home / "prosa" / "log.db", create=True).close()  # type: ignore[operator]
    assert prosa("rebuild", "--check") == (0, "12 events applied in 0.5 s: no difference\n", "")
    rooms.differences = ["session codex/1: differs"]
    ran = prosa("rebuild", "--check")
    assert (ran.code, ran.out.splitlines()[0]) == (1, "session codex/1: differs")
    records = [json.loads(line) for line in prosa("rebuild", "--check", "--json").out.splitlines()]
    assert records == [
        {"type": "difference", "what": "session codex/1: differs"}, {"events": 12, "seconds": 0.5, "differences": 1}
    ]  # fmt: skip


def test_a_bar_says_rate_and_time_left_and_nothing_to_a_pipe(capfd: object) -> None:
    bar = Bar("syncing")
    assert bar.line(500_000_000, 1_000_000_000, "codex", 5.0) == (
        "syncing ██████████░░░░░░░░░░  50 %  500 MB of 1.0 GB  100 MB/s  5 s left  codex"
    )
    assert bar.line(5, None, "", 0.0) == "syncing  5 B  0 B/s"
    bar.update(1, 2, "x")
    bar.close()
    assert capfd.readouterr().err == ""  # type: ignore[attr-defined]
