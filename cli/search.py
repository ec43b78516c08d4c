"""`prosa search`: full text over everything that was said and done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from prosa.cli import exit_codes
from prosa.cli.commands import filtered, new_app
from prosa.cli.filters import Given, not_negative

if TYPE_CHECKING:
    from datetime import tzinfo

    from prosa.cli.filters import Asked
    from prosa.cli.terminal import Paint
    from prosa.projections.queries import Backend, Found, Hit, SearchPage

app = new_app()

ROLES = {"user": "you", "assistant": "agent", "tool": "tool", "system": "system"}


@app.command(context_settings={"ignore_unknown_options": True})
@filtered
def search(
    given: Given,
    query: Annotated[list[str], typer.Argument(metavar="QUERY...", help="Words, phrases and filters.")],
    limit: Annotated[int, typer.Option(metavar="N", help="At most so many hits; 0: all.", callback=not_negative)] = 20,
    all_hits: Annotated[
        bool, typer.Option("--all-hits", help="Every turn that matches, not the best of each session.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> int:
    """Search prompts, answers, thinking, tool calls and tool output.

    All words must stand in one turn. "a phrase", -word to exclude, word* for a beginning, OR between two words;
    agent: project: tool: role: kind: model: before: after: is:error narrow the search. Everything else is taken as
    it is written, unknown options too: paths, foo_bar.baz, a::b, c++, --some-flag.

    Without a window all of time is searched, in the current project if there is one. Order: hits in a title or
    prompt, in answers, in thinking, in tools; within each the newest session first.
    """
    from prosa.cli.filters import ask
    from prosa.cli.opening import open_backend
    from prosa.cli.output import mode, records, rows
    from prosa.events.home import Home
    from prosa.projections.queries import Search

    how = mode(as_json)
    with open_backend(Home.of(), remote=given.remote) as backend:
        asked = ask(backend, given)
        question = Search(
            query=" ".join(query), filters=asked.filters, limit=limit, all_hits=all_hits, zone=asked.zone_name
        )
        page = backend.search(question)
        if how == "json":
            records(page.found)
        elif how == "pipe":
            rows(map(tsv, page.found))
        else:
            print_terminal(backend, page, asked.zone)
        say_rest(asked, page, terminal=how == "terminal")
    return exit_codes.DONE


def say_rest(asked: Asked, page: SearchPage, *, terminal: bool) -> None:
    """What was searched, and what was not: an empty answer must not look like a complete one."""
    from prosa.cli.amounts import count
    from prosa.cli.terminal import hint

    if page.widened and page.found:
        hint("No session has these words as they stand: these hits have words that begin with them.")
    where = f"{asked.scope}, {asked.window}" if asked.scope else asked.window
    searched = f"{count(page.searched, 'session')} searched ({where})"
    lift = " --all searches all projects." if asked.scope else ""
    if not page.found:
        hint(f"Nothing found. {searched}.{lift}")
    elif terminal or asked.scope or page.more:
        more = " There are more: --limit 0 lists them all." if page.more else ""
        hint(f"{count(len(page.found), 'hit')}, {searched}.{more}{lift}")


def tsv(found: Found) -> tuple[object, ...]:
    """The columns of a pipe, as docs/cli.md names them."""
    from prosa.cli.session_lines import project_name

    session, hit = found.session, found.hit
    return (
        hit.at or session.last_activity_at, session.agent, session.key, project_name(session), hit.ordinal, hit.role,
        hit.kind, hit.tool, hit.score, hit.snippet,
    )  # fmt: skip


def print_terminal(backend: Backend, page: SearchPage, zone: tzinfo) -> None:
    from datetime import datetime

    from prosa.cli.amounts import moment, stamp
    from prosa.cli.output import lines
    from prosa.cli.session_lines import project_label, short_ids, title
    from prosa.cli.terminal import Paint, columns, has_colours
    from prosa.cli.text import cut, width

    paint, cells, today = Paint(has_colours()), columns(), datetime.now(zone).date()
    ids = short_ids(backend, [found.session for found in page.found])
    before: str | None = None
    for found in page.found:
        session, hit = found.session, found.hit
        if session.key != before:
            when = moment(session.last_activity_at, zone)
            place = "  ".join(filter(None, (stamp(when, today) if when else "", project_label(session))))
            short = ids[session.key]
            head = cut(f"{session.agent}  {place}", cells - width(short) - 2)
            gap = " " * (cells - width(head) - width(short))
            colour_from = len(session.agent)
            lines([""] if before else [])
            lines([paint(head[:colour_from], "cyan") + paint(head[colour_from:], "dim") + gap + paint(short, "dim")])
            if hit.score < 3 or hit.key:
                lines([f"  {cut(title(session) or '(no prompt)', cells - 2)}"])
            before = session.key
        lines(snippet_lines(hit, cells, paint))


def snippet_lines(hit: Hit, cells: int, paint: Paint) -> list[str]:
    """Who said it, and the words around the hit with the hit marked; one line."""
    from prosa.cli.text import one_line

    who = one_line(hit.tool) if hit.tool else ROLES.get(hit.role, one_line(hit.role))
    label = "title" if not hit.key else f"{who} thinking" if hit.kind == "thinking" else who
    return [f"    {paint(label + ':', 'dim')} {marked(hit.snippet, hit.marks, cells - len(label) - 6, paint)}"]


def marked(snippet: str, marks: list[tuple[int, int]], cells: int, paint: Paint) -> str:
    """The snippet in one line of at most so many cells, cleaned piece by piece so that the marks stay in place."""
    from prosa.cli.text import SPACES, clean, clusters

    pieces: list[tuple[str, bool]] = []
    place = 0
    for start, end in sorted(marks):
        if start < place:
            continue
        pieces += [(snippet[place:start], False), (snippet[start:end], True)]
        place = end
    pieces.append((snippet[place:], False))
    shown, left = [], cells
    for text, hit in pieces:
        kept = []
        for cluster, wide in clusters(SPACES.sub(" ", clean(text))):
            if wide > left - 1:
                left = 0
                break
            kept.append(cluster)
            left -= wide
        shown.append(paint("".join(kept), "mark") if hit else "".join(kept))
        if not left:
            return "".join(shown) + "…"
    return "".join(shown)
