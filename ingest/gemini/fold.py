"""Folds one Gemini CLI session into facts.

A message is written two or three times under one id, and whole lists of messages come again behind a resume or a
compression: stripped of tokens and calls, stamped anew, or under new ids. So a message is (id, type), a record of its
own adds and updates, a list only fills gaps, and nothing that was ever recorded is taken back ($rewindTo included).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Unpack

import msgspec

from prosa.events.facts import Compaction, Facts, Header, Kind, Mark, Role, Usage, fact_key
from prosa.ingest.clock import parse_iso
from prosa.ingest.decoding import Records
from prosa.ingest.gemini import AGENT
from prosa.ingest.gemini.places import path_with_hash, workspaces
from prosa.ingest.gemini.prompts import COMMANDS, INJECTED, SNAPSHOT, is_acknowledgement, is_prompt
from prosa.ingest.gemini.records import (
    Content,
    FunctionResponse,
    Message,
    Meta,
    Record,
    Thought,
    Tokens,
    ToolCall,
    decoder,
    output_of,
    parts_of,
    response_text,
    says_error,
    spoken,
    strings,
)
from prosa.ingest.gemini.state import Call, Said, State, digest
from prosa.ingest.importer import Identity
from prosa.ingest.readable import readable
from prosa.ingest.tally import count
from prosa.ingest.turn import About, turn_of

USER, ANSWER, NOTICE = "user", "gemini", "notice"
TYPES = {
    "user": USER, "gemini": ANSWER, "model": ANSWER, "assistant": ANSWER, "info": NOTICE, "error": NOTICE,
    "warning": NOTICE,
}  # fmt: skip
OPEN_CALLS = 256
"""Calls among which that of a response without an id is looked for."""
LOG_REASON = "the prompt log does not record compactions"


class Fold:
    """See `importer.Fold`. One instance reads one canonical raw from its start or from a saved state."""

    def __init__(self, identity: Identity, state: bytes | None = None) -> None:
        self.identity = identity
        self._session = identity.key
        self.s = msgspec.msgpack.decode(state, type=State) if state is not None else State()
        self._records = Records(decoder, self.s.tally, self.s.rest)
        self._facts = Facts([], [], [], [])
        self._tried: set[str] = set()
        """Paths whose hash was compared."""

    def feed(self, data: bytes) -> None:
        for record, line in self._records.feed(data):
            self._record(record, len(line))

    def end(self) -> None:
        for record, line in self._records.end():
            self._record(record, len(line))

    def take(self) -> Facts:
        facts, self._facts = self._facts, Facts([], [], [], [])
        return facts

    def state(self) -> bytes:
        self.s.rest = self._records.rest
        return msgspec.msgpack.encode(self.s)

    def header(self) -> Header:
        s = self.s
        only_logged = s.logged and not s.begun
        return Header(
            cwd=self._cwd(),
            title=s.title,
            parent=self.identity.scope,
            started_at=s.stated.first,
            last_activity_at=s.stated.last,
            compactions_known=not only_logged,
            compactions_reason=LOG_REASON if only_logged else None,
            has_usage=s.has_usage,
            unknown=dict(s.tally.unknown),
            malformed=s.tally.malformed,
            malformed_bytes=s.tally.malformed_bytes,
        )

    def _record(self, record: Record, size: int) -> None:
        """Which kind of line this is shows in its shape, tried in the agent's own order."""
        if record.container is not None:
            if not (self.s.begun or self.s.logged):
                self.s.cwd = record.container.cwd
        elif record.rewind_to is not None:
            pass  # what was said stays said
        elif record.id:
            self._message(record, record.id, size=size)
        elif record.set is not None:
            self._meta(record.set, listed=True)
        elif record.session_id and record.message is not None:
            self._logged(record)
        elif record.session_id or record.project_hash:
            self._meta(record.meta(), listed=False)
        else:
            self.s.tally.strange(record.type, size)

    def _meta(self, meta: Meta, listed: bool) -> None:
        """Header fields. `listed`: the messages are a list that the client made of what it had read."""
        s = self.s
        s.begun = True
        s.project_hash = s.project_hash or meta.project_hash
        s.title = meta.summary or s.title
        if meta.kind == "subagent" and meta.directories:
            s.directory = s.directory or meta.directories[0]
        s.stated.add(parse_iso(meta.start_time))
        s.stated.add(parse_iso(meta.last_updated))
        fresh: dict[str, str] = {}
        for place, message in enumerate(meta.messages or ()):
            self._message(message, message.id or self._nameless(message, place, listed), listed=listed, fresh=fresh)
        s.texts.update(fresh)

    @staticmethod
    def _nameless(message: Message, place: int, listed: bool) -> str:
        """An id for a message without one: its place in a document, its content in a list."""
        if not listed:
            return f"#{place}"
        text = spoken(message.content if message.content is not None else message.parts)
        return f"#{digest(text):x}/{message.timestamp}"

    def _message(
        self,
        message: Message,
        native: str,
        *,
        listed: bool = False,
        size: int = 0,
        fresh: dict[str, str] | None = None,
    ) -> None:
        """One record of a message. A `listed` one only adds what is not known; `fresh` takes the texts of a list."""
        s = self.s
        s.begun = True
        kind = TYPES.get(message.type or "")
        if kind is None:
            s.tally.strange(f"message/{message.type or ''}", size)
        name = f"{native}\0{kind or message.type or ''}"
        name = s.aliases.get(name, name)
        content = message.content if message.content is not None else message.parts
        text = spoken(content)
        mark = _mark_of(kind, message, content, text)
        said = s.messages.get(name)
        if said is None:
            original = self._original(message, content, text, mark) if listed else None
            if original is not None:
                # behind a compression the messages that are kept come again under new ids
                s.aliases[name] = name = original
                said = s.messages[original]
            else:
                said = s.messages[name] = Said(parse_iso(message.timestamp))
        elif not listed:
            at = parse_iso(message.timestamp)
            said.at = at if said.at is None else min(at, said.at) if at is not None else said.at
        before = len(self._facts.turns) + len(self._facts.usage)
        if kind == ANSWER:
            self._answer(message, name, said, content, text, listed)
        elif kind == USER:
            self._user(message, name, said, content, text, listed)
        said.has_text = said.has_text or bool(text and not text.isspace())
        if mark and mark not in s.texts:
            (fresh if listed and fresh is not None else s.texts).setdefault(mark, name)
        if not listed and before == len(self._facts.turns) + len(self._facts.usage):
            self._mark(name, said.at)

    def _original(self, message: Message, content: Content, text: str, mark: str) -> str | None:
        """The message that one in a list repeats under a new id: it has the same text, or asks for the same call."""
        original = self.s.texts.get(mark) if SNAPSHOT not in text else None
        if original is not None or TYPES.get(message.type or "") != ANSWER:
            return original
        ids = [call.id for call in message.tool_calls or ()]
        ids += [part.function_call.id for part in parts_of(content) if part.function_call is not None]
        calls = (self.s.calls.get(call_id) for call_id in ids if call_id)
        owners = ("\0".join(call.native.split("\0", 2)[:2]) for call in calls if call is not None)
        return next((owner for owner in owners if owner in self.s.messages), None)

    # answers

    def _answer(self, message: Message, name: str, said: Said, content: Content, text: str, listed: bool) -> None:
        model = message.model or said.model
        if not listed or said.thoughts == 0:
            self._think(message, name, said, content, model)
        if text and not text.isspace() and (not listed or not said.has_text):
            counted = not is_acknowledgement(text)
            self._turn("message", name, "assistant", text, said.at, model=model, counted=counted)
        if message.tokens is not None and not (listed and said.has_usage):
            self._tokens(message.tokens, name, said, model)
        said.model = model
        if message.tool_calls:
            for place, call in enumerate(message.tool_calls):
                self._call(call, place, name, said, listed)
            said.has_calls, said.part_calls = True, []
        elif not said.has_calls and not isinstance(content, str):
            self._part_calls(content, name, said, listed)
        if not isinstance(content, str):
            self._responses(content, name, said)

    def _think(self, message: Message, name: str, said: Said, content: Content, model: str | None) -> None:
        """`thoughts`, else the parts that are thoughts: a client writes the same ones in both places."""
        thoughts = message.thoughts or []
        if not thoughts and said.thoughts == 0:
            thoughts = [Thought(description=part.text) for part in parts_of(content) if part.thought]
        place = 0
        for thought in thoughts:
            text = "\n".join(line for line in (thought.subject, thought.description) if line and not line.isspace())
            if text:
                at = parse_iso(thought.timestamp) or said.at
                self._turn("thinking", name, "assistant", text, at, place=str(place), model=model)
                place += 1
        said.thoughts = max(said.thoughts, place)

    def _tokens(self, tokens: Tokens, name: str, said: Said, model: str | None) -> None:
        """One request of the model: `input` has the cached part in it, `output` lacks the thoughts."""
        said.has_usage = self.s.has_usage = True
        cached = count(tokens.cached)
        usage = Usage(
            key=self._key("usage", name),
            at=said.at,
            model=model,
            input=max(count(tokens.input) - cached, 0) + count(tokens.tool),
            output=count(tokens.output) + count(tokens.thoughts),
            cache_read=cached,
            reasoning=None if tokens.thoughts is None else count(tokens.thoughts),
        )
        self._facts.usage.append(usage)

    # calls

    def _call(self, given: ToolCall, place: int, name: str, said: Said, listed: bool) -> None:
        call_id = given.id or f"@{name}\0{place}"
        known = self._own_call(call_id, name, listed)
        if known is not None and listed and (known.status or known.answered):
            if not known.answered and given.result:
                failed = known.status == "error" and not known.flagged
                self._result(known, given.id, output_of(given.result), failed, parse_iso(given.timestamp))
            return
        if known is None:
            known = self.s.calls.pop(said.part_calls[place], None) if place < len(said.part_calls) else None
            known = known or Call(f"{name}\0{call_id}")
            self.s.calls.pop(call_id, None)
            self.s.calls[call_id] = known
        known.tool, known.status = given.name or known.tool, given.status or known.status
        failed = known.status == "error"
        known.flagged = failed and not given.result and (known.flagged or not known.answered)
        self._say_call(known, given.id, given.args, said, known.flagged)
        if given.result:
            self._result(known, given.id, output_of(given.result), failed, parse_iso(given.timestamp) or said.at)
        elif not listed:
            self._mark(known.native, parse_iso(given.timestamp))

    def _own_call(self, call_id: str, name: str, listed: bool) -> Call | None:
        """The call of this id. In a list it may stand under a new message; else another message's is another call."""
        known = self.s.calls.get(call_id)
        if known is None or listed or known.native.startswith(f"{name}\0"):
            return known
        return None

    def _part_calls(self, content: Content, name: str, said: Said, listed: bool) -> None:
        """Calls among the parts of the content: all there is where the record with `toolCalls` is gone or to come."""
        place = 0
        for part in parts_of(content):
            given = part.function_call
            if given is None:
                continue
            call_id = given.id or f"@{name}\0{place}"
            known = self._own_call(call_id, name, listed)
            if known is None:
                known = Call(f"{name}\0{call_id}", given.name)
                self.s.calls.pop(call_id, None)
                self.s.calls[call_id] = known
                self._say_call(known, given.id, given.args, said, False)
            if call_id not in said.part_calls:
                said.part_calls.append(call_id)
            place += 1

    def _responses(self, content: Content, name: str, said: Said) -> int:
        """Results among the parts, and how many there were. Of those without an id their place tells which are new."""
        found = [part.function_response for part in parts_of(content) if part.function_response is not None]
        nameless = 0
        for given in found:
            nameless += not given.id
            if given.id or nameless > said.nameless:
                self._response(given, name, said.at)
        said.nameless = max(said.nameless, nameless)
        return len(found)

    def _response(self, given: FunctionResponse, name: str, at: int | None) -> None:
        """What a functionResponse says, unless the call's own record has said it."""
        known = self.s.calls.get(given.id) if given.id else self._unanswered(given.name)
        failed = says_error(given.response)
        text = response_text(given.response)
        if known is None:
            # its call is not on disk: shown, nothing to count it for
            place = given.id or given.name or ""
            self._turn(
                "tool_result",
                name,
                "tool",
                text,
                at,
                place=place,
                tool=given.name,
                tool_call_id=given.id,
                counted=False,
            )
        elif not known.answered:
            if known.status is not None:
                failed = known.status == "error"
            self._result(known, given.id, text, failed and not known.flagged, at)

    def _unanswered(self, tool: str | None) -> Call | None:
        latest = islice(reversed(self.s.calls.values()), OPEN_CALLS)
        return next((call for call in latest if call.tool == tool and not call.answered), None)

    def _say_call(self, known: Call, call_id: str | None, args: object, said: Said, failed: bool) -> None:
        if self.s.cwd is None:
            self._look_for_cwd(strings(args))
        self._turn(
            "tool_call", known.native, "assistant", readable(args), said.at, model=said.model, tool=known.tool,
            tool_call_id=call_id, is_error=failed,
        )  # fmt: skip

    def _result(self, known: Call, call_id: str | None, text: str, failed: bool, at: int | None) -> None:
        known.answered = True
        self._turn(
            "tool_result", known.native, "tool", text, at, tool=known.tool, tool_call_id=call_id, is_error=failed
        )

    # what the user's side says

    def _user(self, message: Message, name: str, said: Said, content: Content, text: str, listed: bool) -> None:
        responses = self._responses(content, name, said)
        typed = spoken(message.display_content)
        shown = typed if typed and not typed.isspace() else text
        if not shown or shown.isspace() or (listed and said.has_text):
            return
        start = text.lstrip()
        if start.startswith(SNAPSHOT):
            self._turn("compaction", name, "system", text, said.at, counted=False)
            native = name.partition("\0")[0]
            self._facts.compactions.append(Compaction(key=self._key("completed", name), id=native, at=said.at))
        elif start.startswith(INJECTED):
            if self.s.cwd is None:
                self._workspaces(text)
            self._turn("message", name, "system", text, said.at, counted=False)
        elif responses and shown is text:
            # text beside a response is what the tool read
            self._turn("message", name, "tool", text, said.at, counted=False)
        else:
            self._turn("message", name, "user", shown, said.at, counted=not start.startswith(COMMANDS))

    def _logged(self, record: Record) -> None:
        """A row of logs.json."""
        self.s.logged = True
        text = record.message or ""
        at = parse_iso(record.timestamp)
        name = f"log\0{record.message_id}\0{record.timestamp}"
        prompt = record.type == "user" and is_prompt(text)
        if text and not text.isspace():
            self._turn("message", name, "user", text, at, counted=prompt)
        else:
            self._mark(name, at)

    # where it was

    def _cwd(self) -> str | None:
        """The folder's word, a path with the project's hash, the first workspace; for sub-agents their own folder."""
        s = self.s
        return s.cwd or s.hashed_cwd or (s.workspace if s.project_hash is None else None) or s.directory

    def _workspaces(self, text: str) -> None:
        paths = workspaces(text)
        self.s.workspace = self.s.workspace or next(iter(paths), None)
        self._look_for_cwd(paths)

    def _look_for_cwd(self, texts: Iterable[str]) -> None:
        s = self.s
        if s.project_hash is not None and s.hashed_cwd is None:
            s.hashed_cwd = path_with_hash(texts, s.project_hash, self._tried)

    # facts

    def _key(self, kind: str, native: str, witness: str = "") -> int:
        return fact_key(AGENT, kind, f"{self._session}\0{native}", witness)

    def _turn(
        self,
        kind: Kind,
        native: str,
        role: Role,
        text: str,
        at: int | None,
        place: str = "",
        **about: Unpack[About],
    ) -> None:
        self._facts.turns.append(turn_of(self._key(kind, native, place), kind, role, text, at, **about))

    def _mark(self, native: str, at: int | None) -> None:
        if at is not None:
            self._facts.marks.append(Mark(first=at, last=at, key=self._key("mark", native)))


def _mark_of(kind: str | None, message: Message, content: Content, text: str) -> str:
    """By what a message is known under another id: its type and text, without text its thoughts."""
    if text and not text.isspace():
        return f"{kind}/{digest(text)}"
    thoughts = [part.text for part in parts_of(content) if part.thought and part.text]
    thoughts += [thought.description for thought in message.thoughts or () if thought.description]
    return f"{kind}/thought/{digest(thoughts[0])}" if thoughts else ""
