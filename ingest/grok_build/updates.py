"""Turns, usage and compactions out of updates.jsonl, the log of everything that happened in a Grok Build session.

There is no message id: an answer begins with the first thought, text or call after a finished call, a prompt or the
end of a turn. A fork's log begins with the parent's lines, whose `eventId` still has the parent's id in front.
"""

from __future__ import annotations

import hashlib
from collections import deque

from prosa.events.facts import PROVEN, Compaction, Kind, Usage, fact_key
from prosa.ingest.clock import from_number, parse_iso
from prosa.ingest.grok_build import AGENT
from prosa.ingest.grok_build.records import (
    Content,
    Params,
    Record,
    Tag,
    Tokens,
    Update,
    blocks_text,
    exit_code,
    output_text,
    unwrapped,
)
from prosa.ingest.grok_build.telling import Place, Telling
from prosa.ingest.readable import readable_input
from prosa.ingest.tally import count

ENDED = ("completed", "failed")
WAKE = "subagent-completed-"
DOUBLED = 64
"""A line that comes again, byte for byte with its eventId, within this many is the same record."""
SIDE_KINDS = frozenset(
    {
        "available_commands_update", "background_tasks", "config_option_update", "current_mode_update",
        "current_model_update", "plan", "session_info_update", "subagent_finished", "subagent_progress",
        "subagent_spawned", "usage_update",
    }
)  # fmt: skip


class Speech:
    """A prompt, text or thought whose chunks may go on."""

    def __init__(self, place: Place, kind: Kind, tag: Tag | None = None) -> None:
        self.place, self.kind, self.tag = place, kind, tag
        self.key = fact_key(AGENT, kind, place.native, place.witness)
        self.parts: list[str] = []
        self.sent: list[str] = []
        """What stands for images and files; shown where there is no text."""
        self.number = place.number


class Answer:
    """What came since the last boundary."""

    def __init__(self, copied_from: str | None) -> None:
        self.copied_from = copied_from
        self.text: Speech | None = None
        self.thought: Speech | None = None
        self.last = ""
        """Kind of its latest record."""


class ToolCall:
    """A call, merged from its records."""

    def __init__(self, place: Place, native: str, witness: str, turn: int) -> None:
        self.place, self.turn = place, turn
        self.key = fact_key(AGENT, "tool_call", native, witness)
        self.result_key = fact_key(AGENT, "tool_result", native, witness)
        self.name: str | None = None
        self.named = False
        """The name is the tool's own, no title."""
        self.text = ""
        self.result: Place | None = None
        self.output = ""


