"""Which events made a session what it is: its own, its sources', its directory's, and erasures of its bodies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prosa.events.log import LogReader, Recorded
from prosa.projections.event_texts import summary
from prosa.projections.queries import Session

AROUND: Final = (
    "source_detected", "source_vanished", "source_moved", "source_rejected", "project_identified", "body_erased",
)  # fmt: skip
"""Types whose events may be about a session without lying in its stream; their bodies say it."""


def own_stream(session: Session) -> str:
    return f"session-{session.key}"


def is_about(event: Recorded, session: Session) -> bool:
    """Whether the event belongs to the session's history. Its body is read unless the stream says so."""
    if event.stream == own_stream(session):
        return True
    if event.type not in AROUND:
        return False
    said = summary(event)
    cwd = session.project.path if session.project else None
    is_project = event.type == "project_identified" and cwd is not None and said.get("path") == cwd
    sessions = said.get("sessions")
    is_source = isinstance(sessions, list) and session.key in sessions
    return is_project or is_source or said.get("subject") == own_stream(session)


def history(log: LogReader, session: Session) -> Iterator[Recorded]:
    """In order of arrival, read from the whole log: headers first, and bodies of those that may be meant."""
    for header in log.read(bodies=False):
        if header.stream == own_stream(session) or header.type in AROUND:
            event = log.at(header.position)
            if event and is_about(event, session):
                yield event
