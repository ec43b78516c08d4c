"""What `prosa log erase` clears: planned from the log, shown, then executed as it was shown.

Erasing a session clears every body of its stream and removes its raw copies. Erasing what is superseded clears only
parses that a later full parse of the same revision replaced, and parts of parses that never ended.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from prosa.events import codec
from prosa.events.catalogue import RawPreserved, SessionExtended, SessionParsed, SessionPart
from prosa.events.log import Log, Recorded
from prosa.events.raw import RawStore

REQUESTED, SUPERSEDED = "requested", "superseded"


class ErasePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What an erasure would clear. The plan that was shown is the object that is executed."""

    positions: list[int]
    """Events whose bodies are cleared."""
    raws: list[str]
    """sha256 of the raw copies that are removed."""
    bytes: int
    """Stored bytes that this frees."""
    reason: str
    """REQUESTED or SUPERSEDED."""
    cut: dict[str, int] = {}
    """Raw copies of other sessions that the removed ones continue in the same file: bytes of it that stay."""


def plan_session(log: Log, store: RawStore, key: str) -> ErasePlan:
    """Every body of the session's stream that is still here, and the raw copies that no other session names."""
    positions: list[int] = []
    raws: list[str] = []
    size = 0
    for event in log.stream(f"session-{key}"):
        if event.erased:
            continue
        positions.append(event.position)
        size += len(event.stored or b"")
        if event.type == RawPreserved.TYPE:
            raws.append(codec.decode_as(RawPreserved, event.body()).sha256)
    others = _named_elsewhere(log, f"session-{key}")
    raws = [raw for raw in raws if raw not in others]
    # a copy that grew has two names and one file
    files = {(s.st_dev, s.st_ino): s.st_size for raw in raws if store.has(raw) for s in [store.path(raw).stat()]}
    cut = {
        raw: stored
        for raw, stored in others.items()
        if store.has(raw) and (found := store.path(raw).stat()) and (found.st_dev, found.st_ino) in files
    }
    # of several beginnings in one file the longest stays whole
    longest = {raw: max(cut[other] for other in cut if store.path(other).samefile(store.path(raw))) for raw in cut}
    freed = size + sum(files.values()) - sum({store.path(raw).stat().st_ino: longest[raw] for raw in cut}.values())
    return ErasePlan(positions=positions, raws=raws, bytes=freed, reason=REQUESTED, cut=longest)


def _named_elsewhere(log: Log, stream: str) -> dict[str, int]:
    """Raws that another session's events name, and their bytes on disk."""
    found: dict[str, int] = {}
    for header in log.read(bodies=False):
        if header.type == RawPreserved.TYPE and header.stream != stream:
            event = log.at(header.position)
            if event is not None and not event.erased:
                other = codec.decode_as(RawPreserved, event.body())
                found[other.sha256] = max(found.get(other.sha256, 0), other.stored)
    return found


def plan_superseded(log: Log) -> ErasePlan:
    """Bodies of every session that a later parse replaced."""
    streams = {e.stream for e in log.read(bodies=False) if e.type == SessionParsed.TYPE}
    events = [event for stream in sorted(streams) for event in replaced(log, stream)]
    size = sum(len(event.stored or b"") for event in events)
    return ErasePlan(positions=[event.position for event in events], raws=[], bytes=size, reason=SUPERSEDED)


def replaced(log: Log, stream: str) -> Iterator[Recorded]:
    """Events of one session whose facts no longer count, in order."""
    serving: dict[tuple[int, str, int], list[Recorded]] = {}
    parts: dict[int, list[Recorded]] = {}
    dropped: list[Recorded] = []
    for event in log.stream(stream):
        if event.type == SessionPart.TYPE:
            parts.setdefault(event.origin, []).append(event)
        elif event.type in (SessionParsed.TYPE, SessionExtended.TYPE):
            waiting = parts.pop(event.origin, [])
            if event.erased:
                continue
            parsed = event.event()
            assert isinstance(parsed, SessionParsed)
            mine = len(waiting) - parsed.parts
            dropped += waiting[:mine]
            place = (event.origin, parsed.surface, parsed.revision)
            if event.type == SessionParsed.TYPE:
                dropped += serving.pop(place, [])
            serving.setdefault(place, []).extend([*waiting[mine:], event])
    yield from sorted(event for event in dropped if not event.erased)


def execute(log: Log, store: RawStore, plan: ErasePlan, by: str) -> None:
    """Clear the bodies, then remove the copies. Hold the sync lock; the index must be built again afterwards."""
    events = [event for position in plan.positions if (event := log.at(position))]
    log.erase(events, plan.reason, by)
    for raw in plan.raws:
        store.remove(raw)
    for raw, stored in plan.cut.items():
        store.cut(raw, stored)
