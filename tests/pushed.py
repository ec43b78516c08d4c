"""A device's log that is written by hand and pushed: what it says reaches the server as a device's batch does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from prosa.events.catalogue import Event, SessionParsed, SessionPart
from prosa.events.chain import hash_body, hash_event
from prosa.events.clock import now_us, uuid7
from prosa.events.facts import Header, Turn, Usage, fact_key
from prosa.events.log import Draft, Log
from prosa.events.messages import Head, PushBatch, PushedEvent
from prosa.server.endpoints import Caller
from prosa.server.log import append_pushed
from prosa.server.state import Server

START = 1_780_272_000_000_000
NOTHING = Head(0, bytes(32))


def turns(session: str, texts: dict[str, str]) -> tuple[Turn, ...]:
    """A prompt for each name and text, a minute apart."""
    return tuple(
        Turn(key=fact_key("codex", "turn", f"{session}/{name}"), role="user", kind="message", text=text,
             at=START + n * 60_000_000)
        for n, (name, text) in enumerate(texts.items())
    )  # fmt: skip


def parsed(native: str, *said: Turn, kind: type[SessionParsed] = SessionParsed, **more: Any) -> SessionParsed:
    """A parse of a session of codex with one answer's usage."""
    usage = Usage(key=fact_key("codex", "usage", native), at=START, model="gpt-5", input=10, output=5)
    fields: dict[str, Any] = {
        "revision": 0,
        "parser": "codex/1",
        "raw": "0" * 64,
        "header": Header(title=f"title of {native}"),
    }
    fields |= {"usage": (usage,)} | more
    return kind(session=f"codex/{native}", agent="codex", id=native, turns=said, **fields)


class Device:
    """One device with its log; what is written is pushed by `push`, in batches."""

    def __init__(self, folder: Path, fingerprint: str = "00000000000000aa", log: Log | None = None) -> None:
        self.fingerprint = fingerprint
        self.log = log or Log(folder / f"{fingerprint}.db", create=True)
        self.head = NOTHING
        self.strange: list[PushedEvent] = []

    @property
    def origin(self) -> bytes:
        return self.log.shared.origin

    def write(self, stream: str, event: Event) -> int:
        """Append; returns the origin position."""
        done = self.log.append([Draft(stream, self.log.stream_version(stream), event)])
        return done[-1].origin_position

    def session(self, native: str, **texts: str) -> int:
        return self.write(f"session-codex/{native}", parsed(native, *turns(native, texts)))

    def part(self, native: str, **texts: str) -> int:
        return self.write(f"session-codex/{native}", SessionPart(turns=turns(native, texts)))

    def waiting(self) -> list[PushedEvent]:
        """What the server does not have yet."""
        number = self.log.shared.number
        return [
            PushedEvent(*recorded[2:])
            for recorded in self.log.read()
            if recorded.origin == number and recorded.origin_position > self.head.position
        ]

    async def push(self, server: Server, most: int = 500) -> int:
        """Push the next events. Returns the position of the last in the server's log."""
        events = self.waiting()[:most]
        return await self._send(server, events) if events else 0

    async def push_all(self, server: Server, most: int = 500) -> int:
        position = 0
        while self.waiting():
            position = await self.push(server, most)
        return position

    async def push_strange(
        self, server: Server, stream: str, kind: str, version: int, body: bytes, stored: bytes | None = None
    ) -> int:
        """An event that this prosa would not write. The log cannot go on after it."""
        salt = os.urandom(16)
        at, place, digest = now_us(), self.head.position + 1, hash_body(salt, body)
        event_id = uuid7(at)
        known = {event.stream: event.stream_version for event in self.strange}
        stream_version = known.get(stream, self.log.stream_version(stream)) + 1
        full = hash_event(
            self.origin, place, event_id, stream, stream_version, kind, version, at, self.head.hash, digest
        )
        event = PushedEvent(
            place, event_id, stream, stream_version, kind, version, at, digest, full, salt, stored or body
        )
        self.strange.append(event)
        return await self._send(server, [event])

    async def _send(self, server: Server, events: list[PushedEvent]) -> int:
        batch = PushBatch(origin=self.origin.hex(), expect=self.head, events=events)
        receipt = await append_pushed(server, Caller("device", self.fingerprint), batch)
        self.head = Head(events[-1].origin_position, events[-1].hash)
        return receipt.position_to
