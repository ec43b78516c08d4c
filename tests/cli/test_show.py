"""One session: bytes in a pipe, one object as JSON, a transcript on a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_fake import CJK, Rooms, sessions, turns
from cli_run import spawn
from command import Ran

from prosa.cli import opening
from prosa.cli.text import width
from prosa.events.errors import ConflictError
from prosa.events.home import Home


def test_a_pipe_gets_the_bytes_exactly() -> None:
    for args in (("show", "00000001"), ("show", "00000001", "--raw")):
        out, err = spawn(*args).communicate()
        assert (out, err) == (Rooms().raw, b"")


def test_json_is_one_line_with_the_session_and_its_turns(prosa: Callable[..., Ran]) -> None:
    ran = prosa("show", "claude-code/00000001", "--json")
    assert ran.out.count("\n") == 1
    found = json.loads(ran.out)
    assert list(found) == ["session", "turns"]
    assert found["session"]["id"].startswith("00000001")
    assert list(found["turns"][0]) == [
        "ordinal", "key", "role", "kind", "at", "text", "tool", "tool_call_id", "is_error", "model", "truncated",
        "counted", "inherited",
    ]  # fmt: skip
    assert [turn["ordinal"] for turn in found["turns"]] == list(range(1, len(turns()) + 1))


def test_several_matches_are_listed_with_agent_device_parent_and_start(prosa: Callable[..., Ran]) -> None:
    ran = prosa("show", "agent-a1b2")
    assert (ran.code, ran.out) == (2, "")
    lines = ran.err.splitlines()
    assert lines[0] == "'agent-a1b2' fits 2 sessions:"
    assert all(
        line.startswith("  claude-code/agent-a1b2")
        and "studio.example.org child of 00000001-7f3c-4abc-9def-0123456789ab started 20" in line
        for line in lines[1:3]
    )
    assert lines[3] == "Give more of the id, or the key."


def test_a_whole_id_beats_longer_ones(prosa: Callable[..., Ran], rooms: Rooms) -> None:
    from cli_fake import make

    rooms.backend.listed = [make(1, ago_h=1, native="abc"), make(2, ago_h=2, native="abcd")]
    assert json.loads(prosa("show", "abc", "--json").out)["session"]["id"] == "abc"


@pytest.mark.parametrize(("state", "said"), [(None, "was preserved"), ("missing", "is missing")])
def test_missing_bytes_are_refused_and_the_turns_are_not_lost(state: str | None, said: str, tmp_path: Path) -> None:
    session = next(s for s in sessions() if (s.raw.state if s.raw else None) == state)
    with pytest.raises(ConflictError, match=said) as raised:
        list(opening.read_raw(Home(tmp_path, tmp_path), session))
    assert "turns are" in str(raised.value)


def test_a_terminal_shows_turns_that_fit_and_do_nothing(terminal: Callable[..., Ran]) -> None:
    out = terminal("show", "00000001", "--no-color").out
    assert all(width(line) <= 80 for line in out.splitlines())
    assert not any((ord(c) < 32 and c != "\n") or 0x7F <= ord(c) < 0xA0 for c in out)
    assert "\nyou  " in out
    assert "\nclaude-opus-4-6  thinking  " in out
    assert "  ▸ Bash grep -rn drain tests/\n    tests/test_reaper.py:0: drain()\n" in out
    assert "    … 28 more lines (--max-output-lines 0 shows all)\n" in out
    assert "    failed\n    red gnp.exe bell " in out
    assert "".join(out.split()).endswith("Done." + CJK)


def test_output_is_not_folded_if_the_user_says_so(terminal: Callable[..., Ran]) -> None:
    out = terminal("show", "00000001", "--max-output-lines", "0").out
    assert "more line" not in out
    assert "tests/test_reaper.py:39: drain()" in out


def test_long_output_goes_through_the_pager(
    terminal: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PAGER", f"cat > {tmp_path / 'paged'}")
    ran = terminal("show", "00000001", "--no-color")
    assert (ran.code, ran.out) == (0, "")
    assert "Fix the flaky reaper test" in (tmp_path / "paged").read_text(encoding="utf-8")


def test_a_pager_that_is_left_early_is_no_error(terminal: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", "true")
    assert terminal("show", "00000001") == (0, "", "")


def test_without_a_pager_the_output_is_printed(terminal: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", "no-such-program-here -R")
    assert "Fix the flaky reaper test" in terminal("show", "00000001", "--no-color").out
