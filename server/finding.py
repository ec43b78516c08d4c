"""Where words are in Postgres' full text: the same hits as FTS5 on a device, in the same order.

A word is found by the index of words, which knows neither places nor more than the beginning of a very long word; so
phrases and such words are looked for in the text of words besides. A class is either tried session by session, the
newest first, or read whole; which is cheaper is estimated from Postgres' own statistics, and the answer is the same.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

from prosa.projections import tokens
from prosa.projections.filtering import Condition
from prosa.projections.grammar import Query, Term
from prosa.projections.hits import KINDS_OF, ORDER, Place, Wanted, turns_source
from prosa.projections.records import MASK, SHIFT, TEXTS, span
from prosa.projections.tables import Tables, Value, Values, value
from prosa.server.following import places_of
from prosa.server.text_rows import LEXEME_BYTES

TRIED: Final = 40
"""Sessions beyond those wanted that are tried before a class is read whole."""
MOST_TRIED: Final = 200
"""More sessions than so many are not tried one by one."""
MANY: Final = 10_000
"""So many hits are put in order by Postgres, which would read all sessions to do that for few of them."""
HIT_US: Final = 0.25
"""Of reading a hit by the index of words."""
FEW: Final = 1_000
"""So many hits of a class are read at once with those of others, also where nobody may ask for them (1 µs each)."""
FEW_READ: Final = 10_000
"""Where more come, the estimate was wrong."""
TEXT_US: Final = 10.0
"""Of looking for words in a row's text, which is out of line and compressed."""
WORDS_ASKED: Final = 32
"""Of a phrase so many words are looked for in the index: the others are in the text anyway."""
WORD_BYTES: Final = LEXEME_BYTES - 4
"""Of a word at least so many are in the index, which cuts between characters."""
FTS5_WORD_BYTES: Final = 32_768
"""FTS5 reads no more of a word."""

NEIGHBOURS_ASKED: Final = 6
"""Of a phrase so many pairs are looked for in what follows what."""

NEAR: Final = "get_byte(substr(f.followers, ({} & (octet_length(f.followers) - 1)) + 1, 1), 0) & {} <> 0"
IN_TURN: Final = "CASE WHEN {} THEN {} ELSE FALSE END"
"""AND in this order: the planner would look into the text first."""
BY_WORDS: Final = "lexemes(f.words, f.cut) @@ CAST(:match AS tsquery)"
OF_TEXT: Final = """
{} f LEFT JOIN pieces i ON i.id = f.rowid LEFT JOIN turns t ON t.id = coalesce(i.turn, f.rowid)"""
IN_SESSION: Final = "SELECT {id} FROM {source} AND {id} BETWEEN :low AND :high ORDER BY {id} DESC"
FEW_HITS: Final = "SELECT {score} AS score, {0} AS hit FROM {1} LIMIT :few"
ALL: Final = f"SELECT max({{id}}) AS hit FROM {{source}} GROUP BY {{id}} >> {SHIFT}"
AMONG: Final = f"""
SELECT s.sid FROM sessions s WHERE {{among}} AND s.sid IN list(:sids) AND NOT s.sid IN list(:found)
{ORDER} LIMIT :count"""
ALL_AMONG: Final = f"""
SELECT h.hit FROM ({ALL}) h
JOIN sessions s ON s.sid = (h.hit >> {SHIFT}) WHERE {{among}} AND NOT s.sid IN list(:found) {ORDER} LIMIT :count"""
TRIED_ONES: Final = f"""
SELECT s.sid FROM sessions s WHERE {{among}} AND NOT s.sid IN list(:found) {ORDER} LIMIT :tried"""
NEWEST: Final = f"""
SELECT h.hit FROM list(:sids) l CROSS JOIN LATERAL (
    SELECT {{id}} AS hit FROM {{source}} AND {{id}} BETWEEN (l.value << {SHIFT}) AND ((l.value << {SHIFT}) | {MASK})
    ORDER BY {{id}} DESC LIMIT 1
) h"""
COUNT: Final = "SELECT count(*) FROM sessions s WHERE {}"
NO_LIMIT: Final = 1 << 40
ESTIMATE: Final = "EXPLAIN (FORMAT JSON) " + " UNION ALL ".join(
    f"SELECT 1 FROM {table} f WHERE {BY_WORDS}" for table in TEXTS
)
ROWS: Final = """
SELECT relname, reltuples FROM pg_class
WHERE relname IN list(:names) AND relnamespace = CAST(current_schema() AS regnamespace)"""


