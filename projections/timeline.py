"""The timeline: light rows of every session that matches, whole ones of those that are listed."""

from __future__ import annotations

from typing import Final, NamedTuple

from prosa.projections.filtering import condition
from prosa.projections.lineage import Member, below, roots
from prosa.projections.queries import Timeline, TimelinePage, TimelinePlace, cursor, place_of
from prosa.projections.session_objects import Sessions
from prosa.projections.tables import Tables

MATCHING: Final = """
SELECT s.sid, s.visible, s.last, s.key, s.agent, s.id, s.scope, s.parent, s.started FROM sessions s WHERE {}
ORDER BY s.last DESC NULLS LAST, s.key"""


class _Match(NamedTuple):
    sid: int
    visible: int
    last: int | None
    key: str
    agent: str
    id: str
    scope: str | None
    parent: str | None
    started: int | None


def timeline(tables: Tables, sessions: Sessions, question: Timeline) -> TimelinePage:
    """Newest activity first. A child whose parent does not match too is listed itself."""
    after = None if question.after is None else place_of(question.after, TimelinePlace)
    chosen = condition(tables, question.filters)
    matching = [_Match._make(row) for row in tables.execute(MATCHING.format(chosen.sql), chosen.values)]
    shown = matching if question.include_empty else [match for match in matching if match.visible]
    listed = shown
    children: dict[str, int] = {}
    if not question.flat and any(match.parent is not None for match in shown):
        root_of = roots(Member._make(match[3:]) for match in shown)
        listed = [match for match in shown if root_of[match.key] == match.key]
        children = below(root_of)
    if after is not None:
        listed = [match for match in listed if order(match.last, match.key) > order(after.last, after.key)]
    rest = listed[question.limit :] if question.limit else []
    listed = listed[: question.limit or None]
    return TimelinePage(
        sessions=sessions.of([match.sid for match in listed]),
        subagents={match.key: children[match.key] for match in listed if match.key in children},
        hidden_empty=len(matching) - len(shown),
        total=len(shown),
        next=cursor(TimelinePlace(listed[-1].last, listed[-1].key)) if rest else None,
    )


def order(last: int | None, key: str) -> tuple[bool, int, bytes]:
    """What the timeline is sorted by: newest first, unknown last, then the key's bytes."""
    return last is None, -(last or 0), key.encode()
