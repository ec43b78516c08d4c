"""Folds one Claude Code transcript into facts.

Keys are made from record uuids, message ids and tool ids, because these survive a fork, a resume copy and /branch;
times, session ids and the JSON text do not. One answer is many lines with one message id, and the same block may
come again under another uuid: what is known of a message (`Answer`) decides whether a block is new.
"""

from __future__ import annotations

import hashlib
from array import array
from typing import Unpack

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
    Summary,
    Usage,
    fact_key,
)
from prosa.ingest.claude_code import AGENT
from prosa.ingest.claude_code.prompts import Prompt, plain_text, prompt_text, unwrap
from prosa.ingest.claude_code.records import Block, Message, Origin, Record, Tokens, decoder, usage_of
from prosa.ingest.claude_code.state import Answer, Boundary, Run, Said, State, digest, short
from prosa.ingest.clock import parse_iso
from prosa.ingest.decoding import Records
from prosa.ingest.importer import Identity
from prosa.ingest.readable import readable
from prosa.ingest.turn import About, turn_of

HEAD = 32
REQUEST_COPY = b'{"type":"api-request-blob"'
"""2.1.332 writes every request out again, without time or uuid: a tenth of the bytes, nothing to read."""
CONTINUED = "This session is being continued from a previous conversation that ran out of context."
NO_ANSWER = "No response requested."
LONG_IDS = ("toolu_", "srvtoolu_")
SIDE_TYPES = frozenset(
    {
        "agent-color", "agent-name", "agent-setting", "api-request", "api-request-blob", "api-request-shape",
        "atis-latch", "attribution-snapshot", "bridge-session", "content-replacement", "cost-state",
        "file-history-delta", "file-history-snapshot", "frame-link", "last-prompt", "mode", "permission-mode",
        "pr-link", "progress", "queue-operation", "relocated", "result", "speculation-accept", "started", "tag",
        "task-summary", "tools-used", "worktree-state",
    }
)  # fmt: skip


