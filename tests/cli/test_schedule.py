"""`prosa schedule`, the stamp that a scheduled sync leaves, and what doctor says of both."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command import Ran

from prosa.cli.app import run
from prosa.cli.checks import Check
from prosa.cli.schedule_words import Found, verdict
from prosa.events.clock import now_us
from prosa.events.home import Home
from prosa.sync.last_run import LastRun, read, recorded
from prosa.sync.schedule import DAY, PASSED_ON, Every, State

FAKES = Path(__file__).parents[1] / "sync"
MINUTE, HOUR = 60_000_000, 3_600_000_000
QUARTER = Every(15, "m")


@pytest.fixture
def here(home: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A machine whose systemctl records what it is told."""
    for name in PASSED_ON:
        if not name.startswith("PROSA"):
            monkeypatch.delenv(name, raising=False)
    tools, fake = home / "tools", home / "fake"
    tools.mkdir()
    fake.mkdir()
    for name in ("systemctl", "loginctl"):
        shutil.copy(FAKES / "fake_systemctl.sh", tools / name)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE", str(fake))
    monkeypatch.setattr(sys, "platform", "linux")
    return Home.of()


def status(prosa: Callable[..., Ran]) -> dict[str, object]:
    found = json.loads(prosa("schedule", "status", "--json").out)
    assert isinstance(found, dict)
    return found


def test_installing_says_what_happens_from_now_on(prosa: Callable[..., Ran], here: Home) -> None:
    ran = prosa("schedule", "install", "--every", "1h")
    assert (ran.code, ran.out) == (0, "")
    assert "prosa syncs every hour from now on" in ran.err
    assert "loginctl enable-linger" in ran.err
    found = status(prosa)
    assert (found["installed"], found["active"], found["every"], found["last_run"]) == (True, True, "1h", None)
    assert found["next_run_at"] == "2026-11-30T19:15:00.000Z"


