"""A device's log for the tests of push: small events, and batches of them as the device would send them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from prosa.events.catalogue import Event, SourceRejected
from prosa.events.log import Draft, Log, Recorded
from prosa.events.messages import Head, PushBatch, PushedEvent
from prosa.server.batches import NOTHING


def small(number: int) -> tuple[str, Event]:
    """A stream and an event of about 100 bytes."""
    path = f"/home/ada/project/{number}.jsonl"
    event = SourceRejected(
        agent="claude-code", profile="default", path=path, size=number, sha256=f"{number:064x}", reason="empty"
    )
    return f"source-claude-code/{number:016x}", event


def a_log(path: Path, events: int = 0) -> Log:
    """A new log whose shared origin has `events` small events behind its log_opened."""
    log = Log(path, create=True)
    add(log, events)
    return log


def add(log: Log, events: int, first: int = 0) -> None:
    drafts = map(small, range(first, first + events))
    log.append([Draft(stream, log.stream_version(stream), event) for stream, event in drafts])


def shared(log: Log) -> list[Recorded]:
    """What is pushed of it."""
    return [event for event in log.read() if event.origin == log.shared.number]


def batches(log: Log, size: int, after: int = 0) -> Iterator[PushBatch]:
    """Every event behind an origin position, cut into batches of `size`; one empty batch if there is none."""
    events = shared(log)
    origin = log.shared.origin.hex()
    for start in range(after, max(len(events), after + 1), size):
        before = Head(events[start - 1].origin_position, events[start - 1].hash) if start else NOTHING
        yield PushBatch(origin, before, [PushedEvent.of(event) for event in events[start : start + size]])
