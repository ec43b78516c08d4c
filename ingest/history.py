"""What the log already says about a session: its revisions, the raws they were read from, where its stream ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from prosa.events.catalogue import (
    RawPreserved,
    SessionExtended,
    SessionParsed,
    SessionPart,
    SessionPruned,
    SessionRestored,
)
from prosa.events.log import Log, Recorded


class KnownRevision(NamedTuple):
    """A revision of this installation's origin, as its last event left it."""

    revision: int
    surface: str
    parser: str
    raw: str
    positions: tuple[int, ...]
    """Of the events that make it."""


class History:
    """One session's stream."""

    def __init__(self, log: Log, key: str) -> None:
        self._log = log
        self.stream = f"session-{key}"
        self.version = 0
        """Of the stream in the shared origin."""
        self.revisions: dict[int, KnownRevision] = {}
        self.raws: dict[str, RawPreserved] = {}
        """Every raw ever preserved, of any origin."""
        self.parsed: set[tuple[str, str]] = set()
        """(raw, parser) of every parse of any origin."""
        self.erased = False
        self.pruned: set[str] = set()
        """Raws whose local copies were pruned."""
        self.left = False
        """Pruned, and no changed source was preserved since."""
        own = log.shared.number
        parts: list[int] = []
        for header in log.stream(self.stream, bodies=False):
            if header.origin == own:
                self.version = header.stream_version
            if header.type == SessionPart.TYPE:
                if header.origin == own:
                    parts.append(header.position)
                continue
            recorded = log.at(header.position)
            assert recorded is not None
            if header.type in (SessionParsed.TYPE, SessionExtended.TYPE):
                self._ending(recorded, parts if header.origin == own else None)
            elif header.type == RawPreserved.TYPE and not recorded.erased:
                event = recorded.event()
                assert isinstance(event, RawPreserved)
                self.raws[event.sha256] = event
            elif header.type in (SessionPruned.TYPE, SessionRestored.TYPE) and not recorded.erased:
                self._moved(recorded)

    def _ending(self, recorded: Recorded, parts: list[int] | None) -> None:
        if recorded.erased:
            self.erased = True
            return
        event = recorded.event()
        assert isinstance(event, SessionParsed)
        self.erased = False
        self.parsed.add((event.raw, event.parser))
        if parts is None:
            return
        mine = parts[len(parts) - event.parts :]
        parts.clear()
        before = self.revisions.get(event.revision) if isinstance(event, SessionExtended) else None
        self.revisions[event.revision] = KnownRevision(
            event.revision,
            event.surface,
            event.parser,
            event.raw,
            (*(before.positions if before else ()), *mine, recorded.position),
        )

    def _moved(self, recorded: Recorded) -> None:
        event = recorded.event()
        self.left = isinstance(event, SessionPruned)
        if isinstance(event, SessionPruned):
            self.pruned.add(event.raw)
        elif isinstance(event, SessionRestored):
            self.pruned.discard(event.raw)

    def was_pruned(self, raw: str) -> bool:
        """Whether the raw, or one that continues it, was pruned: its bytes do not come back to this machine."""
        known, above = {raw}, [raw] if self.pruned else []
        while above and not known & self.pruned:
            above = [event.sha256 for event in self.raws.values() if event.extends in above]
            above = [sha256 for sha256 in above if sha256 not in known]
            known.update(above)
        return bool(known & self.pruned)

    def facts(self, revision: KnownRevision) -> Iterator[SessionParsed | SessionPart]:
        """The revision's events, in order."""
        for position in revision.positions:
            recorded = self._log.at(position)
            if recorded is not None and not recorded.erased:
                event = recorded.event()
                assert isinstance(event, (SessionParsed, SessionPart))
                yield event
