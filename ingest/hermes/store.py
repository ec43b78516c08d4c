"""Hermes' state.db: which sessions it holds, what it proves about them, and each as one canonical JSONL.

Columns were added one by one, so every table is read by the columns it has. `parent_session_id` stands for four
different relations; markers in `model_config` tell them apart (docs/formats/hermes.md).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from prosa.ingest.hermes.copies import Heritage, Lineage, lineage_of, place
from prosa.ingest.hermes.rows import BLOB, Piece, decoded, message_of, pieces_of, row_of, time_of
from prosa.ingest.spool import Database, columns

Record = dict[str, Any]

SECRET = re.compile(r"(^|_)(token|secrets?|passwords?|credentials?|api_keys?|auth)$")
"""Columns that are never read, should there be such."""
INHERITS = ("branch", "continuation", "unknown")
GENERATIONS = 200
"""Continuations that are followed back; a chain that closes in a circle ends too."""
REMEMBERED = 64
CLEARED = ("new_session", "session_reset")
STALE = "ws_orphan_reap"

SCHEMA_VERSION = "SELECT max(version) FROM schema_version"
SYSTEM_PROMPT = "SELECT * FROM system_prompts WHERE hash = ?"
COUNTS = "SELECT session_id, count(*) FROM messages WHERE {} GROUP BY session_id"

_encode = msgspec.json.Encoder(order="sorted").encode


class Held(msgspec.Struct):
    """A session of the store and how many messages it has there."""

    id: str
    messages: int
    has_usage: bool


def held(db: Database) -> list[Held]:
    """Every session of the store. None where the client never made its tables."""
    there = columns(db, "sessions")
    if "id" not in there:
        return []
    counts: dict[Any, int] = {}
    known = columns(db, "messages")
    if "session_id" in known:
        spoken = "role <> 'session_meta'" if "role" in known else "1"
        counts = dict(db.execute(COUNTS.format(spoken)).fetchall())
    used = [name for name in ("input_tokens", "output_tokens") if name in there]
    found = []
    for native, *tokens in db.execute(f"SELECT id{''.join(f', {name}' for name in used)} FROM sessions ORDER BY id"):
        if isinstance(native, str) and native:
            found.append(Held(native, counts.get(native, 0), any(tokens)))
    return found


class Store:
    """Projects sessions of one state.db. What it has learned of one reading is forgotten with the next."""

    def __init__(self) -> None:
        self._db: Database = None
        self._lineages: dict[str, Lineage] = {}
        self._columns: dict[str, list[str]] = {}

    def project(self, db: Database, native: str) -> Iterator[bytes]:
        """The session's envelope, then its rows, inactive ones too, each as it is."""
        self._use(db)
        session = self._session(native)
        if session is None:
            return
        yield _line(self.envelope(db, native, session))
        heritage = self._heritage(session)
        if heritage is None or not heritage.lineage.present:
            for row in self._rows(native):
                yield _line({"row": row})
            return
        rows = list(self._rows(native))
        pieces, starts = _pieces(rows)
        placed = place(native, pieces, heritage, {})
        for index, row in enumerate(rows):
            line: Record = {"row": row}
            copies = [
                [place_ - starts[index], *msgspec.structs.astuple(placed[place_].origin)]
                for place_ in range(starts[index], starts[index + 1])
                if placed[place_].origin.session != native
            ]
            if copies:
                line["copies"] = copies
            yield _line(line)

    def envelope(self, db: Database, native: str, session: Record | None = None) -> Record:
        """What the store says about a session beside its messages."""
        self._use(db)
        session = session or self._session(native) or {}
        parent = self._session(_text(session.get("parent_session_id")))
        kind, source = relation(session, parent)
        told: Record = {"hermes": 1, "session": session, "usage": self._where("session_model_usage", native)}
        version = self._scalar(SCHEMA_VERSION) if self._names("schema_version") else None
        if version is not None:
            told["schema"] = version
        if kind is not None:
            told["relation"] = {"kind": kind, "source": source, "present": self._session(source) is not None}
        follower = self._continuation(session)
        if follower is not None:
            told["continued_by"] = {"id": follower.get("id"), "started_at": follower.get("started_at")}
        return told

    def _use(self, db: Database) -> None:
        if db is not self._db:
            self._db, self._lineages, self._columns = db, {}, {}

    def _names(self, table: str) -> list[str]:
        if table not in self._columns:
            self._columns[table] = [name for name in columns(self._db, table) if not SECRET.search(name)]
        return self._columns[table]

    def _scalar(self, statement: str) -> Any:
        row = self._db.execute(statement).fetchone()
        return row[0] if row and isinstance(row[0], int) else None

    def _select(self, table: str, where: str, value: str, order: str) -> Iterator[Record]:
        names = self._names(table)
        if where not in names:
            return
        listed = ", ".join(f'"{name}"' for name in names)
        order = order if order in names else "rowid"
        statement = f'SELECT {listed} FROM {table} WHERE "{where}" = ? ORDER BY "{order}", rowid'
        for row in self._db.execute(statement, (value,)):
            yield {name: _value(cell) for name, cell in zip(names, row, strict=True) if cell is not None}

    def _session(self, native: str) -> Record | None:
        if not native:
            return None
        session = next(self._select("sessions", "id", native, "id"), None)
        prompt = session.get("system_prompt_hash") if session is not None else None
        if session is not None and prompt and not session.get("system_prompt"):
            for row in self._select("system_prompts", "hash", str(prompt), "hash"):
                text = next((row[name] for name in ("prompt", "content", "text", "system_prompt") if name in row), None)
                if text is not None:
                    session["system_prompt"] = text
        return session

    def _where(self, table: str, native: str) -> list[Record]:
        return sorted(self._select(table, "session_id", native, "session_id"), key=_encode)

    def _rows(self, native: str) -> Iterator[Record]:
        return self._select("messages", "session_id", native, "id")

    def _continuation(self, session: Record) -> Record | None:
        """The session that goes on behind a rotation. A stale sibling was reaped."""
        if session.get("end_reason") != "compression":
            return None
        native = _text(session.get("id"))
        found = []
        for child in self._select("sessions", "parent_session_id", native, "id"):
            if relation(child, session)[0] == "continuation" and _text(child.get("id")) not in ("", native):
                reason = child.get("end_reason")
                rank = 2 if reason == STALE else 0 if reason == "compression" or child.get("ended_at") is None else 1
                found.append((rank, time_of(child.get("started_at")) or 0, _text(child.get("id")), child))
        return min(found, key=lambda one: one[:3])[3] if found else None

    # what a session begins with

    def _heritage(self, session: Record) -> Heritage | None:
        """The source of a branch or continuation, with what it handed on; every ancestor by itself."""
        chain: list[Record] = []
        seen: set[str] = set()
        one: Record | None = session
        while one is not None and len(chain) < GENERATIONS and _text(one.get("id")) not in seen:
            chain.append(one)
            seen.add(_text(one.get("id")))
            if len(chain) > 1 and _text(one.get("id")) in self._lineages:
                break
            one = self._session(self._source(one) or "")
        lineage: Lineage | None = None
        for ancestor in reversed(chain[1:]):
            lineage = self._lineage(ancestor, lineage)
        return self._inherits(session, lineage) if self._source(session) != session.get("id") else None

    def _inherits(self, session: Record, lineage: Lineage | None) -> Heritage | None:
        kind, source = self._relation(session)
        if kind not in INHERITS or not source:
            return None
        # where nothing says why a session names another, an equal first prompt is no copy
        return Heritage(source, time_of(session.get("started_at")), lineage or Lineage(), kind == "unknown")

    def _source(self, session: Record) -> str | None:
        kind, source = self._relation(session)
        return source if kind in INHERITS else None

    def _relation(self, session: Record) -> tuple[str | None, str]:
        return relation(session, self._session(_text(session.get("parent_session_id"))))

    def _lineage(self, session: Record, before: Lineage | None) -> Lineage:
        native = _text(session.get("id"))
        if native in self._lineages:
            return self._lineages[native]
        pieces, _ = _pieces(list(self._rows(native)))
        lineage = lineage_of(place(native, pieces, self._inherits(session, before), {}), before)
        if not pieces and before is not None:
            # a rotation that wrote no row: what goes on from it goes on from its source
            lineage = before
        while len(self._lineages) >= REMEMBERED:
            self._lineages.pop(next(iter(self._lineages)))
        self._lineages[native] = lineage
        return lineage


