"""Folds one Hermes session into facts: the projection of state.db, or a transcript file as it is.

Copies are what a newcomer gets wrong: a compaction writes rows again under the same session, a rotation and a branch
write them into another one, and only the first of each is a fact of its own (hermes_copies).
"""

from __future__ import annotations

from typing import Any, Unpack

import msgspec

from prosa.events.facts import PROVEN, Compaction, Facts, Header, Kind, Mark, Role, Usage, fact_key
from prosa.ingest.hermes import AGENT
from prosa.ingest.hermes.copies import Heritage, Lineage, Origin, Placed, place
from prosa.ingest.hermes.prompts import GOAL, INTERRUPTED, Prompt, prompt_of
from prosa.ingest.hermes.rows import Call, Message, Piece, Row, decoded, message_of, pieces_of, row_of, time_of
from prosa.ingest.hermes.usage import usage_of
from prosa.ingest.importer import Identity
from prosa.ingest.json_lines import REFUSED, plain, values
from prosa.ingest.tally import Span, Tally
from prosa.ingest.turn import About, turn_of

Record = dict[str, Any]
SPOKEN = ("user", "assistant", "tool", "system")
META = "session_meta"
HEIRS = ("branch", "continuation")


class Line(msgspec.Struct, gc=False):
    """A row in a projection."""

    row: Row
    copies: list[Any] | None = None


_decode = msgspec.json.Decoder(Line).decode


def read(identity: Identity, data: bytes) -> tuple[Facts, Header]:
    """A session is read whole: what a compaction copied is known only behind it."""
    session = Session(identity)
    session.read(data)
    return session.facts, session.header()


