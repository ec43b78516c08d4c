"""Folds one Pi session into facts.

A session is a tree in one file: every branch was said and counts. A fork repeats the entries before it with their ids
and times, so keys are made of both, and an entry older than the header of a fork is a copy. Only messages are activity:
an entry of another kind gets its time in a fact once a later message stands behind it.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TypeVar, Unpack
from zlib import crc32

import msgspec

from prosa.events.facts import (
    NOT_COPIED,
    PROVEN,
    Compaction,
    Facts,
    Header,
    Kind,
    Mark,
    Role,
    Turn,
    Usage,
    fact_key,
)
from prosa.ingest.clock import from_number, parse_iso
from prosa.ingest.decoding import Records
from prosa.ingest.importer import Identity
from prosa.ingest.pi import AGENT
from prosa.ingest.pi.names import id_of_path
from prosa.ingest.pi.records import Entry, Message, Tokens, decoder, output_of, spoken
from prosa.ingest.readable import readable
from prosa.ingest.tally import Tally, count
from prosa.ingest.turn import About, turn_of

SIDE_TYPES = frozenset({"context_edit", "custom", "label", "model_change", "thinking_level_change", "title"})

F = TypeVar("F", Turn, Usage, Compaction)


class Waiting(msgspec.Struct):
    """Facts of entries that are no messages, told without a time so far; `at` is the time."""

    at: int
    turn: Turn | None = None
    usage: Usage | None = None
    compaction: Compaction | None = None


class State(msgspec.Struct):
    """All that is needed to go on."""

    rest: bytes = b""
    met: bool = False
    """The header was read; a second one says nothing."""
    cwd: str | None = None
    title: str | None = None
    forked_from: str | None = None
    started_at: int | None = None
    model: str | None = None
    """Of the last answer that is no copy."""
    has_usage: bool = False
    seen: dict[str, list[int]] = msgspec.field(default_factory=dict)
    """Id of an entry → length and checksum of the different lines that have it."""
    waiting: list[Waiting] = msgspec.field(default_factory=list)
    tally: Tally = msgspec.field(default_factory=Tally)


class Fold:
    """See `importer.Fold`. One instance reads one file from its start or from a saved state."""

    def __init__(self, identity: Identity, state: bytes | None = None) -> None:
        self.identity = identity
        self.s = msgspec.msgpack.decode(state, type=State) if state is not None else State()
        self._records = Records(decoder, self.s.tally, self.s.rest)
        self._facts = Facts([], [], [], [])
        self._native = self._witness = ""
        self._copied = NOT_COPIED
        self._copied_from: str | None = None

    def feed(self, data: bytes) -> None:
        for entry, line in self._records.feed(data):
            self._entry(entry, line)

    def end(self) -> None:
        for entry, line in self._records.end():
            self._entry(entry, line)

    def take(self) -> Facts:
        facts, self._facts = self._facts, Facts([], [], [], [])
        return facts

    def state(self) -> bytes:
        self.s.rest = self._records.rest
        return msgspec.msgpack.encode(self.s)

    def header(self) -> Header:
        s = self.s
        return Header(
            cwd=s.cwd,
            title=s.title,
            parent=self.identity.scope,
            forked_from=s.forked_from,
            started_at=s.started_at,
            has_usage=s.has_usage,
            unknown=dict(s.tally.unknown),
            malformed=s.tally.malformed,
            malformed_bytes=s.tally.malformed_bytes,
        )

    def _entry(self, entry: Entry, line: bytes) -> None:
        if entry.type == "session":
            self._header(entry)
            return
        at = time_of(entry.timestamp)
        if not self._place(entry, line, at):
            return
        if entry.type == "message" and entry.message is not None:
            times = (at, time_of(entry.message.timestamp))
            self._message(entry.message, max((time for time in times if time is not None), default=None))
        elif entry.type == "compaction":
            self._compaction(entry, at)
        elif entry.type == "branch_summary":
            self._beside(
                at,
                self._summary("branch_summary", entry.summary or ""),
                self._tokens(entry.usage, self.s.model, apart=True),
            )
        elif entry.type == "custom_message":
            self._beside(at, self._summary("custom_message", spoken(entry.content)))
        elif entry.type == "usage":
            self._beside(at, usage=self._tokens(entry.usage, entry.model or self.s.model, apart=True))
        elif entry.type == "session_info":
            self.s.title = (entry.name or "").strip() or None
        elif entry.type not in SIDE_TYPES:
            self.s.tally.strange(entry.type, len(line))

    def _header(self, entry: Entry) -> None:
        s = self.s
        if s.met:
            return
        s.met = True
        s.cwd = entry.cwd or None
        s.started_at = time_of(entry.timestamp)
        came_from = entry.parent_session or entry.branched_from
        s.forked_from = id_of_path(came_from) if came_from else None

    def _place(self, entry: Entry, line: bytes, at: int | None) -> bool:
        """Name the entry for its keys, and say whether it is new. Two processes may give one id to two entries."""
        s = self.s
        born = s.started_at if s.forked_from is not None else None
        is_copy = at is not None and born is not None and at < born
        self._copied, self._copied_from = (PROVEN, s.forked_from) if is_copy else (NOT_COPIED, None)
        self._witness = f"{entry.timestamp}\0{entry.type}"
        line = line.strip()
        if entry.id is None:
            # version 1: the line itself, which a copy repeats to the byte
            self._native = f"#{blake2b(line, digest_size=8).hexdigest()}"
            return True
        lines = s.seen.setdefault(entry.id, [])
        mark = len(line) << 32 | crc32(line)
        if mark in lines:
            return False
        lines.append(mark)
        self._native = entry.id if len(lines) == 1 else f"{entry.id}#{len(lines)}"
        return True

    # messages

    def _message(self, message: Message, at: int | None) -> None:
        if at is not None and self._copied == NOT_COPIED:
            self._release(at)
        before = len(self._facts.turns) + len(self._facts.usage)
        match message.role:
            case "user":
                self._say("message", "user", spoken(message.content), at)
            case "assistant":
                self._answer(message, at)
            case "toolResult":
                self._say(
                    "tool_result",
                    "tool",
                    output_of(message.content),
                    at,
                    empty=True,
                    tool=message.tool_name,
                    tool_call_id=message.tool_call_id,
                    is_error=bool(message.is_error),
                )
            case "bashExecution":
                # a command the user ran himself, no word to the model
                shown = f"!{message.command or ''}\n{message.output or ''}"
                self._say("message", "user", shown, at, counted=False)
            case "custom" | "hookMessage" | "branchSummary" | "compactionSummary":
                text = spoken(message.content) or message.summary or ""
                self._say("message", "system", text, at, counted=False)
            case "system":
                pass
            case role:
                self.s.tally.strange(f"message/{role or ''}", 0)
        if at is not None and before == len(self._facts.turns) + len(self._facts.usage):
            self._facts.marks.append(
                Mark(first=at, last=at, key=self._key("mark"), copied=self._copied, copied_from=self._copied_from)
            )

    def _answer(self, message: Message, at: int | None) -> None:
        """Texts are one answer, however many blocks they are; each readable thought and each call is one."""
        model = message.model or None
        if model and self._copied == NOT_COPIED:
            self.s.model = model
        content = message.content
        said = False
        for index, block in enumerate(content if isinstance(content, list) else ()):
            if block.type == "thinking" and block.thinking:
                self._say("thinking", "assistant", block.thinking, at, place=str(index), model=model)
            elif block.type == "text" and not said:
                said = self._say("message", "assistant", spoken(content), at, model=model)
            elif block.type == "toolCall":
                text = readable(block.arguments)
                self._say(
                    "tool_call", "assistant", text, at, place=str(index), empty=True, model=model, tool=block.name,
                    tool_call_id=block.id,
                )  # fmt: skip
        if isinstance(content, str):
            self._say("message", "assistant", content, at, model=model)
        usage = self._tokens(message.usage, model, at)
        if usage is not None:
            self._facts.usage.append(usage)

    def _tokens(
        self, tokens: Tokens | None, model: str | None, at: int | None = None, apart: bool = False
    ) -> Usage | None:
        """One request. Counts are disjoint; what lives an hour is a part of what was written to the cache."""
        if tokens is None:
            return None
        self.s.has_usage = self.s.has_usage or not self._copied
        written, hour = count(tokens.cache_write), count(tokens.cache_write_1h)
        return Usage(
            key=self._key("usage"),
            at=at,
            model=model,
            input=count(tokens.input),
            output=count(tokens.output),
            cache_read=count(tokens.cache_read),
            cache_write_5m=written - hour if hour <= written else written,
            cache_write_1h=hour,
            reasoning=None if tokens.reasoning is None else count(tokens.reasoning),
            apart=apart,
            copied=self._copied,
            copied_from=self._copied_from,
        )

    # what stands between messages

    def _compaction(self, entry: Entry, at: int | None) -> None:
        size = entry.tokens_before
        compaction = Compaction(
            key=self._key("compaction"),
            id=entry.id or str(entry.timestamp),
            size_before=size if size is not None and 0 < size == count(size) else None,
            copied=self._copied,
            copied_from=self._copied_from,
        )
        turn = self._summary("compaction", entry.summary or "")
        self._beside(at, turn, self._tokens(entry.usage, self.s.model, apart=True), compaction)

    def _summary(self, place: str, text: str) -> Turn | None:
        if not text or text.isspace():
            return None
        kind: Kind = "compaction" if place == "compaction" else "message"
        return self._turn(kind, "system", text, None, place, counted=False)

    def _beside(
        self,
        at: int | None,
        turn: Turn | None = None,
        usage: Usage | None = None,
        compaction: Compaction | None = None,
    ) -> None:
        """Tell facts of an entry that is no message; of an own one the time comes with the next message."""
        waits = Waiting(at or 0, turn, usage, compaction)
        self._tell(waits, timed=at is not None and self._copied != NOT_COPIED)
        if at is not None and self._copied == NOT_COPIED and (turn or usage or compaction):
            self.s.waiting.append(waits)

    def _release(self, at: int) -> None:
        """A message came: activity reaches to here."""
        waiting = self.s.waiting
        if waiting:
            for waits in waiting:
                if waits.at <= at:
                    self._tell(waits, timed=True)
            self.s.waiting = [waits for waits in waiting if waits.at > at]

    def _tell(self, waits: Waiting, timed: bool) -> None:
        def stamped(fact: F) -> F:
            return msgspec.structs.replace(fact, at=waits.at) if timed else fact

        if waits.turn is not None:
            self._facts.turns.append(stamped(waits.turn))
        if waits.usage is not None:
            self._facts.usage.append(stamped(waits.usage))
        if waits.compaction is not None:
            self._facts.compactions.append(stamped(waits.compaction))

    # facts

    def _key(self, kind: str, place: str = "") -> int:
        return fact_key(AGENT, kind, f"{self._native}\0{place}", self._witness)

    def _say(
        self,
        kind: Kind,
        role: Role,
        text: str,
        at: int | None,
        place: str = "",
        *,
        empty: bool = False,
        **about: Unpack[About],
    ) -> bool:
        """A turn, unless it is blank and of a kind that says nothing then."""
        if not empty and (not text or text.isspace()):
            return False
        self._facts.turns.append(self._turn(kind, role, text, at, place, **about))
        return True

    def _turn(self, kind: Kind, role: Role, text: str, at: int | None, place: str, **about: Unpack[About]) -> Turn:
        return turn_of(self._key(kind, place), kind, role, text, at, self._copied, self._copied_from, **about)


def time_of(stamp: object) -> int | None:
    """Entries have ISO times, messages milliseconds."""
    return parse_iso(stamp) if isinstance(stamp, str) else from_number(stamp)
