"""`prosa`: what was worked on, newest first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from prosa.cli import exit_codes
from prosa.cli.commands import COMMANDS, Root, filtered, new_app
from prosa.cli.filters import Given, not_negative

if TYPE_CHECKING:
    from datetime import tzinfo

    from prosa.cli.filters import Asked
    from prosa.cli.terminal import Paint
    from prosa.projections.queries import Backend, Session, Timeline, TimelinePage

__all__ = ["COMMANDS", "app"]

app = new_app()

DEFAULT_LAST = "7d"
FEW_SUBAGENTS = 3
"""So many are shown each on a line of its own; more are counted."""
EPILOG = """Exit status: 0 done, 1 failed, 2 usage error, 3 refused, 4 no login or no server, 5 locked. Data is on
stdout, everything else on stderr; a pipe gets tab-separated lines, --json one JSON object a line."""


@app.callback(cls=Root, invoke_without_command=True, subcommand_metavar="[COMMAND]", epilog=EPILOG)
@filtered
def timeline(
    context: typer.Context,
    given: Given,
    limit: Annotated[
        int,
        typer.Option(
            metavar="N", help="At most so many sessions (default: all).", show_default=False, callback=not_negative
        ),
    ] = 0,
    flat: Annotated[bool, typer.Option("--flat", help="List subagents alone, not under their parents.")] = False,
    include_empty: Annotated[
        bool, typer.Option("--include-empty", help="Also sessions with no prompt and no usage.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours; on every command.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Tracebacks of errors; on every command.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> int:
    """A work log of everything you did through AI coding agents.

    Without a command: the sessions of the last 7 days, newest first, of the current project if the working directory
    belongs to one that is known.
    """
    if context.invoked_subcommand:
        return exit_codes.DONE
    if version:
        from prosa import __version__

        print(f"prosa {__version__}")
        return exit_codes.DONE
    from prosa.cli.filters import ask
    from prosa.cli.opening import open_backend
    from prosa.cli.output import mode, records, rows
    from prosa.events.home import Home
    from prosa.projections.queries import Timeline

    how = mode(as_json)
    with open_backend(Home.of(), remote=given.remote) as backend:
        asked = ask(backend, given, DEFAULT_LAST)
        question = Timeline(filters=asked.filters, limit=limit, flat=flat, include_empty=include_empty)
        page = backend.timeline(question)
        say_context(asked, page, terminal=how == "terminal")
        if how == "json":
            records(page.sessions)
        elif how == "pipe":
            rows(map(tsv, page.sessions))
        elif page.sessions:
            print_terminal(backend, question, page, asked.zone)
        say_rest(asked, page, given)
    return exit_codes.DONE


def say_context(asked: Asked, page: TimelinePage, *, terminal: bool) -> None:
    """What the list is limited to; elsewhere than on a terminal only what the user did not say."""
    from prosa.cli.amounts import count
    from prosa.cli.terminal import hint

    if terminal and page.sessions:
        where = asked.scope or ("all projects" if asked.filters.project is None else asked.filters.project)
        shown = count(page.total, "session")
        lift = " · --all lists all projects" if asked.scope else ""
        hint(f"{where} · {asked.window} · {shown}{lift}")
    elif asked.scope:
        hint(f"Only {asked.scope}, {asked.window}; --all lists all projects.")


def say_rest(asked: Asked, page: TimelinePage, given: Given) -> None:
    from prosa.cli.amounts import count
    from prosa.cli.terminal import hint

    if not page.sessions and not page.hidden_empty:
        where = f" in {asked.scope}" if asked.scope else ""
        lift = ", or --all for all projects" if asked.scope else ""
        hint(f"No session{where}: {asked.window}.\nLook further back: --last 4w, or --since 2000-01-01{lift}.")
    if page.hidden_empty:
        hidden = count(page.hidden_empty, "session")
        hint(
            f"{hidden} with no prompt and no usage {'is' if page.hidden_empty == 1 else 'are'} hidden: --include-empty."
        )


def tsv(session: Session) -> tuple[object, ...]:
    """The columns of a pipe, as docs/cli.md names them."""
    from prosa.cli.session_lines import project_name, seconds, title

    return (
        session.last_activity_at, session.started_at, session.agent, session.key, project_name(session),
        session.device_name or session.device, seconds(session), session.turns.user,
        session.usage.total if session.usage else None, session.cost_usd, title(session),
    )  # fmt: skip


def print_terminal(backend: Backend, question: Timeline, page: TimelinePage, zone: tzinfo) -> None:
    from datetime import datetime

    from prosa.cli.amounts import day_heading, moment
    from prosa.cli.output import lines
    from prosa.cli.session_lines import short_ids
    from prosa.cli.terminal import Paint, columns, has_colours

    paint, today = Paint(has_colours()), datetime.now(zone).date()
    children = few_children(backend, question, page)
    ids = short_ids(backend, page.sessions)
    layout = Layout(page.sessions, ids, zone, columns(), paint)
    heading: str | None = None
    for session in page.sessions:
        when = moment(session.last_activity_at, zone)
        current = day_heading(when.date() if when else None, today)
        if current != heading:
            lines(["", paint(current, "bold")] if heading else [paint(current, "bold")])
            heading = current
        lines(layout.session(session))
        below = page.subagents.get(session.key, 0)
        if below:
            lines(layout.subagents(below, children.get(session.key, [])))


def few_children(backend: Backend, question: Timeline, page: TimelinePage) -> dict[str, list[Session]]:
    """Listed key → its direct children, where they are few enough to be shown."""
    from msgspec.structs import replace

    few = {key for key, number in page.subagents.items() if number <= FEW_SUBAGENTS}
    if not few:
        return {}
    if question.filters.kind is None:  # only sessions with a parent: a server need not send the others again
        question = replace(question, filters=replace(question.filters, kind="subagent"))
    by_id = {(s.agent, s.id): s.key for s in page.sessions if s.key in few}
    found: dict[str, list[Session]] = defaultdict(list)
    for session in backend.timeline(replace(question, flat=True, limit=0)).sessions:
        parent = by_id.get((session.agent, session.parent_id)) if session.parent_id else None
        if parent and parent != session.key:
            found[parent].append(session)
    return found


class Layout:
    """Two lines a session: time, agent and what it is about; below, dim, how to name it and what it took."""

    def __init__(self, sessions: list[Session], ids: dict[str, str], zone: tzinfo, cells: int, paint: Paint) -> None:
        from prosa.cli.session_lines import device_label, project_name
        from prosa.cli.text import width

        self._ids, self._zone, self._cells, self._paint = ids, zone, cells, paint
        self._agent = max(width(session.agent) for session in sessions)
        self._many_projects = len({project_name(session) for session in sessions}) > 1
        self._many_devices = len({device_label(session) for session in sessions}) > 1

    def session(self, session: Session) -> Iterator[str]:
        from prosa.cli.amounts import clock, moment
        from prosa.cli.session_lines import device_label, facts, join, project_label, shown_title
        from prosa.cli.text import cut, pad

        paint, when = self._paint, moment(session.last_activity_at, self._zone)
        time = clock(when) if when else "  –  "
        active = paint("*", "green", "bold") if session.active else " "
        agent = paint(pad(session.agent, self._agent), "cyan")
        left = self._cells - self._agent - 11
        yield f"  {time}{active} {agent}  {cut(shown_title(session, paint), left)}"
        names = [self._ids[session.key]]
        if self._many_projects:
            names.append(project_label(session) or "no project")
        if self._many_devices:
            names.append(device_label(session) or "unknown device")
        yield paint("         " + join(names + facts(session), self._cells - 9), "dim")

    def subagents(self, number: int, children: list[Session]) -> Iterator[str]:
        from prosa.cli.amounts import count, duration
        from prosa.cli.session_lines import seconds, title
        from prosa.cli.text import cut, one_line

        rest = number - len(children)
        for place, child in enumerate(children):
            corner = "└" if place == len(children) - 1 and not rest else "├"
            parts = [one_line(child.id)[:18], title(child) or "(no prompt)"]
            length = duration(seconds(child) or 0) if seconds(child) else ""
            text = cut("  ".join(parts), self._cells - 11 - (len(length) + 3 if length else 0))
            yield self._paint(f"         {corner} {text}{f' · {length}' if length else ''}", "dim")
        if rest:
            more = "more below them" if children else "--flat lists them"
            yield self._paint(f"         └ {count(rest, 'subagent')} · {more}", "dim")
