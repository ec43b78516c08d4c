"""`prosa prune`: free the disk of raw copies that the server holds, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from prosa.cli import exit_codes
from prosa.cli.commands import new_app
from prosa.cli.filters import not_negative

if TYPE_CHECKING:
    from prosa.cli.output import Mode
    from prosa.sync.prune_report import PruneItem, PruneSummary

app = new_app()


@app.command()
def prune(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Age of the last activity: 30d, 12h, 8w.")
    ] = "30d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan; append and remove nothing.")] = False,
    limit: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="At most N sessions, the longest untouched first (default: all).",
            show_default=False,
            callback=not_negative,
        ),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a session, then a summary.")] = False,
) -> int:
    """Delete local raw copies that the server holds too.

    Takes sessions whose copy an earlier sync confirmed at the server. The server is asked for each one again, the local
    bytes are hashed again, and the log says it before the file goes. Turns, search and reports stay; prosa show --raw
    gets the bytes from the server.

    Exit status: 0 done, 1 some session failed; skipped ones are listed with the reason and are no failure. 3 the server
    refused, 4 not logged in or the server is unreachable, 5 a sync is running.
    """
    from prosa.cli.opening import run_prune
    from prosa.cli.output import mode
    from prosa.cli.progress import Bar
    from prosa.events.home import Home
    from prosa.projections.zones import duration_us
    from prosa.sync.prune_report import PruneSummary

    how, code = mode(as_json), exit_codes.DONE
    with Bar("pruning", unit="session") as bar:
        age_us = duration_us(older_than, "--older-than")
        for item in run_prune(Home.of(), older_than, age_us, limit=limit, dry_run=dry_run, progress=bar.update):
            bar.clear()
            if isinstance(item, PruneSummary):
                print_summary(item, how)
                code = exit_codes.FAILED if item.failed else exit_codes.DONE
            else:
                print_item(item, how)
    return code


def print_item(item: PruneItem, how: Mode) -> None:
    """A record, a line for a pipe; on a terminal the plan of a dry run, and on stderr what was not pruned."""
    from prosa.cli.amounts import size
    from prosa.cli.output import lines, record, rows
    from prosa.cli.terminal import say
    from prosa.cli.text import one_line

    if how == "json":
        record(item)
        return
    if how == "pipe":
        rows([(item.status, item.session, item.raws, item.size, item.bytes, item.reason)])
    if item.reason:
        say(one_line(f"{item.status} {item.session}: {item.reason}"), "yellow")
    elif how == "terminal" and item.status == "planned":
        lines([f"{size(item.bytes):>9}  {one_line(item.session)}"])


def print_summary(summary: PruneSummary, how: Mode) -> None:
    """What was freed; for a pipe on stderr, as its lines are data."""
    from prosa.cli.amounts import count, size
    from prosa.cli.output import lines, record
    from prosa.cli.terminal import hint

    if how == "json":
        record(summary)
        return
    if summary.status == "planned":
        text = f"{count(summary.sessions, 'session')} would be pruned, {size(summary.bytes)} freed"
    elif not summary.pruned:
        text = "nothing was pruned"
    else:
        text = f"{count(summary.pruned, 'session')} pruned, {size(summary.bytes)} freed"
    parts = [text, *(f"{n:,} {word}" for n, word in ((summary.skipped, "skipped"), (summary.failed, "failed")) if n)]
    if summary.leftovers:
        parts.append(f"{count(summary.leftovers, 'file')} of an earlier prune removed")
    first = f"{summary.rule}: {', '.join(parts)}"
    if how == "pipe":
        hint(first)
    else:
        lines([first])
    if summary.unconfirmed:
        held = f"{count(summary.unconfirmed, 'session')} of that age ({size(summary.unconfirmed_bytes)})"
        hint(f"Not confirmed by the server and kept: {held}. Next: prosa sync")
