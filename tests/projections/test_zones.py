"""Local days, windows and times, in zones whose days are not 24 hours long and whose hours are not whole."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prosa.events.errors import UsageError
from prosa.projections import zones

NEW_YORK, KATHMANDU, LORD_HOWE = (
    ZoneInfo("America/New_York"),
    ZoneInfo("Asia/Kathmandu"),
    ZoneInfo("Australia/Lord_Howe"),
)
PLACES = [
    NEW_YORK, KATHMANDU, LORD_HOWE, ZoneInfo("UTC"), ZoneInfo("Europe/Madrid"), ZoneInfo("Asia/Kolkata"),
    ZoneInfo("Pacific/Chatham"), ZoneInfo("Pacific/Apia"), ZoneInfo("America/Sao_Paulo"), ZoneInfo("Africa/Cairo"),
    ZoneInfo("Africa/Casablanca"), ZoneInfo("America/St_Johns"),
]  # fmt: skip
MODERN = st.integers(min_value=1_500_000 - 400_000, max_value=4_600_000)  # 2001 to 2101


def us(text: str) -> int:
    elapsed = datetime.fromisoformat(text).astimezone(UTC) - zones.EPOCH
    return (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds


@given(MODERN, st.sampled_from(PLACES))
def test_day_hour_and_weekday_are_those_of_the_wall_clock(quarter: int, zone: ZoneInfo) -> None:
    local = (zones.EPOCH + timedelta(minutes=15 * quarter)).astimezone(zone)
    assert zones.day_of(quarter, zone) == local.date()
    assert zones.hour_of(quarter, zone) == local.hour
    assert zones.weekday(quarter, zone) == local.weekday()


@pytest.mark.parametrize("zone", PLACES, ids=str)
def test_hours_are_right_on_the_days_when_the_clock_changes(zone: ZoneInfo) -> None:
    calendar = zones.Calendar(zone)
    for utc_day in range(16_436, 21_000):  # 2015 to 2027
        start = zones.EPOCH + timedelta(days=utc_day)
        if start.astimezone(zone).utcoffset() == (start + timedelta(days=1)).astimezone(zone).utcoffset():
            continue
        for quarter in range(utc_day * 96, utc_day * 96 + 96):
            local = (zones.EPOCH + timedelta(minutes=15 * quarter)).astimezone(zone)
            assert (calendar.day(quarter), calendar.hour(quarter)) == (local.date(), local.hour)


@given(MODERN, st.sampled_from(PLACES), st.integers(0, zones.QUARTER_US - 1))
def test_a_quarter_lies_in_one_local_day_and_hour(quarter: int, zone: ZoneInfo, within: int) -> None:
    moment = (zones.EPOCH + timedelta(microseconds=quarter * zones.QUARTER_US + within)).astimezone(zone)
    assert zones.quarter(quarter * zones.QUARTER_US + within) == quarter
    assert (zones.day_of(quarter, zone), zones.hour_of(quarter, zone)) == (moment.date(), moment.hour)


@given(st.dictionaries(MODERN, st.integers(0, 10**9), max_size=50), st.sampled_from(PLACES))
def test_folding_loses_nothing(sums: dict[int, int], zone: ZoneInfo) -> None:
    days = zones.fold(sums, zone)
    assert sum(days.values()) == sum(sums.values())
    assert days == zones.fold(list(sums.items()), zone)
    assert set(days) == {zones.day_of(quarter, zone) for quarter in sums}


@pytest.mark.parametrize(
    ("zone", "day", "quarters"),
    [
        (NEW_YORK, date(2026, 3, 8), 92),
        (NEW_YORK, date(2026, 11, 1), 100),
        (NEW_YORK, date(2026, 6, 1), 96),
        (LORD_HOWE, date(2026, 4, 5), 98),
        (LORD_HOWE, date(2026, 10, 4), 94),
        (KATHMANDU, date(2026, 1, 1), 96),
    ],
)
def test_days_have_as_many_quarters_as_the_zone_gives_them(zone: ZoneInfo, day: date, quarters: int) -> None:
    noon = zones.quarter(us(f"{day}T12:00:00Z"))
    assert zones.fold(dict.fromkeys(range(noon - 300, noon + 300), 1), zone)[day] == quarters


def test_evening_work_stays_on_its_day() -> None:
    assert zones.day_of(zones.quarter(us("2026-06-12T20:08:00-08:00")), ZoneInfo("Etc/GMT+8")) == date(2026, 6, 12)
    assert zones.day_of(zones.quarter(us("2026-06-12T00:30:00+08:00")), ZoneInfo("Asia/Shanghai")) == date(2026, 6, 12)


def test_the_zone_is_the_stated_one_then_tz_then_the_systems(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    link = tmp_path / "localtime"
    link.symlink_to("/usr/share/zoneinfo/Asia/Tokyo")
    monkeypatch.setattr(zones, "LOCALTIME", link)
    monkeypatch.setenv("TZ", "Europe/Madrid")
    assert str(zones.zone("Asia/Kolkata")) == "Asia/Kolkata"
    assert str(zones.zone()) == "Europe/Madrid"
    monkeypatch.setenv("TZ", ":Europe/Paris")
    assert str(zones.zone()) == "Europe/Paris"
    monkeypatch.setenv("TZ", "")
    assert str(zones.zone()) == "Asia/Tokyo"


def test_a_copied_zone_file_is_read_and_a_missing_one_is_utc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TZ", raising=False)
    monkeypatch.setattr(zones, "LOCALTIME", tmp_path / "localtime")
    assert zones.zone() is UTC
    rule = b"TZif2" + bytes(15 + 12) + (0).to_bytes(4) + (1).to_bytes(4) + (4).to_bytes(4) + bytes(6) + b"UTC\0"
    (tmp_path / "localtime").write_bytes(rule * 2 + b"\n<+0545>-5:45\n")
    assert zones.hour_of(0, zones.zone()) == 5
    monkeypatch.setenv("TZ", str(tmp_path / "localtime"))
    assert zones.hour_of(0, zones.zone()) == 5
    (tmp_path / "localtime").write_bytes(b"no zone")
    with pytest.raises(UsageError, match="localtime"):
        zones.zone()


def test_tz_may_be_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "EST5EDT,M3.2.0,M11.1.0")
    quarters = range(zones.quarter(us("2026-01-01T00:00:00Z")), zones.quarter(us("2027-01-01T00:00:00Z")), 7)
    assert all(zones.day_of(q, zones.zone()) == zones.day_of(q, NEW_YORK) for q in quarters)


@pytest.mark.parametrize(
    "name",
    ["Local", "Foo/Bar", "", "localtime", "America", "../etc/passwd", "/etc/passwd", "x" * 5000, "a\0b", "EST5X5"],
)
def test_an_unknown_zone_is_an_error_that_names_it(name: str) -> None:
    with pytest.raises(UsageError, match="time zone"):
        zones.zone(name)


@pytest.mark.parametrize("value", ["Local", "a5", "5", "CET-1CEST,bad", "ééé5"])
def test_an_unknown_tz_is_an_error_not_utc(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("TZ", value)
    with pytest.raises(UsageError, match=value):
        zones.zone()


def test_importing_zones_does_not_load_the_database() -> None:
    code = "import sys; import prosa.projections.zones; print('zoneinfo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


NOW = us("2026-11-30T12:00:00Z")
DAY = 86_400_000_000


@pytest.mark.parametrize(
    ("last", "length"), [("45m", 2_700_000_000), ("12h", 12 * 3_600_000_000), ("7d", 7 * DAY), (" 4w ", 28 * DAY)]
)
def test_last_is_a_length_up_to_now(last: str, length: int) -> None:
    assert zones.window(NOW, NEW_YORK, last=last) == zones.Window(NOW - length)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-01", "2026-01-01T00:00:00-05:00"),
        ("20260101", "2026-01-01T00:00:00-05:00"),
        ("2026-07-01", "2026-07-01T00:00:00-04:00"),
        ("2026-01-01T18:30", "2026-01-01T18:30:00-05:00"),
        ("2026-01-01 18:30:05", "2026-01-01T18:30:05-05:00"),
        ("2026-01-01T18:30:05.1234569Z", "2026-01-01T18:30:05.123456+00:00"),
        ("2026-01-01t18:30:05z", "2026-01-01T18:30:05+00:00"),
        ("2026-01-01T18:30:05+05:45", "2026-01-01T18:30:05+05:45"),
        ("2026-01-01T18:30-0330", "2026-01-01T18:30:00-03:30"),
        ("2026-03-08T02:30", "2026-03-08T03:30:00-04:00"),
        ("2026-11-01T01:30", "2026-11-01T01:30:00-04:00"),
    ],
)
def test_since_takes_dates_and_times_in_every_spelling(text: str, moment: str) -> None:
    assert zones.window(NOW, NEW_YORK, since=text) == zones.Window(us(moment))


def test_a_day_begins_after_a_midnight_that_the_clock_skips() -> None:
    cairo = ZoneInfo("Africa/Cairo")
    start, end = zones.moment("2026-04-24", cairo, "--since")
    assert (start, end - start) == (us("2026-04-23T22:00:00Z"), 23 * 3_600_000_000)
    assert zones.day_of(zones.quarter(start), cairo) == date(2026, 4, 24)
    assert zones.day_of(zones.quarter(start) - 1, cairo) == date(2026, 4, 23)


@pytest.mark.parametrize(
    ("text", "since", "until"),
    [
        ("2026-03-08..2026-03-08", "2026-03-08T00:00:00-05:00", "2026-03-09T00:00:00-04:00"),
        ("20260101 .. 2026-01-31", "2026-01-01T00:00:00-05:00", "2026-02-01T00:00:00-05:00"),
        ("2026-01-01..2026-01-01T12:00Z", "2026-01-01T05:00:00Z", "2026-01-01T12:00:00.000001Z"),
    ],
)
def test_between_has_its_end_in_it(text: str, since: str, until: str) -> None:
    assert zones.window(NOW, NEW_YORK, between=text) == zones.Window(us(since), us(until))


def test_no_option_is_no_window() -> None:
    assert zones.window(NOW, NEW_YORK) is None


@pytest.mark.parametrize(
    "options",
    [
        {"last": "7"}, {"last": "0d"}, {"last": "-7d"}, {"last": "7y"}, {"last": "٧d"}, {"last": ""},
        {"last": "9" * 50 + "d"},
        {"since": "yesterday"}, {"since": "2026-13-01"}, {"since": "2026-02-30"}, {"since": "2026-01-01T25:00"},
        {"since": "2026-01-01T10:00+99:00"}, {"since": "2026-1-1"}, {"since": ""}, {"since": "0000-01-01"},
        {"between": "2026-01-01"}, {"between": "2026-01-01.."}, {"between": "..2026-01-01"}, {"between": ".."},
        {"between": "2026-01-02..2026-01-01"}, {"between": "a..b"}, {"between": "9999-12-30..9999-12-31"},
    ],
)  # fmt: skip
def test_a_wrong_window_is_an_error_with_the_value_and_the_form(options: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        zones.window(NOW, NEW_YORK, **options)
    option, value = next(iter(options.items()))
    assert f"--{option}" in caught.value.what and caught.value.next_step
    assert repr(value) in caught.value.what or repr(value.partition("..")[0]) in caught.value.what or ".." in value


def test_two_windows_at_once_are_an_error() -> None:
    with pytest.raises(UsageError, match="--last and --since"):
        zones.window(NOW, NEW_YORK, last="7d", since="2026-01-01")


@given(st.text(max_size=30))
def test_any_text_is_a_moment_or_a_usage_error(text: str) -> None:
    try:
        start, end = zones.moment(text, NEW_YORK, "after:")
    except UsageError:
        return
    assert start < end


@given(st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)))
def test_times_are_written_in_utc_with_milliseconds_cut(when: datetime) -> None:
    elapsed = when - datetime(1970, 1, 1)
    micros = (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds
    assert zones.rfc3339(micros) == when.isoformat(timespec="milliseconds") + "Z"


def test_a_time_that_no_calendar_has_is_shown_as_the_nearest() -> None:
    assert zones.rfc3339(2**63 - 1) == "9999-12-31T23:59:59.999Z"
    assert zones.rfc3339(-(2**63)) == "0001-01-01T00:00:00.000Z"