class Updates:
    """Reads the records in their order and tells what they say."""

    def __init__(self, telling: Telling) -> None:
        self.telling = telling
        self.parent: str | None = None
        self.forked_at: int | None = None
        self.inherited = 0
        """Leading lines that stand in the parent too (clients without eventId)."""
        self._line = 0
        self._doubles: deque[bytes] = deque(maxlen=DOUBLED)
        self._open: Speech | None = None
        """Text or thought that has grown since it was told."""
        self._prompt: Speech | None = None
        self._answer: Answer | None = None
        self._calls: dict[str, ToolCall] = {}
        self._turn = 0
        """Turns that have ended."""
        self._active = False
        """A chunk came since the last end of a turn."""
        self._prompts: set[str | None] = set()
        """Prompt ids of those chunks."""
        self._compacting = False
        self._checkpoint: Compaction | None = None

    def record(self, record: Record, line: bytes) -> None:
        params: Params = record.params or record
        update = params.update
        if update is None or not update.kind:
            self.telling.tally.strange("updates", len(line))
            return
        self._line += 1
        if params.meta is not None and params.meta.event_id:
            digest = hashlib.blake2b(line, digest_size=8).digest()
            if digest in self._doubles:
                return
            self._doubles.append(digest)
        place = self._place(params, record.timestamp)
        self.telling.seen(place)
        prompt = params.meta.prompt_id if params.meta is not None else None
        match update.kind:
            case "user_message_chunk":
                self._user(place, update)
            case "agent_message_chunk":
                self._text(place, update, prompt)
            case "agent_thought_chunk":
                self._thought(place, update, prompt)
            case "tool_call":
                self._call(place, update, prompt)
            case "tool_call_update":
                self._call_update(place, update, prompt)
            case "turn_completed":
                self._completed(place, update)
            case "compaction_checkpoint":
                self._compacted(place, update)
            case "auto_compact_started":
                self._compacting = True
            case "auto_compact_failed" | "auto_compact_cancelled":
                self._compacting = False
            case "auto_compact_completed":
                self._compaction_ended(place, update)
            case "rewind_marker":
                self._prompt = self._answer = None
            case kind if kind not in SIDE_KINDS:
                self.telling.tally.strange(kind, len(line))

    @property
    def called(self) -> set[str]:
        """Ids and names of the calls."""
        return {*self._calls, *(call.name for call in self._calls.values() if call.name)}

    def flush(self) -> None:
        """Tells what has grown."""
        speech, self._open = self._open, None
        if speech is None:
            return
        text = "".join(speech.parts)
        if text and not text.isspace():
            self.telling.say(speech.place, speech.key, speech.kind, "assistant", text)

    def _place(self, params: Params, timestamp: int | float | None) -> Place:
        stamp = params.meta
        ms = stamp.agent_timestamp_ms if stamp is not None else None
        at = from_number(ms)
        event = stamp.event_id if stamp is not None else None
        prefix, _, number = event.rpartition("-") if event else ("", "", "")
        if not (prefix and number.isdecimal() and len(number) < 19):
            old = at is not None and self.forked_at is not None and at < self.forked_at
            copied = self.parent is not None and (old or self._line <= self.inherited)
            native = event or f"#{self._line}"
            at = at if at is not None else from_number(timestamp)
            owner = self.telling.key
            if copied:
                return Place(owner, f"{owner}\0{native}", "", None, at, PROVEN, self.parent)
            return Place(owner, f"{owner}\0{native}", "" if event is None else str(ms), None, at)
        if prefix in (self.telling.id, params.session_id):
            at = at if at is not None else from_number(timestamp)
            return Place(prefix, str(event), str(ms), int(number), at)
        return Place(prefix, str(event), str(ms), int(number), at, PROVEN, prefix)

    # speech

    def _user(self, place: Place, update: Update) -> None:
        self._interrupt()
        telling, tag = self.telling, update.meta or Tag()
        telling.spoken = self._active = True
        if tag.model_id and place.is_own and tag.model_id not in telling.models:
            telling.models.append(tag.model_id)
        text = blocks_text(update.content)
        inner = unwrapped(text)
        if inner is None and tag.interjection and not isinstance(update.content, (str, list)) and update.content:
            inner = update.content.meta.display_text if update.content.meta is not None else None
        speech = self._prompt
        if speech is None or not _joins(speech, tag, place):
            speech = Speech(place, "message", tag)
            self._prompt = speech
        speech.number = place.number
        text = inner if inner is not None else text
        if text and not text.isspace():
            (speech.parts if _is_text(update.content) else speech.sent).append(text)
            whole = "\n".join(speech.parts or speech.sent)
            reminder = whole.startswith("<system-reminder>") and whole.rstrip().endswith("</system-reminder>")
            counted = not (tag.hidden or tag.host_turn or reminder)
            telling.say(speech.place, speech.key, "message", "user", whole, counted=counted)

    def _interrupt(self) -> None:
        self.flush()
        self._answer = None

    def _answering(self, place: Place, kind: str, prompt: str | None) -> tuple[Answer, str]:
        """The answer that a record belongs to, and the kind of the record before it in there."""
        self.telling.spoken = self._active = True
        self._prompts.add(prompt)
        self._prompt = None
        answer = self._answer
        if answer is None or answer.copied_from != place.copied_from:
            self.flush()
            answer = self._answer = Answer(place.copied_from)
        before, answer.last = answer.last, kind
        return answer, before

    def _text(self, place: Place, update: Update, prompt: str | None) -> None:
        answer, before = self._answering(place, "text", prompt)
        speech = answer.text
        if speech is None:
            speech = answer.text = Speech(place, "message")
        elif before != "text" and speech.parts:
            speech.parts.append("\n\n")
        self._grow(speech, update)

    def _thought(self, place: Place, update: Update, prompt: str | None) -> None:
        answer, before = self._answering(place, "thought", prompt)
        if answer.thought is None or before != "thought":
            answer.thought = Speech(place, "thinking")
        self._grow(answer.thought, update)

    def _grow(self, speech: Speech, update: Update) -> None:
        if self._open is not speech:
            self.flush()
            self._open = speech
        speech.parts.append(blocks_text(update.content))

    # tools

    def _call(self, place: Place, update: Update, prompt: str | None) -> None:
        self._answering(place, "call", prompt)
        self._merge(self._call_of(place, update, prompt, fresh=True), place, update)

    def _call_update(self, place: Place, update: Update, prompt: str | None) -> None:
        self.telling.spoken = True
        self._merge(self._call_of(place, update, prompt, fresh=False), place, update)

    def _call_of(self, place: Place, update: Update, prompt: str | None, *, fresh: bool) -> ToolCall:
        """The call of a record. An id that comes again in another turn, after its result, is another call."""
        native = update.tool_call_id or place.native
        call = self._calls.get(native)
        again = call is not None and fresh and call.result is not None and call.turn != self._turn
        foreign = call is not None and fresh and call.place.owner != place.owner
        if call is None or again or foreign:
            witness = (prompt or str(self._turn)) if again else ""
            call = self._calls[native] = ToolCall(place, f"{place.owner}\0{native}", witness, self._turn)
        return call

    def _merge(self, call: ToolCall, place: Place, update: Update) -> None:
        own = update.meta.tool.name if update.meta is not None and update.meta.tool is not None else None
        news = False
        if own and not call.named:
            call.name, call.named, news = own, True, True
        elif call.name is None:
            call.name, news = update.title or "unknown", True
        if not call.text:
            call.text = readable_input(update.raw_input)
            news = news or bool(call.text)
        if news:
            self.flush()
            self.telling.say(
                call.place,
                call.key,
                "tool_call",
                "assistant",
                call.text,
                tool=call.name,
                tool_call_id=update.tool_call_id,
            )
        if update.status not in ENDED:
            return
        self._interrupt()
        self._prompt = None
        text = blocks_text(update.content)
        if not text or text.isspace():
            text = output_text(update.raw_output)
        call.output = text or call.output
        call.result = call.result or place
        failed = update.status == "failed" or exit_code(update.raw_output) != 0
        self.telling.say(
            call.result,
            call.result_key,
            "tool_result",
            "tool",
            call.output,
            tool=call.name,
            tool_call_id=update.tool_call_id,
            is_error=failed,
        )

    # ends of turns

    def _completed(self, place: Place, update: Update) -> None:
        self._interrupt()
        self._turn += 1
        active, prompts = self._active, self._prompts
        self._prompt, self._active, self._prompts = None, False, set()
        tokens = update.usage
        if tokens is None:
            return
        prompt = update.prompt_id or place.native
        # 1.0.3 booked a background child's tokens here again; in 1.0.41 it is a turn of this session (see the docs)
        theirs = bool(prompts) and prompt not in prompts and None not in prompts
        if prompt.startswith(WAKE) and (not active or theirs):
            return
        if place.is_own:
            self.telling.has_usage = True
        for index, (model, one) in enumerate(_by_model(tokens)):
            witness = (model or str(index)) if index else ""
            key = fact_key(AGENT, "usage", f"{place.owner}\0{prompt}", witness)
            self.telling.facts.usage.append(_usage(key, place, model, one))

    def _compacted(self, place: Place, update: Update) -> None:
        id_ = update.checkpoint_id or place.native
        at = parse_iso(update.created_at)
        self._checkpoint = Compaction(
            key=fact_key(AGENT, "compaction", f"{place.owner}\0{id_}"),
            id=id_,
            at=at if at is not None else place.at,
            trigger="auto" if self._compacting else "manual",
            copied=place.copied,
            copied_from=place.copied_from,
        )
        self.telling.facts.compactions.append(self._checkpoint)

    def _compaction_ended(self, place: Place, update: Update) -> None:
        """The end of the compaction whose checkpoint came before, or of one that left no checkpoint."""
        done = self._checkpoint
        if done is None or done.copied_from != place.copied_from:
            id_ = f"{place.native}@{place.witness}" if place.number is not None else place.native
            done = Compaction(
                key=fact_key(AGENT, "compaction", place.native, place.witness),
                id=id_,
                at=place.at,
                trigger="auto" if self._compacting else "manual",
                copied=place.copied,
                copied_from=place.copied_from,
            )
        before = count(update.tokens_before) or None
        self.telling.facts.compactions.append(
            Compaction(
                key=done.key,
                id=done.id,
                at=done.at,
                trigger=done.trigger,
                size_before=before,
                copied=done.copied,
                copied_from=done.copied_from,
            )
        )
        self._compacting, self._checkpoint = False, None


