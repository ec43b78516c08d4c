"""`prosa doctor`: a verdict and the next step for everything prosa stands on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from prosa.cli import exit_codes
from prosa.cli.commands import new_app

if TYPE_CHECKING:
    from prosa.cli.checks import Check

app = new_app()


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="One JSON object a check.")] = False) -> int:
    """Check everything prosa stands on, with the next step.

    The log, the index, preserved transcripts, permissions, the agents' folders and how long they keep files, the
    login and its server, the schedule and its last run.

    Exit status: 1 if a check fails; a warning is none.
    """
    from prosa.cli.checks import every_check
    from prosa.cli.output import lines, mode, record, rows
    from prosa.events.home import Home

    how, failed = mode(as_json), False
    for check in every_check(Home.of()):
        failed |= check.verdict == "fail"
        if how == "json":
            record(check)
        elif how == "pipe":
            rows([(check.section, check.verdict, check.text, check.next_step)])
        else:
            lines(check_lines(check))
    return exit_codes.FAILED if failed else exit_codes.DONE


def check_lines(check: Check) -> Iterator[str]:
    """`ok    log          1,204 events`, and the next step below."""
    from prosa.cli.terminal import Paint, Style, columns, has_colours
    from prosa.cli.text import one_line, pad, wrap

    colours: dict[str, Style] = {"ok": "green", "warn": "yellow", "fail": "red"}
    paint = Paint(has_colours())
    indent = 20
    first, *rest = wrap(one_line(check.text), columns() - indent) or [""]
    yield f"{paint(pad(check.verdict, 4), colours[check.verdict])}  {pad(check.section, 12)}  {first}"
    yield from (" " * indent + line for line in rest)
    if check.next_step:
        yield from (
            " " * indent + paint(line, "dim") for line in wrap(f"→ {one_line(check.next_step)}", columns() - indent)
        )
