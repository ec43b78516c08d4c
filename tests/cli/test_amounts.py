"""Numbers and times as people read them."""

from __future__ import annotations

from datetime import date

import pytest

from prosa.cli import amounts


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (9_999, "9,999"), (12_345, "12.3k"), (999_949, "1.00M"), (1_234_567, "1.23M"),
     (12_616_049_248, "12.6G"), (None, "–")],
)  # fmt: skip
def test_compact(number: int | None, text: str) -> None:
    assert amounts.compact(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (123_456, "123 kB"), (99_949_999, "99.9 MB"), (None, "–")],
)
def test_size(number: int | None, text: str) -> None:
    assert amounts.size(number) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [("0.000000", "$0.00"), ("0.001234", "<$0.01"), ("1.234567", "$1.23"), ("12345.678900", "$12,345.68"), (None, "–")],
)
def test_money(text: str | None, shown: str) -> None:
    assert amounts.money(text) == shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3_599, "59 min"),
        (3_600, "1 h"),
        (3_900, "1 h 05 min"),
        (176_400, "2 d 1 h"),
    ],
)
def test_duration(seconds: int, text: str) -> None:
    assert amounts.duration(seconds) == text


@pytest.mark.parametrize(
    ("when", "heading"),
    [
        (date(2026, 11, 30), "Today · Mon 30 Nov"),
        (date(2026, 11, 29), "Yesterday · Sun 29 Nov"),
        (date(2026, 11, 23), "Mon 23 Nov"),
        (date(2025, 11, 30), "Sun 30 Nov 2025"),
        (None, "Without a time"),
    ],
)
def test_a_day_is_named_without_doubt(when: date | None, heading: str) -> None:
    assert amounts.day_heading(when, date(2026, 11, 30)) == heading
