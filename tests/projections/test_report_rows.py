from __future__ import annotations

from datetime import date
from zoneinfo import ZoneInfo

from prosa.projections.report_rows import (
    NO_ANSWERS,
    Spent,
    Work,
    first_of_heatmap,
    heatmap,
    hours,
    identity,
    minutes,
    project_names,
    shifts,
    spent_columns,
)
from prosa.projections.zones import EPOCH_ORDINAL, Calendar

DAY = 96
SUNDAY_OF_MARCH = (date(2026, 3, 29).toordinal() - EPOCH_ORDINAL) * DAY
"""First UTC quarter of the day on which Europe's clocks go forward, at 01:00 UTC."""


def test_shifts_are_one_step_at_the_quarter_the_clock_changes() -> None:
    calendar = Calendar(ZoneInfo("Europe/Madrid"))
    found = shifts(calendar, SUNDAY_OF_MARCH - 30 * DAY, SUNDAY_OF_MARCH + 30 * DAY)
    assert found == [(SUNDAY_OF_MARCH - 30 * DAY, 4), (SUNDAY_OF_MARCH + 4, 8)]


def test_shifts_agree_with_the_calendar_in_every_quarter_of_ten_years() -> None:
    for name in ("Europe/Madrid", "America/St_Johns", "Asia/Kathmandu", "Africa/Casablanca", "Australia/Lord_Howe"):
        calendar = Calendar(ZoneInfo(name))
        first, last = SUNDAY_OF_MARCH - 3650 * DAY, SUNDAY_OF_MARCH
        steps = shifts(calendar, first, last)
        ahead, at = None, 0
        for quarter in range(first, last, 3):
            while at < len(steps) and steps[at][0] <= quarter:
                ahead, at = steps[at][1], at + 1
            assert calendar.local(quarter) - quarter == ahead, name


def test_money_is_null_only_where_no_answer_has_a_price() -> None:
    assert spent_columns(Spent(2, 1, 1, 0, 0, None, 5_000_000, 1))["cost_usd"] == "0.000005"
    assert spent_columns(Spent(2, 1, 1, 0, 0, None, 0, 2))["cost_usd"] is None
    assert spent_columns(NO_ANSWERS)["cost_usd"] == "0.000000"
    assert spent_columns(None)["total"] is None


def test_reasoning_is_null_until_one_answer_says_how_much() -> None:
    unknown, known = Spent(1, 1, 1, 0, 0, None, 0, 0), Spent(1, 1, 1, 0, 0, 7, 0, 0)
    assert (unknown + unknown).reasoning is None
    assert (unknown + known).reasoning == 7
    assert (known + unknown).reasoning == 7


def test_two_projects_of_one_name_are_shown_by_remote_and_path() -> None:
    here, there = identity("github.com/a/repo", None, "/x"), identity("gitlab.com/a/repo", "m", "/y")
    other = identity(None, None, "/z/notes")
    names = project_names([(here, "a/repo"), (there, "a/repo"), (other, "notes"), (identity(None, None, None), None)])
    assert list(names.values()) == ["github.com/a/repo", "gitlab.com/a/repo", "notes", None]


def test_a_heatmap_begins_on_a_sunday_and_has_53_weeks() -> None:
    assert first_of_heatmap(date(2026, 6, 3)) == date(2025, 6, 1)
    assert first_of_heatmap(date(2026, 6, 7)) == date(2025, 6, 8)
    assert first_of_heatmap(date(2026, 6, 6)) == date(2025, 6, 1)


def test_a_session_counts_once_a_day_and_once_an_hour() -> None:
    number = date(2026, 6, 1).toordinal() - EPOCH_ORDINAL
    work = [Work(1, number, prompts=2), Work(1, number, seconds=5), Work(2, number), Work(3, None, prompts=9)]
    assert heatmap(work, date(2026, 5, 31), date(2026, 6, 1)) == [
        {"date": "2026-05-31", "sessions": 0, "prompts": 0},
        {"date": "2026-06-01", "sessions": 2, "prompts": 2},
    ]
    counted = hours([Work(1, 23), Work(1, 23, prompts=1)])
    assert counted[23] == {"hour": 23, "sessions": 1, "prompts": 1}
    assert len(counted) == 24


def test_minutes_are_rounded() -> None:
    assert [minutes(seconds) for seconds in (0, 29, 30, 89, 90)] == [0, 0, 1, 1, 2]
