"""`prosa why`: the events that made a session what it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from prosa.cli import exit_codes
from prosa.cli.commands import new_app
from prosa.cli.finding import complete_session

if TYPE_CHECKING:
    from prosa.events.log import Log, Recorded
    from prosa.projections.queries import Session

app = new_app()


@app.command()
def why(
    session_id: Annotated[
        str,
        typer.Argument(metavar="ID", help="Key, id, or a beginning of either.", autocompletion=complete_session),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object an event.")] = False,
    tz: Annotated[str | None, typer.Option(metavar="ZONE", help="Time zone (default: the system's).")] = None,
) -> int:
    """The events that made a session what it is, one line each.

    Its own, those of its sources and of its project, in order, without transcript text.
    """
    from prosa.cli.finding import session_key
    from prosa.cli.log import print_events
    from prosa.cli.opening import open_backend, open_log
    from prosa.cli.output import mode
    from prosa.events.home import Home

    home = Home.of()
    with open_backend(home) as backend:
        session = backend.session(session_key(backend, session_id))
    with open_log(home) as opened:
        print_events(opened, history(opened, session), mode(as_json), tz)
    return exit_codes.DONE


def history(opened: Log, session: Session) -> Iterator[Recorded]:
    """The session's own stream, its sources, the project of its directory, and erasures of its bodies."""
    from prosa.cli.event_texts import summary

    own = f"session-{session.key}"
    cwd = session.project.path if session.project else None
    for header in opened.read(bodies=False):
        if header.stream == own:
            if event := opened.at(header.position):
                yield event
        elif header.type.startswith("source_") or header.type in ("project_identified", "body_erased"):
            event = opened.at(header.position)
            said = summary(event) if event else {}
            sources = session.key in said.get("sessions", ())
            project = header.type == "project_identified" and cwd is not None and said.get("path") == cwd
            if event and (sources or project or said.get("subject") == own):
                yield event
