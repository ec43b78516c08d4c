"""`prosa log`: the audit trail, its proof, and the only way to erase."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prosa.cli import exit_codes
from prosa.cli.commands import new_app
from prosa.cli.filters import not_negative
from prosa.cli.finding import complete_session

if TYPE_CHECKING:
    from prosa.cli.output import Mode
    from prosa.events.erasing import ErasePlan

app = new_app()


def complete_types(incomplete: str) -> list[str]:
    from prosa.events.catalogue import EVENTS

    return [event.TYPE for event in EVENTS if event.TYPE.startswith(incomplete)]


@app.callback(invoke_without_command=True, subcommand_metavar="[COMMAND]")
def log(
    context: typer.Context,
    types: Annotated[
        str | None,
        typer.Option("--type", metavar="TYPE,…", help="Only events of these types.", autocompletion=complete_types),
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="DATE", help="Only events appended since then.")] = None,
    limit: Annotated[
        int,
        typer.Option(metavar="N", help="Only the last N (default: all).", show_default=False, callback=not_negative),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object an event.")] = False,
    remote: Annotated[bool, typer.Option("--remote", help="The server's log: the events of all machines.")] = False,
    tz: Annotated[str | None, typer.Option(metavar="ZONE", help="Time zone (default: the system's).")] = None,
) -> int:
    """The audit trail: every event, without transcript text.

    In the order of arrival; all of it unless --limit says otherwise.
    """
    from prosa.cli.opening import open_trail
    from prosa.cli.output import mode
    from prosa.events.home import Home
    from prosa.projections.zones import moment, zone

    if context.invoked_subcommand:
        return exit_codes.DONE
    local = zone(tz)
    since_us = moment(since, local, "--since")[0] if since else None
    wanted = None if types is None else [word.strip() for word in types.split(",") if word.strip()]
    with open_trail(Home.of(), remote=remote) as trail:
        print_events(trail.events(wanted, since_us, limit), mode(as_json), tz)
    return exit_codes.DONE


def print_events(events: Iterator[dict[str, Any]], how: Mode, tz: str | None) -> None:
    """Records of events, as they come."""
    from prosa.cli.output import lines, records, rows
    from prosa.projections.event_texts import words

    if how == "json":
        records(events)
    elif how == "pipe":
        rows((said["position"], said["at"], said["type"], said["stream"], words(said)) for said in events)
    else:
        lines(event_lines(events, tz))


def event_lines(events: Iterator[dict[str, Any]], tz: str | None) -> Iterator[str]:
    """`   142  2026-11-30 15:52  session_parsed     31 turns, 12 usage …`, each within the terminal."""
    from datetime import datetime

    from prosa.cli.terminal import Paint, columns, has_colours
    from prosa.cli.text import cut, one_line, pad
    from prosa.projections.event_texts import words
    from prosa.projections.zones import zone

    local, paint, cells = zone(tz), Paint(has_colours()), columns()
    for said in events:
        when = datetime.fromisoformat(said["at"]).astimezone(local)
        text = cut(one_line(words(said)), max(10, cells - 45))
        time = paint(f"{when:%Y-%m-%d %H:%M}", "dim")
        yield f"{said['position']:>6}  {time}  {paint(pad(said['type'], 17), 'cyan')}  {text}".rstrip()


@app.command("show")
def show_event(
    position: Annotated[int, typer.Argument(min=1, metavar="POSITION", help="Place of the event in this log.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    remote: Annotated[bool, typer.Option("--remote", help="A place in the server's log.")] = False,
) -> int:
    """One event with its header and the small fields of its body."""
    from prosa.cli.opening import open_trail
    from prosa.cli.output import cell, lines, mode, record
    from prosa.events.home import Home

    with open_trail(Home.of(), remote=remote) as trail:
        shown = trail.event(position)
    found = shown.event
    if mode(as_json) == "json":
        record(found)
        return exit_codes.DONE
    body = found.pop("body")
    found |= {"body_hash": shown.body_hash, "hash": shown.hash}
    lines(f"{name:<16} {cell(value)}" for name, value in found.items())
    lines(f"  {name:<14} {cell(value)}" for name, value in body.items())
    return exit_codes.DONE


@app.command()
def verify(
    deep: Annotated[bool, typer.Option("--deep", help="Also read and hash every preserved transcript.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a problem, then a summary.")] = False,
) -> int:
    """Check that nothing in the log was changed, lost or inserted.

    Exit status: 1 if anything is wrong.
    """
    from prosa.cli.amounts import count
    from prosa.cli.opening import open_log
    from prosa.cli.output import lines, mode, record
    from prosa.events.home import Home
    from prosa.events.raw import RawStore
    from prosa.events.verify import copies, leftovers, verify_log, verify_raws

    home, how, problems, raws = Home.of(), mode(as_json), 0, 0
    with open_log(home) as opened:
        checks = [verify_log(opened)]
        if deep:
            known, store = copies(opened), RawStore(home.raw)
            raws = len(known.here)
            checks += [verify_raws(store, known.here), leftovers(store, known.pruned)]
        for check in checks:
            for problem in check:
                problems += 1
                if how == "json":
                    record({"type": "problem", "where": problem.where, "what": problem.what})
                else:
                    lines([f"{problem.where}: {problem.what}"])
        events, head = opened.head()
    if how == "json":
        record({"type": "summary", "events": events, "raws": raws, "problems": problems, "head": head.hex()})
    else:
        checked = count(events, "event") + (f" and {count(raws, 'preserved transcript')}" if deep else "")
        lines([f"{checked} checked: {count(problems, 'problem') if problems else 'all as written'}"])
    return exit_codes.FAILED if problems else exit_codes.DONE


@app.command()
def erase(
    session_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]", help="The session to erase.", autocompletion=complete_session, show_default=False
        ),
    ] = None,
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Bodies that later parses replaced, of every session.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> int:
    """Erase a session's text from the log and the raw store.

    Clears its bodies in the log and removes its preserved copies, after showing what that is and asking.

    Who erased what and when stays in the log. The session is not imported again. The agent's own files stay.
    """
    from prosa.cli.finding import session_key
    from prosa.cli.opening import open_backend, plan_erasure, run_erasure
    from prosa.cli.terminal import hint
    from prosa.events.errors import UsageError
    from prosa.events.home import Home

    if (session_id is None) != superseded:
        raise UsageError("Name one session, or give --superseded.", "Nothing was erased.")
    home, key = Home.of(), None
    if session_id is not None:
        with open_backend(home) as backend:
            key = session_key(backend, session_id)
    plan = plan_erasure(home, key)
    if not plan.positions and not plan.raws:
        hint("There is nothing to erase.")
        return exit_codes.DONE
    if not yes and not confirmed(plan, key):
        hint("Nothing was erased.")
        return exit_codes.FAILED
    run_erasure(home, plan)
    hint(f"Erased: {plan_words(plan)}.")
    return exit_codes.DONE


def plan_words(plan: ErasePlan) -> str:
    from prosa.cli.amounts import count, size

    bodies = count(len(plan.positions), "body", "bodies")
    return f"{bodies} in the log, {count(len(plan.raws), 'preserved transcript')}, {size(plan.bytes)}"


def confirmed(plan: ErasePlan, key: str | None) -> bool:
    """Show the plan and ask. Without a terminal nobody can answer: raises UsageError."""
    import sys

    from prosa.cli.terminal import is_terminal, say
    from prosa.events.errors import UsageError

    if not is_terminal(sys.stdin):
        raise UsageError("Nobody can be asked here.", "Nothing was erased.", "Give --yes if you are sure.")
    say(f"This erases {key or 'replaced bodies'}:\n{plan_words(plan)}. It cannot be undone.")
    print("Erase? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
