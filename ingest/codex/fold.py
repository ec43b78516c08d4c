"""The fold of one Codex rollout: lines in, facts out. What each kind of line means is in the modules it calls.

What the newcomer gets wrong: a prompt stands in a file two or three times (codex_talk), and what a fork replayed of
its parent is not its own (codex_state).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from prosa.events.facts import PROVEN, Facts, Header
from prosa.ingest.clock import parse_iso
from prosa.ingest.codex import calls as codex_calls
from prosa.ingest.codex import names as codex_names
from prosa.ingest.codex import talk as codex_talk
from prosa.ingest.codex import usage as codex_usage
from prosa.ingest.codex.records import Line, Payload, is_review, line_of, payload_of, recovered, spawn_parent
from prosa.ingest.codex.state import Reading, State, uuid_ms
from prosa.ingest.importer import Identity
from prosa.ingest.json_lines import REFUSED, Lines

FLAT_REASON = "flat rollouts of 2025 do not record compactions"
STARTS = ("task_started", "turn_started")


class Fold:
    """Parser of one rollout. Feeding in any pieces, with `state` between, gives the same facts in the end."""

    def __init__(self, identity: Identity, state: bytes | None = None) -> None:
        self._s = msgspec.msgpack.decode(state, type=State) if state is not None else State()
        self._reading = Reading(identity.id, self._s)
        self._lines = Lines(self._s.rest)
        self._document: list[bytes] | None = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes. A line without its newline waits."""
        if self._document is not None:
            self._document.append(data)
            return
        lines = self._lines.feed(data)
        if lines and not self._s.begun:
            self._s.begun = True
            if lines[0].strip() == b"{":  # the TypeScript client's document, indented
                self._document = [b"\n".join(lines), b"\n", self._lines.rest]
                return
        for line in lines:
            if line:
                self._line(line)

    def take(self) -> Facts:
        """What is new or changed since the last take, in reading order, and forget it."""
        return self._reading.take()

    def header(self) -> Header:
        """What is known of the session so far."""
        s = self._s
        return Header(
            cwd=s.cwd,
            branch=s.branch,
            title=s.title,
            objective=s.objective,
            kinds=("goal",) if s.goal else (),
            parent=s.parent,
            forked_from=s.forked_from,
            clients=tuple(s.clients),
            models=tuple(s.models),
            started_at=s.started_at,
            last_activity_at=s.last_activity_at,
            compactions_known=not s.flat,
            compactions_reason=FLAT_REASON if s.flat else None,
            has_usage=s.has_usage,
            unknown=dict(s.tally.unknown),
            malformed=s.tally.malformed,
            malformed_bytes=s.tally.malformed_bytes,
        )

    def end(self) -> None:
        """The raw is complete as it is on disk: a document is read now, and a last line that only lacks its newline.

        A whole JSON object cannot grow into another one; what is torn is none and waits.
        """
        whole = self._lines.rest if self._document is None else b"".join(self._document)
        if not whole.strip():
            return
        try:
            record = line_of(whole)
        except REFUSED:
            if self._document is not None:
                self._s.tally.damaged(len(whole))
            return
        self._lines, self._document = Lines(), None
        self._s.begun = True
        self._record(record, whole)

    def state(self) -> bytes | None:
        """All that is needed to go on later, after `take`; None for a document."""
        if self._document is not None:
            return None
        self._s.rest = self._lines.rest
        return msgspec.msgpack.encode(self._s)

    def _line(self, line: bytes) -> None:
        try:
            record = line_of(line)
        except REFUSED:
            records, lost = recovered(line)
            if lost:
                self._s.tally.damaged(len(line))
            for record, data in records:
                self._record(record, data)
            return
        self._record(record, line)

    def _record(self, record: Line, data: bytes) -> None:
        reading = self._reading
        reading.told = False
        payload = record.payload
        if payload is None:
            self._bare(record, data)
            return
        reading.stamp = record.timestamp
        reading.at = at = parse_iso(record.timestamp)
        if record.type == "response_item":
            self._item(record, payload, len(data))
        elif record.type == "event_msg":
            self._event(payload, len(data))
        else:
            handle = LINES.get(record.type or "")
            if handle is not None:
                handle(reading, payload)
            else:
                reading.place(None, None)
                if record.type not in codex_names.LINES:
                    reading.s.tally.strange(record.type or "", len(data))
        if at is not None and not reading.told and not reading.copied:
            reading.mark(at)

    def _item(self, record: Line | None, payload: Payload, size: int) -> None:
        reading = self._reading
        turn = payload.passthrough.turn_id if payload.passthrough is not None else None
        reading.place(turn, None)
        native = reading.s.native if turn is None or turn == reading.s.turn else reading.native_of(turn)
        handle = ITEMS.get(payload.type or "")
        if handle is not None:
            handle(reading, payload, native, record)
        elif payload.type not in codex_names.ITEMS:
            reading.s.tally.strange(f"response_item/{payload.type}", size)

    def _event(self, payload: Payload, size: int) -> None:
        reading = self._reading
        if payload.type in STARTS:
            reading.enter(payload.turn_id)
        reading.place(payload.turn_id, payload.thread_id)
        handle = EVENTS.get(payload.type or "")
        if handle is not None:
            handle(reading, payload)
        elif payload.type not in codex_names.EVENTS:
            reading.s.tally.strange(f"event_msg/{payload.type}", size)

    def _bare(self, record: Line, data: bytes) -> None:
        """A record without envelope: the flat era, which has no times, or a whole document of the TypeScript client."""
        s = self._s
        self._reading.at = None
        if record.items is not None:
            self._flat(record.session.timestamp if record.session is not None else None)
            for item in record.items:
                self._item(None, item, 0)
        elif record.type is None and record.id is not None and not s.met:
            self._flat(record.timestamp)
            s.branch = record.git.branch if record.git is not None else None
        elif record.type in ITEMS or record.type in codex_names.ITEMS:
            if not s.met:
                self._flat(None)
            try:
                payload = payload_of(data)
            except REFUSED:
                self._s.tally.strange(record.type or "", len(data))
                return
            self._item(None, payload, len(data))
        elif record.record_type is None:
            self._s.tally.strange(record.type or "", len(data))

    def _flat(self, started: str | None) -> None:
        s = self._s
        s.flat = s.met = True
        s.prompts = "items"
        s.started_at = s.last_activity_at = parse_iso(started)