class Fold:
    """See `importer.Fold`. One instance reads one file from its start or from a saved state."""

    def __init__(self, identity: Identity, state: bytes | None = None) -> None:
        self.identity = identity
        self.is_agent = identity.id.startswith("agent-")
        self.s = msgspec.msgpack.decode(state, type=State) if state is not None else State()
        self._records = Records(decoder, self.s.tally, self.s.rest, skip=(REQUEST_COPY,))
        self._uuids: set[int] = set(array("q", self.s.uuids))
        self._facts = Facts()
        self._usage: Usage | None = None
        """Held back until another message comes: the next line may have the final count."""
        self._copied = NOT_COPIED
        self._copied_from: str | None = None
        self._version: str | None = None

    def feed(self, data: bytes) -> None:
        for record, line in self._records.feed(data):
            self._record(record, line)

    def end(self) -> None:
        for record, line in self._records.end():
            self._record(record, line)

    def take(self) -> Facts:
        self._let_go()
        facts, self._facts = self._facts, Facts()
        return facts

    def state(self) -> bytes:
        self.s.rest = self._records.rest
        self.s.uuids = array("q", sorted(self._uuids)).tobytes()
        return msgspec.msgpack.encode(self.s)

    def header(self) -> Header:
        s = self.s
        own = [text for leaf, text in s.summaries.items() if short(leaf) in self._uuids]
        return Header(
            cwd=s.cwd,
            branch=s.branch,
            title=s.custom_title or s.ai_title or (own[-1] if own else None),
            kinds=tuple(s.kinds),
            parent=self.identity.scope if self.is_agent else None,
            # a resume copy (v1): its first lines still carry the id of the session they were copied from
            forked_from=s.forked_from or (s.resumed if s.own_seen else None),
            cleared_from=s.cleared_from,
            clients=tuple(s.clients),
            started_at=s.side.first,
            last_activity_at=s.side.last,
            has_usage=s.has_usage,
            unknown=dict(s.tally.unknown),
            malformed=s.tally.malformed,
            malformed_bytes=s.tally.malformed_bytes,
            leaf=s.leaf,
            # own ones too: in a resume copy the leaf is also a record of the session that was copied
            foreign_titles=tuple(Summary(leaf=leaf, text=text) for leaf, text in s.summaries.items()),
        )

    def _record(self, record: Record, line: bytes) -> None:
        s = self.s
        if record.uuid:
            self._uuids.add(short(record.uuid))
        if record.version != self._version and record.version:
            self._version = record.version
            if record.version not in s.clients:
                s.clients.append(record.version)
        if s.cwd is None and record.cwd:
            s.cwd = record.cwd
        if s.branch is None and record.git_branch:
            s.branch = record.git_branch
        origin = record.forked_from.session_id if record.forked_from is not None else None
        if origin and origin != self.identity.id:
            self._copied, self._copied_from = PROVEN, origin
            s.forked_from = s.forked_from or origin
        else:
            self._copied, self._copied_from = NOT_COPIED, None
        at = parse_iso(record.timestamp)
        match record.type:
            case "user" | "assistant":
                s.leaf = record.uuid or s.leaf
                self._speech(record, line, at)
            case "attachment":
                self._attachment(record, line, at)
            case "system":
                self._system(record, line, at)
            case _:
                self._side(record, line, at)

    # records that speak

    def _speech(self, record: Record, line: bytes, at: int | None) -> None:
        self._links(record)
        message = record.message
        if message is None:
            covered = False
        elif record.is_compact_summary:
            covered = self._summary(record, line, plain_text(message.content), at)
        elif record.type == "assistant":
            covered = self._answer(record, line, message, at)
        else:
            covered = self._user(record, line, message, at)
        if not covered:
            self._mark(record, at)

    def _links(self, record: Record) -> None:
        """What the first records say of the session before this one."""
        s = self.s
        if self.is_agent:
            return
        if record.session_id == self.identity.id:
            s.own_seen = True
        elif record.session_id and not s.own_seen:
            # the last one: a copy of a copy has the ids of both
            s.resumed = record.session_id
        started = record.process_session
        if started and started != self.identity.id and s.cleared and s.cleared_from is None:
            s.cleared_from = started

    def _answer(self, record: Record, line: bytes, message: Message, at: int | None) -> bool:
        """A line of an answer; whether its time stands in a fact."""
        content = message.content or []
        if isinstance(content, str):
            content = [Block(type="text", text=content)]
        if message.model == "<synthetic>" or record.is_api_error_message:
            return False
        if len(content) == 1 and content[0].text == NO_ANSWER:
            return False
        native = message.id or self._native(record, line)
        answer = self.s.answers.get(native)
        if answer is None:
            answer = self.s.answers[native] = Answer()
        main = self.is_agent or not record.is_sidechain
        covered = message.usage is not None and self._tokens(native, answer, message.usage, message.model or None, at)
        for index, block in enumerate(content):
            kind = block.type or ""
            if kind == "text" and block.text is not None:
                covered |= self._said(native, answer.texts, "message", block.text, message.model, main, at)
            elif kind == "thinking" and block.thinking is not None:
                covered |= self._said(native, answer.thoughts, "thinking", block.thinking, message.model, main, at)
            elif kind.endswith("tool_use"):
                self._call(native, block, f"{self._native(record, line)}#{index}", message.model, at)
                covered = True
            elif kind.endswith("tool_result"):
                # a server's tool answers inside the message: shown, while the tool is counted by its call
                self._result(block, native, f"{self._native(record, line)}#{index}", at, counted=False)
                covered = True
            elif kind not in ("text", "thinking", "redacted_thinking"):
                self.s.tally.strange(f"assistant/{kind}", 0)
        return covered

    def _said(
        self, native: str, said: list[Said], kind: Kind, text: str, model: str | None, main: bool, at: int | None
    ) -> bool:
        """A text or thought of an answer, unless it is known. One that begins with a known one is that one, grown."""
        if not text or text.isspace():
            return False
        # of several texts in one answer the first counts; thoughts count each
        now = Said(len(text), digest(text), False)
        for index, before in enumerate(said):
            now.counted = before.counted or self._counts(kind, main, index)
            if now == before:
                return False
            if before.length <= now.length and before.digest == (
                now.digest if before.length == now.length else digest(text[: before.length])
            ):
                said[index] = now
                break
        else:
            index = len(said)
            now.counted = self._counts(kind, main, index)
            said.append(now)
        key = fact_key(AGENT, kind, native, str(index))
        self._turn(key, kind, "assistant", text, at, model=model or None, counted=now.counted)
        self.s.spoken = self.s.spoken or main
        return True

    @staticmethod
    def _counts(kind: Kind, main: bool, index: int) -> bool:
        return main and (index == 0 or kind == "thinking")

    def _tokens(self, native: str, answer: Answer, tokens: Tokens, model: str | None, at: int | None) -> bool:
        """The largest usage of a message counts: earlier lines carry what was known while it streamed."""
        usage = usage_of(tokens, fact_key(AGENT, "usage", native), at, model, self._copied, self._copied_from)
        total = usage.input + usage.output + usage.cache_read + usage.cache_write_5m + usage.cache_write_1h
        self.s.has_usage = True
        if total <= answer.total:
            return False
        answer.total = total
        if self._usage is not None and self._usage.key != usage.key:
            self._let_go()
        self._usage = usage
        return True

    def _call(self, native: str, block: Block, place: str, model: str | None, at: int | None) -> None:
        name = block.name or None
        key = fact_key(AGENT, "tool_call", *_tool_native(block.id, native, place))
        if block.id:
            self.s.tools[block.id] = (name, native)
        if name == "Workflow":
            self._kind("workflow")
        text = readable(block.input)
        self._turn(key, "tool_call", "assistant", text, at, model=model or None, tool=name, tool_call_id=block.id)

    def _result(self, block: Block, native: str, place: str, at: int | None, counted: bool = True) -> None:
        call = block.tool_use_id
        name, asked = self.s.tools.get(call, (None, native)) if call else (None, native)
        if call and call.startswith(LONG_IDS):
            self.s.tools.pop(call, None)
        key = fact_key(AGENT, "tool_result", *_tool_native(call, asked, place))
        text = plain_text(block.content)
        error = bool(block.is_error)
        self._turn(key, "tool_result", "tool", text, at, tool=name, tool_call_id=call, is_error=error, counted=counted)

    def _user(self, record: Record, line: bytes, message: Message, at: int | None) -> bool:
        """Tool results and the prompt of a user record; whether its time stands in a fact."""
        results = False
        for index, block in enumerate(message.content if isinstance(message.content, list) else ()):
            if block.type == "tool_result":
                self._result(block, self._native(record, line), f"{self._native(record, line)}#{index}", at)
                results = True
            elif block.type not in ("text", "image", "document"):
                self.s.tally.strange(f"user/{block.type or ''}", 0)
        return self._prompt(record, line, prompt_text(message.content), at) or results

    def _prompt(self, record: Record, line: bytes, text: str, at: int | None, typed: bool = True) -> bool:
        if not text or text.isspace():
            return False
        if text.startswith(CONTINUED) and record.type == "user":
            return self._summary(record, line, text, at)
        prompt = unwrap(text)
        injected = record.is_meta or record.prompt_source == "system" or record.turn_origin == "task_notification"
        if injected or _notifies(record.origin):
            prompt = Prompt(text, False, "system")
        elif record.is_sidechain and not self.is_agent:
            prompt = prompt._replace(counted=False)
        counted = prompt.counted and typed
        command = prompt.command or ""
        if command in ("clear", "reset", "new"):
            self.s.cleared = self.s.cleared or not self.s.spoken
        elif counted and "ralph-loop" in command:
            self._kind("ralph-loop")
        elif counted and command == "goal" and prompt.text != "/goal":
            self._kind("goal")
        self.s.spoken = self.s.spoken or counted
        key = fact_key(AGENT, "message", self._native(record, line), prompt.text[:HEAD])
        self._turn(key, "message", prompt.role, prompt.text, at, counted=counted)
        return True

    def _summary(self, record: Record, line: bytes, text: str, at: int | None) -> bool:
        """The summary that completes a compaction. Without a boundary (2025) the compaction has this record's uuid."""
        s = self.s
        native = self._native(record, line)
        self._turn(fact_key(AGENT, "summary", native, text[:HEAD]), "compaction", "system", text, at, counted=False)
        if record.is_sidechain and not self.is_agent:
            return True
        begun = s.compacted.get(native) or s.boundary or Boundary(native, at, None, None)
        s.compacted[native], s.boundary = begun, None
        self._facts.compactions.append(
            Compaction(
                key=fact_key(AGENT, "compaction", begun.id),
                id=begun.id,
                at=begun.at if begun.at is not None else at,
                trigger=begun.trigger,
                size_before=begun.size_before,
                copied=self._copied,
                copied_from=self._copied_from,
            )
        )
        return True

    def _attachment(self, record: Record, line: bytes, at: int | None) -> None:
        self._links(record)
        attached = record.attachment
        kind = attached.type if attached is not None else None
        if kind == "goal_status":
            self._kind("goal")
        if attached is not None and kind == "queued_command":
            # typed while the agent was busy; a command of another mode is a notification or a shell line
            typed = attached.command_mode in (None, "prompt") and not (attached.is_meta or _notifies(attached.origin))
            if self._prompt(record, line, prompt_text(attached.prompt), at, typed):
                return
        self._mark(record, at)

    def _system(self, record: Record, line: bytes, at: int | None) -> None:
        if record.subtype == "local_command":
            if self._prompt(record, line, plain_text(record.content), at, typed=False):
                return
        elif record.subtype == "compact_boundary":
            about = record.compact_metadata
            trigger, size = (about.trigger, about.pre_tokens) if about is not None else (None, None)
            self.s.boundary = Boundary(self._native(record, line), at, trigger, size)
        self._mark(record, at)

    # records that do not

    def _side(self, record: Record, line: bytes, at: int | None) -> None:
        s = self.s
        match record.type:
            case "custom-title":
                s.custom_title = record.custom_title or s.custom_title
            case "ai-title":
                s.ai_title = record.ai_title or s.ai_title
            case "summary":
                if record.leaf_uuid and record.summary:
                    s.summaries.pop(record.leaf_uuid, None)
                    s.summaries[record.leaf_uuid] = record.summary
            case kind if kind not in SIDE_TYPES:
                s.tally.strange(kind, len(line))
        if record.uuid:
            self._mark(record, at)
        elif at is not None and record.session_id in (None, self.identity.id):
            # never copied by a fork (2.1.332), so the header can say it
            s.side.add(at)

    def _mark(self, record: Record, at: int | None) -> None:
        """A record that is no turn: its time alone.

        Progress of one tool is one mark, however long it runs: a client writes one record a second.
        """
        if at is None:
            return
        first = last = at
        tool = (record.parent_tool_use_id or record.tool_use_id) if record.type == "progress" else None
        if tool:
            key = fact_key(AGENT, "mark", tool, "progress")
            run = self.s.progress
            if run is not None and run.key == key:
                first, last = min(run.first, at), max(run.last, at)
            self.s.progress = Run(key, first, last)
        else:
            key = fact_key(AGENT, "mark", record.uuid or f"{self.identity.key}#{at}", record.type or "")
        mark = Mark(first=first, last=last, key=key, copied=self._copied, copied_from=self._copied_from)
        marks = self._facts.marks
        if marks and marks[-1].key == key:
            marks.pop()
        marks.append(mark)

    def _turn(self, key: int, kind: Kind, role: Role, text: str, at: int | None, **about: Unpack[About]) -> None:
        self._facts.turns.append(turn_of(key, kind, role, text, at, self._copied, self._copied_from, **about))

    def _let_go(self) -> None:
        if self._usage is not None:
            self._facts.usage.append(self._usage)
            self._usage = None

    def _kind(self, kind: str) -> None:
        if self._copied != PROVEN and kind not in self.s.kinds:
            self.s.kinds.append(kind)

    def _native(self, record: Record, line: bytes) -> str:
        """The record's uuid; without one a name that no other session can have."""
        return record.uuid or f"{self.identity.key}#{hashlib.sha256(line).hexdigest()[:16]}"


def _notifies(origin: Origin | None) -> bool:
    return origin is not None and origin.kind == "task-notification"


def _tool_native(call: str | None, message: str, place: str) -> tuple[str, str]:
    """Name and witness of a tool call. Gateways may number calls anew in each session: the message tells them apart."""
    if call and call.startswith(LONG_IDS):
        return call, ""
    return (call, message) if call else (place, "")
