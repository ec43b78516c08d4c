"""Which sessions of the index hold the words, and in which turn, in the order every back end has.

A word with half a million hits must answer like a rare one. So hits are never ranked: the four classes of text are
asked one after the other, best first, and in a class with many hits sessions are tried newest first until there are
enough.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from copy import copy
from itertools import islice
from typing import Final, NamedTuple

import apsw

from prosa.projections.local_filters import Condition, Value
from prosa.projections.local_rows import rows
from prosa.projections.records import ASSISTANT, SHIFT, TEXTS, THINKING, USER, span

FEW: Final = 2_000
"""So many hits of a class are read whole (0.4 ms)."""
PROBES: Final = 200
"""So many sessions are tried (10 µs each, backwards 30) before all hits are read (0.13 µs each)."""
EVERY_KIND: Final = frozenset(range(7))
KINDS_OF: Final = {3: {USER}, 2: {ASSISTANT}, 1: {THINKING}, 0: EVERY_KIND}
"""Score → kinds of turn that it can be given for."""
TITLES: Final = 3

ORDERED: Final = "SELECT s.sid FROM sessions s WHERE {} ORDER BY s.last DESC, s.key"
IN_CLASS: Final = {
    3: f"t.kind = {USER} AND t.counted",
    2: f"t.kind = {ASSISTANT} AND t.counted",
    1: f"t.kind = {THINKING} AND t.counted",
    0: f"NOT (t.counted AND t.kind IN ({USER}, {ASSISTANT}, {THINKING}))",
}
OF_TURN: Final = """EXISTS (
    SELECT 1 FROM turns t WHERE t.id = coalesce((SELECT turn FROM pieces WHERE id = f.rowid), f.rowid) AND {})"""
FIRST: Final = f"LIMIT {FEW + 1}"
RISING: Final = "ORDER BY {id}"
ANY: Final = "AND {id} BETWEEN :low AND :high LIMIT 1"
FALLING: Final = "AND {id} BETWEEN :low AND :high ORDER BY {id} DESC"
NEWEST: Final = f"{FALLING} LIMIT 1"


class Wanted(NamedTuple):
    """A query as the index can be asked it."""

    match: str | None
    """FTS5 expression. None: every turn that the filters let through."""
    sessions: Condition
    turns: Condition | None
    """Over `turns t`. None: all."""
    titles: str | None
    """Over `f.rowid` of a title's row, with the parameters of `turns`. None: a title cannot be meant."""
    kinds: Collection[int]
    """Kinds of turn that the filters let through."""
    slow: bool = False
    """Each statement costs as much as reading all hits: FTS5 puts a prefix together anew every time."""


class Place(NamedTuple):
    """A hit before anything of it is read."""

    score: int
    sid: int
    id: int
    """Of the turn, of one of its later pieces, or of the session's title (n = 0)."""


class Hits:
    """The hits of one query, found as they are needed."""

    def __init__(self, db: apsw.Connection, wanted: Wanted) -> None:
        self._db, self._wanted = db, wanted
        self._order = [sid for (sid,) in rows(db, ORDERED.format(wanted.sessions.sql), wanted.sessions.values)]
        self._rank = {sid: number for number, sid in enumerate(self._order)}
        self._scores = [score for score in (3, 2, 1, 0) if not KINDS_OF[score].isdisjoint(wanted.kinds)]

    def again(self, wanted: Wanted) -> Hits:
        """The hits of other words in the same sessions."""
        other = copy(self)
        other._wanted = wanted
        return other

    @property
    def sessions(self) -> int:
        """How many the filters let through."""
        return len(self._order)

    def best(self, limit: int | None) -> list[Place]:
        """The best hit of each session, in order; at most so many."""
        found: dict[int, Place] = {}
        for score in self._scores:
            missing = (len(self._order) if limit is None else min(limit, len(self._order))) - len(found)
            if missing <= 0:
                break
            found.update((place.sid, place) for place in self._of_class(score, missing, found))
        return list(found.values())

    def all_of(self, sid: int) -> list[Place]:
        """Every hit of a session: the best first, among equals the newest."""
        return [Place(score, sid, hit) for score in self._scores for (hit,) in self._run(score, FALLING, sid)]

    def _of_class(self, score: int, missing: int, found: Collection[int]) -> list[Place]:
        """The first sessions that have a hit of this class and none of a better one."""
        some = list(self._run(score, FIRST, filtered=False))
        places: list[Place] = []
        if len(some) > FEW and missing <= PROBES and not self._wanted.slow:
            rest = (sid for sid in self._order if sid not in found)
            for sid in islice(rest, PROBES):
                if next(self._run(score, ANY, sid), None):
                    places += [Place(score, sid, hit) for (hit,) in self._run(score, NEWEST, sid)]
                if len(places) == missing:
                    return places
            if next(rest, None) is None:
                return places
        newest = {hit >> SHIFT: hit for (hit,) in self._run(score, RISING)}
        ranked = sorted((sid for sid in newest if sid in self._rank and sid not in found), key=self._rank.__getitem__)
        return [Place(score, sid, newest[sid]) for sid in ranked[:missing]]

    def _run(self, score: int, tail: str, sid: int | None = None, *, filtered: bool = True) -> Iterator[tuple[int]]:
        """Ids of hits of one class, in one session or all."""
        wanted, values = self._wanted, dict[str, Value](match=self._wanted.match)
        turns = wanted.turns.sql if wanted.turns and filtered else None
        if wanted.match is None:
            name, source = "t.id", f"turns t WHERE t.own > 0 AND {IN_CLASS[score]}" + (f" AND {turns}" if turns else "")
        else:
            name, source = "f.rowid", f"{TEXTS[score]} f WHERE {TEXTS[score]} MATCH :match"
            if turns:
                titles = f" OR {wanted.titles}" if score == TITLES and wanted.titles else ""
                source += f" AND ({OF_TURN.format(turns)}{titles})"
        if wanted.turns:
            values |= wanted.turns.values
        if sid is not None:
            values["low"], values["high"] = span(sid)
        return rows(self._db, f"SELECT {name} FROM {source} {tail.format(id=name)}", values)
