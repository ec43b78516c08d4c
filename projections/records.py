"""A session's facts as rows: turns with their full text indexed, usage with its cost, marks, compactions, claims.

A fact's id is `sid << 24 | n`. n only rises, so full-text row ids rise within a session; a turn that is stated again
gets a new id and keeps its place in the reading order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prosa.events.catalogue import SessionExtended, SessionParsed, SessionPart
from prosa.events.database import Database
from prosa.events.facts import COUNT_LIMIT, Turn, Usage, moment, plausible
from prosa.projections.tokens import pieces, spaced

SHIFT: Final = 24
MASK: Final = (1 << SHIFT) - 1

USER, ASSISTANT, THINKING, TOOL_CALL, TOOL_RESULT, COMPACTION, OTHER = range(7)
TEXTS: Final = ("text_rest", "text_thinking", "text_answer", "text_prompt")
"""Full-text tables by score: what a hit in them is worth."""
TOKENIZER: Final = "unicode61 remove_diacritics 2"

PUT_TURN = "INSERT INTO turns VALUES (?, ?, ?, ?, ?, ?, 2, ?, ?, ?, ?)"
PUT_USAGE = "INSERT OR REPLACE INTO usages VALUES (?, ?, ?, 2, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
PUT_MARK = "INSERT OR REPLACE INTO marks VALUES (?, ?, ?, 2)"
PUT_COMPACTION = "INSERT OR REPLACE INTO compactions VALUES (?, ?, 2, ?, ?, ?)"
PUT_TEXT = {table: f"INSERT INTO {table} (rowid, text) VALUES (?, ?)" for table in TEXTS}
DROP_TEXT = {table: f"DELETE FROM {table} WHERE rowid = ?" for table in TEXTS}
FACT_TABLES: Final = ("turns", "usages", "marks", "compactions")

Price = Callable[[Usage], int | None]


def span(sid: int) -> tuple[int, int]:
    """First and last possible fact id of a session."""
    return sid << SHIFT, sid << SHIFT | MASK


def create_texts(db: Database) -> None:
    """Full text as the device searches it."""
    for table in TEXTS:
        db.execute(
            f"CREATE VIRTUAL TABLE {table} USING fts5 (text, content='', contentless_delete=1, tokenize='{TOKENIZER}')"
        )


def create_plain_texts(db: Database) -> None:
    """Full text on its way to a server, which searches it elsewhere: a row stays when its text is taken out."""
    for table in TEXTS:
        db.execute(f"CREATE TABLE {table} (rowid INTEGER PRIMARY KEY, text TEXT) STRICT")


def kind_of(turn: Turn) -> int:
    """The code in turns.kind."""
    match turn.kind:
        case "message":
            return USER if turn.role == "user" else ASSISTANT if turn.role == "assistant" else OTHER
        case "thinking":
            return THINKING
        case "tool_call":
            return TOOL_CALL
        case "tool_result":
            return TOOL_RESULT
        case _:
            return COMPACTION


def text_table(kind: int, counted: bool) -> str:
    """Where a turn's text is indexed."""
    if kind in (TOOL_CALL, TOOL_RESULT) or not counted:
        return TEXTS[0]
    return {USER: TEXTS[3], ASSISTANT: TEXTS[2], THINKING: TEXTS[1]}.get(kind, TEXTS[0])


