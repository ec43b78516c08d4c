"""`prosa sync`: read what the agents wrote since the last time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from prosa.cli import exit_codes
from prosa.cli.commands import new_app

if TYPE_CHECKING:
    from prosa.cli.output import Mode
    from prosa.ingest.report import Outline, Reparsed, SyncItem, SyncOptions, SyncSummary

app = new_app()

WATCH_EVERY_S = 10
NEWS = ("imported", "extended", "reparsed", "moved", "rejected", "failed")


def complete_agent(incomplete: str) -> list[str]:
    from prosa.cli.opening import agent_names

    return [name for name in agent_names() if name.startswith(incomplete)]


@app.command()
def sync(
    no_push: Annotated[bool, typer.Option("--no-push", help="Send nothing to a server.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Hash every file, not only those that seem changed.")
    ] = False,
    reparse: Annotated[bool, typer.Option("--reparse", help="Read all preserved transcripts again.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --reparse: show what would change, append nothing.")
    ] = False,
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="One agent only.", autocompletion=complete_agent)
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on, looking every 10 seconds, until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a source, then a summary.")] = False,
) -> int:
    """Import what the agents wrote since the last time.

    Finds their files, preserves them, parses the copies and appends to the log. The agents' files are only read; one
    that did not change costs a look at its size and times.

    Exit status: 1 any source failed (the others are imported), 5 another sync is running.
    """
    from prosa.cli.opening import agent_names
    from prosa.cli.output import mode
    from prosa.events.errors import UsageError
    from prosa.ingest.report import SyncOptions

    if dry_run and not reparse:
        raise UsageError("--dry-run goes with --reparse.", "Nothing was done.", "A plain sync only ever appends.")
    if dry_run and watch:
        raise UsageError("--dry-run and --watch cannot be used together.", "Nothing was done.")
    if agent is not None and agent not in agent_names():
        raise UsageError(f"There is no agent {agent!r}.", "Nothing was done.", f"Agents: {', '.join(agent_names())}.")
    options = SyncOptions(agent, verify, reparse, dry_run)
    how = mode(as_json)
    if not watch:
        return run_once(options, how)
    while True:
        import time

        run_once(options, how, quiet=True)
        options = options._replace(reparse=False)
        time.sleep(WATCH_EVERY_S)


def run_once(options: SyncOptions, how: Mode, *, quiet: bool = False) -> int:
    """One sync with its output; `quiet` leaves out the summary of a run that found nothing."""
    from prosa.cli.opening import run_sync
    from prosa.cli.progress import Bar
    from prosa.events.home import Home
    from prosa.ingest.report import Reparsed, SourceDone, SyncSummary

    summary: SyncSummary | None = None
    counts: dict[str, Counter[str]] = {}
    changed = 0
    with Bar("syncing") as bar:
        for item in run_sync(Home.of(), options, bar.update):
            if isinstance(item, SyncSummary):
                summary = item
                continue
            if isinstance(item, SourceDone):
                counts.setdefault(item.agent, Counter())[item.status] += 1
            elif isinstance(item, Reparsed) and item.before == item.after:
                continue
            else:
                changed += 1
            if is_news(item):
                bar.clear()
                print_item(item, how)
    if summary is None:
        return exit_codes.FAILED
    happened = any(getattr(summary, status) for status in NEWS)
    if how == "json":
        from prosa.cli.output import record

        if not quiet or happened:
            record(summary)
    elif not quiet or happened:
        print_summary(summary, counts, options, changed, how)
    return exit_codes.FAILED if summary.failed else exit_codes.DONE


def is_news(item: SyncItem) -> bool:
    """Whether something was done, or could not be."""
    from prosa.ingest.report import SourceDone

    return not isinstance(item, SourceDone) or item.status != "unchanged" or bool(item.reason)


def print_item(item: SyncItem, how: Mode) -> None:
    """A record, a line for a pipe; on a terminal only what went wrong, on stderr."""
    from prosa.cli.output import lines, record, rows
    from prosa.cli.terminal import say
    from prosa.cli.text import one_line
    from prosa.ingest.report import Reparsed, SourceDone

    if how == "json":
        record(item)
    elif isinstance(item, SourceDone):
        if how == "pipe":
            rows([(item.status, item.agent, item.path, item.sessions, item.reason)])
        if item.reason or item.status in ("failed", "rejected"):
            say(one_line(f"{item.status} {item.agent} {item.path}: {item.reason or 'no reason given'}"), "yellow")
    elif isinstance(item, Reparsed):
        if how == "pipe":
            before, after = item.before, item.after
            rows([(item.key, before.turns, after.turns, before.tokens, after.tokens, before.title, after.title)])
        else:
            lines(reparse_lines(item))


def reparse_lines(item: Reparsed) -> list[str]:
    """A session and each number that a new parse changes."""
    from prosa.cli.text import one_line

    def value(outline: Outline, name: str) -> str:
        found = getattr(outline, name)
        return "unknown" if found is None else f"{found:,}" if isinstance(found, int) else one_line(str(found))

    changes = [
        f"    {name}: {value(item.before, name)} → {value(item.after, name)}"
        for name in ("turns", "tokens", "title")
        if getattr(item.before, name) != getattr(item.after, name)
    ]
    return [one_line(item.key), *changes]


def print_summary(
    summary: SyncSummary, counts: dict[str, Counter[str]], options: SyncOptions, changed: int, how: Mode
) -> None:
    """What was done, agent by agent; for a pipe on stderr, as its lines are data."""
    from prosa.cli.amounts import compact, count, duration, size
    from prosa.cli.output import lines
    from prosa.cli.terminal import hint

    seconds = f"{summary.seconds:.1f} s" if summary.seconds < 60 else duration(summary.seconds)
    if options.dry_run:
        hint(f"{count(changed, 'session')} would change; nothing was appended ({seconds}).")
        return
    statuses = ("imported", "extended", "reparsed", "moved", "vanished", "rejected", "failed")
    parts = [f"{getattr(summary, status):,} {status}" for status in statuses if getattr(summary, status)]
    said = ", ".join(parts) or "nothing new"
    first = f"{count(summary.sources, 'source')}: {said} · {count(summary.events, 'event')} · "
    first += f"{size(summary.bytes)} read · {seconds}"
    if how == "pipe":
        hint(first)
        return
    lines([first])
    if parts:
        for agent, by_status in sorted(counts.items()):
            done = [
                f"{compact(by_status[status])} {status}" for status in (*statuses, "unchanged") if by_status[status]
            ]
            lines([f"  {agent:<12}  {', '.join(done)}"])
    if not summary.sources:
        hint("No agent's files were found. See where prosa looks: prosa profiles list")