class Words(NamedTuple):
    """A query as Postgres can be asked it."""

    match: str
    """A tsquery that every hit matches, and maybe other rows."""
    checks: tuple[str, ...]
    """Conditions over f.words that leave only the hits of those; none where all are hits."""
    whole: tuple[str, ...]
    """Conditions over f.words alone that say the same as both."""
    values: dict[str, str | int]


class PgFinder:
    """Hits in the tables of a schema."""

    def __init__(self, tables: Tables, wanted: Wanted) -> None:
        self._tables, self._wanted = tables, wanted
        self._words = words_of(wanted.query) if wanted.query.groups else None
        self._estimated: dict[str, int] = {}
        self._rows: dict[str, float] = {}
        self._read: dict[int, list[int]] | None = None
        self._orders: dict[str, list[int]] = {}

    def again(self, query: Query) -> PgFinder:
        return PgFinder(self._tables, self._wanted._replace(query=query))

    def count(self) -> int:
        chosen = self._wanted.sessions
        return int(value(self._tables, COUNT.format(chosen.sql), chosen.values))

    def first(self, score: int, among: Condition, found: Collection[int], count: int | None) -> list[Place]:
        if score in self._few():
            newest = {hit >> SHIFT: hit for hit in reversed(self._few()[score])}
            sids = [sid for sid in self._order(among) if sid in newest and sid not in found] if newest else []
            return [Place(score, sid, newest[sid]) for sid in sids[:count]]
        limit = NO_LIMIT if count is None else count
        known: dict[str, Value] = {**among.values, "found": list(found), "count": limit, "tried": limit + TRIED}
        if self._tries(score, limit):
            sids = [sid for (sid,) in self._tables.execute(TRIED_ONES.format(among=among.sql), known)]
            id_, source = self._source(score, by_index=False)
            newest = {hit >> SHIFT: hit for hit in self._hits(NEWEST.format(id=id_, source=source), {"sids": sids})}
            if len(newest) >= limit or len(sids) < limit + TRIED:
                return [Place(score, sid, newest[sid]) for sid in sids if sid in newest][:count]
        id_, source = self._source(score)
        if self._estimates().get(TEXTS[score], MANY) >= MANY:
            hits = self._hits(ALL_AMONG.format(id=id_, source=source, among=among.sql), known)
            return [Place(score, hit >> SHIFT, hit) for hit in hits]
        newest = {hit >> SHIFT: hit for hit in self._hits(ALL.format(id=id_, source=source), {})}
        if not newest:
            return []
        known["sids"] = list(newest)
        sids = [sid for (sid,) in self._tables.execute(AMONG.format(among=among.sql), known)]
        return [Place(score, sid, newest[sid]) for sid in sids]

    def in_session(self, score: int, sid: int) -> list[int]:
        if score in self._few():
            return [hit for hit in self._few()[score] if hit >> SHIFT == sid]
        low, high = span(sid)
        id_, source = self._source(score, by_index=False)
        return self._hits(IN_SESSION.format(id=id_, source=source), {"low": low, "high": high})

    def _hits(self, sql: str, values: Values) -> list[int]:
        return [hit for (hit,) in self._ask(sql, values)]

    def _ask(self, sql: str, values: Values) -> Iterator[Any]:
        """Rows of a statement that says the words, and maybe the turns."""
        known = {**values, **(self._wanted.turns.values if self._wanted.turns else {})}
        return self._tables.execute(sql, {**known, **(self._words.values if self._words else {})})

    def _few(self) -> dict[int, list[int]]:
        """Every hit of the classes that have few, all read in one statement; the newest of a session first."""
        if self._read is None:
            self._read = {}
            asked = [score for score, kinds in KINDS_OF.items() if not kinds.isdisjoint(self._wanted.kinds)]
            cheap = [score for score in asked if self._estimates().get(TEXTS[score], FEW) < FEW]
            if cheap:
                parts = [f"({FEW_HITS.format(*self._source(score), score=score)})" for score in cheap]
                hits: dict[int, list[int]] = {score: [] for score in cheap}
                for score, hit in self._ask(" UNION ALL ".join(parts), {"few": FEW_READ}):
                    hits[score].append(hit)
                self._read = {score: sorted(of, reverse=True) for score, of in hits.items() if len(of) < FEW_READ}
        return self._read

    def _order(self, among: Condition) -> list[int]:
        """The sessions of those hits, in order."""
        order = self._orders.get(among.sql)
        if order is None:
            sids = {hit >> SHIFT for of_class in self._few().values() for hit in of_class}
            known = {**among.values, "sids": list(sids), "found": [], "count": NO_LIMIT}
            rows = self._tables.execute(AMONG.format(among=among.sql), known) if sids else iter(())
            order = self._orders[among.sql] = [sid for (sid,) in rows]
        return order

    def _tries(self, score: int, count: int) -> bool:
        """Whether trying the newest sessions one by one is cheaper than reading the class whole, as far as is known."""
        if count > MOST_TRIED:
            return False
        if self._words is None:
            return True
        whole_us = self._whole_us(score)
        if whole_us < count * TEXT_US:
            return False
        table = TEXTS[score]
        self._rows = self._rows or dict(self._tables.execute(ROWS, {"names": TEXTS}))
        return (count + TRIED) * self._rows[table] / max(self._estimates()[table], 1) * TEXT_US < whole_us

    def _whole_us(self, score: int) -> float:
        """What reading the class whole takes."""
        checked = self._words is not None and bool(self._words.checks or self._wanted.turns)
        return self._estimates()[TEXTS[score]] * (HIT_US + (TEXT_US if checked else 0))

    def _estimates(self) -> dict[str, int]:
        """Rows of each class that the index of words will find, as Postgres plans with."""
        if not self._estimated and self._words:
            ((plan,),) = self._tables.execute(ESTIMATE, self._words.values)
            parts = json.loads(plan)[0]["Plan"]["Plans"]
            self._estimated = {part["Relation Name"]: part["Plan Rows"] for part in parts}
        return self._estimated

    def _source(self, score: int, *, by_index: bool = True) -> tuple[str, str]:
        """What is selected, and what stands behind FROM."""
        if self._words is None:
            return "t.id", turns_source(self._wanted, score)
        conditions = (BY_WORDS, *self._words.checks) if by_index else self._words.whole
        turns = self._wanted.filtered(score)
        source = OF_TEXT.format(TEXTS[score]) if turns else f"{TEXTS[score]} f"
        return "f.rowid", f"{source} WHERE {' AND '.join((*conditions, *([turns] if turns else [])))}"


