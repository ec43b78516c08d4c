"""The user's time zone: sums by UTC quarter hour into local days, windows of time from the command line, RFC 3339.

Every offset in use since 1972 is a multiple of 15 minutes, so a quarter hour always lies in one local hour and one
local day; that is why back ends sum by quarter and only this module knows of zones. An unknown zone is an error.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

import msgspec

from prosa.events.errors import UsageError

QUARTER_US = 900_000_000
SECOND_US = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_ORDINAL = 719_163
"""`date.toordinal` of 1970-01-01."""
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999: a calendar has no others."""

LOCALTIME = Path("/etc/localtime")
UNITS = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
RULE = re.compile(r"(?:<[^<>\s]{3,}>|[A-Za-z]{3,})[+-]?[0-9]")
"""How a TZ rule begins: a name and an offset."""
DURATION = re.compile(r"([0-9]{1,6})([mhdw])")
MOMENT = re.compile(
    r"(?P<year>[0-9]{4})(?:-(?P<m>[0-9]{2})-(?P<d>[0-9]{2})|(?P<m2>[0-9]{2})(?P<d2>[0-9]{2}))"
    r"(?:[T ](?P<H>[0-9]{2}):(?P<M>[0-9]{2})(?::(?P<S>[0-9]{2})(?:[.,](?P<part>[0-9]{1,9}))?)?"
    r"\s*(?P<offset>Z|[+-][0-9]{2}:?[0-9]{2})?)?",
    re.IGNORECASE,
)
MOMENT_FORMS = "Write 2026-01-31, 20260131, 2026-01-31T18:30 or 2026-01-31T18:30:00+02:00."


class Window(msgspec.Struct, frozen=True):
    """A span of time, microseconds since 1970, UTC."""

    since_us: int
    """Inclusive."""
    until_us: int | None = None
    """Exclusive. None: no end."""


def zone(name: str | None = None) -> tzinfo:
    """The zone of that name, else of the variable TZ, else of the system. Raises UsageError for one nobody knows."""
    if name is not None:
        return _named(name)
    stated = os.environ.get("TZ", "").removeprefix(":").strip()
    if not stated:
        return _system()
    if stated.startswith("/"):
        return _from_file(Path(stated))
    try:
        return _named(stated)
    except UsageError:
        return _from_rule(stated)


def quarter(at_us: int) -> int:
    """The number of the UTC quarter hour, counted from 1970."""
    return at_us // QUARTER_US


class Calendar:
    """Local day, hour and weekday of quarters, at 0.2 µs each: the offset is looked up once a UTC day."""

    def __init__(self, zone: tzinfo) -> None:
        self.zone = zone
        self._shifts: dict[int, int | None] = {}
        self._dates: dict[int, date] = {}

    def local(self, quarter: int) -> int:
        """Quarters since local 1970-01-01 00:00: what a clock on the wall has counted."""
        utc_day = quarter // 96
        try:
            shift = self._shifts[utc_day]
        except KeyError:
            first, last = self._shift(utc_day * 96), self._shift(utc_day * 96 + 95)
            shift = self._shifts[utc_day] = first if first == last else None
        return quarter + (self._shift(quarter) if shift is None else shift)

    def day(self, quarter: int) -> date:
        """The local date."""
        number = self.local(quarter) // 96
        found = self._dates.get(number)
        if found is None:
            found = self._dates[number] = date.fromordinal(number + EPOCH_ORDINAL)
        return found

    def hour(self, quarter: int) -> int:
        """The local hour, 0 to 23."""
        return self.local(quarter) % 96 // 4

    def weekday(self, quarter: int) -> int:
        """The local day of the week, 0 = Monday."""
        return (self.local(quarter) // 96 + 3) % 7

    def _shift(self, quarter: int) -> int:
        offset = (EPOCH + timedelta(minutes=15 * quarter)).astimezone(self.zone).utcoffset()
        assert offset is not None
        return (offset.days * 86_400 + offset.seconds) // 900


def day_of(quarter: int, zone: tzinfo) -> date:
    """The local date of one quarter; for many, a Calendar is faster."""
    return Calendar(zone).day(quarter)


def hour_of(quarter: int, zone: tzinfo) -> int:
    """The local hour of one quarter, 0 to 23."""
    return Calendar(zone).hour(quarter)


def weekday(quarter: int, zone: tzinfo) -> int:
    """The local day of the week of one quarter, 0 = Monday."""
    return Calendar(zone).weekday(quarter)


def fold(sums: Mapping[int, int] | Iterable[tuple[int, int]], zone: tzinfo) -> dict[date, int]:
    """Sums by quarter to sums by local day, in the order the days first appear. A quarter may come several times."""
    day = Calendar(zone).day
    days: dict[date, int] = {}
    for number, amount in sums.items() if isinstance(sums, Mapping) else sums:
        when = day(number)
        days[when] = days.get(when, 0) + amount
    return days


def window(
    now_us: int, zone: tzinfo, *, last: str | None = None, since: str | None = None, between: str | None = None
) -> Window | None:
    """The window that the three options ask for, None if none is given. Raises UsageError, also for two at once.

    A date is its local day: `--since` begins at its midnight, and the B of `--between A..B` is in it as a whole.
    """
    given = [f"--{n}" for n, value in (("last", last), ("since", since), ("between", between)) if value is not None]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} cannot be used together.", "", "Give one of them.")
    if last is not None:
        return Window(now_us - duration_us(last, "--last"))
    if since is not None:
        return Window(moment(since, zone, "--since")[0])
    if between is not None:
        first, dots, second = between.partition("..")
        if not dots or not first.strip() or not second.strip():
            raise UsageError(f"--between {between!r} is not A..B.", "", "Write 2026-01-01..2026-01-31; B is in it.")
        begin, end = moment(first, zone, "--between")[0], moment(second, zone, "--between")[1]
        if begin >= end:
            raise UsageError(f"--between {between!r} ends before it begins.", "", f"Write {second}..{first}.")
        return Window(begin, end)
    return None


