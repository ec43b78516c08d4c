"""Folds the events of one Copilot session into facts.

A sub-agent runs inside the same file: its events carry `agentId`, and its turns are shown but are none of this
session's, while its tokens are. Event ids are not known to survive any copy, so every key has the session's key in it.
"""

from __future__ import annotations

import hashlib
from typing import Unpack

import msgspec

from prosa.events.facts import Compaction, Facts, Header, Kind, Role, Usage, fact_key
from prosa.ingest.clock import parse_iso
from prosa.ingest.copilot import AGENT
from prosa.ingest.copilot.history import MARK, History
from prosa.ingest.copilot.records import (
    Data,
    Event,
    Failure,
    Metrics,
    Result,
    Tokens,
    attached,
    events,
    text_of,
)
from prosa.ingest.copilot.state import Call, Counts, State
from prosa.ingest.importer import Identity
from prosa.ingest.json_lines import Lines
from prosa.ingest.readable import readable_input
from prosa.ingest.tally import count
from prosa.ingest.turn import About, turn_of

HUMAN = (None, "", "user", "human")
"""`source` of a prompt that somebody typed; others are skills, agents, the client."""
SIDE_TYPES = frozenset(
    {
        "abort", "assistant.intent", "assistant.turn_end", "assistant.turn_start", "hook.end", "hook.start",
        "session.background_tasks_changed", "session.compaction_start", "session.context_changed", "session.handoff",
        "session.idle", "session.info", "session.mode_changed", "session.plan_changed", "session.snapshot_rewind",
        "session.task_complete", "session.title_changed", "session.truncation", "session.usage_info",
        "session.warning", "session.workspace_file_changed", "skill.invoked", "subagent.completed",
        "subagent.configured", "subagent.deselected", "subagent.failed", "subagent.selected", "subagent.started",
        "system.message", "system.notification", "tool.execution_partial_result", "tool.execution_progress",
        "tool.user_requested",
    }
)  # fmt: skip


