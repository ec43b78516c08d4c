"""The timeline from the index: light rows of every session that matches, whole ones of those that are listed."""

from __future__ import annotations

from typing import Final, NamedTuple

import apsw

from prosa.projections.lineage import Member, below, roots
from prosa.projections.local_filters import condition
from prosa.projections.local_rows import rows
from prosa.projections.local_sessions import Sessions
from prosa.projections.queries import Timeline, TimelinePage

MATCHING: Final = """
SELECT s.sid, s.visible, s.key, s.agent, s.id, s.scope, s.parent, s.started FROM sessions s WHERE {}
ORDER BY s.last DESC, s.key"""


class _Match(NamedTuple):
    sid: int
    visible: int
    key: str
    agent: str
    id: str
    scope: str | None
    parent: str | None
    started: int | None


def timeline(db: apsw.Connection, sessions: Sessions, question: Timeline) -> TimelinePage:
    """Newest activity first. A child whose parent does not match too is listed itself."""
    chosen = condition(db, question.filters)
    matching = [_Match._make(row) for row in rows(db, MATCHING.format(chosen.sql), chosen.values)]
    shown = matching if question.include_empty else [match for match in matching if match.visible]
    listed = shown
    children: dict[str, int] = {}
    if not question.flat and any(match.parent is not None for match in shown):
        root_of = roots(Member._make(match[2:]) for match in shown)
        listed = [match for match in shown if root_of[match.key] == match.key]
        children = below(root_of)
    if question.limit:
        listed = listed[: question.limit]
    return TimelinePage(
        sessions=sessions.of([match.sid for match in listed]),
        subagents={match.key: children[match.key] for match in listed if match.key in children},
        hidden_empty=len(matching) - len(shown),
        total=len(shown),
    )
