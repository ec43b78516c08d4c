"""Nothing from a transcript acts on the terminal, and widths are those of the terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prosa.cli.text import HARMFUL, clean, clusters, cut, cut_left, one_line, pad, width, wrap


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1;2|data\x1b\\after", "after"),
        ("\x9b31mC1", "C1"),
        ("torn \x1b]0;title and the rest", "torn 0;title and the rest"),
        ("torn \x1b[", "torn "),
        ("\x1bcreset", "reset"),
        ("bidi \u202egpj.exe\u2069", "bidi gpj.exe"),
        ("a\x00b\x08c\x7fd", "abcd"),
        ("dos\r\nold\rnew\u2028line", "dos\nold\nnew\nline"),
        ("tab\tstays", "tab\tstays"),
        ("lone \udc80", "lone \ufffd"),
    ],
)
def test_what_could_act_on_a_terminal_is_taken_out(text: str, kept: str) -> None:
    assert clean(text) == kept


@given(st.text())
def test_a_clean_text_has_no_control_character_and_stays_as_it_is(text: str) -> None:
    once = clean(text)
    assert not HARMFUL.search(once)
    assert "\x1b" not in once
    assert clean(once) == once


def test_one_line_is_one_line() -> None:
    assert one_line("  a\n\tb \r\n c ") == "a b c"


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("abc", 3),
        ("日本", 4),
        ("e\u0301", 1),
        ("👩‍💻", 2),
        ("👍🏽", 2),
        ("❤️", 2),
        ("🇪🇸", 2),
        ("", 0),
        ("ｶ", 1),
        ("한글", 4),
    ],
)
def test_width_counts_cells(text: str, cells: int) -> None:
    assert width(text) == cells


@given(st.text(), st.integers(0, 40))
def test_cut_and_pad_never_exceed_the_cells(text: str, cells: int) -> None:
    text = one_line(text)
    assert width(cut(text, cells)) <= cells
    assert width(cut_left(text, cells)) <= cells
    assert width(pad(text, cells)) == cells
    assert "".join(cluster for cluster, _ in clusters(text)) == text


def test_an_emoji_is_not_cut_in_its_middle() -> None:
    assert cut("ab👨‍👩‍👧‍👦cd", 4) == "ab…"


@given(st.text(alphabet=st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), max_size=200), st.integers(10, 40))
def test_wrapped_pieces_fit_and_lose_no_word(text: str, cells: int) -> None:
    pieces = wrap(clean(text), cells)
    assert all(width(piece) <= cells for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(clean(text).split())


def test_wrapping_keeps_the_indentation() -> None:
    assert wrap("    one two three", 12) == ["    one two", "    three"]
