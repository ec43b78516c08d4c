"""The queries over this machine's index: the back end behind the command line and the local panel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apsw

from prosa.events.log import Log
from prosa.events.raw import RawStore
from prosa.projections import local_reports, local_search, local_show, local_storage, local_timeline
from prosa.projections.local_filters import What, known_values, register
from prosa.projections.local_rows import one_state
from prosa.projections.local_sessions import Sessions
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


class LocalBackend:
    """Answers as of `now_us`. Each answer is of one state of the index, also while another process catches up."""

    def __init__(self, db: apsw.Connection, log: Log, raw: RawStore, *, now_us: int) -> None:
        self._db, self._log, self._raw, self._now_us = db, log, raw, now_us
        self._sessions = Sessions(db, raw, now_us)
        register(db)

    def timeline(self, question: Timeline) -> TimelinePage:
        with one_state(self._db):
            return local_timeline.timeline(self._db, self._sessions, question)

    def search(self, question: Search) -> SearchPage:
        with one_state(self._db):
            return local_search.search(self._db, self._log, self._sessions, question)

    def find(self, prefix: str) -> list[Match]:
        with one_state(self._db):
            return self._sessions.find(prefix)

    def session(self, key: str) -> Session:
        with one_state(self._db):
            return self._sessions.of([self._sessions.sid(key)])[0]

    def turns(self, key: str) -> Iterator[ShownTurn]:
        with one_state(self._db):
            return local_show.turns(self._db, self._log, self._sessions.sid(key))

    def report(self, question: Report) -> list[dict[str, Any]]:
        with one_state(self._db):
            return local_reports.report(self._db, question, self._now_us)

    def storage(self, filters: Filters) -> list[dict[str, Any]]:
        """Bytes of the preserved transcripts by agent, project and age: see local_storage."""
        with one_state(self._db):
            return local_storage.storage(self._db, self._raw, filters, self._now_us)

    def values(self, what: What) -> list[str]:
        with one_state(self._db):
            return known_values(self._db, what)
