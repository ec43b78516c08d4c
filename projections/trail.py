"""The audit trail of a log: its events as records, without transcript text."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from prosa.events.catalogue import EVENTS
from prosa.events.errors import UsageError
from prosa.events.log import LogReader, Recorded
from prosa.projections.asking import ShownEvent
from prosa.projections.event_texts import OriginNames, record
from prosa.projections.history import history
from prosa.projections.queries import Session


class Trail:
    """Reads a log of this machine; sync.remote has the same for a server's."""

    def __init__(self, log: LogReader) -> None:
        self._log, self._origins = log, OriginNames(log)

    def events(
        self, types: Sequence[str] | None = None, since_us: int | None = None, limit: int = 0
    ) -> Iterator[dict[str, Any]]:
        """In order of arrival; with a limit the last ones. Raises UsageError for a type nobody knows."""
        self._check(set(types or ()))
        chosen = self._select(types, since_us)
        for event in deque(chosen, limit) if limit else chosen:
            yield record(self._origins, event)

    def event(self, position: int) -> ShownEvent:
        """Raises UsageError where the log has not got so far."""
        event = self._log.at(position)
        if event is None:
            head, _ = self._log.head()
            raise UsageError(f"There is no event {position}.", "", f"The last one is {head}.")
        return ShownEvent(record(self._origins, event), event.body_hash.hex(), event.hash.hex())

    def history(self, session: Session) -> Iterator[dict[str, Any]]:
        """What made the session what it is."""
        return (record(self._origins, event) for event in history(self._log, session))

    def _select(self, types: Sequence[str] | None, since_us: int | None) -> Iterator[Recorded]:
        """Whole events where all are wanted; else headers first, and bodies of those that fit."""
        if types is None and since_us is None:
            yield from self._log.read()
            return
        for header in self._log.read(bodies=False):
            fits = (types is None or header.type in types) and (since_us is None or header.at_us >= since_us)
            if fits and (event := self._log.at(header.position)):
                yield event

    def _check(self, types: set[str]) -> None:
        known = {event.TYPE for event in EVENTS}
        if types - known and (unknown := types - known - {event.type for event in self._log.read(bodies=False)}):
            raise UsageError(
                f"There is no event type {sorted(unknown)[0]!r}.", "", f"Types: {', '.join(sorted(known))}."
            )
