"""`prosa why`: the events that made a session what it is."""

from __future__ import annotations

from typing import Annotated

import typer

from prosa.cli import exit_codes
from prosa.cli.commands import new_app
from prosa.cli.finding import complete_session

app = new_app()


@app.command()
def why(
    session_id: Annotated[
        str,
        typer.Argument(metavar="ID", help="Key, id, or a beginning of either.", autocompletion=complete_session),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object an event.")] = False,
    remote: Annotated[bool, typer.Option("--remote", help="Ask the server: the events of all machines.")] = False,
    tz: Annotated[str | None, typer.Option(metavar="ZONE", help="Time zone (default: the system's).")] = None,
) -> int:
    """The events that made a session what it is, one line each.

    Its own, those of its sources and of its project, in order, without transcript text.
    """
    from prosa.cli.finding import session_key
    from prosa.cli.log import print_events
    from prosa.cli.opening import open_backend, open_trail
    from prosa.cli.output import mode
    from prosa.events.home import Home

    home = Home.of()
    with open_backend(home, remote=remote) as backend:
        session = backend.session(session_key(backend, session_id))
    with open_trail(home, remote=remote) as trail:
        print_events(trail.history(session), mode(as_json), tz)
    return exit_codes.DONE