def _is_text(content: Content | list[Content] | str | None) -> bool:
    if isinstance(content, Content):
        return content.text is not None
    return isinstance(content, str) or any(block.text is not None for block in content or ())


def _joins(speech: Speech, tag: Tag, place: Place) -> bool:
    """Whether a chunk goes on with the prompt before it: the same prompt index, written by the same process."""
    before = speech.tag or Tag()
    if tag.interjection or before.interjection or before.prompt_index != tag.prompt_index:
        return False
    if bool(before.hidden) != bool(tag.hidden) or bool(before.host_turn) != bool(tag.host_turn):
        return False
    if speech.place.copied_from != place.copied_from:
        return False
    return speech.number is None or place.number is None or place.number > speech.number


def _by_model(tokens: Tokens) -> list[tuple[str | None, Tokens]]:
    """The parts of a turn by model where they make up the turn, else the turn as a whole, booked to the first."""
    parts = list((tokens.model_usage or {}).items())
    if not parts:
        return [(None, tokens)]
    spent = sum(one.input_tokens + one.output_tokens for _, one in parts)
    if len(parts) > 1 and spent == tokens.input_tokens + tokens.output_tokens:
        return [(model, one) for model, one in parts]
    return [(parts[0][0], tokens), *((model, Tokens()) for model, _ in parts[1:])]


def _usage(key: int, place: Place, model: str | None, tokens: Tokens) -> Usage:
    read, written = count(tokens.cached_read_tokens), count(tokens.cache_creation_tokens)
    return Usage(
        key=key,
        at=place.at,
        model=model,
        input=max(count(tokens.input_tokens) - read - written, 0),
        output=count(tokens.output_tokens),
        cache_read=read,
        cache_write_5m=written,
        reasoning=None if tokens.reasoning_tokens is None else count(tokens.reasoning_tokens),
        copied=place.copied,
        copied_from=place.copied_from,
    )
