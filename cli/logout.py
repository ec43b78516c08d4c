"""`prosa logout`: forget the login, here and on the server."""

from __future__ import annotations

from prosa.cli import exit_codes
from prosa.cli.commands import new_app

app = new_app()


@app.command()
def logout() -> int:
    """Forget the login, here and on the server.

    What was pushed stays there. Offline the token is forgotten here and stays good there until it is revoked.

    Exit status: 4 the server could not be told.
    """
    from prosa.cli.terminal import hint, say
    from prosa.events.device import identify
    from prosa.events.home import Home
    from prosa.sync.login import logout

    device = identify()
    done = logout(Home.of(), device)
    if done is None:
        hint("You are not logged in.")
        return exit_codes.DONE
    auth, revoked = done
    if revoked:
        say(f"Logged out of {auth.server}. What was pushed stays there.", "green")
        return exit_codes.DONE
    say(
        f"The login is forgotten here; {auth.server} could not be told and still takes the token.\n"
        "Nobody has it any more, unless auth.json was copied.\n"
        f"To revoke it there, from another machine: prosa devices revoke {auth.device}",
        "yellow",
    )
    return exit_codes.UNREACHABLE
