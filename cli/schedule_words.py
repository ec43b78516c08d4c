"""A schedule in words: what is installed, what its last run did, and whether that is as it should be."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from prosa.cli import exit_codes
from prosa.cli.checks import Check

if TYPE_CHECKING:
    from prosa.events.home import Home
    from prosa.sync.last_run import LastRun
    from prosa.sync.schedule import Every, State

LATE_TIMES = 3
LATE_AT_LEAST_S = 3_600
"""A run is missed when none ended for three intervals, and for an hour: machines sleep."""
LINGER = "loginctl enable-linger"


class Found(NamedTuple):
    """The two sides: what should happen and what did."""

    state: State
    last: LastRun | None
    installed_us: int | None
    """When the unit was written."""
    now_us: int


def find(home: Home) -> Found:
    """The schedule of this installation, as it is now."""
    from prosa.events.clock import now_us
    from prosa.sync import last_run, schedule

    state = schedule.state(schedule.job(home))
    written = int(state.unit.stat().st_mtime * 1_000_000) if state.installed else None
    return Found(state, last_run.read(home), written, now_us())


def verdict(found: Found) -> Check:
    """One line for doctor and for `prosa schedule status`."""
    state, last = found.state, found.last
    ran = last_run_words(last, found.now_us) if last else "it has not run yet"
    if not state.installed:
        return _without_unit(found, ran)
    every = state.every.words if state.every else f"as {state.unit} says"
    again = "prosa schedule install" + (f" --every {state.every}" if state.every else "")
    if state.active is None:
        return Check("schedule", "warn", f"{every}, but {state.trouble}; {ran}", "Log in as this user and look again.")
    if not state.active:
        return Check("schedule", "fail", f"{state.unit.name} is there and does not run; {ran}", again)
    if state.program and not state.program.exists():
        return Check("schedule", "fail", f"{every}, but {state.program} is gone; {ran}", again)
    if is_late(found):
        looks = "systemctl --user status" if state.unit.suffix == ".timer" else "launchctl print"
        # no failure: the machine may have woken up a moment ago
        return Check("schedule", "warn", f"{every}, but {ran}", f"See why: {looks} {state.unit.stem}")
    if last and failed(last):
        return Check("schedule", "warn", f"{every}; {ran}", "See it fail: prosa sync")
    return Check("schedule", "ok", f"{every}; {ran}", f"To run while logged out: {LINGER}" if is_bound(state) else "")


def _without_unit(found: Found, ran: str) -> Check:
    """No unit; something else, such as cron, may run it all the same."""
    last = found.last
    if last and not failed(last) and found.now_us - (last.ended_us or last.started_us) < 2 * 86_400 * 1_000_000:
        return Check("schedule", "ok", f"not installed here, but something else starts it; {ran}")
    return Check(
        "schedule",
        "warn",
        "not installed: what an agent deletes before the next sync is lost",
        "prosa schedule install",
    )


def is_late(found: Found) -> bool:
    """Whether a run that should have ended by now did not."""
    every: Every | None = found.state.every
    if every is None or (found.last and found.last.running):
        return False
    since = max(found.installed_us or 0, (found.last.ended_us or 0) if found.last else 0)
    return found.now_us - since > max(LATE_TIMES * every.seconds, LATE_AT_LEAST_S) * 1_000_000


def failed(last: LastRun) -> bool:
    """Offline and a sync that was already running are no failures of the schedule."""
    if last.ended_us is None:
        return not last.running
    return last.exit_code not in (exit_codes.DONE, exit_codes.UNREACHABLE, exit_codes.PENDING)


def is_bound(state: State) -> bool:
    """Whether it stops at logout."""
    return state.linger is False


def last_run_words(last: LastRun, now_us: int) -> str:
    """`last run 12 min ago: 3 imported, 41 events`."""
    from prosa.cli.amounts import duration

    def ago(at_us: int) -> str:
        return f"{duration(max(0, now_us - at_us) / 1_000_000)} ago"

    if last.ended_us is None:
        return f"started {ago(last.started_us)} and " + ("still at work" if last.running else "cut off before its end")
    said = last.text or ("done" if last.exit_code == exit_codes.DONE else f"exit {last.exit_code}")
    words = f"last run {ago(last.ended_us)}: {said}"
    if last.exit_code and last.succeeded_us:
        words += f"; the last good one {ago(last.succeeded_us)}"
    return words
