from __future__ import annotations

from typing import TYPE_CHECKING

from prosa.events.facts import bounded, fact_key
from prosa.events.log import Log, Recorded

if TYPE_CHECKING:
    import pytest
    from archive import Archive


def test_turns_come_in_reading_order_with_all_the_log_knows(archive: Archive) -> None:
    say, start = archive.say, archive.start
    key = archive.session(
        "s",
        say("user", "do it", start),
        say("system", "injected", start + 1, counted=False),
        say("assistant", "ls", start + 2, kind="tool_call", tool="Bash", tool_call_id="c1", model="m"),
        say("tool", "no", start + 3_000, kind="tool_result", tool="Bash", tool_call_id="c1", is_error=True),
        say("assistant", "so be it"),
    )
    turns = list(archive.backend().turns(key))
    assert [turn.ordinal for turn in turns] == [0, 1, 2, 3, 4]
    assert [(turn.role, turn.kind, turn.text) for turn in turns] == [
        ("user", "message", "do it"),
        ("system", "message", "injected"),
        ("assistant", "tool_call", "ls"),
        ("tool", "tool_result", "no"),
        ("assistant", "message", "so be it"),
    ]
    assert [turn.counted for turn in turns] == [True, False, True, True, True]
    assert (turns[2].tool, turns[2].tool_call_id, turns[2].model) == ("Bash", "c1", "m")
    assert (turns[3].is_error, turns[3].at, turns[4].at) == (True, "2026-06-01T00:00:00.003Z", None)
    assert len(turns[0].key) == 16


def test_what_a_fork_copied_is_shown_as_inherited(archive: Archive) -> None:
    shared = archive.say("user", "before", archive.start, key=fact_key("codex", "turn", "shared"))
    archive.session("original", shared)
    key = archive.session("fork", shared, archive.say("user", "after", archive.start + archive.day))
    backend = archive.backend()
    assert [(turn.text, turn.inherited) for turn in backend.turns(key)] == [("before", True), ("after", False)]
    inherited = backend.session(key).inherited
    assert inherited is not None and (inherited.turns, inherited.from_) == (1, "original")


def test_a_text_that_was_cut_says_so(archive: Archive) -> None:
    text, size = bounded("x" * 1_200_000)
    key = archive.session("s", archive.say("user", text, 1, size=size), archive.say("user", "y", 2))
    assert [turn.truncated for turn in archive.backend().turns(key)] == [True, False]


def test_each_event_is_opened_once(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    key = archive.chat("s", *[f"turn {number}" for number in range(50)])
    backend = archive.backend()
    opened: list[int] = []
    at = Log.at

    def counting(self: Log, position: int) -> Recorded | None:
        opened.append(position)
        return at(self, position)

    monkeypatch.setattr(Log, "at", counting)
    assert len(list(backend.turns(key))) == 50
    assert len(opened) == 1


def test_turns_are_read_as_they_are_taken(archive: Archive) -> None:
    turns = archive.backend
    key = archive.chat("s", "x", "y")
    some = turns().turns(key)
    assert next(some).text == "x"