def words_of(query: Query) -> Words:
    """The query's words: all groups, in each one of the terms, and none of the excluded."""
    values: dict[str, str | int] = {}

    def named(value: str | int) -> str:
        name = f"words{len(values)}"
        values[name] = value
        return f":{name}"

    def inside(terms: Iterable[Term]) -> str:
        parts = []
        for term in terms:
            near = [NEAR.format(*map(named, place)) for place in neighbours(term)]
            there = f"strpos(f.words, {named(text_of(term))}) > 0"
            parts.append(IN_TURN.format(" AND ".join(near), there) if near else there)
        return f"({' OR '.join(parts)})"

    whole = [inside(group) for group in query.groups]
    checks = [sql for sql, group in zip(whole, query.groups, strict=True) if not all(map(is_exact, group))]
    match = " & ".join(f"({' | '.join(map(lexemes, group))})" for group in query.groups)
    for term in query.excluded:
        sql = f"NOT {inside([term])}"
        whole.append(sql)
        if is_exact(term):
            match += f" & !{lexemes(term)}"
        else:
            checks.append(sql)
    return Words(match, tuple(checks), tuple(whole), {"match": match, **values})


def is_exact(term: Term) -> bool:
    """Whether the index of words alone can tell."""
    words = tokens.words(term.text)
    return len(words) == 1 and cut(words[0], WORD_BYTES) == words[0]


def lexemes(term: Term) -> str:
    """As part of a tsquery. Words are letters and digits alone, so nothing in them needs to be escaped."""
    *words, last = tokens.words(term.text)
    asked = [_lexeme(word) for word in sorted(set(words), key=len)[-WORDS_ASKED:]]
    asked.append(_lexeme(last, prefix=term.prefix))
    return asked[0] if len(asked) == 1 else f"({' & '.join(asked)})"


def _lexeme(word: str, *, prefix: bool = False) -> str:
    known = cut(word, WORD_BYTES)
    return f"'{known}':*" if prefix or known != word else f"'{known}'"


def text_of(term: Term) -> str:
    """What stands in the text of words where the term is."""
    words = [cut(word, FTS5_WORD_BYTES) for word in tokens.words(term.text)]
    goes_on = term.prefix or len(words[-1].encode()) > FTS5_WORD_BYTES - 4
    return f" {' '.join(words)}{'' if goes_on else ' '}"


def neighbours(term: Term) -> list[tuple[int, int]]:
    """Places in `followers` that have a bit wherever the term is."""
    words = tokens.words(term.text)
    if term.prefix:
        words.pop()
    whole = [(first, second) for first, second in pairwise(words) if len(first) + len(second) < LEXEME_BYTES]
    return [place for pair in list(dict.fromkeys(whole))[:NEIGHBOURS_ASKED] for place in places_of(*pair)]


def cut(word: str, size: int) -> str:
    """At most so many bytes of a word."""
    return word if len(word) * 4 <= size else word.encode()[:size].decode("utf-8", "ignore")
