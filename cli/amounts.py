"""Numbers, sizes, money, lengths of time and moments as people read them."""

from __future__ import annotations

from datetime import date, datetime, timedelta, tzinfo

UNKNOWN = "–"
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def count(number: int, one: str, many: str = "") -> str:
    """`1 session`, `1,204 sessions`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def compact(number: float | None) -> str:
    """Three digits are enough to compare: 950, 12.3k, 4.56M."""
    if number is None:
        return UNKNOWN
    if abs(number) < 10_000:
        return f"{number:,.0f}"
    value = float(number)
    for unit in "kMGT":
        value /= 1000
        if abs(value) < 999.5 or unit == "T":
            digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
            return f"{value:.{digits}f}{unit}"
    return str(number)


def size(number: int | None) -> str:
    """Bytes, in decimal units as disks are sold: 1.2 MB."""
    if number is None:
        return UNKNOWN
    if number < 1000:
        return f"{number} B"
    value = float(number)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 999.5 or unit == "TB":
            return f"{value:.{1 if value < 99.95 else 0}f} {unit}"
    return str(number)


def money(text: str | None) -> str:
    """A decimal string in dollars with cents; below a cent as many digits as say something."""
    if text is None:
        return UNKNOWN
    from decimal import Decimal

    value = Decimal(text)
    if value and abs(value) < Decimal("0.01"):
        return "<$0.01" if value > 0 else ">-$0.01"
    return f"${value:,.2f}"


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `2 h 05 min`, `3 d 4 h`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def moment(text: str | None, zone: tzinfo) -> datetime | None:
    """An RFC 3339 time in a zone."""
    return datetime.fromisoformat(text).astimezone(zone) if text else None


def seconds_between(start: str | None, end: str | None) -> int | None:
    """Whole seconds, None where one end is unknown."""
    if not start or not end:
        return None
    return int((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds())


def day(when: date, today: date) -> str:
    """`Mon 30 Nov`, with the year where it is not this one."""
    text = f"{WEEKDAYS[when.weekday()]} {when.day} {MONTHS[when.month - 1]}"
    return text if when.year == today.year else f"{text} {when.year}"


def day_heading(when: date | None, today: date) -> str:
    """`Today · Mon 30 Nov`, `Yesterday · …`; the date alone for every other day, so no weekday is ambiguous."""
    if when is None:
        return "Without a time"
    name = {today: "Today · ", today - timedelta(days=1): "Yesterday · "}.get(when, "")
    return name + day(when, today)


def clock(when: datetime) -> str:
    return f"{when.hour:02d}:{when.minute:02d}"


def stamp(when: datetime, today: date) -> str:
    """`15:52` today, else with its day."""
    return clock(when) if when.date() == today else f"{day(when.date(), today)} {clock(when)}"
