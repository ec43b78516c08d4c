"""`prosa setup`: server, login, first sync and schedule, asked one after the other or told by options."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from prosa.cli import exit_codes
from prosa.cli.commands import new_app

if TYPE_CHECKING:
    from prosa.events.home import Home

app = new_app()

DEFAULT_EVERY = "15m"


@app.command()
def setup(
    server: Annotated[str | None, typer.Option(metavar="URL", help="The server to log in to.")] = None,
    no_login: Annotated[bool, typer.Option("--no-login", help="No server: keep everything on this machine.")] = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Log in with a code to paste.")] = False,
    insecure_http: Annotated[bool, typer.Option("--insecure-http", help="As for prosa login.")] = False,
    every: Annotated[
        str, typer.Option(metavar="INTERVAL", help="How often to sync in the background.")
    ] = DEFAULT_EVERY,
    no_schedule: Annotated[bool, typer.Option("--no-schedule", help="No syncs in the background.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing; options and defaults decide.")] = False,
) -> int:
    """Set prosa up: server, login, first sync, schedule.

    Each step can be left out, repeated, and done by its own command. Without a terminal nothing is asked: the server is
    then the one --server names, or that of an earlier login. A step that fails does not stop the others.

    Exit status: that of the first step that failed.
    """
    from prosa.cli.terminal import is_terminal
    from prosa.events.errors import UsageError
    from prosa.events.home import Home
    from prosa.sync.schedule import interval

    if server and no_login:
        raise UsageError("--server and --no-login cannot be used together.", "Nothing was done.")
    interval(every)
    home, asks = Home.of(), is_terminal(sys.stdin) and not yes
    steps: list[tuple[str, Callable[[], int]]] = []
    address = None if no_login else chosen_server(home, server, insecure=insecure_http, asks=asks)
    if address:
        steps.append(("Login", lambda: login_step(home, address, browser=not no_browser)))
    steps.append(("Sync", sync_step))
    if not no_schedule:
        steps.append(("Schedule", lambda: schedule_step(home, every, asks=asks)))
    codes = {name: run_step(number, len(steps), name, step) for number, (name, step) in enumerate(steps, 1)}
    failed = {name: code for name, code in codes.items() if code}
    say_next(home, list(failed))
    return next(iter(failed.values()), exit_codes.DONE)


def chosen_server(home: Home, given: str | None, *, insecure: bool, asks: bool) -> str | None:
    """The address to log in to; None for no server. Asks again for one that is no address."""
    from prosa.cli.terminal import hint, say
    from prosa.events.errors import UsageError
    from prosa.sync.address import server_address
    from prosa.sync.login import before_this

    if given:
        return server_address(given, insecure=insecure)
    before = before_this(home)
    if not asks:
        return before.server if before else None
    hint("prosa keeps everything on this machine. With a server of your own, it also pushes there.")
    usual = before.server if before else "none"
    while True:
        typed = ask(f"Address of your server [{usual}]: ")
        if not typed:
            return before.server if before else None
        if typed.lower() in ("none", "no", "-"):
            return None
        try:
            return server_address(typed, insecure=insecure)
        except UsageError as wrong:
            say(str(wrong), "yellow")


def run_step(number: int, of: int, name: str, step: Callable[[], int]) -> int:
    """A step under its heading; an error the user can act on is told, and the next step goes on."""
    from prosa.cli.terminal import say
    from prosa.events.errors import ProsaError

    say(f"{number}/{of} {name}", "bold")
    try:
        return step()
    except ProsaError as error:
        say(str(error), "yellow")
        return error.exit_code


def login_step(home: Home, server: str, *, browser: bool) -> int:
    """Log in, unless the login that is there is taken by that server."""
    from prosa.cli.login import log_in
    from prosa.cli.terminal import hint
    from prosa.events.device import identify
    from prosa.events.messages import WhoAmI
    from prosa.sync.http import Connection, NotLoggedIn, ServerRefused
    from prosa.sync.login import before_this

    before = before_this(home)
    if before and before.server == server:
        connection = Connection(server, before.token, identify().id)
        try:
            who = connection.ask("/v1/whoami", WhoAmI)
            hint(f"This machine is logged in to {server} as {who.owner}.")
            return exit_codes.DONE
        except (NotLoggedIn, ServerRefused):
            pass  # a new login puts it right
        finally:
            connection.close()
    log_in(home, server, identify(), browser=browser)
    return exit_codes.DONE


def sync_step() -> int:
    from prosa.cli.sync import sync

    return sync()


def schedule_step(home: Home, every: str, *, asks: bool) -> int:
    """Install the schedule if that is wanted."""
    from prosa.cli.schedule import explain_linger
    from prosa.cli.terminal import hint, say
    from prosa.sync import schedule

    wanted = schedule.interval(every)
    if asks and ask(f"Sync {wanted.words} in the background? [Y/n] ").lower() in ("n", "no"):
        hint("Later: prosa schedule install")
        return exit_codes.DONE
    state = schedule.install(schedule.job(home), wanted)
    say(f"prosa syncs {wanted.words} from now on: {state.unit}", "green")
    explain_linger(state)
    return exit_codes.DONE


def ask(question: str) -> str:
    """A line of the user's; nothing at the end of the input."""
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()


def say_next(home: Home, failed: list[str]) -> None:
    from prosa.cli.terminal import hint, say
    from prosa.sync import auth_file

    if failed:
        say(f"Done, but for: {', '.join(failed)}. What is above says what to do; then again: prosa setup", "yellow")
    else:
        say("Done.", "bold")
    hint("What you worked on:        prosa --all")
    hint("Find something:            prosa search WORDS")
    hint("Whether all is well:       prosa doctor")
    if auth_file.path(home).exists():
        hint("From all your machines:    prosa --remote --all")
