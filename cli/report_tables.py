"""Reports on a terminal: a table whose columns say by their names how they are read, and the heatmap's grid."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta, tzinfo
from typing import Any

from prosa.cli import amounts
from prosa.cli.tables import Column, table
from prosa.cli.terminal import Paint, Style
from prosa.cli.text import one_line

TOKENS = frozenset(
    {"total", "input", "output", "cache_read", "cache_creation", "reasoning", "tokens", "cached", "total_tokens"}
)
HIDDEN = frozenset({"unpriced_models"})
"""Not on a terminal: the line below says how many have no price."""
OPTIONAL = frozenset({"reasoning", "cache_creation", "cache_read", "measured", "device"})
TITLES = {"cost_usd": "cost", "cache_read": "cache rd", "cache_creation": "cache wr", "active_minutes": "active"}
PATHS = frozenset({"project"})
TIMES = frozenset({"started_at", "started", "last_activity_at", "at"})
BARS = {"hours": "sessions", "tools": "uses"}
"""Reports whose rows get a bar, and the column it shows."""
BAR_CELLS = 24
SHADES: tuple[tuple[str, tuple[Style, ...]], ...] = (
    ("·", ("dim",)), ("░", ("green",)), ("▒", ("green",)), ("▓", ("green",)), ("█", ("green",)),
)  # fmt: skip


def render(name: str, rows: list[dict[str, Any]], zone: tzinfo, cells: int, paint: Paint) -> Iterator[str]:
    """Lines of at most so many cells."""
    if name == "heatmap":
        yield from heatmap(rows, cells, paint)
        return
    names = [n for n in rows[0] if n not in HIDDEN]
    columns = [Column(TITLES.get(n, n.replace("_", " ")), is_number(rows, n), n in PATHS, n in OPTIONAL) for n in names]
    today = datetime.now(zone).date()
    texts = [[text(n, row.get(n), zone, today) for n in names] for row in rows]
    bar = BARS.get(name)
    if bar in names:
        most = max((row[bar] for row in rows), default=0) or 1
        columns.append(Column(""))
        texts = [[*line, "█" * round(row[bar] / most * BAR_CELLS)] for line, row in zip(texts, rows, strict=True)]
    yield from table(columns, texts, cells, paint)
    if len(rows) > 1 and any(n in TOKENS for n in names):
        yield paint(sums(rows, names), "dim")


def is_number(rows: list[dict[str, Any]], name: str) -> bool:
    if name.endswith("_usd"):
        return True
    values = [row.get(name) for row in rows]
    return all(v is None or (isinstance(v, (int, float)) and not isinstance(v, bool)) for v in values)


def text(name: str, value: Any, zone: tzinfo, today: date) -> str:
    """A value in words: unknown is a dash, and never 0."""
    if value is None:
        return amounts.UNKNOWN
    if name.endswith("_usd"):
        return amounts.money(str(value))
    if name in TIMES:
        when = amounts.moment(str(value), zone)
        return amounts.stamp(when, today) if when else amounts.UNKNOWN
    if name.endswith("_minutes"):
        return amounts.duration(value * 60)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "hour" and isinstance(value, int):
        return f"{value:02d}:00"
    if isinstance(value, (int, float)):
        return amounts.compact(value) if name in TOKENS else f"{value:,}"
    if isinstance(value, (list, tuple)):
        return ", ".join(one_line(str(item)) for item in value)
    return one_line(str(value))


def sums(rows: list[dict[str, Any]], names: list[str]) -> str:
    """The line below: all tokens and the priced cost."""
    from decimal import Decimal

    total = next((n for n in ("total", "tokens", "total_tokens") if n in names), None)
    parts = [f"{amounts.compact(sum(row[total] or 0 for row in rows))} tokens"] if total else []
    if "cost_usd" in names:
        priced = [row["cost_usd"] for row in rows if row["cost_usd"] is not None]
        parts.append(amounts.money(str(sum(map(Decimal, priced), Decimal(0)))))
        if len(priced) < len(rows):
            parts.append(f"{amounts.count(len(rows) - len(priced), 'row')} without a price")
    return "in all  " + " · ".join(parts)


def heatmap(rows: list[dict[str, Any]], cells: int, paint: Paint) -> Iterator[str]:
    """A column a week, a row a weekday, Monday first; as many weeks as fit, the newest last."""
    counts: dict[date, int] = {}
    for row in rows:
        day = date.fromisoformat(str(row.get("date") or row.get("day")))
        counts[day] = counts.get(day, 0) + int(row["sessions"])
    last = max(counts)
    weeks = min(53, cells - 5, (last - min(counts)).days // 7 + 2)
    monday = last - timedelta(days=last.weekday())
    mondays = [monday - timedelta(weeks=weeks - 1 - n) for n in range(weeks)]
    most = max(counts.values()) or 1
    yield paint("     " + _months(mondays), "dim")
    for weekday in range(7):
        line = []
        for start in mondays:
            day = start + timedelta(days=weekday)
            if day > last:
                break
            number = counts.get(day, 0)
            shade, styles = SHADES[0 if not number else min(4, 1 + number * 4 // (most + 1))]
            line.append(paint(shade, *styles))
        yield f"{paint(amounts.WEEKDAYS[weekday], 'dim')}  {''.join(line)}"
    busiest = max(counts, key=lambda d: (counts[d], d))
    yield paint(
        f"{amounts.count(sum(counts.values()), 'session')} · most on {amounts.day(busiest, last)}: {counts[busiest]:,}",
        "dim",
    )


def _months(mondays: list[date]) -> str:
    """The month's name above the week it begins in, where there is room."""
    line = ""
    for number, monday in enumerate(mondays):
        begins = number == 0 or monday.month != mondays[number - 1].month
        if begins and len(line) <= number and len(mondays) - number >= 3:
            line += " " * (number - len(line)) + amounts.MONTHS[monday.month - 1] + " "
    return line
