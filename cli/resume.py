"""`prosa resume`: go on with a session in its own agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from prosa.cli import exit_codes
from prosa.cli.commands import new_app
from prosa.cli.finding import complete_session

if TYPE_CHECKING:
    from prosa.projections.queries import Session

app = new_app()


@app.command()
def resume(
    session_id: Annotated[
        str,
        typer.Argument(metavar="ID", help="Key, id, or a beginning of either.", autocompletion=complete_session),
    ],
    print_only: Annotated[bool, typer.Option("--print", help="Print the command instead of running it.")] = False,
) -> int:
    """Go on with a session in its own agent.

    Runs the agent's own resume command in the session's directory.

    Exit status: the agent's own; 3 the session cannot be resumed here.
    """
    import shlex

    from prosa.cli.finding import session_key
    from prosa.cli.opening import open_backend, resume_words
    from prosa.cli.text import clean
    from prosa.events.errors import ConflictError
    from prosa.events.home import Home

    with open_backend(Home.of()) as backend:
        session = backend.session(session_key(backend, session_id))
    words = resume_words(session)
    if not words:
        raise ConflictError(f"{session.agent} has no command that resumes a session.", "Nothing was run.")
    folder = session.project.path if session.project else None
    line = " ".join(map(shlex.quote, words))
    if print_only:
        print(clean(f"cd {shlex.quote(folder)} && {line}" if folder else line))
        return exit_codes.DONE
    run(session, words, folder)
    return exit_codes.FAILED  # not reached: the agent has taken the place of prosa


def run(session: Session, words: list[str], folder: str | None) -> None:
    """Become the agent. Raises ConflictError where this is not the session's machine or something is gone."""
    import os
    import shutil
    import sys
    from pathlib import Path

    from prosa.cli.opening import this_device
    from prosa.events.errors import ConflictError

    if session.device and session.device != this_device():
        name = session.device_name or session.device
        raise ConflictError(f"This session ran on {name}, not here.", "Nothing was run.", "See the command: --print")
    if folder and not Path(folder).is_dir():
        raise ConflictError(
            f"The session's directory {folder} is gone.", "Nothing was run.", "See the command: --print"
        )
    if not shutil.which(words[0]):
        raise ConflictError(f"{words[0]} is not installed here.", "Nothing was run.", "See the command: --print")
    if folder:
        os.chdir(folder)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(words[0], words)  # noqa: S606
