"""What a sync says: its items as they come, then what was done here and what the server has of it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from prosa.cli.amounts import compact, count, duration, size
from prosa.cli.output import lines, record, rows
from prosa.cli.terminal import hint, say
from prosa.cli.text import one_line
from prosa.ingest.report import Reparsed, SourceDone, SyncSummary
from prosa.sync.report import Left, Prunable, PushItem, PushSummary

if TYPE_CHECKING:
    from prosa.cli.output import Mode
    from prosa.ingest.report import Outline, SyncItem, SyncOptions

STATUSES = ("imported", "extended", "reparsed", "moved", "vanished", "rejected", "failed")


class Synced(SyncSummary, kw_only=True, tag_field="type", tag="summary"):
    """The last record of `prosa sync --json`."""

    push: PushSummary
    prunable: Prunable | None = None

    @classmethod
    def of(cls, summary: SyncSummary, push: PushSummary, prunable: Prunable | None) -> Synced:
        fields = {name: getattr(summary, name) for name in SyncSummary.__struct_fields__}
        return cls(**fields, push=push, prunable=prunable)


def print_item(item: SyncItem | PushItem, how: Mode) -> None:
    """A record, a line for a pipe; on a terminal only what went wrong, on stderr."""
    if how == "json":
        record(item)
    elif isinstance(item, SourceDone):
        if how == "pipe":
            rows([(item.status, item.agent, item.path, item.sessions, item.reason)])
        if item.reason or item.status in ("failed", "rejected"):
            say(one_line(f"{item.status} {item.agent} {item.path}: {item.reason or 'no reason given'}"), "yellow")
    elif isinstance(item, PushItem):
        if how == "pipe":
            rows([(item.status, item.what, item.id, item.sessions, item.reason)])
        if item.reason:
            say(one_line(f"{item.status} {item.what} {item.id[:16]}: {item.reason}"), "yellow")
    elif isinstance(item, Reparsed):
        if how == "pipe":
            before, after = item.before, item.after
            rows([(item.key, before.turns, after.turns, before.tokens, after.tokens, before.title, after.title)])
        else:
            lines(reparse_lines(item))


def reparse_lines(item: Reparsed) -> list[str]:
    """A session and each number that a new parse changes."""

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
    if summary.pruned:
        hint(f"{count(summary.pruned, 'pruned transcript')} cannot be read again here: only a changed source is.")
    seconds = f"{summary.seconds:.1f} s" if summary.seconds < 60 else duration(summary.seconds)
    if options.dry_run:
        hint(f"{count(changed, 'session')} would change; nothing was appended ({seconds}).")
        return
    parts = [f"{getattr(summary, status):,} {status}" for status in STATUSES if getattr(summary, status)]
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
                f"{compact(by_status[status])} {status}" for status in (*STATUSES, "unchanged") if by_status[status]
            ]
            lines([f"  {agent:<12}  {', '.join(done)}"])
    if not summary.sources:
        hint("No agent's files were found. See where prosa looks: prosa profiles list")


def print_push(push: PushSummary, prunable: Prunable | None, how: Mode) -> None:
    """What was sent and what is left; nothing where there is no login."""
    if push.status == "off":
        return
    print_line = hint if how == "pipe" else lambda text: lines([text])
    done = [
        count(push.sent, "transcript") if push.sent else "",
        count(push.events, "event") if push.events else "",
        size(push.bytes) if push.bytes else "",
    ]
    if any(done):
        print_line(f"pushed to {push.server}: {', '.join(part for part in done if part)} · {push.seconds:.1f} s")
    elif push.status == "complete":
        print_line(f"{push.server} has everything")
    if push.status == "offline":
        say("\n".join(text for text in (push.reason, push.next_step) if text), "yellow")
    elif push.reason:
        say(push.reason, "yellow")
    if push.left != Left():
        left = [count(push.left.raws, "transcript"), count(push.left.events, "event")]
        hint(f"{' and '.join(left)} are left for the next sync; they are kept here.")
    if prunable:
        hint(f"{count(prunable.sessions, 'session')} could free {size(prunable.bytes)} here: prosa prune --dry-run")
