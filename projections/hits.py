"""Which sessions hold the words, and in which turn, in the order every back end has.

A word with half a million hits must answer like a rare one. So hits are never ranked: the four classes of text are
asked one after the other, best first, and in a class with many hits sessions are tried newest first until there are
enough.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from copy import copy
from itertools import islice
from typing import Final, NamedTuple, Protocol

from prosa.projections import grammar
from prosa.projections.filtering import Condition
from prosa.projections.queries import SearchPlace
from prosa.projections.records import ASSISTANT, MASK, SHIFT, TEXTS, THINKING, USER, span
from prosa.projections.tables import Tables, Value, value

FEW: Final = 2_000
"""So many hits of a class are read whole (0.4 ms)."""
PROBES: Final = 200
"""So many sessions are tried (10 µs each, backwards 30) before all hits are read (0.13 µs each)."""
EVERY_KIND: Final = frozenset(range(7))
KINDS_OF: Final = {3: {USER}, 2: {ASSISTANT}, 1: {THINKING}, 0: EVERY_KIND}
"""Score → kinds of turn that it can be given for."""
TITLES: Final = 3

ORDER: Final = "ORDER BY s.last DESC NULLS LAST, s.key"
ORDERED: Final = f"SELECT s.sid FROM sessions s WHERE {{}} {ORDER}"
BEHIND: Final = "(s.last < :last OR s.last IS NULL OR s.last = :last AND s.key > :key)"
BEHIND_TIMELESS: Final = "(s.last IS NULL AND s.key > :key)"
"""Sessions that come after a place in that order."""
AT_END: Final = "SELECT s.sid FROM sessions s WHERE {} AND s.key = :key AND coalesce(s.last, -1) = :last"
END: Final = "SELECT last, key FROM sessions WHERE sid = :sid"
IN_CLASS: Final = {
    3: f"t.kind = {USER} AND t.counted <> 0",
    2: f"t.kind = {ASSISTANT} AND t.counted <> 0",
    1: f"t.kind = {THINKING} AND t.counted <> 0",
    0: f"NOT (t.counted <> 0 AND t.kind IN ({USER}, {ASSISTANT}, {THINKING}))",
}
OF_TURN: Final = """EXISTS (
    SELECT 1 FROM turns t WHERE t.id = coalesce((SELECT turn FROM pieces WHERE id = f.rowid), f.rowid) AND {})"""
SAME_TURN: Final = """
SELECT o.id FROM pieces o WHERE o.turn = :hit OR o.turn = (SELECT turn FROM pieces WHERE id = :hit)
UNION SELECT turn FROM pieces WHERE id = :hit"""
FIRST: Final = "LIMIT :few"
RISING: Final = "ORDER BY {id}"
ANY: Final = "AND {id} BETWEEN :low AND :high LIMIT 1"
FALLING: Final = "AND {id} BETWEEN :low AND :high ORDER BY {id} DESC"
NEWEST: Final = f"{FALLING} LIMIT 1"


class Wanted(NamedTuple):
    """A query as the tables can be asked it."""

    query: grammar.Query
    """Its words. None in it: every turn that the filters let through."""
    sessions: Condition
    turns: Condition | None
    """Over `turns t`. None: all."""
    titles: str | None
    """Over `f.rowid` of a title's row, with the parameters of `turns`. None: a title cannot be meant."""
    kinds: Collection[int]
    """Kinds of turn that the filters let through."""

    def filtered(self, score: int, of_turn: str = "{}") -> str | None:
        """What rows `f` of full text must be beside holding the words; None: any. `of_turn` reaches their `turns t`."""
        if self.turns is None:
            return None
        titles = f" OR {self.titles}" if score == TITLES and self.titles else ""
        return f"({of_turn.format(self.turns.sql)}{titles})"


class Place(NamedTuple):
    """A hit before anything of it is read."""

    score: int
    sid: int
    id: int
    """Of the turn, of one of its later pieces, or of the session's title (n = 0)."""


class Finder(Protocol):
    """How a back end finds hits. All find the same."""

    def again(self, query: grammar.Query) -> Finder:
        """The same for other words."""

    def count(self) -> int:
        """Sessions that the filters let through."""

    def first(self, score: int, among: Condition, found: Collection[int], count: int | None) -> list[Place]:
        """The newest hit of this class of each session that has one, in order; at most so many, and none of those
        that have been found."""

    def in_session(self, score: int, sid: int) -> list[int]:
        """Every hit of this class, the newest first."""


Find = Callable[[Tables, Wanted], Finder]


