"""`prosa show`: one session, rendered on a terminal, its preserved bytes in a pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from prosa.cli import exit_codes
from prosa.cli.commands import new_app
from prosa.cli.filters import not_negative
from prosa.cli.finding import complete_session

if TYPE_CHECKING:
    from prosa.events.home import Home
    from prosa.projections.queries import Backend, Session

app = new_app()


@app.command()
def show(
    session_id: Annotated[
        str,
        typer.Argument(metavar="ID", help="Key, id, or a beginning of either.", autocompletion=complete_session),
    ],
    raw: Annotated[bool, typer.Option("--raw", help="The bytes exactly as the agent wrote them.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One object with the session and its turns.")] = False,
    max_output_lines: Annotated[
        int,
        typer.Option(
            metavar="N", help="Lines of a tool's output and of thinking to show; 0: all.", callback=not_negative
        ),
    ] = 12,
    remote: Annotated[bool, typer.Option("--remote", help="Ask the server: the sessions of all machines.")] = False,
    tz: Annotated[str | None, typer.Option(metavar="ZONE", help="Time zone (default: the system's).")] = None,
) -> int:
    """Show one session.

    A terminal gets its turns, in a pager if they are longer than the screen ($PAGER, else less). A pipe, or --raw,
    gets the preserved transcript byte for byte; one that was pruned from this machine comes from the server.

    Exit status: 2 the id fits no session or several, 3 there is no preserved copy, 4 it was pruned here and the
    server cannot be asked.
    """
    from prosa.cli.finding import session_key
    from prosa.cli.opening import open_backend
    from prosa.cli.output import mode
    from prosa.events.errors import UsageError
    from prosa.events.home import Home

    if raw and as_json:
        raise UsageError("--raw and --json cannot be used together.", "", "Give one of them.")
    home, how = Home.of(), mode(as_json)
    with open_backend(home, remote=remote) as backend:
        session = backend.session(session_key(backend, session_id))
        if raw or how == "pipe":
            write_raw(home, session, remote=remote)
        elif how == "json":
            write_json(backend, session)
        else:
            from prosa.cli.pager import page
            from prosa.cli.terminal import Paint, columns, has_colours
            from prosa.cli.transcript import Transcript
            from prosa.projections.zones import zone

            transcript = Transcript(zone(tz), columns(), Paint(has_colours()), max_output_lines)
            page(transcript.lines(session, backend.turns(session.key)))
    return exit_codes.DONE


def write_raw(home: Home, session: Session, *, remote: bool) -> None:
    import sys

    from prosa.cli.opening import read_raw, read_remote

    sys.stdout.flush()
    for piece in read_remote(home, session) if remote else read_raw(home, session):
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def write_json(backend: Backend, session: Session) -> None:
    """`{"session": …, "turns": [ … ]}` on one line, written turn by turn."""
    import sys

    import msgspec

    encode = msgspec.json.Encoder().encode
    sys.stdout.flush()
    out = sys.stdout.buffer
    out.write(b'{"session":' + encode(session) + b',"turns":[')
    for number, turn in enumerate(backend.turns(session.key)):
        out.write((b"," if number else b"") + encode(turn))
    out.write(b"]}\n")
    out.flush()
