"""Search: the query's filters as SQL, and what is shown of the hits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple

from prosa.events.facts import key_hex
from prosa.events.log import LogReader
from prosa.projections import grammar, tokens
from prosa.projections.filtering import Condition, any_kind, any_of, condition, numbers
from prosa.projections.hits import EVERY_KIND, Find, Hits, Place, Wanted
from prosa.projections.log_turns import LogTurns
from prosa.projections.queries import Found, Hit, Search, SearchPage, SearchPlace, Session, cursor, place_of
from prosa.projections.records import ASSISTANT, COMPACTION, MASK, OTHER, THINKING, TOOL_CALL, TOOL_RESULT, USER, span
from prosa.projections.session_objects import Sessions
from prosa.projections.tables import Tables, Value
from prosa.projections.zones import rfc3339, zone

CODES: Final = {
    "message": {USER, ASSISTANT, OTHER},
    "thinking": {THINKING},
    "tool_call": {TOOL_CALL},
    "tool_result": {TOOL_RESULT},
    "compaction": {COMPACTION},
    "user": {USER},
    "assistant": {ASSISTANT, THINKING, TOOL_CALL},
    "tool": {TOOL_RESULT},
    "system": {COMPACTION, OTHER},
}
"""Kind or role in the query language → codes in turns.kind."""

AT: Final = "coalesce(t.at, (SELECT started FROM sessions WHERE sid = (t.id >> 24)))"
"""Where an agent has no times, a turn's is its session's start."""
ASKED_SINCE: Final = "(coalesce(s.last, s.started) >= :asked_since OR s.inherited <> 0)"
ASKED_UNTIL: Final = "(coalesce(s.started, s.last) < :asked_until OR s.inherited <> 0)"
"""Sessions that can have such a turn: inherited ones are older than the session."""
TURN_SINCE: Final = f"{AT} >= :turn_since"
TURN_UNTIL: Final = f"{AT} < :turn_until"
TITLE_SINCE: Final = "coalesce(s.last, s.started) >= :turn_since"
TITLE_UNTIL: Final = "coalesce(s.started, s.last) < :turn_until"
TURN_TOOL: Final = "t.tool IN list(:tools)"
TURN_MODEL: Final = "t.model IN list(:models)"
TITLE: Final = f"(f.rowid & {MASK}) = 0 AND EXISTS (SELECT 1 FROM sessions s WHERE s.sid = (f.rowid >> 24){{}})"

PLACES: Final = """
SELECT h.value, t.id, t.position, t.number, (SELECT count(*) FROM pieces p WHERE p.turn = t.id AND p.id <= h.value)
FROM list(:hits) h LEFT JOIN pieces i ON i.id = h.value JOIN turns t ON t.id = coalesce(i.turn, h.value)"""
ORDINALS: Final = f"""
SELECT t.id, (
    SELECT count(*) FROM turns o WHERE o.id BETWEEN (t.id - (t.id & {MASK})) AND (t.id | {MASK})
        AND (o.place < t.place OR o.place = t.place AND o.id < t.id))
