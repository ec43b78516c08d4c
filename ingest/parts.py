"""Cutting facts into events of bounded size, and finding what is new against the facts a stream has already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import TypeVar

import msgspec

from prosa.events import codec
from prosa.events.catalogue import SessionExtended, SessionParsed, SessionPart
from prosa.events.facts import COUNT_LIMIT, Compaction, Facts, Mark, Turn, Usage, plausible

PART_BYTES = 512 * 1024
"""Uncompressed size of a part: 0.6 ms to open; half of it costs 5 % more disk. One larger turn stands alone."""
FACT_BYTES = 90
"""What a fact costs beside its text, on average."""

Fact = Turn | Usage | Mark | Compaction
F = TypeVar("F", bound=Fact)


class Parts:
    """Gathers facts and gives them back in pieces of at most PART_BYTES."""

    def __init__(self) -> None:
        self._facts = Facts([], [], [], [])
        self._size = 0

    def add(self, facts: Facts) -> Iterator[Facts]:
        """Complete parts; what is left waits for more."""
        for turn in facts.turns:
            size = 4 * len(turn.text) if not turn.text.isascii() else len(turn.text)
            if self._size and self._size + size > PART_BYTES:
                yield self.rest()
            self._facts.turns.append(turn)
            self._size += size + FACT_BYTES
        for name in ("usage", "marks", "compactions"):
            more = getattr(facts, name)
            getattr(self._facts, name).extend(more)
            self._size += FACT_BYTES * len(more)
        if self._size > PART_BYTES:
            yield self.rest()

    def rest(self) -> Facts:
        """What was gathered and not given back yet."""
        facts, self._facts, self._size = self._facts, Facts([], [], [], []), 0
        return facts


class Known:
    """Digests of the facts a stream holds, by key; tells what a new parse adds, changes and lacks."""

    def __init__(self, events: Iterable[SessionParsed | SessionPart]) -> None:
        self._digests: dict[int, bytes] = {}
        self._marks: set[tuple[int, int]] = set()
        self._left: set[int] | None = None
        for event in events:
            if isinstance(event, SessionExtended):
                for key in event.gone:
                    self._digests.pop(key, None)
            facts: tuple[Fact, ...] = (*event.turns, *event.usage, *event.marks, *event.compactions)
            for fact in facts:
                self._put(fact)
        self._left = set(self._digests)

    def _put(self, fact: Fact) -> bool:
        """Remember a fact; whether it is new or changed."""
        if fact.key is None:
            place = (fact.first, fact.last)
            fresh = place not in self._marks
            self._marks.add(place)
            return fresh
        digest = blake2b(codec.encode(fact), digest_size=8).digest()
        if self._left is not None:
            self._left.discard(fact.key)
        if self._digests.get(fact.key) == digest:
            return False
        self._digests[fact.key] = digest
        return True

    def new(self, facts: Facts) -> Facts:
        """Only what differs from what the stream holds."""
        return Facts(
            [turn for turn in facts.turns if self._put(turn)],
            [item for item in facts.usage if self._put(item)],
            [mark for mark in facts.marks if self._put(mark)],
            [item for item in facts.compactions if self._put(item)],
        )

    def gone(self) -> tuple[int, ...]:
        """Keys the new parse did not state, once it is complete."""
        return tuple(sorted(self._left or ()))


def settled(facts: Facts) -> Facts:
    """Of facts stated twice in one take the later, in the earlier's place; numbers that cannot be are left out."""
    usage = [plausible(item) for item in facts.usage]
    compactions = [
        msgspec.structs.replace(item, size_before=None) if not 0 <= (item.size_before or 0) <= COUNT_LIMIT else item
        for item in facts.compactions
    ]
    return Facts(_last(facts.turns), _last(usage), _last(facts.marks), _last(compactions))


def _last(facts: list[F]) -> list[F]:
    by_key: dict[int, F] = {}
    unkeyed: list[F] = []
    for fact in facts:
        if fact.key is None:
            unkeyed.append(fact)
        else:
            by_key[fact.key] = fact
    return [*by_key.values(), *unkeyed] if len(by_key) + len(unkeyed) < len(facts) or unkeyed else facts