def _session_meta(reading: Reading, p: Payload) -> None:
    """The first is this session's; the same id again is a resume; another's stands at the head of a replay."""
    s = reading.s
    if p.id is not None and p.id != reading.id:
        if s.forked_from is None and not s.turn:  # clients of 2025 do not name the parent
            s.fork = s.replay = True
            s.forked_from = p.id
            s.born_ms = s.born_ms or uuid_ms(reading.id) or 0
        if s.replay:
            reading.replaying(p.id)
        reading.copied = PROVEN
        return
    if not s.met:
        s.met = True
        _own_meta(reading, p)
    reading.place(None, reading.id)
    if p.cli_version and p.cli_version not in s.clients:
        s.clients.append(p.cli_version)


def _own_meta(reading: Reading, p: Payload) -> None:
    s = reading.s
    s.started_at = parse_iso(p.timestamp)
    s.cwd = p.cwd or s.cwd
    s.branch = p.git.branch if p.git is not None else None
    s.parent = spawn_parent(p.source) or p.parent_thread_id
    s.forked_from = p.forked_from_id or (p.history_base.thread_id if p.history_base is not None else None)
    s.apart = is_review(p.source)
    s.fork = s.replay = s.forked_from is not None and p.history_mode != "paginated"
    s.burst_at = reading.at
    s.born_ms = uuid_ms(reading.id) or (s.started_at or 0) // 1000


def _turn_context(reading: Reading, p: Payload) -> None:
    s = reading.s
    reading.enter(p.turn_id)
    reading.place(p.turn_id, None)
    s.model = p.model or s.model
    if not reading.copied:
        s.cwd = s.cwd or p.cwd
        if p.model and p.model not in s.models:
            s.models.append(p.model)


def _named(reading: Reading, p: Payload) -> None:
    if not reading.copied and p.thread_id in (None, reading.id):
        reading.s.title = p.thread_name or None


def _goal(reading: Reading, p: Payload) -> None:
    if not reading.copied and p.goal is not None:
        reading.s.goal = True
        reading.s.objective = reading.s.objective or p.goal.objective


def _settings(reading: Reading, p: Payload) -> None:
    if not reading.copied and p.thread_settings is not None:
        reading.s.model = p.thread_settings.model or reading.s.model
        tier = p.thread_settings.service_tier
        reading.s.tier = None if tier in ("default", "auto", "standard") else tier


LINES: dict[str, Callable[[Reading, Payload], None]] = {
    "session_meta": _session_meta,
    "turn_context": _turn_context,
    "compacted": codex_talk.compacted,
    "token_usage_record": codex_usage.usage_record,
}
ITEMS: dict[str, Callable[[Reading, Payload, str, Line | None], None]] = {
    "message": codex_talk.message,
    "agent_message": codex_talk.agent_message,
    "reasoning": codex_talk.reasoning,
    "function_call": codex_calls.call,
    "custom_tool_call": codex_calls.call,
    "local_shell_call": codex_calls.call,
    "web_search_call": codex_calls.call,
    "tool_search_call": codex_calls.call,
    "image_generation_call": codex_calls.call,
    "function_call_output": codex_calls.output,
    "custom_tool_call_output": codex_calls.output,
    "local_shell_call_output": codex_calls.output,
    "mcp_tool_call_output": codex_calls.output,
    "tool_search_output": codex_calls.output,
}
EVENTS: dict[str, Callable[[Reading, Payload], None]] = {
    "user_message": codex_talk.user_message,
    "item_completed": codex_talk.item_completed,
    "token_count": codex_usage.token_count,
    "exec_command_end": codex_calls.command_end,
    "patch_apply_end": codex_calls.patch_end,
    "mcp_tool_call_end": codex_calls.mcp_end,
    "context_compacted": codex_talk.context_compacted,
    "thread_name_updated": _named,
    "thread_goal_updated": _goal,
    "thread_settings_applied": _settings,
    "error": codex_talk.error,
}