class Hits:
    """The hits of one query, found as they are needed."""

    def __init__(self, tables: Tables, wanted: Wanted, finder: Finder) -> None:
        self._tables, self._chosen, self._finder = tables, wanted.sessions, finder
        self._scores = [score for score in (3, 2, 1, 0) if not KINDS_OF[score].isdisjoint(wanted.kinds)]

    def again(self, query: grammar.Query) -> Hits:
        """The hits of other words in the same sessions."""
        other = copy(self)
        other._finder = self._finder.again(query)
        return other

    def count(self) -> int:
        """Sessions that the filters let through."""
        return self._finder.count()

    def best(self, limit: int | None, after: SearchPlace | None = None) -> list[Place]:
        """The best hit of each session, in order; at most so many, and only those after the place."""
        found: list[Place] = []
        better: set[int] = set()
        for score in self._scores:
            missing = None if limit is None else limit - len(found)
            if missing == 0:
                break
            ahead, passed = self._parts(score, after)
            places = self._finder.first(score, ahead, better, missing) if ahead else []
            better.update(place.sid for place in places)
            found += places
            if passed and (missing is None or len(places) < missing):
                better.update(place.sid for place in self._finder.first(score, passed, better, None))
        return found

    def all_of(self, sid: int) -> list[Place]:
        """Every hit of a session: the best first, among equals the newest."""
        return [Place(score, sid, hit) for score in self._scores for hit in self._finder.in_session(score, sid)]

    def rest_of(self, after: SearchPlace) -> list[Place]:
        """The hits left of the session that the page before ended in; without other pieces of the turn it ended with.

        None where the session moved in the order since: then its hits are on another page.
        """
        chosen = self._chosen.also("TRUE", {"key": after.key, "last": -1 if after.last is None else after.last})
        sid: int | None = value(self._tables, AT_END.format(chosen.sql), chosen.values)
        if sid is None:
            return []
        end = (after.hit_score, sid << SHIFT | after.hit)
        same = {piece for (piece,) in self._tables.execute(SAME_TURN, {"hit": end[1]})}
        return [place for place in self.all_of(sid) if (place.score, place.id) < end and place.id not in same]

    def end(self, place: Place, score: int, *, widened: bool) -> SearchPlace:
        """Where a page ends that ends with this hit; `score` is that of its session's best one."""
        last, key = next(self._tables.execute(END, {"sid": place.sid}))
        return SearchPlace(score, last, key, widened, place.score, place.id & MASK)

    def _parts(self, score: int, after: SearchPlace | None) -> tuple[Condition | None, Condition | None]:
        """The sessions whose hits of this class are still to be given, and those that pages before are done with."""
        chosen = self._chosen
        if after is None or score < after.score:
            return chosen, None
        if score > after.score:
            return None, chosen
        behind = BEHIND_TIMELESS if after.last is None else BEHIND
        values = {"last": after.last, "key": after.key}
        return chosen.also(behind, values), chosen.also(f"NOT {behind}", values)


class IndexFinder:
    """Hits by FTS5, which reads them as they are needed, in rising order of their ids."""

    def __init__(self, tables: Tables, wanted: Wanted) -> None:
        self._tables, self._wanted = tables, wanted
        self._orders: dict[str, list[int]] = {}
        self._ask(wanted.query)

    def again(self, query: grammar.Query) -> IndexFinder:
        other = copy(self)
        other._ask(query)
        return other

    def count(self) -> int:
        return len(self._order(self._wanted.sessions))

    def first(self, score: int, among: Condition, found: Collection[int], count: int | None) -> list[Place]:
        sids = [sid for sid in self._order(among) if sid not in found]
        count = len(sids) if count is None else min(count, len(sids))
        some = list(self._run(score, FIRST, filtered=False)) if sids else []
        places: list[Place] = []
        if len(some) > FEW and count <= PROBES and not self._slow:
            for sid in islice(sids, PROBES):
                if next(self._run(score, ANY, sid), None):
                    places += [Place(score, sid, hit) for (hit,) in self._run(score, NEWEST, sid)]
                if len(places) == count:
                    return places
            if len(sids) <= PROBES:
                return places
        newest = {hit >> SHIFT: hit for (hit,) in self._run(score, RISING)} if some else {}
        return [Place(score, sid, newest[sid]) for sid in sids if sid in newest][:count]

    def in_session(self, score: int, sid: int) -> list[int]:
        return [hit for (hit,) in self._run(score, FALLING, sid)]

    def _ask(self, query: grammar.Query) -> None:
        self._match = grammar.match(query)
        terms = [term for group in (*query.groups, query.excluded) for term in group]
        self._slow = any(term.prefix for term in terms)
        """Each statement costs as much as reading all hits: FTS5 puts a prefix together anew every time."""

    def _order(self, among: Condition) -> list[int]:
        found = self._orders.get(among.sql)
        if found is None:
            rows = self._tables.execute(ORDERED.format(among.sql), among.values)
            found = self._orders[among.sql] = [sid for (sid,) in rows]
        return found

    def _run(self, score: int, tail: str, sid: int | None = None, *, filtered: bool = True) -> Iterator[tuple[int]]:
        """Ids of hits of one class, in one session or all."""
        wanted, values = self._wanted, dict[str, Value](few=FEW + 1)
        if self._match is None:
            name, source = "t.id", turns_source(wanted, score, filtered=filtered)
        else:
            values["match"] = self._match
            name, source = "f.rowid", f"{TEXTS[score]} f WHERE {TEXTS[score]} MATCH :match"
            if filtered and (turns := wanted.filtered(score, OF_TURN)):
                source += f" AND {turns}"
        if wanted.turns:
            values |= wanted.turns.values
        if sid is not None:
            values["low"], values["high"] = span(sid)
        return self._tables.execute(f"SELECT {name} FROM {source} {tail.format(id=name)}", values)


def turns_source(wanted: Wanted, score: int, *, filtered: bool = True) -> str:
    """What stands behind FROM for a query without words."""
    source = f"turns t WHERE t.own > 0 AND {IN_CLASS[score]}"
    return f"{source} AND {wanted.turns.sql}" if filtered and wanted.turns else source
