"""Folds one opencode session into facts. A message is a row, its content the parts that follow it.

What a newcomer gets wrong: the tokens of a message are also in its last part and, summed, in the session's row; and a
fork repeats its source's messages with their times and tokens under new ids.
"""

from __future__ import annotations

import re
from typing import Any, Unpack

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
    Usage,
    fact_key,
)
from prosa.ingest.clock import from_number
from prosa.ingest.importer import Identity
from prosa.ingest.json_lines import REFUSED, plain, values
from prosa.ingest.opencode import AGENT
from prosa.ingest.opencode.records import (
    Message,
    Record,
    assistant_of,
    counts_of,
    decoded,
    message_of,
    text_of,
    times_of,
)
from prosa.ingest.tally import Tally
from prosa.ingest.turn import About, turn_of

PLACEHOLDER = re.compile(r"(?:New|Child) session - \d{4}-\d\d-\d\dT[\d:.]+Z?\Z")
FORKED = re.compile(r" \(fork #\d+\)\Z")
SILENT = frozenset(
    {"step-start", "step-finish", "snapshot", "patch", "agent", "retry", "compaction", "file", "source-url"}
)
"""Kinds of part that are no turn of their own."""
ABORTED = "Tool execution aborted"
"""Error of a call that was cancelled: no tool failed (1.18: metadata.interrupted is true as well)."""
SKEW_US = 60_000_000


class Line(msgspec.Struct, gc=False):
    """A line of a projection: the session, a message, or a part of the message before."""

    session: Record | None = None
    message: Record | None = None
    part: Record | None = None
    copy_of: Any = None
    fork: Any = None


_decode = msgspec.json.Decoder(Line).decode


def read(identity: Identity, data: bytes) -> tuple[Facts, Header]:
    """A session is read whole: messages are ordered by their times, not by their place."""
    session = Session(identity)
    session.read(data)
    return session.facts, session.header()


