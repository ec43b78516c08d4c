"""Rows of the reports from sums: what every back end does alike after it has selected.

Sums come by session and UTC quarter hour; here they become local days and hours, distinct sessions, decimal money.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from typing import Any, Final, NamedTuple

from prosa.projections.prices import usd
from prosa.projections.zones import EPOCH_ORDINAL, Calendar

Row = dict[str, Any]
WEEKS: Final = 53
"""Of a heatmap without a window; it begins on a Sunday."""


class Spent(NamedTuple):
    """Tokens and money of some answers."""

    answers: int
    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int | None
    """None where no answer says."""
    cost: int
    """Pico-dollars of the priced answers."""
    unpriced: int

    def __add__(self, other: object) -> Spent:
        assert isinstance(other, Spent)
        return Spent(
            self.answers + other.answers,
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.reasoning if other.reasoning is None else other.reasoning + (self.reasoning or 0),
            self.cost + other.cost,
            self.unpriced + other.unpriced,
        )

    @property
    def total(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write


def spent_columns(spent: Spent | None) -> Row:
    """The five counts, `total` and `cost_usd`; all null where nothing is recorded, money where nothing is priced."""
    if spent is None:
        return UNKNOWN
    return {
        "input": spent.input,
        "output": spent.output,
        "cache_read": spent.cache_read,
        "cache_creation": spent.cache_write,
        "reasoning": spent.reasoning,
        "total": spent.total,
        "cost_usd": None if spent.answers and spent.unpriced == spent.answers else usd(spent.cost),
    }


UNKNOWN: Final[Row] = dict.fromkeys(
    ("input", "output", "cache_read", "cache_creation", "reasoning", "total", "cost_usd")
)
NO_ANSWERS: Final = Spent(0, 0, 0, 0, 0, None, 0, 0)


class Identity(NamedTuple):
    """What makes two sessions one project: the remote, else the marker, else the path."""

    remote: str | None
    marker: str | None
    path: str | None


def identity(remote: str | None, marker: str | None, cwd: str | None) -> Identity:
    if remote is not None:
        return Identity(remote, None, None)
    if marker is not None:
        return Identity(None, marker, None)
    return Identity(None, None, cwd)


def project_names(projects: Iterable[tuple[Identity, str | None]]) -> dict[Identity, str | None]:
    """The name shown of each project; the remote or path itself where two projects have one name."""
    names = dict(projects)
    seen: dict[str | None, int] = {}
    for name in names.values():
        seen[name] = seen.get(name, 0) + 1
    return {
        project: name if seen[name] == 1 else project.remote or project.path or project.marker
        for project, name in names.items()
    }


class Work(NamedTuple):
    """What one session did in one local day, or in one hour of the day on all days together."""

    sid: int
    at: int | None
    """Days since 1970, or the hour. None where nothing is known of the time."""
    prompts: int = 0
    seconds: int = 0
    spent: Spent | None = None
    unpriced: str | None = None
    """A model without a price that was used."""


class _Sum:
    """Of one row of a report."""

    __slots__ = ("prompts", "seconds", "sids", "spent", "unpriced")

    def __init__(self) -> None:
        self.sids: set[int] = set()
        self.unpriced: set[str] = set()
        self.prompts = self.seconds = 0
        self.spent: Spent | None = None

    def add(self, work: Work) -> None:
        self.sids.add(work.sid)
        self.prompts += work.prompts
        self.seconds += work.seconds
        if work.spent is not None:
            self.spent = work.spent if self.spent is None else self.spent + work.spent
        if work.unpriced is not None:
            self.unpriced.add(work.unpriced)

    def row(self, first: str, value: str | None, second: str, other: str | None) -> Row:
        """Two columns that name the row, then its sums."""
        return {
            first: value,
            second: other,
            "sessions": len(self.sids),
            "prompts": self.prompts,
            "active_minutes": minutes(self.seconds),
            **spent_columns(self.spent),
            "unpriced_models": sorted(self.unpriced) if self.unpriced else [],
        }


def days(work: Iterable[Work], project_of: Mapping[int, str | None]) -> list[Row]:
    """By day and project: the newest day first, unknown last; in a day the most active project first."""
    sums: dict[tuple[int | None, str | None], _Sum] = {}
    for item in work:
        key = (item.at, project_of[item.sid])
        found = sums.get(key)
        if found is None:
            found = sums[key] = _Sum()
        found.add(item)
    rows = [
        total.row("date", None if day is None else _date(day).isoformat(), "project", project)
        for (day, project), total in sums.items()
    ]
    rows.sort(key=lambda row: (-row["active_minutes"], -row["prompts"], row["project"] is None, row["project"] or ""))
    rows.sort(key=lambda row: row["date"] or "", reverse=True)
    return rows


def by_project(work: Iterable[Work], project_of: Mapping[int, str | None], agent_of: Mapping[int, str]) -> list[Row]:
    """By project and agent, the one with the most sessions first. Every session is in, one without work too."""
    sums: dict[tuple[str | None, str], _Sum] = {}
    for sid, agent in agent_of.items():
        sums.setdefault((project_of[sid], agent), _Sum()).add(Work(sid, None))
    for item in work:
        sums[project_of[item.sid], agent_of[item.sid]].add(item)
    rows = [total.row("project", project, "agent", agent) for (project, agent), total in sums.items()]
    rows.sort(key=lambda row: (-row["sessions"], row["project"] is None, row["project"] or "", row["agent"]))
    return rows


def hours(work: Iterable[Work]) -> list[Row]:
    """By local hour of the day, all 24: sessions that were at work in it, prompts sent in it."""
    sums = [_Sum() for _ in range(24)]
    for item in work:
        if item.at is not None:
            sums[item.at].add(item)
    return [{"hour": hour, "sessions": len(s.sids), "prompts": s.prompts} for hour, s in enumerate(sums)]


def heatmap(work: Iterable[Work], first: date, last: date) -> list[Row]:
    """By local day from first to last, those without work too."""
    sums = {number: _Sum() for number in range(_number(first), _number(last) + 1)}
    for item in work:
        if item.at in sums:
            sums[item.at].add(item)
    return [
        {"date": _date(number).isoformat(), "sessions": len(total.sids), "prompts": total.prompts}
        for number, total in sums.items()
    ]


def first_of_heatmap(last: date) -> date:
    """The Sunday that 53 weeks ending with this day begin on."""
    return last - timedelta(days=(WEEKS - 1) * 7 + (last.weekday() + 1) % 7)


def minutes(seconds: int) -> int:
    """Rounded, half up."""
    return (seconds + 30) // 60


def shifts(calendar: Calendar, first: int, last: int) -> list[tuple[int, int]]:
    """(quarter, quarters by which the local clock is ahead of UTC from then on), for quarters from first to last."""
    found: list[tuple[int, int]] = []
    for day in range(first // 96, last // 96 + 1):
        start = day * 96
        if found and all(calendar.local(at) - at == found[-1][1] for at in (start, start + 95)):
            continue
        for at in range(start, start + 96):
            ahead = calendar.local(at) - at
            if not found or found[-1][1] != ahead:
                found.append((at, ahead))
    return found


def _date(number: int) -> date:
    return date.fromordinal(number + EPOCH_ORDINAL)


def _number(day: date) -> int:
    return day.toordinal() - EPOCH_ORDINAL