def test_one_who_lingers_is_not_told_to(prosa: Callable[..., Ran], here: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_LINGER", "yes")
    assert "enable-linger" not in prosa("schedule", "install").err


def test_an_install_that_fails_is_not_shown_as_installed(
    prosa: Callable[..., Ran], here: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAIL", "enable")
    ran = prosa("schedule", "install")
    assert (ran.code, ran.err) == (
        1, "systemctl enable " + ran.err.split()[2] + " Failed to enable unit: not today.\nEverything is as it was.\n"
    )  # fmt: skip
    assert status(prosa)["installed"] is False


def test_without_systemd_the_way_by_cron_is_said(
    prosa: Callable[..., Ran], here: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NO_BUS", "1")
    ran = prosa("schedule", "install")
    assert ran.code == 1
    first, second, third = ran.err.splitlines()
    assert "No medium found" in first
    assert second == "Nothing was installed."
    assert third.startswith("With cron: */15 * * * * PROSA_HOME=")
    assert third.endswith("sync --scheduled")


@pytest.mark.parametrize("every", ["7m", "", "tomorrow"])
def test_an_interval_that_cannot_be_is_a_usage_error(every: str, prosa: Callable[..., Ran], here: Home) -> None:
    assert prosa("schedule", "install", "--every", every).code == 2


def test_uninstalling(prosa: Callable[..., Ran], here: Home) -> None:
    prosa("schedule", "install")
    assert prosa("schedule", "uninstall").err == "Removed. prosa syncs when you say so: prosa sync\n"
    assert prosa("schedule", "uninstall").err == "There was none.\n"
    assert status(prosa)["installed"] is False


def test_a_pipe_gets_one_line(prosa: Callable[..., Ran], here: Home) -> None:
    assert prosa("schedule", "status").out == "false" + "\t" * 6 + "\n"
    prosa("schedule", "install")
    with recorded(here) as last:
        last.text = "2 imported"
    cells = prosa("schedule").out.rstrip("\n").split("\t")
    assert [*cells[:4], *cells[5:]] == ["true", "true", "15m", "2026-11-30T19:15:00.000Z", "0", "2 imported"]


def test_a_terminal_sees_the_last_run_and_the_next(terminal: Callable[..., Ran], here: Home) -> None:
    terminal("schedule", "install")
    with recorded(here) as last:
        last.text = "2 imported, 41 events"
    out = terminal("schedule", "--no-color").out
    assert out.splitlines()[0] == "ok    schedule      every 15 minutes; last run 0 s ago: 2 imported, 41 events"
    assert "next run" in out
    assert all(len(line) <= 80 for line in out.splitlines())


# a scheduled sync


def sync(*words: str) -> int:
    """In this process, over real rooms; the agents' homes are those of an empty user."""
    return run(["sync", *words])


def test_a_scheduled_sync_leaves_a_stamp_and_another_does_not(here: Home) -> None:
    assert sync() == 0
    assert read(here) is None
    assert sync("--scheduled") == 0
    found = read(here)
    assert found is not None
    assert (found.exit_code, found.text, found.running) == (0, "nothing new", False)
    before = (here.data / "scheduled.json").stat()
    assert sync() == 0
    after = (here.data / "scheduled.json").stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)


def test_a_scheduled_sync_that_fails_says_why(here: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sync("--scheduled") == 0
    good = read(here)
    (here.config).mkdir(parents=True, exist_ok=True)
    (here.config / "config.toml").write_text("[")
    assert sync("--scheduled") == 2
    found = read(here)
    assert found is not None and good is not None
    assert (found.exit_code, "is no TOML" in found.text, found.succeeded_us) == (2, True, good.ended_us)


def test_the_option_is_not_in_the_help(prosa: Callable[..., Ran]) -> None:
    assert "--scheduled" not in prosa("sync", "--help").out


# verdicts


def an_installed(every: Every = QUARTER, *, active: bool | None = True, program: Path | None = None) -> State:
    unit = Path("/x/prosa-sync.timer")
    return State(
        unit, True, every, active, linger=True, program=program, trouble="" if active is not None else "no bus"
    )


def a_run(ended_ago_us: int | None, code: int | None = 0, *, good_ago_us: int | None = None, pid: int = 0) -> LastRun:
    now = now_us()
    ended = None if ended_ago_us is None else now - ended_ago_us
    return LastRun(
        pid=pid or 2**22 + 1, started_us=(ended or now) - 5_000_000, ended_us=ended, exit_code=code,
        text="3 imported" if code == 0 else "disk full", succeeded_us=now - good_ago_us if good_ago_us else None,
    )  # fmt: skip


def judged(state: State, last: LastRun | None, *, installed_ago_us: int = 200 * HOUR) -> Check:
    now = now_us()
    return verdict(Found(state, last, now - installed_ago_us if state.installed else None, now))


NOT_INSTALLED = State(Path("/x/prosa-sync.timer"), False)


@pytest.mark.parametrize(
    ("state", "last", "expected", "said"),
    [
        (NOT_INSTALLED, None, "warn", "not installed"),
        (NOT_INSTALLED, a_run(HOUR), "ok", "something else starts it"),
        (NOT_INSTALLED, a_run(72 * HOUR), "warn", "not installed"),
        (an_installed(), a_run(12 * MINUTE), "ok", "last run 12 min ago: 3 imported"),
        (an_installed(), a_run(59 * MINUTE), "ok", "59 min ago"),
        (an_installed(), a_run(61 * MINUTE), "warn", "1 h 01 min ago"),
        (an_installed(DAY), a_run(71 * HOUR), "ok", "2 d 23 h ago"),
        (an_installed(DAY), a_run(73 * HOUR), "warn", "3 d 1 h ago"),
        (an_installed(), None, "warn", "it has not run yet"),
        (an_installed(), a_run(MINUTE, 1, good_ago_us=3 * HOUR), "warn", "disk full; the last good one 3 h ago"),
        (an_installed(), a_run(MINUTE, 4), "ok", "disk full"),
        (an_installed(), a_run(MINUTE, 5), "ok", "disk full"),
        (an_installed(), a_run(None, None, pid=os.getpid()), "ok", "still at work"),
        (an_installed(active=False), a_run(MINUTE), "fail", "prosa-sync.timer is there and does not run"),
        (an_installed(active=None), a_run(MINUTE), "warn", "no bus"),
        (an_installed(program=Path("/gone/prosa")), a_run(MINUTE), "fail", "/gone/prosa is gone"),
        (an_installed(program=Path("/bin/sh")), a_run(MINUTE), "ok", "3 imported"),
    ],
)  # fmt: skip
def test_a_verdict_is_about_what_happened(state: State, last: LastRun | None, expected: str, said: str) -> None:
    found = judged(state, last)
    assert (found.verdict, said in found.text) == (expected, True), found
    assert found.verdict == "ok" or found.next_step


def test_one_that_was_just_installed_may_not_have_run_yet() -> None:
    found = judged(an_installed(), None, installed_ago_us=20 * MINUTE)
    assert (found.verdict, found.text) == ("ok", "every 15 minutes; it has not run yet")


def test_a_run_that_was_cut_off_is_told() -> None:
    found = judged(an_installed(), a_run(None, None), installed_ago_us=MINUTE)
    assert (found.verdict, "cut off before its end" in found.text) == ("warn", True)


def test_doctor_has_the_schedule(prosa: Callable[..., Ran], here: Home) -> None:
    found = {record["section"]: record for record in map(json.loads, prosa("doctor", "--json").out.splitlines())}
    assert found["schedule"]["next_step"] == "prosa schedule install"
    prosa("schedule", "install")
    found = {record["section"]: record for record in map(json.loads, prosa("doctor", "--json").out.splitlines())}
    assert (found["schedule"]["verdict"], found["schedule"]["text"]) == ("ok", "every 15 minutes; it has not run yet")
