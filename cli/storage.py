"""`prosa storage`: what the preserved transcripts take, and what their agents are about to delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from prosa.cli import exit_codes
from prosa.cli.commands import filtered, new_app
from prosa.cli.filters import Given, not_negative

if TYPE_CHECKING:
    from prosa.cli.filters import Asked
    from prosa.events.home import Home

app = new_app()


@app.command()
@filtered
def storage(
    given: Given,
    limit: Annotated[
        int, typer.Option(metavar="N", help="At most so many projects; 0: all.", callback=not_negative)
    ] = 15,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a row.")] = False,
) -> int:
    """Bytes by agent, project and age, written and stored.

    Every preserved copy counts, one that grew once. Last what prosa's own files take, and what Claude Code deletes
    within a week; a server has neither. What prune took and could take is there, too. Without a window: all of time.
    """
    from prosa.cli.filters import ask
    from prosa.cli.opening import open_backend
    from prosa.cli.output import mode, records, rows
    from prosa.cli.retention import due_soon
    from prosa.events.home import Home
    from prosa.projections.queries import Timeline

    home, how = Home.of(), mode(as_json)
    with open_backend(home, remote=given.remote) as backend:
        asked = ask(backend, given)
        found = limited(backend.storage(asked.filters), limit)
        if not given.remote:
            every = Timeline(filters=asked.filters, flat=True, include_empty=True)
            due = due_soon(backend.timeline(every).sessions)
            soon = row("deleted_soon", "claude-code", len(due), sum(item.size_bytes for item in due))
            found += [*files(home), *prunable(home), soon]
    if how == "json":
        records(found)
    elif how == "pipe":
        rows(line.values() for line in found)
    else:
        print_terminal(found, asked)
    return exit_codes.DONE


def row(
    by: str, value: str | None, sessions: int | None = None, raw: int | None = None, stored: int | None = None
) -> dict[str, Any]:
    """A line with the columns of the back end's answer."""
    return {
        "by": by, "value": value, "sessions": sessions, "raw_bytes": raw, "stored_bytes": stored,
        "local_bytes": stored, "pruned_bytes": None,
    }  # fmt: skip


def limited(sums: list[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    """All agents and ages, and the first projects."""
    projects = [line for line in sums if line["by"] == "project"]
    left_out = {id(line) for line in projects[limit:]} if limit else set()
    return [line for line in sums if id(line) not in left_out]


def files(home: Home) -> list[dict[str, Any]]:
    """What prosa's own files take on disk."""
    places = {
        "log": [*home.data.glob("log.db*")],
        "raw": [*home.raw.glob("??/*.zst")],
        "index": [*home.index.glob("*")],
    }
    found = []
    for name, paths in places.items():
        seen = {(stat.st_dev, stat.st_ino): stat.st_size for path in paths if (stat := path.stat())}
        found.append(row("file", name, stored=sum(seen.values())))
    return found


def prunable(home: Home) -> list[dict[str, Any]]:
    """What a prune would free now; nothing where this machine is not logged in."""
    from prosa.cli.opening import prunable_now

    return [row("prunable", plan.rule.words, plan.sessions, stored=plan.bytes) for plan in prunable_now(home)]


def print_terminal(found: list[dict[str, Any]], asked: Asked) -> None:
    from prosa.cli.amounts import count, size
    from prosa.cli.output import lines
    from prosa.cli.retention import SOON_DAYS
    from prosa.cli.tables import Column, table
    from prosa.cli.terminal import Paint, columns, has_colours, hint, say
    from prosa.cli.text import one_line

    hint(f"{asked.scope or asked.filters.project or 'all projects'} · {asked.window}")
    paint = Paint(has_colours())
    has_pruned = any(line.get("pruned_bytes") for line in found)
    for by in ("agent", "project", "age"):
        texts = [
            [
                one_line(str(line["value"] or "unknown")), f"{line['sessions']:,}", size(line["raw_bytes"]),
                size(line["stored_bytes"]), _share(line["stored_bytes"], line["raw_bytes"]),
                *([size(line.get("pruned_bytes"))] if has_pruned else []),
            ]
            for line in found
            if line["by"] == by
        ]  # fmt: skip
        heads = [
            Column(by, path=by == "project"),
            *(Column(t, True) for t in ("sessions", "written", "stored", "share")),
            *([Column("pruned", True)] if has_pruned else []),
        ]
        lines([*table(heads, texts, columns(), paint), ""])
    on_disk = [f"{line['value']} {size(line['stored_bytes'])}" for line in found if line["by"] == "file"]
    if on_disk:
        lines([paint("on disk", "dim") + "  " + " · ".join(on_disk)])
    for line in found:
        if line["by"] == "prunable" and line["sessions"]:
            freed = f"{size(line['stored_bytes'])} of {count(line['sessions'], 'session')} {line['value']}"
            hint(f"The server holds the same bytes: prosa prune would free {freed}.")
    for due in found:
        if due["by"] == "deleted_soon" and due["sessions"]:
            what = f"{count(due['sessions'], 'transcript')}, {size(due['raw_bytes'])}, within {SOON_DAYS} days"
            say(f"Claude Code deletes {what}. Their preserved copies stay.", "yellow")


def _share(stored: int, written: int) -> str:
    return f"{100 * stored / written:.0f} %" if written else ""