class Session:
    """One session's raw, read from its start."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.facts = Facts()
        self.keys: dict[str, str] = {}
        self.envelope: Record = {}
        self.meta: Record = {}
        """First line of a .jsonl, or a snapshot without its messages."""
        self.messages: list[Message] = []
        self.copies: list[list[Any]] = []
        self.tally = Tally()
        self.own = Span()
        """Times of what was not copied."""
        self.has_usage = self.is_goal = self.is_heir = False
        self.tools: dict[str, tuple[str | None, bool]] = {}
        """Name of each call, and whether it still waits for its result."""

    @staticmethod
    def document(data: bytes) -> Record | None:
        """A snapshot: one JSON object with messages, however it is laid out."""
        if b'"messages"' not in data:
            return None
        for text in (data.split(b"\n", 1)[0], data):
            document = decoded(text.decode("utf-8", "replace").strip("\ufeff\0\r\n\t "))
            if isinstance(document, dict):
                return document if isinstance(document.get("messages"), list) else None
        return None

    def read(self, data: bytes) -> None:
        self.collect(data)
        self._facts()

    def collect(self, data: bytes) -> None:
        """The messages, and no facts yet."""
        document = self.document(data)
        if document is not None:
            self._snapshot(document)
        else:
            lines = data.split(b"\n")
            torn = lines.pop()
            for line in lines:
                self._line(line)
            if torn.rstrip().endswith(b"}"):
                self._line(torn)

    # what the raw holds

    def _line(self, line: bytes) -> None:
        try:
            told = _decode(line)
        except REFUSED:
            pass
        else:
            self._message(told.row, told.copies)
            return
        if not line.strip(b"\0\r\t "):
            return
        for record in self._records(line):
            if "hermes" in record:
                self.envelope = record
            elif isinstance(record.get("message"), dict):
                self._message(row_of(record["message"]), None)
            elif isinstance(record.get("row"), dict):
                self._message(row_of(record["row"]), record.get("copies"))
            elif isinstance(record.get("line"), str):
                self._line(record["line"].encode("utf-8", "replace"))
            elif isinstance(record.get("snapshot"), dict):
                self._snapshot(record["snapshot"])
            elif "role" in record:
                self._message(row_of(record), None)
                self.meta = self.meta or (record if record["role"] == META else {})
            else:
                self.tally.strange("line", len(line))

    def _records(self, line: bytes) -> list[Record]:
        try:
            value = msgspec.json.decode(line)
        except REFUSED:
            found, lost = values(line)
        else:
            found, lost = ([value], False) if isinstance(value, dict) else ([], True)
        if lost:
            self.tally.damaged(len(line))
        return found

    def _snapshot(self, document: Record) -> None:
        self.meta = {name: value for name, value in document.items() if name != "messages"}
        messages = document.get("messages")
        for message in messages if isinstance(messages, list) else ():
            if isinstance(message, dict):
                self._message(row_of(message), None)

    def _message(self, row: Row, copies: Any) -> None:
        if row.role == META:
            return
        message = message_of(row, str(len(self.messages) + 1))
        if message.role not in SPOKEN:
            self.tally.strange(f"role {message.role}", len(message.text))
            return
        self.messages.append(message)
        self.copies.append(copies if isinstance(copies, list) else [])

    # what it says

    def _facts(self) -> None:
        pieces: list[Piece] = []
        known: dict[int, Origin] = {}
        for message, copies in zip(self.messages, self.copies, strict=True):
            for copy in copies:
                try:
                    index, session, identity, nth = copy
                    known[len(pieces) + int(index)] = Origin(str(session), str(identity), int(nth))
                except (TypeError, ValueError, OverflowError):
                    continue
            pieces += pieces_of(message)
        heritage = self._heritage(pieces)
        placed = place(self.identity.id, pieces, heritage, known)
        self.is_heir = heritage is not None and (
            self._relation()[0] in HEIRS or any(one.copied == PROVEN or one.piece.is_summary for one in placed)
        )
        for one in placed:
            if not one.again:
                self._piece(one)
        self._usage()
        self._rotation()

    def _relation(self) -> tuple[str, str, bool]:
        said = self.envelope.get("relation")
        said = said if isinstance(said, dict) else {}
        return _text(said.get("kind")), _text(said.get("source")), bool(said.get("present"))

    def _heritage(self, pieces: list[Piece]) -> Heritage | None:
        kind, source, present = self._relation()
        started = time_of(self._row().get("started_at"))
        if kind in HEIRS or (kind == "unknown" and present):
            return Heritage(source, started, Lineage(present=present)) if source else None
        if kind in ("", "unknown") and started is not None and any(piece.is_summary for piece in pieces):
            # a continuation whose source was pruned: the client takes the link away
            return Heritage(source or None, started, Lineage(), by_summary=True)
        return None

    def _row(self) -> Record:
        row = self.envelope.get("session")
        return row if isinstance(row, dict) else {}

    def _piece(self, one: Placed) -> None:
        piece, message = one.piece, one.piece.message
        if one.copied != PROVEN:
            self.own.add(message.at)
        before = len(self.facts.turns)
        if piece.is_summary:
            self._summary(one)
        elif message.role == "tool":
            self._result(one)
        elif message.role == "assistant":
            self._answer(one)
        elif piece.text.strip():
            prompt = prompt_of(message, piece.text) if message.role == "user" else Prompt(piece.text, False)
            self.is_goal = self.is_goal or piece.text.startswith(GOAL)
            role: Role = "user" if message.role == "user" else "system"
            self._turn(one, "message", role, prompt.text, counted=prompt.counted)
        if len(self.facts.turns) == before and message.at is not None:
            self.facts.marks.append(
                Mark(
                    first=message.at,
                    last=message.at,
                    key=self._key("mark", one.origin),
                    copied=one.copied,
                    copied_from=self._source(one),
                )
            )

    def _answer(self, one: Placed) -> None:
        piece, message = one.piece, one.piece.message
        if piece.is_whole and message.thought.strip():
            self._turn(one, "thinking", "assistant", message.thought)
        if piece.text.strip():
            notice = message.display is not None or (
                piece.text.startswith(INTERRUPTED) and not message.calls and len(piece.text) < 400
            )
            self._turn(one, "message", "assistant", piece.text, counted=not notice)
        for place_, call in enumerate(message.calls):
            if call.id:
                self.tools[call.id] = (call.name, True)
            self._turn(
                one, "tool_call", "assistant", _arguments(call), str(place_), tool=call.name, tool_call_id=call.id
            )

    def _result(self, one: Placed) -> None:
        message = one.piece.message
        name, waits = self.tools.get(message.call_id or "", (None, True))
        if message.call_id in self.tools:
            self.tools[message.call_id or ""] = (name, False)
        self._turn(
            one,
            "tool_result",
            "tool",
            message.text,
            tool=message.tool or name,
            tool_call_id=message.call_id,
            is_error=waits and _failed(message.text),
            counted=waits,
        )

    def _summary(self, one: Placed) -> None:
        self._turn(one, "compaction", "system", one.piece.text, "summary", counted=False)
        if one.in_head or one.copied:
            return
        message = one.piece.message
        self.facts.compactions.append(
            Compaction(
                key=self._key("compaction", one.origin),
                id=f"{self.identity.id}#{message.uid or message.number}",
                at=message.at,
            )
        )

    def _rotation(self) -> None:
        """A compaction that went on in another session. Told at this one's last record: it is not its activity."""
        follower = self.envelope.get("continued_by")
        native = _text(follower.get("id")) if isinstance(follower, dict) else ""
        if native:
            # a session is rotated once; which one goes on may be known later
            key = fact_key(AGENT, "compaction", self.identity.key, ">")
            self.facts.compactions.append(Compaction(key=key, id=f"{self.identity.id}>{native}", at=self.own.last))

    def _usage(self) -> None:
        table = self.envelope.get("usage")
        rows = [row for row in table if isinstance(row, dict)] if isinstance(table, list) else []
        spent, self.has_usage = usage_of(self._row(), rows)
        own = self.own
        for one in spent:
            at = one.at if one.at is not None else own.last
            if at is not None and own.last is not None and own.first is not None:
                at = max(own.first, min(at, own.last))
            fresh, output, read, write, reasoning = one.tokens
            self.facts.usage.append(
                Usage(
                    key=fact_key(AGENT, "usage", self.identity.key, one.name),
                    at=at if own.last is not None else None,
                    model=plain(one.model) if one.model else None,
                    input=fresh or 0,
                    output=output or 0,
                    cache_read=read or 0,
                    cache_write_5m=write or 0,
                    reasoning=reasoning,
                )
            )

    def header(self) -> Header:
        row, meta = self._row(), self.meta
        kind, source, _ = self._relation()
        started = time_of(row.get("started_at")) or time_of(meta.get("session_start")) or time_of(meta.get("timestamp"))
        last = None
        if self.own.last is None:
            last = time_of(row.get("ended_at")) or time_of(meta.get("last_updated")) or started
        model = _text(row.get("model")) or _text(meta.get("model"))
        return Header(
            cwd=plain(_text(row.get("cwd"))) or None,
            branch=plain(_text(row.get("git_branch"))) or None,
            title=plain(_text(row.get("title"))).strip() or None,
            kinds=("goal",) if self.is_goal else (),
            parent=source or None if kind == "subagent" else None,
            forked_from=source or None if self.is_heir else None,
            cleared_from=source or None if kind == "reset" else None,
            models=(plain(model),) if model else (),
            started_at=started,
            last_activity_at=last,
            has_usage=self.has_usage,
            unknown=self.tally.unknown,
            malformed=self.tally.malformed,
            malformed_bytes=self.tally.malformed_bytes,
        )

    # facts

    def _turn(self, one: Placed, kind: Kind, role: Role, text: str, part: str = "", **about: Unpack[About]) -> None:
        key = self._key(kind, one.origin, part)
        turn = turn_of(key, kind, role, plain(text), one.piece.message.at, one.copied, self._source(one), **about)
        self.facts.turns.append(turn)

    def _key(self, kind: str, origin: Origin, part: str = "") -> int:
        session = self.keys.get(origin.session)
        if session is None:
            session = self.keys[origin.session] = Identity(AGENT, origin.session, self.identity.scope).key
        return fact_key(AGENT, kind, session, f"{origin.identity}#{origin.nth}#{part}")

    def _source(self, one: Placed) -> str | None:
        return one.origin.session if one.copied and one.origin.session != self.identity.id else None


def _arguments(call: Call) -> str:
    value = decoded(call.arguments)
    if isinstance(value, dict):
        return "\n".join(f"{name}: {text if isinstance(text, str) else _json(text)}" for name, text in value.items())
    return call.arguments


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _failed(text: str) -> bool:
    """No column says it: a result is a JSON object, or the text that Hermes writes when a tool raises."""
    if not text.lstrip().startswith("{"):
        return text.startswith("Error")
    result = decoded(text)
    if not isinstance(result, dict):
        return text.startswith("Error")
    if result.get("guardrail_refusal"):
        return False
    code = result.get("exit_code")
    failed = isinstance(code, (int, float)) and not isinstance(code, bool) and code != 0
    return bool(result.get("error")) or result.get("success") is False or failed


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
