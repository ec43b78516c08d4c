"""What a log says again after the server refused a part of it, and the log without that part.

A copied or restored log can hold events under an origin that the server has other events of. They stay where they
are and are void from the fork on; what they said is said again under the new origin, as of its own time: sessions as
full parses made from the facts in the log, so it does not matter whether their raw is still here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from prosa.events import catalogue as c
from prosa.events.log import Append, Draft, Log, LogReader, Origin, Recorded

RESTATED: Final = "sessions as full parses, all else unchanged"
PARSES: Final = frozenset({c.SessionParsed.TYPE, c.SessionExtended.TYPE})
LEFT_OUT: Final = frozenset(
    {c.LogOpened.TYPE, c.LogForked.TYPE, c.SessionPart.TYPE, c.DeviceIdentified.TYPE, *PARSES},
)
"""Not said again as they are: of the log itself, or said in another form."""


class Holding:
    """A log as projections read it where the server refused a part: without what is void."""

    def __init__(self, log: Log, good: dict[int, int]) -> None:
        self._log, self._good = log, good

    @property
    def origins(self) -> list[Origin]:
        return self._log.origins

    def head(self) -> tuple[int, bytes]:
        return self._log.head()

    def read(self, after: int = 0, *, bodies: bool = True) -> Iterator[Recorded]:
        return filter(self._holds, self._log.read(after, bodies=bodies))

    def stream(self, name: str, after: int = 0, *, bodies: bool = True) -> Iterator[Recorded]:
        return filter(self._holds, self._log.stream(name, after, bodies=bodies))

    def expect(self, behind: Mapping[str, int]) -> None:
        self._log.expect(behind)

    def at(self, position: int) -> Recorded | None:
        return self._log.at(position)

    def header_at(self, position: int) -> Recorded | None:
        return self._log.header_at(position)

    def is_new(self, batch: Iterable[Recorded]) -> bool:
        """Whether these events make others void that may have been applied already."""
        return any(event.type == c.LogForked.TYPE for event in batch)

    def _holds(self, event: Recorded) -> bool:
        return event.origin_position <= self._good.get(event.origin, event.origin_position)


def standing(log: LogReader) -> LogReader:
    """The log without what is void; itself where nothing is."""
    good = log.void_after() if isinstance(log, Log) else {}
    return Holding(log, good) if isinstance(log, Log) and good else log


def fork_and_restate(log: Log, reason: str, old: Origin, good: int) -> None:
    """Go on under a new pair of origins; all of it or nothing. Hold the sync lock."""
    log.fork(reason, RESTATED, old=old, good=good, state=lambda append: _Restating(log, old, good, append).run())


class _Restating:
    def __init__(self, log: Log, old: Origin, good: int, append: Append) -> None:
        self._log, self._old, self._good, self._append = log, old, good, append
        self._ids: dict[str, str] = {}
        """Ids of events that were said again → the ids they have now."""

    def run(self) -> None:
        self._identify()
        tail = list(self._log.of_origin(self._old, self._good, bodies=False))
        whole = {ends: places for name in dict.fromkeys(e.stream for e in tail) for ends, places in self._parses(name)}
        for header in tail:
            if header.type in PARSES and header.position in whole:
                self._parse(whole[header.position])
            elif header.type not in LEFT_OUT:
                self._unchanged(header.position)

    def _say(self, stream: str, event: c.Event, at_us: int) -> Recorded:
        return self._append([Draft(stream, self._log.stream_version(stream), event)], at_us)[0]

    def _identify(self) -> None:
        """First of all the machine: sessions are of the device that their origin was on."""
        last = self._log.last(f"device-{self._old.origin.hex()}", self._old)
        if last is not None and not last.erased:
            self._say(f"device-{self._log.shared.origin.hex()}", last.event(), last.at_us)

    def _unchanged(self, position: int) -> None:
        recorded = self._log.at(position)
        if recorded is None or recorded.erased:
            return
        event = recorded.event()
        match event:
            case c.BodyErased() if event.origin == self._old.origin.hex() and event.origin_position > self._good:
                return  # that body is nowhere else, and at the server another event may have its number
            case c.SessionPruned():
                event = msgspec.structs.replace(event, plan=self._ids.get(event.plan, event.plan))
            case c.DeviceMergeReverted():
                event = msgspec.structs.replace(event, merge=self._ids.get(event.merge, event.merge))
        self._ids[recorded.id.hex()] = self._say(recorded.stream, event, recorded.at_us).id.hex()

    # sessions

    def _parses(self, stream: str) -> Iterator[tuple[int, list[int]]]:
        """Position of the last event of each revision of the old origin → the positions of all its events."""
        revisions: dict[tuple[str, int], list[int]] = {}
        parts: list[int] = []
        for header in self._log.stream(stream, bodies=False):
            if header.origin != self._old.number:
                continue
            if header.type == c.SessionPart.TYPE:
                parts.append(header.position)
            elif header.type in PARSES:
                event = self._facts(header.position)
                if isinstance(event, c.SessionParsed):
                    mine = [*parts[len(parts) - event.parts :], header.position]
                    place = (event.surface, event.revision)
                    goes_on = isinstance(event, c.SessionExtended)
                    revisions[place] = [*(revisions.get(place, []) if goes_on else []), *mine]
                parts = []
        return ((positions[-1], positions) for positions in revisions.values())

    def _parse(self, positions: list[int]) -> None:
        """One revision as one parse, in the order its facts were said in; nothing of one that was erased."""
        gone: dict[int, int] = {}
        for number, position in enumerate(positions):
            event = self._facts(position)
            if event is None:
                return
            if isinstance(event, c.SessionExtended):
                gone.update(dict.fromkeys(event.gone, number))
        last = self._log.at(positions[-1])
        assert last is not None
        parts = 0
        for number, position in enumerate(positions):
            recorded = self._log.at(position)
            assert recorded is not None
            event = recorded.parse()
            facts = _facts_of(event, lambda key, n=number: key is None or gone.get(key, -1) <= n)  # type: ignore[misc]
            if position != positions[-1]:
                if any(facts.values()):
                    self._say(last.stream, c.SessionPart(**facts), recorded.at_us)
                    parts += 1
                continue
            assert isinstance(event, c.SessionParsed)
            fields = {name: getattr(event, name) for name in c.SessionParsed.__struct_fields__}
            self._say(last.stream, c.SessionParsed(**fields | {"parts": parts} | facts), recorded.at_us)

    def _facts(self, position: int) -> c.SessionParsed | c.SessionPart | None:
        recorded = self._log.at(position)
        return recorded.parse() if recorded else None


def _facts_of(event: Any, holds: Callable[[int | None], bool]) -> dict[str, tuple[Any, ...]]:
    """The facts of an event that no later one took back."""
    return {
        name: tuple(fact for fact in getattr(event, name) if holds(fact.key))
        for name in c.SessionPart.__struct_fields__
    }
