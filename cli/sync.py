"""`prosa sync`: read what the agents wrote since the last time, and send it to the server."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from prosa.cli import exit_codes
from prosa.cli.commands import new_app

if TYPE_CHECKING:
    from prosa.cli.output import Mode
    from prosa.cli.pushing import Pushing
    from prosa.ingest.report import SyncItem, SyncOptions, SyncSummary
    from prosa.sync.last_run import LastRun
    from prosa.sync.report import PushSummary

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
    scheduled: Annotated[bool, typer.Option("--scheduled", hidden=True)] = False,
) -> int:
    """Import what the agents wrote, and send it to the server.

    Finds their files, preserves them, parses the copies and appends to the log. The agents' files are only read; one
    that did not change costs a look at its size and times. Then the server is sent what it lacks; where it cannot be
    reached, the next sync sends it.

    Exit status: 1 any source failed or the server refused something (the others are done), 4 the server cannot be
    reached or takes no login from here (the import is done), 5 another sync is running.
    """
    from prosa.cli.opening import agent_names
    from prosa.cli.output import mode
    from prosa.cli.pushing import Pushing
    from prosa.events.errors import UsageError
    from prosa.events.home import Home
    from prosa.ingest.report import SyncOptions

    if dry_run and not reparse:
        raise UsageError("--dry-run goes with --reparse.", "Nothing was done.", "A plain sync only ever appends.")
    if dry_run and watch:
        raise UsageError("--dry-run and --watch cannot be used together.", "Nothing was done.")
    if agent is not None and agent not in agent_names():
        raise UsageError(f"There is no agent {agent!r}.", "Nothing was done.", f"Agents: {', '.join(agent_names())}.")
    options = SyncOptions(agent, verify, reparse, dry_run)
    how = mode(as_json)
    pushing = Pushing(Home.of(), enabled=not no_push and not dry_run, watching=watch)
    if scheduled:
        from prosa.sync.last_run import recorded

        with recorded(Home.of()) as run:
            run.exit_code = run_once(options, how, pushing, run=run)
            return run.exit_code
    if not watch:
        return run_once(options, how, pushing)
    while True:
        import time

        run_once(options, how, pushing, quiet=True)
        options = options._replace(reparse=False)
        time.sleep(WATCH_EVERY_S)


def run_once(
    options: SyncOptions, how: Mode, pushing: Pushing, *, quiet: bool = False, run: LastRun | None = None
) -> int:
    """One sync with its output; `quiet` leaves out the summary of a run that found nothing; `run` is told in words."""
    from prosa.cli.opening import run_sync
    from prosa.cli.output import record
    from prosa.cli.progress import Bar
    from prosa.cli.sync_words import Synced, print_item, print_push, print_summary
    from prosa.events.home import Home
    from prosa.ingest.report import Reparsed, SourceDone, SyncSummary
    from prosa.sync.report import PushSummary

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
    if how != "json" and (not quiet or any(getattr(summary, status) for status in NEWS)):
        print_summary(summary, counts, options, changed, how)
    push = PushSummary(status="off")
    if pushing.wanted(summary.events):
        with Bar("pushing") as bar:
            for sent in pushing.run(bar.update):
                if isinstance(sent, PushSummary):
                    push = sent
                else:
                    bar.clear()
                    print_item(sent, how)
    happened = any(getattr(summary, status) for status in NEWS) or pushing.is_news(push)
    if not quiet or happened:
        prunable = None if quiet else pushing.prunable()
        if how == "json":
            record(Synced.of(summary, push, prunable))
        else:
            print_push(push, prunable, how)
    if run is not None:
        run.text = in_words(summary, push)
    return exit_code(summary, push)


def in_words(summary: SyncSummary, push: PushSummary) -> str:
    """`2 imported, 41 events, 2 sent`: what `prosa schedule status` shows of a run."""
    from prosa.cli.amounts import count

    parts = [f"{getattr(summary, status):,} {status}" for status in NEWS if getattr(summary, status)]
    parts += [count(summary.events, "event")] if summary.events else []
    parts += [f"{push.events:,} pushed"] if push.events else []
    parts += [f"{push.refused:,} refused by the server"] if push.refused else []
    parts += ["the server was not reached"] if push.status == "offline" else []
    return ", ".join(parts) or "nothing new"


def exit_code(summary: SyncSummary, push: PushSummary) -> int:
    """What failed here comes first: an unreachable server only means that the rest is done later."""
    if summary.failed or push.refused:
        return exit_codes.FAILED
    return exit_codes.UNREACHABLE if push.status == "offline" else exit_codes.DONE


def is_news(item: SyncItem) -> bool:
    """Whether something was done, or could not be."""
    from prosa.ingest.report import SourceDone

    return not isinstance(item, SourceDone) or item.status != "unchanged" or bool(item.reason)
