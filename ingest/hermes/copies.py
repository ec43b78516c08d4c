"""Which of Hermes' rows repeat another row: carried over by a compaction, or inherited by a branch or a continuation.

Row ids and `message_uid` cannot name a message: /undo and /retry delete all rows and write them anew, and the migration
to schema 31 gives every older row, copies included, a random uid (hermes_state_schema.py of 0.22.2). So a message is
named by the session that first had it, its content, and its place among equal ones; uids only prove that two are one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from prosa.events.facts import NOT_COPIED, PROVEN, SUGGESTED
from prosa.ingest.hermes.rows import Message, Piece

CHAIN_US = 5_000
"""Rows that a compaction wrote at once are a microsecond apart."""
HEAD_CHAIN_US = 500_000
"""A new session's first rows are inserted one by one, each in its own transaction."""
HEAD_US = 2_000_000
"""How long after its start the first of them is there."""
MANY = 500


class Origin(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The name of a message: the session that had it first, its content, and its place among equal ones there."""

    session: str
    identity: str
    nth: int


class Placed(msgspec.Struct, gc=False):
    """A piece and what it is."""

    piece: Piece
    origin: Origin
    copied: int = NOT_COPIED
    """Of another session's message."""
    again: bool = False
    """A copy of a message of the same session."""
    in_head: bool = False
    """Among the rows with which a branch or a continuation begins."""


class Lineage(msgspec.Struct):
    """What a session hands on to those that go on from it."""

    live: list[Placed] = []
    """Its context at the end, in order."""
    uids: dict[str, Origin] = {}
    stamps: dict[tuple[str, int], Origin] = {}
    before: Lineage | None = None
    present: bool = False
    """False: the store does not hold the session it comes from, so nothing can be proven."""

    def find(self, piece: Piece) -> Origin | None:
        """The message with its uid, or with its content and time, in the session or one that it goes on from."""
        lineage: Lineage | None = self
        while lineage is not None:
            found = _find(piece, lineage.uids, lineage.stamps)
            if found is not None:
                return found
            lineage = lineage.before
        return None


class Heritage(msgspec.Struct):
    """Where a session comes from, if it begins with another's messages."""

    source: str | None
    """None: it begins with a summary, but nothing names whose."""
    started_at: int | None
    lineage: Lineage
    by_summary: bool = False
    """True: only a summary among its first rows would say that it begins with another's."""


def place(session: str, pieces: Sequence[Piece], heritage: Heritage | None, known: dict[int, Origin]) -> list[Placed]:
    """Name every piece. `known` has the origins that the store has proven already, by the piece's index."""
    return _Placing(session, pieces, heritage, known).run()


def lineage_of(placed: Sequence[Placed], before: Lineage | None) -> Lineage:
    """What the session hands on: its last context, and all its names."""
    uids: dict[str, Origin] = {}
    stamps: dict[tuple[str, int], Origin] = {}
    live_from = 0
    for start, end in _runs([one.piece for one in placed], 0):
        if any(one.piece.is_summary and not one.in_head for one in placed[start:end]):
            live_from = start
    for one in placed:
        message = one.piece.message
        if message.uid:
            uids.setdefault(_uid_key(one.piece), one.origin)
        if message.at is not None:
            stamps.setdefault((one.piece.identity, message.at), one.origin)
    live = [_slim(one) for one in placed[live_from:] if not one.piece.message.undone]
    return Lineage(live, uids, stamps, before, present=True)


def _slim(one: Placed) -> Placed:
    """Without its text: a long chain of continuations is remembered by names only."""
    message = Message(one.piece.message.role, "", "", [])
    return Placed(msgspec.structs.replace(one.piece, message=message, text=""), one.origin)


def _find(piece: Piece, uids: dict[str, Origin], stamps: dict[tuple[str, int], Origin]) -> Origin | None:
    message = piece.message
    found = uids.get(_uid_key(piece)) if message.uid else None
    if found is None and message.at is not None:
        found = stamps.get((piece.identity, message.at))
    return found


def _uid_key(piece: Piece) -> str:
    return f"{piece.message.uid}{'#summary' if piece.is_summary else ''}"


def _runs(pieces: Sequence[Piece], start: int) -> Iterator[tuple[int, int]]:
    """Rows that follow each other at once, as start and end."""
    for index in range(start + 1, len(pieces) + 1):
        if index == len(pieces) or not _follows(pieces[index - 1], pieces[index]):
            yield start, index
            start = index


def _follows(one: Piece, other: Piece) -> bool:
    a, b = one.message.at, other.message.at
    return one.message is other.message or (a is not None and b is not None and 0 <= b - a <= CHAIN_US)


class _Placing:
    def __init__(
        self, session: str, pieces: Sequence[Piece], heritage: Heritage | None, known: dict[int, Origin]
    ) -> None:
        self.session, self.pieces, self.heritage, self.known = session, pieces, heritage, known
        self.counts: Counter[tuple[str, str]] = Counter()
        self.uids: dict[str, Origin] = {}
        self.stamps: dict[tuple[str, int], Origin] = {}
        self.names: dict[str, Origin] = {}
        self.placed: list[Placed] = []
        self.live: list[Placed] = []

    def run(self) -> list[Placed]:
        head = self._head()
        if self.heritage is not None and self.heritage.by_summary:
            head = head if any(piece.is_summary for piece in self.pieces[:head]) else 0
        aligned = _align(self.pieces[:head], self.heritage.lineage.live) if self.heritage is not None else []
        for index in range(head):
            self._inherit(index, aligned[index])
        for start, end in _runs(self.pieces, head):
            if any(piece.is_summary for piece in self.pieces[start:end]):
                self._compaction(start, end)
            else:
                for index in range(start, end):
                    self._own(index)
        return self.placed

    # what comes from another session

    def _head(self) -> int:
        """How many rows were there at once when the session began."""
        if self.heritage is None or not self.pieces:
            return 0
        started = self.heritage.started_at or self.pieces[0].message.at
        last: int | None = None
        for end, piece in enumerate(self.pieces):
            at = piece.message.at
            if at is None or started is None:
                return end
            if at >= started:
                if at - (last or started) > (HEAD_CHAIN_US if last else HEAD_US):
                    return end
                last = at
        return len(self.pieces)

    def _inherit(self, index: int, aligned: Origin | None) -> None:
        """A row of the head, by what the store has proven, else by itself."""
        piece = self.pieces[index]
        heritage = self.heritage
        assert heritage is not None
        origin = self.known.get(index) or self._foreign(piece) or aligned
        if origin is not None:
            self._put(piece, origin, PROVEN, in_head=True)
        elif heritage.lineage.present or piece.is_summary:
            self._put(piece, None, NOT_COPIED, in_head=True)
        else:
            # the source is gone: its messages had the same names
            at, started = piece.message.at, heritage.started_at
            older = at is not None and started is not None and at < started
            origin = self._named(heritage.source or self.session, piece)
            self._put(piece, origin, PROVEN if older else SUGGESTED, in_head=True)

    def _foreign(self, piece: Piece) -> Origin | None:
        return self.heritage.lineage.find(piece) if self.heritage is not None else None

    # what is the session's own

    def _own(self, index: int) -> None:
        piece = self.pieces[index]
        again = self._before(piece)
        if again is not None:
            self._put(piece, again, NOT_COPIED, again=True)
            return
        origin = self.known.get(index) or self._foreign(piece)
        self._put(piece, origin, PROVEN if origin is not None else NOT_COPIED)

    def _before(self, piece: Piece) -> Origin | None:
        """The same message, seen earlier in this session."""
        found = _find(piece, self.uids, self.stamps)
        absorbed = piece.message.absorbed
        if found is None and absorbed and all(uid in self.uids for uid in absorbed):
            # several rows that a repair made one
            return self.uids[absorbed[0]]
        return found

    def _compaction(self, start: int, end: int) -> None:
        before = self.live
        rows = self.pieces[start:end]
        aligned = _align(rows, before)
        last = max((place for place, origin in enumerate(aligned) if origin is not None), default=-1)
        self.live = []
        fresh = any(row.is_summary and self._before(row) is None and row.identity not in self.names for row in rows)
        for place, (piece, origin) in enumerate(zip(rows, aligned, strict=True)):
            again = self._before(piece) or origin
            if again is None and piece.identity in self.names and not (piece.is_summary and not fresh):
                # equal to an earlier one. Behind all that is matched it is new: typed or answered again
                is_new = place > last >= 0 or (place == len(rows) - 1 and _is_prompt(piece))
                again = None if is_new and not piece.is_summary else self.names[piece.identity]
            proven = self.known.get(start + place) if again is None else None
            self._put(piece, again or proven, PROVEN if proven else NOT_COPIED, again=again is not None)

    # names

    def _put(
        self, piece: Piece, origin: Origin | None, copied: int, *, again: bool = False, in_head: bool = False
    ) -> None:
        one = Placed(piece, origin or self._named(self.session, piece), copied, again, in_head)
        self.placed.append(one)
        self._learn(one)

    def _named(self, session: str, piece: Piece) -> Origin:
        self.counts[session, piece.identity] += 1
        return Origin(session, piece.identity, self.counts[session, piece.identity])

    def _learn(self, one: Placed) -> None:
        message = one.piece.message
        if message.uid:
            self.uids.setdefault(_uid_key(one.piece), one.origin)
        if message.at is not None:
            self.stamps.setdefault((one.piece.identity, message.at), one.origin)
        self.names[one.piece.identity] = one.origin
        if not message.undone:
            self.live.append(one)


def _align(rows: Sequence[Piece], live: Sequence[Placed]) -> list[Origin | None]:
    """The origins of rows that repeat a context: its beginning before the summary, its end behind it.

    The end is matched as a whole where that is possible: a prompt typed again is not its earlier self.
    """
    places = _Places(live)
    found: list[Origin | None] = [None] * len(rows)
    summary = next((index for index, row in enumerate(rows) if row.is_summary and not places.has(row)), len(rows))
    for index in range(summary):
        found[index] = places.next(rows[index])
    tail = range(summary + 1, len(rows))
    for length in range(min(len(tail), len(live) - places.free, MANY), 0, -1):
        ends = live[len(live) - length :]
        if all(_same(rows[summary + 1 + place], ends[place].piece) for place in range(length)):
            found[summary + 1 : summary + 1 + length] = [one.origin for one in ends]
            return found
    for index in tail:
        # behind an answer, the last prompt is the one that the compaction was made for
        is_new = index == len(rows) - 1 and _is_prompt(rows[index]) and not (live and _is_prompt(live[-1].piece))
        found[index] = None if is_new else places.next(rows[index])
    return found


def _is_prompt(piece: Piece) -> bool:
    return piece.message.role == "user" and not piece.is_summary


class _Places:
    """Where in a context a message stands; each place is given once, in order."""

    def __init__(self, live: Sequence[Placed]) -> None:
        self.live, self.free = live, 0
        self._by_name: dict[object, list[int]] = {}
        for place, one in enumerate(live):
            for name in _names(one.piece):
                self._by_name.setdefault(name, []).append(place)

    def has(self, piece: Piece) -> bool:
        return piece.identity in self._by_name

    def next(self, piece: Piece) -> Origin | None:
        found = []
        for name in _names(piece):
            places = self._by_name.get(name, [])
            at = bisect_left(places, self.free)
            found += places[at : at + 1]
        if not found:
            return None
        self.free = min(found) + 1
        return self.live[min(found)].origin


def _names(piece: Piece) -> list[object]:
    """Its identity, and for calls and results their ids: an older client shortens the arguments of what it carries."""
    return [piece.identity, (piece.message.role, piece.calls)] if piece.calls else [piece.identity]


def _same(one: Piece, other: Piece) -> bool:
    return not set(_names(one)).isdisjoint(_names(other))