class Names:
    """Numbers for names that repeat: tools, models, tiers, sources of copies."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._numbers: dict[str, int] = {}

    def forget(self) -> None:
        """The transaction went back: some of these numbers are free again."""
        self._numbers.clear()

    def number(self, name: str) -> int:
        found = self._numbers.get(name)
        if found is None:
            self._db.execute("INSERT INTO names (name) VALUES (?) ON CONFLICT DO NOTHING", (name,))
            row = self._db.execute("SELECT number FROM names WHERE name = ?", (name,)).fetchone()
            found = self._numbers[name] = int(row[0])
        return found

    def maybe(self, name: str | None) -> int | None:
        return None if name is None else self.number(name)


class Claim:
    """Who holds a record, as it goes into the claims table."""

    __slots__ = ("copied", "id", "source")

    def __init__(self, fact_id: int, copied: int, source: int | None) -> None:
        self.id, self.copied, self.source = fact_id, copied, source


class Writer:
    """Writes the facts of one session. `known` maps the keys that are here already to their ids.

    `frozen` keys belong to a newer revision: an older one adds only what is not among them.
    """

    def __init__(self, db: Database, names: Names, price: Price, sid: int, next_n: int) -> None:
        self._db, self._names, self._price = db, names, price
        self._base = sid << SHIFT
        self.next = next_n
        self.known: dict[int, int] = {}
        self.lookup: Callable[[int], int | None] | None = None
        self.frozen: set[int] = set()
        self.claims: dict[int, Claim] = {}
        self.gone: list[tuple[int, int]] = []
        """(key, id) of claims that were in the index before and are no more."""
        self.latest: int | None = None
        self._places: dict[int, float] = {}
        self._before = 0.0

    def start_revision(self, frozen: set[int]) -> None:
        """The next events are of an older revision than those whose keys are given."""
        self.frozen = frozen
        self._before = 0.0

    def write(self, event: SessionParsed | SessionPart, position: int) -> None:
        """All facts of one event."""
        if isinstance(event, SessionExtended) and event.gone:
            self.forget(event.gone)
        self._turns(event.turns, position)
        self._usage(event.usage)
        self._marks(event)

    def forget(self, keys: Iterable[int]) -> None:
        for key in keys:
            fact_id = self._find(key)
            if fact_id is None or key in self.frozen:
                continue
            self._drop_turn(fact_id)
            for table in FACT_TABLES[1:]:
                self._db.execute(f"DELETE FROM {table} WHERE id = ?", (fact_id,))
            self._unclaim(key, fact_id)
            self.known.pop(key, None)

    def _find(self, key: int) -> int | None:
        found = self.known.get(key)
        if found is None and self.lookup is not None:
            found = self.lookup(key)
        return found

    def _unclaim(self, key: int, fact_id: int) -> None:
        if self.claims.pop(key, None) is None:
            self.gone.append((key, fact_id))

    def _claim(self, key: int, fact_id: int, copied: int, source: str | None) -> None:
        self.known[key] = fact_id
        self.claims[key] = Claim(fact_id, copied, self._names.maybe(source))

    def _take(self) -> int:
        number = self.next
        if number > MASK:
            raise OverflowError("a session has more facts than an index can number")
        self.next = number + 1
        return self._base | number

    def _seen(self, at: int | None) -> None:
        if at is not None and (self.latest is None or at > self.latest):
            self.latest = at

    def _place_of(self, fact_id: int) -> float:
        place = self._places.get(fact_id)
        if place is None and self.lookup is not None:
            row = self._db.execute("SELECT place FROM turns WHERE id = ?", (fact_id,)).fetchone()
            place = float(row[0]) if row else None
        return float(fact_id & MASK) if place is None else place

    def _turns(self, turns: tuple[Turn, ...], position: int) -> None:
        rows: list[tuple[object, ...]] = []
        texts: dict[str, list[tuple[int, str]]] = {}
        extra: list[tuple[int, int]] = []
        number_of = self._names.maybe
        fresh: set[int] = set()

        def flush() -> None:
            if rows:
                self._db.executemany(PUT_TURN, rows)
                for table, texts_of in texts.items():
                    self._db.executemany(PUT_TEXT[table], texts_of)
                if extra:
                    self._db.executemany("INSERT INTO pieces VALUES (?, ?)", extra)
                for pending in (rows, texts, extra):
                    pending.clear()
                fresh.clear()

        for number, turn in enumerate(turns):
            key = turn.key
            old = self._find(key)
            if self.frozen and key in self.frozen:
                if old is not None:
                    self._before = self._place_of(old)
                continue
            place: float | None = None
            if old is not None:
                if old in fresh:
                    flush()
                place = self._place_of(old)
                self._drop_turn(old)
                self._unclaim(key, old)
            fact_id = self._take()
            fresh.add(fact_id)
            if place is None and self.frozen:
                place = self._before = self._before + 1 / 1024
            if place is None:
                place = float(fact_id & MASK)
            else:
                self._places[fact_id] = place
            kind, at = kind_of(turn), moment(turn.at)
            rows.append(
                (
                    fact_id, place, at, kind, turn.counted, turn.is_error, number_of(turn.tool),
                    number_of(turn.model), position, number,
                )
            )  # fmt: skip
            if turn.text:
                into = texts.setdefault(text_table(kind, turn.counted), [])
                text = spaced(turn.text)
                if len(text) <= 200_000:
                    into.append((fact_id, text))
                else:
                    first, *later = pieces(turn.text)
                    into.append((fact_id, spaced(first)))
                    for piece in later:
                        piece_id = self._take()
                        extra.append((piece_id, fact_id))
                        into.append((piece_id, spaced(piece)))
            self._claim(key, fact_id, turn.copied, turn.copied_from)
            self._seen(at)
        flush()

    def _drop_turn(self, fact_id: int) -> None:
        row = self._db.execute("SELECT kind, counted, own FROM turns WHERE id = ?", (fact_id,)).fetchone()
        if row is None:
            return
        if row[2]:
            drop_texts(self._db, fact_id, row[0], bool(row[1]))
        self._db.execute("DELETE FROM pieces WHERE turn = ?", (fact_id,))
        self._db.execute("DELETE FROM turns WHERE id = ?", (fact_id,))

    def _same_id(self, key: int) -> int | None:
        """The id a stated-again fact keeps, or a new one; None where a newer revision has it."""
        old = self._find(key)
        if self.frozen and key in self.frozen:
            return None
        if old is not None:
            self._unclaim(key, old)
            return old
        return self._take()

    def _usage(self, usage: tuple[Usage, ...]) -> None:
        rows: list[tuple[object, ...]] = []
        for item in map(plausible, usage):  # also in logs that an earlier prosa wrote
            fact_id = self._same_id(item.key)
            if fact_id is None:
                continue
            rows.append(
                (
                    fact_id, item.at, self._names.maybe(item.model), item.input, item.output, item.cache_read,
                    item.cache_write_5m, item.cache_write_1h, item.reasoning, self._names.maybe(item.tier),
                    self._price(item), item.apart,
                )
            )  # fmt: skip
            self._claim(item.key, fact_id, item.copied, item.copied_from)
            self._seen(item.at)
        if rows:
            self._db.executemany(PUT_USAGE, rows)

    def _marks(self, event: SessionParsed | SessionPart) -> None:
        rows: list[tuple[object, ...]] = []
        for mark in event.marks:
            if moment(mark.first) is None or moment(mark.last) is None:
                continue
            fact_id = self._take() if mark.key is None else self._same_id(mark.key)
            if fact_id is None:
                continue
            rows.append((fact_id, mark.first, mark.last))
            if mark.key is not None:
                self._claim(mark.key, fact_id, mark.copied, mark.copied_from)
            self._seen(mark.last)
        if rows:
            self._db.executemany(PUT_MARK, rows)
        for item in event.compactions:
            fact_id = self._same_id(item.key)
            if fact_id is None:
                continue
            size = item.size_before if 0 <= (item.size_before or 0) <= COUNT_LIMIT else None
            at = moment(item.at)
            self._db.execute(PUT_COMPACTION, (fact_id, at, item.id, item.trigger, size))
            self._claim(item.key, fact_id, item.copied, item.copied_from)
            self._seen(at)


def drop_texts(db: Database, fact_id: int, kind: int, counted: bool) -> None:
    """Take a turn out of the full text."""
    statement = DROP_TEXT[text_table(kind, counted)]
    db.execute(statement, (fact_id,))
    for (piece,) in db.execute("SELECT id FROM pieces WHERE turn = ?", (fact_id,)).fetchall():
        db.execute(statement, (piece,))


def put_texts(db: Database, fact_id: int, kind: int, counted: bool, text: str) -> None:
    """Put a turn's text back into the full text, under the ids its pieces had."""
    statement = PUT_TEXT[text_table(kind, counted)]
    later = [row[0] for row in db.execute("SELECT id FROM pieces WHERE turn = ? ORDER BY id", (fact_id,))]
    parts = pieces(text) if later else [text]
    if text:
        for piece_id, part in zip([fact_id, *later], parts, strict=True):
            db.execute(statement, (piece_id, spaced(part)))


def drop_session(db: Database, sid: int) -> None:
    """Remove every fact of a session, its texts and its claims."""
    low, high = span(sid)
    for fact_id, kind, counted, own in db.execute(
        "SELECT id, kind, counted, own FROM turns WHERE id BETWEEN ? AND ?", (low, high)
    ).fetchall():
        if own:
            drop_texts(db, fact_id, kind, bool(counted))
    db.execute("DELETE FROM pieces WHERE id BETWEEN ? AND ?", (low, high))
    for table in FACT_TABLES:
        db.execute(f"DELETE FROM {table} WHERE id BETWEEN ? AND ?", (low, high))
