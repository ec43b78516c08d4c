"""An archive to ask: sessions are written into a real log, the index is built from it by the engine."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import msgspec

from prosa.events.catalogue import (
    DeviceIdentified,
    Event,
    ProjectIdentified,
    RawPreserved,
    SessionParsed,
    SourceDetected,
)
from prosa.events.facts import Compaction, Header, Turn, Usage, fact_key
from prosa.events.log import Draft, Log, Recorded
from prosa.events.raw import RawStore
from prosa.projections.building import rebuild
from prosa.projections.index import open_index
from prosa.projections.local import LocalBackend

MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
START = 1_780_272_000_000_000
"""2026-06-01 00:00 UTC, a Monday."""
OVERRIDES = {"test-model": {"input": 1, "output": 10, "cache_read": 0, "cache_write_5m": 0, "cache_write_1h": 0}}


def say(role: str, text: str, at: int | None = None, **more: Any) -> Turn:
    """A turn of any kind; without a key it is given one when the session is written."""
    more = {"key": 0, "kind": "message"} | more
    return Turn(role=role, text=text, at=at, **more)  # type: ignore[arg-type]


class Archive:
    """A log and a raw store in a folder. `backend` builds the index of what was written so far and opens it."""

    def __init__(self, folder: Path, log: Log | None = None) -> None:
        self.folder = folder
        self.log = log or Log(folder / "log.db", create=True)
        self.raw = RawStore(folder / "raw")
        self.say = say
        self.minute, self.hour, self.day, self.start = MINUTE, HOUR, DAY, START
        self.opened: list[apsw.Connection] = []
        self.raw_of: dict[str, str] = {}

    def append(self, stream: str, event: Event) -> list[Recorded]:
        return self.log.append([Draft(stream, self.log.stream_version(stream), event)])

    def write(self, stream: str, event: Event) -> None:
        self.append(stream, event)

    def device(self, fingerprint: str, hostname: str) -> None:
        event = DeviceIdentified(device=fingerprint, hostname=hostname, machine="", platform="linux")
        self.write(f"device-{fingerprint}", event)

    def project(self, path: str, remote: str | None = None, marker: str | None = None) -> None:
        self.write(f"project-{path}", ProjectIdentified(path=path, remote=remote, marker=marker))

    def session(
        self,
        native: str,
        *turns: Turn,
        agent: str = "codex",
        scope: str | None = None,
        profile: str = "default",
        usage: tuple[Usage, ...] = (),
        compactions: tuple[Compaction, ...] = (),
        raw: bytes | None = None,
        source: str | None = None,
        **header: Any,
    ) -> str:
        """Write one session; returns its key. `raw` is preserved too."""
        key = "/".join(part for part in (agent, scope, native) if part)
        digest = self.raw_of[key] = sha256(raw or key.encode()).hexdigest()
        if raw is not None:
            writer = self.raw.writer()
            writer.write(raw)
            stored = self.raw.keep(writer)
            event = RawPreserved(session=key, sha256=digest, size=stored.size, stored=stored.stored)
            self.write(f"session-{key}", event)
        if source is not None:
            detected = SourceDetected(agent=agent, profile=profile, path=source, size=1, sha256=digest, sessions=(key,))
            self.write(f"source-{key}", detected)
        keyed = tuple(
            msgspec.structs.replace(turn, key=turn.key or fact_key(agent, "turn", f"{key}/{number}"))
            for number, turn in enumerate(turns)
        )
        counted = tuple(
            msgspec.structs.replace(item, key=item.key or fact_key(agent, "usage", f"{key}/{number}"))
            for number, item in enumerate(usage)
        )
        header.setdefault("has_usage", bool(usage))
        parsed = SessionParsed(
            session=key,
            agent=agent,
            id=native,
            scope=scope,
            profile=profile,
            revision=0,
            parser="test/1",
            raw=digest,
            header=Header(**header),
            turns=keyed,
            usage=counted,
            compactions=compactions,
        )
        self.write(f"session-{key}", parsed)
        return key

    def chat(self, native: str, *texts: str, at: int | None = START, **more: Any) -> str:
        """A session of prompts, a minute apart."""
        turns = [say("user", text, None if at is None else at + n * MINUTE) for n, text in enumerate(texts)]
        return self.session(native, *turns, **more)

    def backend(self, now_us: int = START + 30 * DAY) -> LocalBackend:
        rebuild(self.folder / "index", self.log, OVERRIDES)
        db = open_index(self.folder / "index")
        self.opened.append(db)
        return LocalBackend(db, self.log, self.raw, now_us=now_us)

    def close(self) -> None:
        for db in self.opened:
            db.close()
        self.log.close()
