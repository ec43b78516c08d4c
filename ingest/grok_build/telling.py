"""What the two readers of a Grok Build session share: where a record stands, and how it is told."""

from __future__ import annotations

from typing import NamedTuple, Unpack

from prosa.events.facts import NOT_COPIED, Facts, Kind, Role
from prosa.ingest.importer import Identity
from prosa.ingest.tally import Span, Tally
from prosa.ingest.turn import About, turn_of


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
        self.times = Span()
        """Of own records."""
        self.models: list[str] = []
        self.chat_models: list[str] = []
        self.tally = Tally()

    def say(self, place: Place, key: int, kind: Kind, role: Role, text: str, **about: Unpack[About]) -> None:
        """Tells a turn, or tells it again: the later one replaces it in its place."""
        turn = turn_of(key, kind, role, text, place.at, place.copied, place.copied_from, **about)
        self.facts.turns.append(turn)

    def seen(self, place: Place) -> None:
        """Notes the time of an own record, the origin of a copied one."""
        if not place.is_own:
            self.origin = place.copied_from
        else:
            self.times.add(place.at)

    def take(self) -> Facts:
        facts, self.facts = self.facts, Facts([], [], [], [])
        return facts
