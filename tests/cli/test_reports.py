"""Reports and storage."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from typing import get_args

import pytest
from cli_fake import REPORTS, Rooms
from command import Ran

from prosa.cli.analytics import REPORTS as NAMED
from prosa.cli.text import width
from prosa.projections.queries import ReportName


def test_every_report_is_explained() -> None:
    assert set(NAMED) == set(get_args(ReportName))


@pytest.mark.parametrize("name", REPORTS)
def test_json_rows_are_those_of_the_back_end(name: str, prosa: Callable[..., Ran], rooms: Rooms) -> None:
    ran = prosa("analytics", name, "--all", "--since", "2000-01-01", "--json")
    assert [json.loads(line) for line in ran.out.splitlines()] == REPORTS[name]


def test_a_dash_is_an_underscore(prosa: Callable[..., Ran], rooms: Rooms) -> None:
    prosa("analytics", "usage-by-model", "--limit", "3", "--tz", "Asia/Tokyo")
    asked = rooms.backend.asked[-1]
    assert (asked.name, asked.limit, asked.zone) == ("usage_by_model", 3, "Asia/Tokyo")


def test_the_window_is_seven_days_and_that_of_the_heatmap_its_own(prosa: Callable[..., Ran], rooms: Rooms) -> None:
    prosa("analytics", "days")
    assert rooms.backend.asked[-1].filters.since_us is not None
    prosa("analytics", "heatmap")
    assert rooms.backend.asked[-1].filters.since_us is None


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_table_fits_the_terminal(
    name: str, columns: int, terminal: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = terminal("analytics", name, "--no-color").out
    assert "\x1b" not in out
    assert all(width(line) <= columns for line in out.splitlines() if not line.startswith("in all"))


def test_unknown_is_a_dash_and_money_is_rounded(terminal: Callable[..., Ran]) -> None:
    lines = terminal("analytics", "usage_by_model", "--no-color").out.splitlines()
    assert lines[1].startswith("claude-opus-4-6 ")
    assert lines[1].endswith("12.6G  $12,345.68")
    assert lines[2].endswith("15           –")
    assert lines[3] == "in all  12.6G tokens · $12,345.68 · 1 row without a price"


def test_the_heatmap_has_a_row_a_weekday_and_ends_today(terminal: Callable[..., Ran]) -> None:
    lines = terminal("analytics", "heatmap", "--no-color").out.splitlines()
    assert [line[:3] for line in lines[1:8]] == ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
    today = date.fromisoformat(REPORTS["heatmap"][-1]["date"])
    lengths = [len(line) for line in lines[1:8]]
    assert all(length == lengths[0] - (n > today.weekday()) for n, length in enumerate(lengths))


def test_nothing_to_count_is_said(terminal: Callable[..., Ran]) -> None:
    ran = terminal("analytics", "errors")
    assert (ran.code, ran.out) == (0, "")
    assert "Nothing to count." in ran.err


def test_storage_has_the_back_ends_rows_and_the_files(prosa: Callable[..., Ran]) -> None:
    rows = [json.loads(line) for line in prosa("storage", "--json", "--limit", "1").out.splitlines()]
    assert [row["by"] for row in rows].count("project") == 1
    assert {row["value"] for row in rows if row["by"] == "file"} == {"log", "raw", "index"}
    assert rows[-1] == {
        "by": "deleted_soon", "value": "claude-code", "sessions": 0, "raw_bytes": 0, "stored_bytes": None,
        "local_bytes": None, "pruned_bytes": None,
    }  # fmt: skip


def test_storage_on_a_terminal_fits(terminal: Callable[..., Ran]) -> None:
    out = terminal("storage", "--no-color").out
    assert all(width(line) <= 80 for line in out.splitlines())
    assert "claude-code        11   1.4 MB   502 kB   37 %" in out