def duration_us(text: str, what: str) -> int:
    """`45m`, `12h`, `7d`, `4w` in microseconds. `what` names the option in the UsageError."""
    found = DURATION.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise UsageError(f"{what} {text!r} is not a length of time.", "", "Write 45m, 12h, 7d or 4w.")
    return int(found[1]) * UNITS[found[2]] * SECOND_US


def moment(text: str, zone: tzinfo, what: str) -> tuple[int, int]:
    """First microsecond of what the text names, and the first one after it: a date is its whole local day.

    Without an offset the time is local: one that the clock skips is the moment of the skip, one that it shows twice
    is the first of the two. `what` names the option in the UsageError.
    """
    found = MOMENT.fullmatch(text.strip())
    if found is None:
        _not_a_moment(text, what)
    year, month, day = int(found["year"]), int(found["m"] or found["m2"]), int(found["d"] or found["d2"])
    try:
        if found["H"] is None:
            start = datetime(year, month, day, tzinfo=zone)
            return _us(start), _us(start + timedelta(days=1))
        micros = int((found["part"] or "0").ljust(6, "0")[:6])
        exact = datetime(
            year,
            month,
            day,
            int(found["H"]),
            int(found["M"]),
            int(found["S"] or 0),
            micros,
            _offset(found["offset"], zone),
        )
        return _us(exact), _us(exact) + 1
    except (ValueError, OverflowError):
        _not_a_moment(text, what)


def rfc3339(us: int) -> str:
    """`2026-06-12T03:31:42.000Z`: UTC with milliseconds, finer digits cut.

    Of a time that no calendar has, the nearest.
    """
    us = min(max(us, FIRST_US), LAST_US)
    seconds, rest = divmod(us, SECOND_US)
    day, second = divmod(seconds, 86_400)
    minute, second = divmod(second, 60)
    return f"{_iso_day(day)}T{minute // 60:02d}:{minute % 60:02d}:{second:02d}.{rest // 1000:03d}Z"


@lru_cache(4096)
def _iso_day(day: int) -> str:
    return date.fromordinal(day + EPOCH_ORDINAL).isoformat()


def _not_a_moment(text: str, what: str) -> NoReturn:
    raise UsageError(f"{what} {text!r} is not a date or time.", "", MOMENT_FORMS)


def _us(when: datetime) -> int:
    elapsed = when - EPOCH
    return (elapsed.days * 86_400 + elapsed.seconds) * SECOND_US + elapsed.microseconds


def _offset(text: str | None, local: tzinfo) -> tzinfo:
    if text is None:
        return local
    if text in "Zz":
        return UTC
    hours, minutes = int(text[1:3]), int(text[-2:])
    if hours > 23 or minutes > 59:
        raise ValueError(text)
    return timezone((-1 if text[0] == "-" else 1) * timedelta(hours=hours, minutes=minutes))


def _named(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo

    try:
        # ZoneInfo takes `localtime` and folders like `America` for files of the database; the first is no name
        if name == "localtime" or not name.isprintable():
            raise KeyError(name)
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UsageError(f"Unknown time zone {name!r}.", "", "Write a name such as Europe/Madrid or UTC.") from None


def _system() -> tzinfo:
    """The zone /etc/localtime links to or contains; without it UTC, as the C library has it."""
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(str(LOCALTIME.readlink()).partition("zoneinfo/")[2])
    except (KeyError, ValueError, OSError):
        return _from_file(LOCALTIME) if LOCALTIME.exists() else UTC


def _from_file(path: Path) -> tzinfo:
    from zoneinfo import ZoneInfo

    try:
        with path.open("rb") as file:
            return ZoneInfo.from_file(file, key=str(path))
    except (ValueError, OSError, struct.error):
        raise UsageError(f"No time zone can be read from {path}.", "", "Give one: --tz Europe/Madrid.") from None


def _from_rule(rule: str) -> tzinfo:
    """TZ can be a rule instead of a name: `<-03>3`, `EST5EDT,M3.2.0,M11.1.0`.

    A zone file ends with such a rule, so the smallest file with that ending is read (RFC 8536, section 3.3).
    """
    from io import BytesIO
    from zoneinfo import ZoneInfo

    header = b"TZif2" + bytes(15) + struct.pack(">6l", 0, 0, 0, 0, 1, 4)
    block = header + struct.pack(">lbb", 0, 0, 0) + b"UTC\0"
    try:
        if not RULE.match(rule) or not rule.isascii():
            raise ValueError(rule)
        return ZoneInfo.from_file(BytesIO(block * 2 + b"\n" + rule.encode() + b"\n"), key=rule)
    except (ValueError, struct.error):
        raise UsageError(f"Unknown time zone TZ={rule!r}.", "", "Write a name such as Europe/Madrid or UTC.") from None
