"""The timeline for a terminal, a pipe and a program."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta

import msgspec
from cli_fake import CJK, NOW, Rooms, sessions, us
from command import Ran

from prosa.cli.text import width
from prosa.projections.queries import Filters, Session


def test_json_is_one_session_object_a_line(prosa: Callable[..., Ran], rooms: Rooms) -> None:
    ran = prosa("--json")
    assert ran.out.endswith("\n")
    found = [msgspec.json.decode(line, type=Session) for line in ran.out.splitlines()]
    assert found == rooms.backend.timeline(rooms.backend.asked[-1]).sessions
    record = json.loads(ran.out.splitlines()[0])
    assert record["cost_usd"] == "1.234567"
    assert record["usage"]["total"] == 1_235_767
    assert list(record) == list(Session.__struct_fields__)


def test_the_black_box_command_line_lists_everything(prosa: Callable[..., Ran]) -> None:
    ran = prosa("--all", "--flat", "--include-empty", "--since", "2000-01-01", "--limit", "0", "--json")
    assert (ran.code, len(ran.out.splitlines())) == (0, len(sessions()))


def test_a_pipe_gets_one_clean_line_a_session(prosa: Callable[..., Ran]) -> None:
    lines = prosa("--last", "8w").out.split("\n")
    assert lines[-1] == ""
    assert len(lines) == 7
    for line in lines[:-1]:
        assert line.count("\t") == 10
        assert not any((ord(c) < 32 and c != "\t") or 0x7F <= ord(c) < 0xA0 or c in "\u202e\u2069" for c in line)
    assert lines[2].endswith(CJK)
    assert lines[3].endswith("\tred gnp.exe bell tab here and a second line")


def test_the_default_window_is_seven_days(prosa: Callable[..., Ran], rooms: Rooms) -> None:
    prosa()
    since = rooms.backend.asked[-1].filters.since_us
    assert abs(since - us(NOW - timedelta(days=7))) < 60_000_000 * 10


def test_filters_reach_the_back_end(prosa: Callable[..., Ran], rooms: Rooms) -> None:
    prosa("--between", "2026-01-01..2026-01-31", "--project", "shop", "--agent", "codex", "--device", "studio",
          "--profile", "default", "--model", "claude-opus-4-6", "--kind", "goal",
          "--tz", "Europe/Madrid", "--limit", "5", "--flat")  # fmt: skip
    asked = rooms.backend.asked[-1]
    assert asked.filters == Filters(
        since_us=1_767_222_000_000_000, until_us=1_769_900_400_000_000, project="shop", agent="codex",
        device="studio", profile="default", model="claude-opus-4-6", kind="goal",
    )  # fmt: skip
    assert (asked.limit, asked.flat, asked.include_empty) == (5, True, False)


def test_the_current_project_is_asked_for_alone_and_said(prosa: Callable[..., Ran], rooms: Rooms) -> None:
    rooms.project = ("github.com/acme/shop", None)
    ran = prosa("--json")
    assert rooms.backend.asked[-1].filters.scope == ("remote", "github.com/acme/shop")
    assert ran.err.splitlines()[0] == "Only acme/shop, last 7 days; --all lists all projects."
    prosa("--json", "--all")
    assert rooms.backend.asked[-1].filters.scope is None
    prosa("--json", "--project", "navi")
    assert rooms.backend.asked[-1].filters.scope is None


def test_a_project_without_sessions_does_not_narrow(prosa: Callable[..., Ran], rooms: Rooms) -> None:
    rooms.project = ("github.com/acme/other", None)
    ran = prosa("--json")
    assert rooms.backend.asked[-1].filters.scope is None
    assert "Only" not in ran.err


def test_hidden_sessions_are_counted(prosa: Callable[..., Ran]) -> None:
    assert prosa().err == "1 session with no prompt and no usage is hidden: --include-empty.\n"
    assert prosa("--include-empty").err == ""


def test_an_empty_window_says_how_to_look_further(prosa: Callable[..., Ran]) -> None:
    ran = prosa("--between", "2001-01-01..2001-01-02")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith("No session: between 2001-01-01 and 2001-01-02.")


def test_a_terminal_gets_lines_that_fit(terminal: Callable[..., Ran], monkeypatch: object) -> None:
    ran = terminal("--no-color", "--last", "8w")
    assert all(width(line) <= 80 for line in ran.out.splitlines())
    assert "Today · " in ran.out
    assert "\x1b" not in ran.out
    first = ran.out.splitlines()[1]
    assert first.split(maxsplit=2)[1:] == ["claude-code", "Fix the flaky reaper test in CI"]
    assert first.split()[0].endswith("*")


def test_few_subagents_are_shown_and_many_are_counted(terminal: Callable[..., Ran]) -> None:
    out = terminal("--no-color").out
    assert "         ├ agent-a1b2c3d4e5  Look for reaper.drain · 6 min\n" in out
    assert "         └ agent-a1b2ffffff  Run the tests · 12 min\n" in out
    assert "         └ 6 subagents · --flat lists them\n" in out


def test_every_short_id_finds_its_session(terminal: Callable[..., Ran], rooms: Rooms) -> None:
    from prosa.cli.session_lines import short_ids

    for key, short in short_ids(rooms.backend, rooms.backend.listed).items():
        assert [match.key for match in rooms.backend.find(short)] == [key]
