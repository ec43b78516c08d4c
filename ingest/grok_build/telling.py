"""What the two readers of a Grok Build session share: where a record stands, and how it is told."""

from __future__ import annotations

from typing import NamedTuple

from prosa.events.facts import NOT_COPIED, Facts, Kind, Role, Turn, bounded
from prosa.ingest.importer import Identity


class Place(NamedTuple):
    """Where a record stands: its name, when, and whether a fork brought it along."""

    owner: str
    """The session that wrote it: names inside it (prompts, calls) are unique there only."""
    native: str
    witness: str = ""
    number: int | None = None
    at: int | None = None
    copied: int = NOT_COPIED
    copied_from: str | None = None

    @property
    def is_own(self) -> bool:
        return self.copied == NOT_COPIED


class Telling:
    """Facts that wait to be taken, and what the header says of the records."""

    def __init__(self, identity: Identity) -> None:
        self.id, self.key = identity.id, identity.key
        self.facts = Facts([], [], [], [])
        self.spoken = False
        """Some line of updates.jsonl was a turn: the chat is no source of turns then."""
        self.has_usage = False
        self.origin: str | None = None
        """The session that the last copied record is of: the nearest ancestor."""
        self.first: int | None = None
        self.last: int | None = None
        self.models: list[str] = []
        self.chat_models: list[str] = []
        self.unknown: dict[str, tuple[int, int]] = {}
        self.malformed = 0
        self.malformed_bytes = 0

    def say(
        self,
        place: Place,
        key: int,
        kind: Kind,
        role: Role,
        text: str,
        *,
        tool: str | None = None,
        call_id: str | None = None,
        is_error: bool = False,
        counted: bool = True,
    ) -> None:
        """Tells a turn, or tells it again: the later one replaces it in its place."""
        text, size = bounded(text)
        self.facts.turns.append(
            Turn(
                key=key,
                kind=kind,
                role=role,
                at=place.at,
                text=text,
                size=size,
                tool=tool,
                tool_call_id=call_id,
                is_error=is_error,
                counted=counted,
                copied=place.copied,
                copied_from=place.copied_from,
            )
        )

    def seen(self, place: Place) -> None:
        """Notes the time of an own record, the origin of a copied one."""
        if not place.is_own:
            self.origin = place.copied_from
        elif place.at is not None:
            self.first = place.at if self.first is None else min(self.first, place.at)
            self.last = place.at if self.last is None else max(self.last, place.at)

    def damaged(self, line: bytes) -> None:
        self.malformed += 1
        self.malformed_bytes += len(line)

    def strange(self, kind: str, line: bytes) -> None:
        """Counts a kind of record that nobody has described."""
        kind = kind[:80]
        count, size = self.unknown.get(kind, (0, 0))
        self.unknown[kind] = (count + 1, size + len(line))

    def take(self) -> Facts:
        facts, self.facts = self.facts, Facts([], [], [], [])
        return facts
