"""`prosa analytics`: the fixed reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from prosa.cli import exit_codes
from prosa.cli.commands import filtered, new_app
from prosa.cli.filters import Given, not_negative

if TYPE_CHECKING:
    from prosa.cli.filters import Asked

app = new_app()

DEFAULT_LAST = "7d"
REPORTS = {
    "days": "what was worked on: per day and project",
    "sessions": "sessions and turns by agent",
    "tools": "tools by use",
    "models": "sessions by model",
    "projects": "sessions by project",
    "profiles": "sessions by machine and profile",
    "heatmap": "sessions by day, the last 53 weeks",
    "hours": "sessions by hour of the day",
    "usage": "tokens and cost by agent",
    "usage_by_model": "tokens and cost by model",
    "errors": "sessions with failed tool calls",
    "errors_by_model": "the same by model",
    "subagents": "parents and their subagents by agent",
}
LISTING = "\b\n" + "\n".join(f"{name:<16} {text}" for name, text in REPORTS.items())


def complete_report(incomplete: str) -> list[tuple[str, str]]:
    return [(name, text) for name, text in REPORTS.items() if name.startswith(incomplete)]


@app.command(epilog=LISTING)
@filtered
def analytics(
    given: Given,
    report: Annotated[
        str, typer.Argument(metavar="REPORT", help="One of those listed below.", autocompletion=complete_report)
    ],
    limit: Annotated[
        int,
        typer.Option(
            metavar="N", help="At most so many rows (default: all).", show_default=False, callback=not_negative
        ),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a row.")] = False,
) -> int:
    """Numbers over the work: sessions, tools, tokens, cost.

    Numbers come from the records, each counted once over the whole store and dated by itself. Without a window: the
    last 7 days; heatmap: the last 53 weeks.
    """
    from prosa.cli.filters import ask
    from prosa.cli.opening import open_backend
    from prosa.cli.output import mode, records, rows
    from prosa.events.errors import UsageError
    from prosa.events.home import Home
    from prosa.projections.queries import Report, ReportName

    name = report.replace("-", "_")
    if name not in get_args(ReportName):
        raise UsageError(f"There is no report {report!r}.", "", f"Reports: {', '.join(REPORTS)}.")
    how = mode(as_json)
    with open_backend(Home.of(), remote=given.remote) as backend:
        asked = ask(backend, given, None if name == "heatmap" else DEFAULT_LAST)
        question = Report(name=name, filters=asked.filters, limit=limit, zone=asked.zone_name)  # type: ignore[arg-type]
        found = backend.report(question)
    if how == "json":
        records(found)
    elif how == "pipe":
        rows(row.values() for row in found)
    else:
        print_terminal(name, found, asked)
    if asked.scope and how != "terminal":
        from prosa.cli.terminal import hint

        hint(f"Only {asked.scope}, {asked.window}; --all counts all projects.")
    return exit_codes.DONE


def print_terminal(name: str, found: list[dict[str, Any]], asked: Asked) -> None:
    from prosa.cli.output import lines
    from prosa.cli.report_tables import render
    from prosa.cli.terminal import Paint, columns, has_colours, hint

    where = asked.scope or asked.filters.project or "all projects"
    lift = " · --all counts all projects" if asked.scope else ""
    window = "last 53 weeks" if name == "heatmap" and asked.filters.since_us is None else asked.window
    hint(f"{where} · {window}{lift}")
    if not found:
        hint("Nothing to count. Look further back: --last 4w, or --since 2000-01-01.")
        return
    lines(render(name, found, asked.zone, columns(), Paint(has_colours())))
