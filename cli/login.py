"""`prosa login`: let this machine talk to a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from prosa.cli import exit_codes
from prosa.cli.commands import new_app

if TYPE_CHECKING:
    from prosa.events.device import Device
    from prosa.events.home import Home
    from prosa.sync.auth_file import Auth
    from prosa.sync.login import Login

app = new_app()

TRIES = 3
"""For a code that is typed; a wrong one does not use up the login."""


@app.command()
def login(
    server: Annotated[
        str | None, typer.Option(metavar="URL", help="The server (default: that of the last login).")
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", "--code", help="Print the address, and ask for the code it shows.")
    ] = False,
    insecure_http: Annotated[
        bool, typer.Option("--insecure-http", help="Allow http:// to another machine, such as in a VPN.")
    ] = False,
) -> int:
    """Log this machine in to a server, so that sync pushes.

    The browser asks you, as the owner, whether this machine may. On a machine without a browser, open the address on
    any other one and paste the code that it shows. Logging in again replaces the earlier login.

    Exit status: 4 the server is unreachable, or no login came of it.
    """
    from prosa.cli.terminal import hint
    from prosa.events.device import identify
    from prosa.events.errors import UsageError
    from prosa.events.home import Home
    from prosa.sync.address import server_address
    from prosa.sync.login import before_this

    home = Home.of()
    before = before_this(home)
    typed = server or (before.server if before else None)
    if typed is None:
        raise UsageError("Which server?", "Nothing was done.", "Like this: prosa login --server https://…")
    address = server_address(typed, insecure=insecure_http or server is None)
    log_in(home, address, identify(), browser=not no_browser)
    hint("Next: prosa sync")
    return exit_codes.DONE


def log_in(home: Home, server: str, device: Device, *, browser: bool) -> Auth:
    """The whole login, with what it says to the user. Raises LoginFailed, Unreachable, UsageError."""
    from datetime import UTC, date, datetime

    from prosa.cli.amounts import day
    from prosa.cli.terminal import hint, say
    from prosa.sync.login import begin, check_server, keep

    check_server(server, device)
    opens = browser and has_display()
    with begin(server, device, loopback=opens) as begun:
        auth = by_browser(begun) if opens else by_code(begun)
        revoked = keep(home, auth, device)
        begun.done()
    owner = f" as {auth.owner}" if auth.owner else ""
    say(f"Logged in to {server}{owner}; this machine is {device.hostname} ({device.id[:8]}).", "green")
    if auth.expires_at_us:
        until = datetime.fromtimestamp(auth.expires_at_us / 1_000_000, UTC).date()
        hint(f"The login holds until {day(until, date.min)}.")
    if not revoked:
        hint("The earlier login could not be revoked on its server; prosa devices there lists it.")
    return auth


def by_browser(begun: Login) -> Auth:
    """Open the page and wait for its answer."""
    import webbrowser

    from prosa.cli.terminal import hint, say

    if webbrowser.open(begun.authorize_url):
        say("Your browser asks whether this machine may log in. If it did not open, go to:")
    else:
        say("Open this address in a browser on this machine:")
    say(begun.authorize_url, "bold")
    hint("Waiting for the answer (Ctrl-C gives up). No browser? prosa login --no-browser")
    return begun.wait()


def by_code(begun: Login) -> Auth:
    """Print the address and read the code that it shows, from a terminal or from a pipe."""
    import sys

    from prosa.cli.terminal import is_terminal, say
    from prosa.sync.login import LoginFailed

    say("Open this address in a browser on any machine, and paste the code that it shows:")
    say(begun.authorize_url, "bold")
    tries = TRIES if is_terminal(sys.stdin) else 1
    while True:
        if is_terminal(sys.stdin):
            print("Code: ", end="", file=sys.stderr, flush=True)
        code, tries = sys.stdin.readline().strip(), tries - 1
        if not code:
            raise LoginFailed("No code was given.", "Nothing was changed.", "Try again: prosa login --no-browser")
        try:
            return begun.finish(code)
        except LoginFailed as wrong:
            if not tries:
                raise
            say(wrong.what, "yellow")


def has_display() -> bool:
    """Whether a browser can open where the user sits. `BROWSER` says so too."""
    import os
    import sys

    if os.environ.get("BROWSER"):
        return True
    if sys.platform == "darwin":
        return "SSH_CONNECTION" not in os.environ
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
