"""Search: every word is taken as it is, and hits are shown without their escape sequences."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from cli_fake import Rooms
from command import Ran

from prosa.cli.search import marked
from prosa.cli.terminal import Paint


@pytest.mark.parametrize(
    ("words", "query"),
    [
        (("--zeta-fanout=17",), "--zeta-fanout=17"),
        (("reaper", "-test"), "reaper -test"),
        (("-x",), "-x"),
        (('"a phrase"', "OR", "word*"), '"a phrase" OR word*'),
        (("--", "--all"), "--all"),
        (("a::b", "c++", "(x)", "don't"), "a::b c++ (x) don't"),
        (("--word", "between", "--other-word"), "--word between --other-word"),
        (("鲸鱼",), "鲸鱼"),
    ],
)
def test_a_word_is_taken_as_it_is_written(
    words: tuple[str, ...], query: str, prosa: Callable[..., Ran], rooms: Rooms
) -> None:
    ran = prosa("search", "--all", "--since", "2000-01-01", "--limit", "500", "--json", *words)
    assert ran.code == 0
    asked = rooms.backend.asked[-1]
    assert (asked.query, asked.limit) == (query, 500)


def test_options_behind_the_words_are_options(prosa: Callable[..., Ran], rooms: Rooms) -> None:
    prosa("search", "--zeta-fanout=17", "--all", "--since", "2000-01-01", "--limit", "500", "--json")
    assert rooms.backend.asked[-1].query == "--zeta-fanout=17"
    assert rooms.backend.asked[-1].limit == 500


def test_json_has_the_session_and_the_hit(prosa: Callable[..., Ran]) -> None:
    record = json.loads(prosa("search", "flaky", "--json").out)
    assert record["session"]["title"] == "Fix the flaky reaper test in CI"
    assert record["hit"]["marks"] == [[8, 13]]
    assert record["hit"]["score"] == 3


def test_a_pipe_gets_ten_columns(prosa: Callable[..., Ran]) -> None:
    assert prosa("search", "flaky").out.count("\t") == 9


def test_nothing_found_says_what_was_searched(prosa: Callable[..., Ran], rooms: Rooms) -> None:
    rooms.project = ("github.com/acme/shop", None)
    ran = prosa("search", "nowhere")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "Nothing found. 12 sessions searched (acme/shop, all time). --all searches all projects.\n"


def test_more_hits_are_announced(prosa: Callable[..., Ran]) -> None:
    assert "There are more: --limit 0 lists them all." in prosa("search", "the", "--limit", "1").err


def test_a_terminal_shows_where_and_what(terminal: Callable[..., Ran]) -> None:
    out = terminal("search", "flaky", "--no-color").out.splitlines()
    assert out[0].startswith("claude-code  ")
    assert out[0].endswith("  00000001")
    assert out[1:] == ["  Fix the flaky reaper test in CI", "    you: Fix the flaky reaper test in CI around it"]


def test_marks_stay_in_place_when_the_text_is_cleaned() -> None:
    snippet = "a\x1b[31m  \n b hit c 日本"
    start = snippet.index("hit")
    assert marked(snippet, [(start, start + 3)], 40, Paint(True)) == "a b \x1b[1;33mhit\x1b[0m c 日本"
    assert marked(snippet, [(start, start + 3)], 12, Paint(False)) == "a b hit c …"
