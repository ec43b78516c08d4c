"""`prosa schedule`: a sync every few minutes, by systemd or launchd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from prosa.cli import exit_codes
from prosa.cli.commands import new_app

if TYPE_CHECKING:
    from prosa.cli.schedule_words import Found
    from prosa.sync.schedule import State

app = new_app()

DEFAULT_EVERY = "15m"


def complete_every(incomplete: str) -> list[str]:
    from prosa.sync.schedule import INTERVALS

    return [str(every) for every in INTERVALS if str(every).startswith(incomplete)]


AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]


@app.callback(invoke_without_command=True, subcommand_metavar="[COMMAND]")
def schedule(context: typer.Context) -> int:
    """Sync in the background, every few minutes. Without a command: its state.

    By a timer of the user's systemd, or a LaunchAgent on macOS. A time that passed while the machine slept is made up
    for. The installed units carry the variables that decide what is read, as they are set now.
    """
    if context.invoked_subcommand is None:
        return status()
    return exit_codes.DONE


@app.command()
def install(
    every: Annotated[
        str, typer.Option(metavar="INTERVAL", help="5m, 15m, 1h, 1d.", autocompletion=complete_every)
    ] = DEFAULT_EVERY,
) -> int:
    """Install the schedule, or change it. What fails leaves nothing behind."""
    from prosa.cli.terminal import say
    from prosa.events.home import Home
    from prosa.sync import schedule

    wanted = schedule.interval(every)
    state = schedule.install(schedule.job(Home.of()), wanted)
    say(f"prosa syncs {wanted.words} from now on: {state.unit}", "green")
    explain_linger(state)
    return exit_codes.DONE


def explain_linger(state: State) -> None:
    """systemd ends a user's timers when he logs out, unless he lingers."""
    from prosa.cli.schedule_words import LINGER, is_bound
    from prosa.cli.terminal import hint

    if is_bound(state):
        hint(f"It runs while you are logged in. To have it run when you are not: {LINGER}")


@app.command()
def status(as_json: AsJson = False) -> int:
    """What is installed, and what the last run did.

    The last run is what that run itself wrote down, not what the units say.
    """
    from prosa.cli import schedule_words
    from prosa.cli.output import lines, mode, record, rows
    from prosa.events.home import Home

    found = schedule_words.find(Home.of())
    how = mode(as_json)
    if how == "json":
        record(as_record(found))
    elif how == "pipe":
        rows([[*as_row(found)]])
    else:
        lines(terminal_lines(found))
    return exit_codes.DONE


def as_record(found: Found) -> dict[str, object]:
    from prosa.projections.zones import rfc3339

    state, last = found.state, found.last

    def at(us: int | None) -> str | None:
        return None if us is None else rfc3339(us)

    return {
        "installed": state.installed,
        "active": state.active,
        "every": str(state.every) if state.every else None,
        "unit": str(state.unit),
        "next_run_at": at(state.next_us),
        "linger": state.linger,
        "last_run": {
            "started_at": at(last.started_us),
            "ended_at": at(last.ended_us),
            "running": last.running,
            "exit_code": last.exit_code,
            "text": last.text,
            "succeeded_at": at(last.succeeded_us),
        }
        if last
        else None,
    }


def as_row(found: Found) -> list[object]:
    """The columns of a pipe, as docs/cli.md names them."""
    said = as_record(found)
    last = found.last
    ended = said["last_run"]["ended_at"] if isinstance(said["last_run"], dict) else None
    return [
        said["installed"], said["active"], said["every"], said["next_run_at"], ended,
        last.exit_code if last else None, last.text if last else None,
    ]  # fmt: skip


def terminal_lines(found: Found) -> list[str]:
    from datetime import UTC, datetime

    from prosa.cli.amounts import stamp
    from prosa.cli.doctor import check_lines
    from prosa.cli.schedule_words import verdict
    from prosa.projections.zones import zone

    checked = list(check_lines(verdict(found)))
    if found.state.next_us:
        local = zone(None)
        when = datetime.fromtimestamp(found.state.next_us / 1_000_000, UTC).astimezone(local)
        checked.append(f"{'':20}next run {stamp(when, datetime.now(local).date())}")
    return checked


@app.command()
def uninstall() -> int:
    """Remove the schedule. The log and what was imported stay."""
    from prosa.cli.terminal import hint, say
    from prosa.events.home import Home
    from prosa.sync import schedule

    if schedule.uninstall(schedule.job(Home.of())):
        say("Removed. prosa syncs when you say so: prosa sync", "green")
    else:
        hint("There was none.")
    return exit_codes.DONE