FROM list(:turns) l JOIN turns t ON t.id = l.value"""
READING_ORDER: Final = "SELECT id FROM turns WHERE id BETWEEN :low AND :high ORDER BY place, id"
FEW_IN_SESSION: Final = 3
"""Up to so many hits in a session, the turns before each are counted; above, all are put in order once."""


class Turn(NamedTuple):
    """Where the turn of a hit is: in the index, in the log, and which piece of its text has the words."""

    id: int
    position: int
    number: int
    piece: int


def search(tables: Tables, log: LogReader, sessions: Sessions, find: Find, question: Search) -> SearchPage:
    """Words that find nothing are asked again as beginnings of words. Raises UsageError for an unknown filter value."""
    query = grammar.parse(question.query, zone(question.zone))
    after = None if question.after is None else place_of(question.after, SearchPlace)
    if query.nothing:
        return SearchPage(found=[], widened=False, more=False, searched=0)
    widened = after is not None and after.widened
    if widened:
        query = grammar.widened(query) or query
    limit = question.limit or None
    wanted = _wanted(tables, query, question)
    hits = Hits(tables, wanted, find(tables, wanted))
    best = hits.best(limit and limit + 1, after)
    if not best and after is None and (wider := grammar.widened(query)):
        query, hits = wider, hits.again(wider)
        best = hits.best(limit and limit + 1)
        widened = bool(best)
    places: Iterable[tuple[Place, int]] = ((place, place.score) for place in best)
    if question.all_hits:
        places = ((place, first.score) for first in best for place in hits.all_of(first.sid))
        if after is not None:
            places = chain(((place, after.score) for place in hits.rest_of(after)), places)
    turns, more = _turns(tables, places, limit)
    return SearchPage(
        found=_found(tables, log, sessions, query, [(place, turn) for place, _, turn in turns]),
        widened=widened,
        more=more,
        searched=hits.count(),
        next=cursor(hits.end(*turns[-1][:2], widened=widened)) if more else None,
    )


def _wanted(tables: Tables, query: grammar.Query, question: Search) -> Wanted:
    chosen = condition(tables, question.filters)
    chosen = chosen.also(*any_of(tables, "agent", query.agents, "asked_"))
    chosen = chosen.also(*any_of(tables, "project", query.projects, "asked_"))
    chosen = chosen.also(*any_kind(query.session_kinds))
    if query.since_us is not None:
        chosen = chosen.also(ASKED_SINCE, {"asked_since": query.since_us})
    if query.until_us is not None:
        chosen = chosen.also(ASKED_UNTIL, {"asked_until": query.until_us})
    return Wanted(query, chosen, *_of_turns(tables, query))


def _of_turns(tables: Tables, query: grammar.Query) -> tuple[Condition | None, str | None, frozenset[int]]:
    """The condition on turns, the one on titles, and the kinds of turn that can be meant."""
    parts: list[str] = []
    values: dict[str, Value] = {"turn_since": query.since_us, "turn_until": query.until_us}
    kinds = EVERY_KIND
    for names in (query.kinds, query.roles):
        if names:
            kinds &= {code for name in names for code in CODES[name]}
    if kinds != EVERY_KIND:
        parts.append(f"t.kind IN ({', '.join(map(str, sorted(kinds)))})")
    if query.tools:
        parts.append(TURN_TOOL)
        values["tools"] = numbers(tables, "tool", query.tools)
        kinds &= {TOOL_CALL, TOOL_RESULT}
    if query.models:
        parts.append(TURN_MODEL)
        values["models"] = numbers(tables, "model", query.models)
    if query.errors_only:
        parts.append("t.error <> 0")
        kinds &= {TOOL_CALL, TOOL_RESULT}
    titles = not parts
    times = [(TURN_SINCE, TITLE_SINCE, query.since_us), (TURN_UNTIL, TITLE_UNTIL, query.until_us)]
    parts += [sql for sql, _, at in times if at is not None]
    if not parts:
        return None, None, kinds
    overlaps = "".join(f" AND {sql}" for _, sql, at in times if at is not None)
    return Condition(" AND ".join(parts), values), TITLE.format(overlaps) if titles else None, kinds


def _turns(
    tables: Tables, places: Iterable[tuple[Place, int]], limit: int | None
) -> tuple[list[tuple[Place, int, Turn | None]], bool]:
    """Each hit, the score of its session's best one and its turn (None: the title); and whether there are more.

    A turn is there once, though several pieces of it may hold the words.
    """
    found: list[tuple[Place, int, Turn | None]] = []
    seen: set[int] = set()
    left = iter(places)
    while batch := list(islice(left, 2 * limit if limit else 1_000)):
        ids = [place.id for place, _ in batch if place.id & MASK]
        turns = {row[0]: Turn._make(row[1:]) for row in tables.execute(PLACES, {"hits": ids})}
        for place, score in batch:
            turn = turns.get(place.id)
            marker = turn.id if turn else place.id
            if marker in seen:
                continue
            if limit is not None and len(found) == limit:
                return found, True
            seen.add(marker)
            found.append((place, score, turn))
    return found, False


def _found(
    tables: Tables,
    log: LogReader,
    sessions: Sessions,
    query: grammar.Query,
    turns: Sequence[tuple[Place, Turn | None]],
) -> list[Found]:
    sids = list(dict.fromkeys(place.sid for place, _ in turns))
    session_of = dict(zip(sids, sessions.of(sids), strict=True))
    ordinals = _ordinals(tables, [turn.id for _, turn in turns if turn])
    log_turns = LogTurns(log)
    found = []
    for place, turn in turns:
        session = session_of[place.sid]
        hit = _hit(query, place.score, ordinals[turn.id], turn, log_turns) if turn else _title(query, session)
        found.append(Found(session, hit))
    return found


def _ordinals(tables: Tables, ids: Sequence[int]) -> dict[int, int]:
    """Turn → number of turns of its session before it in reading order."""
    in_session = Counter(fact >> 24 for fact in ids)
    few = [fact for fact in ids if in_session[fact >> 24] <= FEW_IN_SESSION]
    found: dict[int, int] = dict(tables.execute(ORDINALS, {"turns": few}))
    for sid, count in in_session.items():
        if count > FEW_IN_SESSION:
            low, high = span(sid)
            in_order = tables.execute(READING_ORDER, {"low": low, "high": high})
            found.update((row[0], number) for number, row in enumerate(in_order))
    return found


def _title(query: grammar.Query, session: Session) -> Hit:
    snippet, marks = grammar.highlight(session.title or "", query)
    return Hit(
        ordinal=0,
        key="",
        role="title",
        kind="title",
        tool=None,
        at=session.started_at,
        snippet=snippet,
        marks=marks,
        score=3,
    )


def _hit(query: grammar.Query, score: int, ordinal: int, where: Turn, log_turns: LogTurns) -> Hit:
    turn = log_turns.turn(where.position, where.number)
    text = turn.text if turn else ""
    if len(text) > tokens.PIECE_LIMIT:
        text = tokens.pieces(text)[where.piece]
    snippet, marks = grammar.highlight(text, query)
    return Hit(
        ordinal=ordinal,
        key=key_hex(turn.key) if turn else "",
        role=turn.role if turn else "system",
        kind=turn.kind if turn else "message",
        tool=turn.tool if turn else None,
        at=rfc3339(turn.at) if turn and turn.at is not None else None,
        snippet=snippet,
        marks=marks,
        score=score,
    )