class Fold:
    """See `importer.Fold`. One instance reads one raw from its start or from a saved state."""

    def __init__(self, identity: Identity, state: bytes | None = None) -> None:
        self.identity = identity
        self.s = msgspec.msgpack.decode(state, type=State) if state is not None else State()
        self._lines = Lines(self.s.rest)
        self._facts = Facts([], [], [], [])
        self._history: History | None = None
        """Not None: the raw is a document of the first generation."""

    def feed(self, data: bytes) -> None:
        if self._history is not None:
            self._history.feed(data)
            return
        lines = self._lines.feed(data)
        for index, line in enumerate(lines):
            if line.startswith(MARK):
                self._history = History(self.identity, line)
                self._history.feed(b"\n".join((*lines[index + 1 :], self._lines.rest)))
                self._lines = Lines()
                return
            self._line(line)

    def end(self) -> None:
        """A last line that lacks only its newline is read; a torn one waits."""
        if self._history is not None:
            self._history.end()
            return
        rest = self._lines.rest
        if rest.rstrip().endswith(b"}"):
            found, lost = events(rest)
            if not lost:
                self._lines = Lines()
                for event in found:
                    self._event(event, rest)

    def take(self) -> Facts:
        if self._history is not None:
            return self._history.take()
        facts, self._facts = self._facts, Facts([], [], [], [])
        return facts

    def state(self) -> bytes | None:
        if self._history is not None:
            return None
        self.s.rest = self._lines.rest
        return msgspec.msgpack.encode(self.s)

    def header(self) -> Header:
        if self._history is not None:
            return self._history.header()
        s = self.s
        return Header(
            cwd=s.cwd,
            branch=s.branch,
            clients=tuple(s.clients),
            models=(s.selected,) if s.selected else (),
            started_at=s.started if s.started is not None else s.times.first,
            last_activity_at=s.times.last,
            has_usage=s.has_usage,
            unknown=dict(s.tally.unknown),
            malformed=s.tally.malformed,
            malformed_bytes=s.tally.malformed_bytes,
        )

    def _line(self, line: bytes) -> None:
        found, lost = events(line)
        if lost:
            self.s.tally.damaged(len(line))
        for event in found:
            self._event(event, line)

    def _event(self, event: Event, line: bytes) -> None:
        s = self.s
        at = parse_iso(event.timestamp)
        s.times.add(at)
        data = event.data or Data()
        native = event.id or self._nameless(line)
        # before 1.0.9x a sub-agent's events name only the call that started it
        main = not (event.agent_id or data.parent_tool_call_id)
        match event.type:
            case "session.start" | "session.resume":
                self._begun(data, main)
            case "user.message":
                self._prompt(data, native, at, main)
            case "assistant.message":
                self._answer(data, native, at, main)
            case "assistant.reasoning":
                self._say(f"{native}\0thought", "thinking", "assistant", text_of(data.content), at, counted=main)
            case "tool.execution_start":
                text = readable_input(data.arguments)
                self._call(data.tool_call_id or native, data.tool_name, text, "", None, at, main)
            case "tool.execution_complete":
                self._result(data, native, at, main)
            case "session.usage_record":
                self._requested(data.usage or data, native, at)
            case "session.shutdown":
                self._shut_down(data, native, at)
            case "session.compaction_complete":
                if data.success and main:
                    self._compacted(data, native, at)
            case "session.model_change":
                pass
            case "session.error":
                self._say(native, "message", "system", data.message or "", at, counted=False)
            case kind if kind not in SIDE_TYPES:
                s.tally.strange(kind, len(line))

    def _nameless(self, line: bytes) -> str:
        """A name for an event without id: its content, and how many-th of that content it is."""
        digest = hashlib.blake2b(line, digest_size=12).hexdigest()
        self.s.nameless[digest] = self.s.nameless.get(digest, 0) + 1
        return f"{digest}#{self.s.nameless[digest]}"

    def _key(self, kind: str, native: str, witness: str = "") -> int:
        return fact_key(AGENT, kind, f"{self.identity.key}\0{native}", witness)

    def _begun(self, data: Data, main: bool) -> None:
        s = self.s
        if not main:
            return
        if data.copilot_version and data.copilot_version not in s.clients:
            s.clients.append(data.copilot_version)
        s.selected = s.selected or data.selected_model
        if s.started is None:
            s.started = parse_iso(data.start_time)
        if data.context is not None:
            s.cwd = s.cwd or data.context.cwd
            s.branch = s.branch or data.context.branch

    # what was said

    def _prompt(self, data: Data, native: str, at: int | None, main: bool) -> None:
        text = text_of(data.content)
        if not text or text.isspace():
            text = attached(data.attachments)
        counted = main and data.source in HUMAN
        self._say(native, "message", "user", text, at, counted=counted)

    def _answer(self, data: Data, native: str, at: int | None, main: bool) -> None:
        message = data.message_id or native
        model = data.model or None if main else None
        if data.reasoning_text:
            self._say(
                f"{message}\0thought", "thinking", "assistant", data.reasoning_text, at, model=model, counted=main
            )
        self._say(f"{message}\0text", "message", "assistant", text_of(data.content), at, model=model, counted=main)
        for request in data.tool_requests or ():
            text = readable_input(request.arguments)
            id_ = request.tool_call_id or f"{message}\0{request.name}\0{text[:64]}"
            self._call(id_, request.name, text, message, model, at, main)

    def _call(
        self, id_: str, name: str | None, text: str, asked: str, model: str | None, at: int | None, main: bool
    ) -> None:
        """A call, by the message that asked for it or, where that is lost, by its start (`asked` is empty).

        Gateways may number calls anew: an id that another message asks for after its result is another call.
        """
        calls = self.s.calls
        call = calls.get(id_)
        if call is None:
            call = calls[id_] = Call(name or None, asked)
        elif asked and call.asked and call.done and call.asked != asked:
            call = calls[id_] = Call(name or None, asked, call.again + 1)
        else:
            known, call.asked = call.name is not None, call.asked or asked
            if known or not name:
                return
            call.name = name
        key = self._key("tool_call", id_, str(call.again) if call.again else "")
        self._turn(key, "tool_call", "assistant", text, at, model=model, tool=call.name, tool_call_id=id_, counted=main)

    def _result(self, data: Data, native: str, at: int | None, main: bool) -> None:
        id_ = data.tool_call_id or native
        call = self.s.calls.get(id_)
        if call is None:
            call = self.s.calls[id_] = Call(data.tool_name or None, "")
        call.done = True
        call.at = at if call.at is None else call.at
        shell = data.shell_execution
        failed = data.success is False or (shell is not None and bool(shell.exit_code))
        key = self._key("tool_result", id_, str(call.again) if call.again else "")
        text = _output(data.result, data.error)
        self._turn(
            key, "tool_result", "tool", text, call.at, tool=call.name, tool_call_id=id_, is_error=failed, counted=main
        )

    def _compacted(self, data: Data, native: str, at: int | None) -> None:
        before = count(data.pre_compaction_tokens) or None
        self._facts.compactions.append(
            Compaction(key=self._key("compaction", native), id=native, at=at, trigger=data.trigger, size_before=before)
        )
        self._say(f"{native}\0summary", "compaction", "system", data.summary_content or "", at, counted=False)

    # what it cost

    def _requested(self, tokens: Tokens, native: str, at: int | None) -> None:
        """Tokens of one request, also of a sub-agent's.

        `accounting` names who made the request; if a fork should copy it, both have the same key.
        """
        self.s.recorded = self.s.has_usage = True
        account = tokens.accounting
        if account is not None and account.source_session_id and account.usage_id:
            key = fact_key(AGENT, "request", account.source_session_id, f"{account.sequence}\0{account.usage_id}")
        else:
            key = self._key("request", native)
        self._facts.usage.append(_usage(key, at, tokens.model, _counts(tokens)))

    def _shut_down(self, data: Data, native: str, at: int | None) -> None:
        """Amounts by model. Since 1.0.8x they include the runs before, in earlier versions only this one.

        They count only where no request was recorded one by one since the last shutdown.
        """
        s = self.s
        snapshot = data.accounting_snapshot
        metrics = data.model_metrics or (snapshot.model_metrics if snapshot is not None else None)
        if not metrics:
            return
        now = {model: _counts(one.usage) for model, one in _used(metrics)}
        grown = all(model in now and _covers(now[model], before) for model, before in s.booked.items())
        for model, spent in now.items():
            before = s.booked.get(model) if grown else None
            new = _minus(spent, before) if before is not None else spent
            if not s.recorded:
                s.has_usage = True
                if any(new):
                    self._facts.usage.append(_usage(self._key("usage", native, model), at, model, new))
        s.booked, s.recorded = now, False

    # telling

    def _say(self, native: str, kind: Kind, role: Role, text: str, at: int | None, **about: Unpack[About]) -> None:
        if text and not text.isspace():
            self._turn(self._key(kind, native), kind, role, text, at, **about)

    def _turn(self, key: int, kind: Kind, role: Role, text: str, at: int | None, **about: Unpack[About]) -> None:
        self._facts.turns.append(turn_of(key, kind, role, text, at, **about))