def relation(session: Record, parent: Record | None) -> tuple[str | None, str]:
    """How a session hangs on another, and on which: subagent, branch, reset, continuation, unknown or None."""
    config = decoded(session.get("model_config"))
    config = config if isinstance(config, dict) else {}
    native = _text(session.get("parent_session_id"))
    if config.get("_delegate_from") or session.get("source") == "subagent":
        marker = _text(config.get("_delegate_from"))
        return "subagent", native or (marker if not marker.startswith("__") else "")
    reason = parent.get("end_reason") if parent is not None else None
    if config.get("_branched_from"):
        return "branch", _text(config["_branched_from"]) or native
    if native and reason == "branched":
        return "branch", native
    if config.get("_reset_from"):
        return "reset", _text(config["_reset_from"]) or native
    if native and reason in CLEARED:
        return "reset", native
    if native and reason == "compression":
        return "continuation", native
    return ("unknown", native) if native else (None, "")


def _pieces(rows: list[Record]) -> tuple[list[Piece], list[int]]:
    """The pieces of all rows, and where each row's begin."""
    pieces: list[Piece] = []
    starts = [0]
    for row in rows:
        pieces += pieces_of(message_of(row_of(row)))
        starts.append(len(pieces))
    return pieces, starts


def _line(record: Record) -> bytes:
    return _encode(record) + b"\n"


def _value(cell: Any) -> Any:
    return {BLOB: base64.b64encode(cell).decode()} if isinstance(cell, bytes) else cell


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