class Session:
    """One session's raw, read from its start."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.facts = Facts()
        self.row: Record = {}
        self.data: Record = {}
        self.fork: str | None = None
        self.messages: list[Message] = []
        self.tally = Tally()
        self.has_usage = False
        self.trigger: str | None = None

    def read(self, data: bytes) -> None:
        lines = data.split(b"\n")
        last = lines.pop()
        for line in lines:
            self._line(line)
        if last.rstrip().endswith(b"}"):
            self._line(last)
        self.messages.sort(key=lambda one: (one.created or 0, one.id))
        created = self._created()
        for message in self.messages:
            message.parts.sort(key=lambda part: part[0])
            message.copied, message.copied_from = self._copied(message, created)
            self._message(message)

    def _line(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            told = _decode(line)
        except REFUSED:
            found, _ = values(line)
            told = _told(found[0] if found else {})
        if told.part is not None:
            self._part(told.part, len(line))
        elif told.message is not None:
            self._begin(told.message, told.copy_of, len(line))
        elif told.session is not None:
            self.row, self.data = told.session, decoded(told.session.get("data")) or {}
            self.fork = text_of(told.fork.get("source")) or None if isinstance(told.fork, dict) else None
        else:
            self.tally.damaged(len(line))

    def _begin(self, row: Record, copy_of: Any, size: int) -> None:
        message = message_of(row, copy_of)
        if message is None:
            # its parts follow it, and must not become another's
            self.tally.damaged(size)
            message = Message(text_of(row.get("id")), {}, from_number(row.get("time_created")))
        self.messages.append(message)

    def _part(self, row: Record, size: int) -> None:
        data = decoded(row.get("data"))
        if data is None:
            self.tally.damaged(size)
        elif self.messages:
            self.messages[-1].parts.append((text_of(row.get("id")), data))

    # what a message says

    def _message(self, message: Message) -> None:
        taken = len(self.facts.turns)
        if message.role == "user":
            self._prompt(message)
        elif message.role == "assistant":
            self._answer(message)
        elif message.data:
            self.tally.strange(f"role {message.role}", len(message.id))
        completed = message.completed if message.role == "assistant" else None
        if message.created is not None and (completed is not None or len(self.facts.turns) == taken):
            copied, source = message.copied, message.copied_from
            last = max(message.created, completed or 0)
            key = self._key(message, "mark", "")
            self.facts.marks.append(Mark(first=message.created, last=last, key=key, copied=copied, copied_from=source))

    def _prompt(self, message: Message) -> None:
        texts: list[str] = []
        others: list[str] = []
        injected: list[str] = []
        compacts = False
        for _, part in message.parts:
            kind = text_of(part.get("type"))
            text = text_of(part.get("text"))
            if kind == "compaction":
                compacts = True
                self.trigger = "auto" if part.get("auto") else "manual"
            elif kind == "text" and (part.get("synthetic") or part.get("ignored")):
                injected.append(text)
            elif kind == "text":
                texts.append(text)
            elif kind == "file" and not part.get("synthetic"):
                name = text_of(part.get("filename"))
                others.append("[image]" if text_of(part.get("mime")).startswith("image/") else f"[file: {name}]")
            elif kind == "subtask":
                command = text_of(part.get("command"))
                others.append(f"/{command}" if command else text_of(part.get("prompt")))
            elif kind not in SILENT:
                self._unknown(kind, part)
        text = "\n".join(one for one in texts if one.strip()) or "\n".join(one for one in others if one)
        if text.strip():
            self._turn(message, "message", "user", text, 0, message.created, counted=not compacts)
        for place, text in enumerate(injected, 1):
            if text.strip():
                self._turn(message, "message", "user", text, place, message.created, counted=False)

    def _answer(self, message: Message) -> None:
        data = assistant_of(message.data)
        model = _plain(data.get("modelID"))
        is_summary = message.data.get("summary") is True
        places = {"text": 0, "reasoning": 0, "tool": 0}
        spoken = False
        for _, part in message.parts:
            kind = text_of(part.get("type"))
            if kind not in places:
                if kind not in SILENT:
                    self._unknown(kind, part)
                continue
            place, at = places[kind], self._at(message, times_of(part)[0])
            places[kind] += 1
            text = text_of(part.get("text"))
            if kind == "tool":
                self._tool(message, part, place, model)
            elif not text.strip():
                continue
            elif is_summary:
                if kind == "text":
                    self._turn(message, "compaction", "system", text, place, message.created, counted=False)
            elif kind == "text":
                # of several texts in one answer the first counts
                counted = not spoken and not part.get("synthetic")
                spoken = spoken or counted
                self._turn(message, "message", "assistant", text, place, at, model=model, counted=counted)
            else:
                self._turn(message, "thinking", "assistant", text, place, at, model=model)
        if is_summary:
            self._compaction(message)
        else:
            self._usage(message, data, model)

    def _tool(self, message: Message, part: Record, place: int, model: str | None) -> None:
        said = part.get("state")
        state: Record = said if isinstance(said, dict) else {}
        begun, ended = times_of(state)
        name, call_id = _plain(part.get("tool")), _plain(part.get("callID"))
        asked = self._at(message, begun)
        text = _readable(state.get("input"))
        self._turn(message, "tool_call", "assistant", text, place, asked, model=model, tool=name, tool_call_id=call_id)
        status = state.get("status")
        if status not in ("completed", "error"):
            return
        about = state.get("metadata")
        about = about if isinstance(about, dict) else {}
        told = _text(state.get("error") if status == "error" else state.get("output"))
        cancelled = status == "error" and (about.get("interrupted") is True or told.startswith(ABORTED))
        code = about.get("exit")
        failed = isinstance(code, int) and not isinstance(code, bool) and code != 0
        self._turn(
            message,
            "tool_result",
            "tool",
            told,
            place,
            self._at(message, ended),
            tool=name,
            tool_call_id=call_id,
            is_error=(status == "error" or failed) and not cancelled,
        )

    def _compaction(self, message: Message) -> None:
        """Completed: the summary is there whole. A lone compaction part is only a start."""
        if message.data.get("error") or not (message.completed or message.data.get("finish")):
            return
        copied, source = message.copied, message.copied_from
        self.facts.compactions.append(
            Compaction(
                key=self._key(message, "compaction", ""),
                id=message.id,
                at=message.created,
                trigger=self.trigger,
                copied=copied,
                copied_from=source,
            )
        )
        self.trigger = None

    def _usage(self, message: Message, data: Record, model: str | None) -> None:
        counts = counts_of(data)
        if counts is None or not (any(counts) or message.completed or message.data.get("finish")):
            return
        self.has_usage = True
        copied, source = message.copied, message.copied_from
        fresh, output, read, write, reasoning = counts
        self.facts.usage.append(
            Usage(
                key=self._key(message, "usage", ""),
                at=message.created,
                model=model,
                input=fresh,
                output=output,
                cache_read=read,
                cache_write_5m=write,
                reasoning=reasoning,
                copied=copied,
                copied_from=source,
            )
        )

    # what all of them need

    def _created(self) -> int | None:
        return from_number(self.row.get("time_created")) or times_of(self.data)[0]

    def _copied(self, message: Message, created: int | None) -> tuple[int, str | None]:
        """Older than its session: a fork's copy. Where nothing else says so, only if no clock explains it."""
        if message.copy_of is not None:
            return PROVEN, self.fork
        if message.created is None or created is None or message.created >= created:
            return NOT_COPIED, None
        forked = self.fork is not None or FORKED.search(self._title()) is not None
        return (PROVEN, self.fork) if forked or created - message.created > SKEW_US else (NOT_COPIED, None)

    def _at(self, message: Message, at: int | None) -> int | None:
        """A part's time within its message's. A killed answer's own time is the last that counts."""
        if at is None or message.created is None or message.completed is None:
            return message.created
        return max(message.created, min(at, message.completed))

    def _title(self) -> str:
        return text_of(self.row.get("title")) or text_of(self.data.get("title"))

    def _unknown(self, kind: str, part: Record) -> None:
        self.tally.strange(f"part {kind}", len(msgspec.json.encode(part)))

    def _key(self, message: Message, kind: str, place: str) -> int:
        native = message.copy_of or message.id or f"{self.identity.key}#{message.created}"
        return fact_key(AGENT, kind, native, place)

    def _turn(
        self,
        message: Message,
        kind: Kind,
        role: Role,
        text: str,
        place: int,
        at: int | None,
        **about: Unpack[About],
    ) -> None:
        key = self._key(message, kind, str(place))
        turn = turn_of(key, kind, role, plain(text), at, message.copied, message.copied_from, **about)
        self.facts.turns.append(turn)

    def header(self) -> Header:
        row, data = self.row, self.data
        title = plain(self._title()).strip()
        version = text_of(row.get("version")) or text_of(data.get("version"))
        said = row.get("model")
        model = text_of((decoded(said) or {}).get("id"))
        return Header(
            cwd=plain(text_of(row.get("directory")) or text_of(data.get("directory")) or self._cwd()) or None,
            title=None if not title or PLACEHOLDER.match(title) else title,
            parent=text_of(row.get("parent_id")) or text_of(data.get("parentID")) or None,
            forked_from=self.fork,
            clients=(plain(version),) if version else (),
            models=(plain(model),) if model else (),
            started_at=self._created(),
            has_usage=self.has_usage,
            unknown=self.tally.unknown,
            malformed=self.tally.malformed,
            malformed_bytes=self.tally.malformed_bytes,
        )

    def _cwd(self) -> str:
        """The oldest sessions say it with each answer only."""
        for message in self.messages:
            path = assistant_of(message.data).get("path")
            if isinstance(path, dict) and text_of(path.get("cwd")):
                return text_of(path["cwd"])
        return ""


def _told(record: Record) -> Line:
    """A line that a strict decoder refused, by what is left of it."""
    rows = {name: record[name] for name in ("session", "message", "part") if isinstance(record.get(name), dict)}
    return Line(**rows, copy_of=record.get("copy_of"), fork=record.get("fork"))


def _plain(value: Any) -> str | None:
    return plain(text_of(value)) or None


def _readable(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{name}: {_text(item)}" for name, item in value.items())
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()