def _output(result: Result | str | None, error: Failure | str | None) -> str:
    if isinstance(result, str):
        return result
    text = text_of(result.content) or result.detailed_content or "" if result is not None else ""
    if text:
        return text
    return error if isinstance(error, str) else error.message or "" if error is not None else ""


def _used(metrics: dict[str, Metrics]) -> list[tuple[str, Metrics]]:
    return [(model, one) for model, one in metrics.items() if one.usage is not None]


def _counts(tokens: Tokens | None) -> Counts:
    tokens = tokens or Tokens()
    reasoning = None if tokens.reasoning_tokens is None else count(tokens.reasoning_tokens)
    read, written = count(tokens.cache_read_tokens), count(tokens.cache_write_tokens)
    return count(tokens.input_tokens), count(tokens.output_tokens), read, written, reasoning


def _covers(now: Counts, before: Counts) -> bool:
    return all((new or 0) >= (old or 0) for new, old in zip(now, before, strict=True))


def _minus(now: Counts, before: Counts) -> Counts:
    reasoning = None if now[4] is None else now[4] - (before[4] or 0)
    return now[0] - before[0], now[1] - before[1], now[2] - before[2], now[3] - before[3], reasoning


def _usage(key: int, at: int | None, model: str | None, counts: Counts) -> Usage:
    """The client's input includes both cache counts."""
    total, output, read, written, reasoning = counts
    return Usage(
        key=key,
        at=at,
        model=model or None,
        input=max(total - read - written, 0),
        output=output,
        cache_read=read,
        cache_write_5m=written,
        reasoning=reasoning,
    )
