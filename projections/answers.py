"""The answers to every question, worked out of tables and a log: behind the command line, the API and the panel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from prosa.events.log import LogReader
from prosa.projections import reports, searching, showing, storage, timeline
from prosa.projections.filtering import What, known_values
from prosa.projections.hits import Find
from prosa.projections.queries import (
    Filters,
    Match,
    Report,
    Search,
    SearchPage,
    Session,
    ShownTurn,
    Timeline,
    TimelinePage,
)
from prosa.projections.session_objects import Raws, Sessions
from prosa.projections.tables import Tables


class Answers:
    """Answers as of `now_us`. Each is of one state of the tables, also while they are brought up to date."""

    def __init__(self, tables: Tables, log: LogReader, raws: Raws, find: Find, *, now_us: int) -> None:
        self._tables, self._log, self._raws, self._find, self._now_us = tables, log, raws, find, now_us
        self._sessions = Sessions(tables, raws, now_us)

    def timeline(self, question: Timeline) -> TimelinePage:
        with self._tables.one_state():
            return timeline.timeline(self._tables, self._sessions, question)

    def search(self, question: Search) -> SearchPage:
        with self._tables.one_state():
            return searching.search(self._tables, self._log, self._sessions, self._find, question)

    def find(self, prefix: str) -> list[Match]:
        with self._tables.one_state():
            return self._sessions.find(prefix)

    def unique(self, texts: Sequence[str]) -> set[str]:
        with self._tables.one_state():
            return {text for text in texts if len(self._sessions.find(text)) == 1}

    def session(self, key: str) -> Session:
        with self._tables.one_state():
            return self._sessions.of([self._sessions.sid(key)])[0]

    def turns(self, key: str, first: int = 0, most: int = showing.ALL) -> Iterator[ShownTurn]:
        with self._tables.one_state():
            return showing.turns(self._tables, self._log, self._sessions.sid(key), first, most)

    def report(self, question: Report) -> list[dict[str, Any]]:
        with self._tables.one_state():
            return reports.report(self._tables, question, self._now_us)

    def storage(self, filters: Filters) -> list[dict[str, Any]]:
        """Bytes of the preserved transcripts by agent, project and age: see storage.py."""
        with self._tables.one_state():
            return storage.storage(self._tables, self._raws, filters, self._now_us)

    def values(self, what: What) -> list[str]:
        with self._tables.one_state():
            return known_values(self._tables, what)
