"""The two lists of a conversation in a Cursor store: messages for the model (root field 1), the turn tree (field 8).

The tree is the whole history; the messages are cut by a summary, but have results and thoughts that the tree may lack.
Names within the session come from request, message and tool ids, or from the blob and the place in its turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from prosa.events.facts import Role
from prosa.ingest.cursor.prompts import Entry, prompt_of
from prosa.ingest.cursor.store import ids
from prosa.ingest.json_lines import plain
from prosa.ingest.native import json_value, readable
from prosa.ingest.protobuf import Message, WireError, leaves
from prosa.ingest.protobuf import readable as readable_bytes

TOOLS = {
    1: "Shell", 3: "Delete", 4: "Glob", 5: "Grep", 8: "Read", 9: "TodoWrite", 10: "ReadTodos", 12: "Edit", 13: "LS",
    14: "ReadLints", 15: "MCP", 16: "SemSearch", 17: "CreatePlan", 18: "WebSearch", 19: "Task", 23: "AskQuestion",
    24: "Fetch",
}  # fmt: skip
SUCCESS = 1
IMAGES = ("image", "file")
ROLES = ("system", "user", "assistant", "tool")
PARTS = ("text", "reasoning", "redacted-reasoning", "tool-call", "tool-result", *IMAGES)


class Spoken(NamedTuple):
    """A prompt and what followed it; the first has no prompt where the list begins without one."""

    entries: list[Entry]

    @property
    def prompt(self) -> str | None:
        first = self.entries[0] if self.entries else None
        return " ".join(first.text.split()) if first and first.role == "user" and first.counted else None


class Reading(NamedTuple):
    turns: list[Spoken]
    unreadable: int
    """Listed blobs that are there and are no such record."""
    unknown: dict[str, tuple[int, int]]
    """Kinds of record and of part that nobody knows: count and bytes."""

    @property
    def user_turns(self) -> int:
        """Prompts, and what the client said or ran in the user's place."""
        return sum(e.role == "user" and e.kind == "message" for turn in self.turns for e in turn.entries)


class Names:
    """Makes the n-th use of a name a name of its own."""

    def __init__(self) -> None:
        self._uses: Counter[str] = Counter()

    def once(self, name: str) -> str:
        self._uses[name] += 1
        uses = self._uses[name]
        return name if uses == 1 else f"{name}#{uses}"


class Unknown:
    """Counts what this parser does not know."""

    def __init__(self) -> None:
        self.kinds: dict[str, tuple[int, int]] = {}

    def add(self, kind: str, size: int) -> None:
        count, before = self.kinds.get(kind, (0, 0))
        self.kinds[kind] = (count + 1, before + size)

    def message(self, said: dict[str, Any], size: int) -> None:
        """A JSON message: its role, and the types of its parts."""
        role = said.get("role")
        if not isinstance(role, str) or role not in ROLES:
            self.add(f"role {plain(str(role))[:80]}", size)
        content = said.get("content")
        for part in content if isinstance(content, list) else ():
            kind = part.get("type") if isinstance(part, dict) else None
            if not isinstance(kind, str) or kind not in PARTS:
                self.add(f"part {plain(str(kind))[:80]}", 0)


# messages


def read_messages(root: Message, blobs: Mapping[str, bytes], copied: int = 0) -> Reading:
    """The conversation as the model saw it; the first `copied` messages are another chat's."""
    names = Names()
    turns: list[Spoken] = []
    called: dict[str, tuple[str | None, str]] = {}
    unreadable = 0
    unknown = Unknown()
    for number, name in enumerate(ids(root, 1)):
        if name not in blobs:
            continue
        try:
            said = json_value(blobs[name])
        except (ValueError, RecursionError):
            unreadable += 1
            continue
        if not isinstance(said, dict):
            unreadable += 1
            continue
        unknown.message(said, len(blobs[name]))
        entries = [entry._replace(copied=number < copied) for entry in _message(said, name, names, called)]
        if not entries:
            continue
        if not turns or (entries[0].role == "user" and entries[0].counted):
            turns.append(Spoken([]))
        turns[-1].entries.extend(entries)
    return Reading(turns, unreadable, unknown.kinds)


def _message(said: dict[str, Any], name: str, names: Names, called: dict[str, tuple[str | None, str]]) -> list[Entry]:
    content = said.get("content")
    parts: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else []
    if isinstance(content, list):
        parts = content
    match said.get("role"):
        case "user":
            return _user(said, parts, name, names)
        case "assistant":
            return _answer(parts, name, names, called)
        case "tool":
            return _results(said, parts, name, names, called)
    return []


def _user(said: dict[str, Any], parts: list[Any], name: str, names: Names) -> list[Entry]:
    text = "\n".join(part["text"] for part in parts if _is(part, "text") and isinstance(part.get("text"), str))
    prompt = prompt_of(plain(text))
    typed, counted = prompt.text, prompt.counted
    images = [f"[{part['type']}]" for part in parts if isinstance(part, dict) and part.get("type") in IMAGES]
    if images and not counted and not prompt.is_summary:
        typed, counted = "\n".join(images), True
    if not typed:
        return []
    native = names.once(_request(said) or name)
    if counted:
        return [Entry("message", "user", typed, native, at=prompt.at)]
    return [Entry("compaction" if prompt.is_summary else "message", "system", typed, native, counted=False)]


def _request(said: dict[str, Any]) -> str | None:
    options = said.get("providerOptions")
    cursor = options.get("cursor") if isinstance(options, dict) else None
    request = cursor.get("requestId") if isinstance(cursor, dict) else None
    return plain(request) if isinstance(request, str) and request else None


def _answer(parts: list[Any], name: str, names: Names, called: dict[str, tuple[str | None, str]]) -> list[Entry]:
    entries: list[Entry] = []
    texts: list[str] = []
    for index, part in enumerate(parts):
        text = part.get("text") if isinstance(part, dict) else None
        if _is(part, "text") and isinstance(text, str) and text.strip():
            texts.append(plain(text))
        elif _is(part, "reasoning") and isinstance(text, str) and text.strip():
            entries.append(Entry("thinking", "assistant", plain(text), names.once(f"{name}/{index}")))
    if texts:
        entries.append(Entry("message", "assistant", "\n".join(texts), names.once(name)))
    for index, part in enumerate(parts):
        if not _is(part, "tool-call"):
            continue
        call, tool = _text(part.get("toolCallId")), _text(part.get("toolName"))
        native = names.once(f"call {call}" if call else f"{name}/{index}")
        if call:
            called[call] = (tool, native)
        entries.append(Entry("tool_call", "assistant", readable(part.get("args")), native, tool, call))
    return entries


def _results(
    said: dict[str, Any], parts: list[Any], name: str, names: Names, called: dict[str, tuple[str | None, str]]
) -> list[Entry]:
    entries: list[Entry] = []
    failed = _high_level_error(said)
    for index, part in enumerate(parts):
        if not _is(part, "tool-result"):
            continue
        call = _text(part.get("toolCallId"))
        tool, asked = called.get(call or "", (_text(part.get("toolName")), call and f"call {call}"))
        native = names.once(f"result {asked}" if asked else f"{name}/{index}")
        error = part.get("isError") is True or failed
        text = readable(part.get("result", part.get("output")))
        entries.append(Entry("tool_result", "tool", text, native, tool, call, is_error=error))
    return entries


def _high_level_error(said: dict[str, Any]) -> bool:
    options = said.get("providerOptions")
    cursor = options.get("cursor") if isinstance(options, dict) else None
    result = cursor.get("highLevelToolCallResult") if isinstance(cursor, dict) else None
    return isinstance(result, dict) and result.get("isError") is True


def _is(part: object, kind: str) -> bool:
    return isinstance(part, dict) and part.get("type") == kind


def _text(value: object) -> str | None:
    return plain(value) if isinstance(value, str) and value else None


# turn tree


def read_tree(root: Message, blobs: Mapping[str, bytes], copied: int = 0) -> Reading:
    """The conversation as the user sees it: one turn for each prompt, and one for each `!command`.

    The first `copied` prompts and steps are another chat's.
    """
    names = Names()
    turns: list[Spoken] = []
    unreadable = 0
    unknown = Unknown()
    for index, name in enumerate(ids(root, 8)):
        try:
            turn = Message(blobs.get(name, b""))
        except WireError:
            unreadable += 1
            continue
        entries: list[Entry] = []
        if 1 in turn:
            entries, bad = _agent_turn(turn.message(1), blobs, copied, names, unknown, index)
            unreadable += bad
            copied -= len(ids(turn.message(1), 1)[-1:]) + len(ids(turn.message(1), 2))
        elif 2 in turn:
            entries = _shell_turn(turn.message(2), blobs, names, index)
        # kept empty too: the timings count every turn
        turns.append(Spoken(entries))
    return Reading(turns, unreadable, unknown.kinds)


def _agent_turn(
    turn: Message, blobs: Mapping[str, bytes], copied: int, names: Names, unknown: Unknown, index: int
) -> tuple[list[Entry], int]:
    user_ids = ids(turn, 1)
    entries: list[Entry] = []
    unreadable = 0
    base = f"turn {index}"
    if user_ids and user_ids[-1] in blobs:
        name = user_ids[-1]
        try:
            user = Message(blobs[name])
        except WireError:
            user, unreadable = Message(), 1
        base = names.once(user.text(2) or name)
        prompt = prompt_of(user.text(1) or "")
        typed = prompt.text or ("[image]" if 3 in user else "")
        counted = (prompt.counted or not prompt.text) and user.number(5) != 1
        if typed:
            role: Role = "user" if counted or user.number(5) == 1 else "system"
            entry = Entry("message", role, typed, base, counted=counted, at=prompt.at, copied=copied > 0)
            entries.append(entry)
    copied -= len(user_ids[-1:])
    for number, name in enumerate(ids(turn, 2)):
        if name not in blobs:
            continue
        try:
            step = Message(blobs[name])
        except WireError:
            unreadable += 1
            continue
        if not {1, 2, 3} & step.fields.keys():
            unknown.add(f"step {min(step.fields, default=0)}", len(blobs[name]))
        entries += [entry._replace(copied=number < copied) for entry in _step(step, f"{base}/{number}")]
    return entries, unreadable


def _step(step: Message, native: str) -> list[Entry]:
    text = step.message(1).text(1)
    if text and text.strip():
        return [Entry("message", "assistant", text, native)]
    thought = step.message(3).text(1)
    if thought and thought.strip():
        return [Entry("thinking", "assistant", thought, native)]
    entries: list[Entry] = []
    call = step.message(2)
    for number, values in call.fields.items():
        for value in values[:1]:
            if isinstance(value, bytes):
                entries += _tool(number, value, native)
        if entries:
            break
    return entries


def _tool(number: int, data: bytes, native: str) -> list[Entry]:
    """A call, and its result where one is recorded: field 1 of the result is success, every other a failure."""
    try:
        body = Message(data)
    except WireError:
        return []
    tool = TOOLS.get(number, f"tool {number}")
    entries = [Entry("tool_call", "assistant", _words(body.blobs(1)), native, tool)]
    results = body.blobs(2)
    if results:
        variants = body.message(2)
        failed = bool(variants.fields) and SUCCESS not in variants
        entries.append(Entry("tool_result", "tool", _words(results), native, tool, is_error=failed))
    return entries


def _words(values: list[bytes]) -> str:
    """Every text inside, one below the other."""
    found: list[str] = []
    for value in values:
        try:
            found += [plain(leaf) for leaf in leaves(value) if isinstance(leaf, str)]
        except WireError:
            text = readable_bytes(value)
            found += [text] if text else []
    return "\n".join(found)


def _shell_turn(turn: Message, blobs: Mapping[str, bytes], names: Names, index: int) -> list[Entry]:
    """A `!command` of the user and what it printed: shown, and no prompt."""
    command = _words([blobs[name] for name in ids(turn, 1) if name in blobs])
    output = _words([blobs[name] for name in ids(turn, 2) if name in blobs])
    base = names.once(f"shell {'/'.join(ids(turn, 1)) or index}")
    entries = [Entry("message", "user", f"! {command}", base, counted=False)] if command else []
    if output:
        entries.append(Entry("message", "system", output, f"{base}/output", counted=False))
    return entries


def read_old_turns(root: Message, blobs: Mapping[str, bytes]) -> Reading:
    """Root field 2, where nothing newer is listed: prompts only."""
    names = Names()
    turns: list[Spoken] = []
    for name in ids(root, 2):
        try:
            text = Message(blobs.get(name, b"")).text(1) or ""
        except WireError:
            continue
        prompt = prompt_of(text)
        if prompt.counted:
            turns.append(Spoken([Entry("message", "user", prompt.text, names.once(name), at=prompt.at)]))
    return Reading(turns, 0, {})


# both


def merged(tree: Reading, messages: Reading) -> list[Spoken]:
    """The turns of the tree, with results, errors and thoughts that only the messages have.

    Turns are paired from the end, because the messages' beginning is cut by a summary.
    """
    turns = list(tree.turns)
    places: dict[str, list[int]] = {}
    for number, turn in enumerate(turns):
        if (prompt := turn.prompt) is not None:
            places.setdefault(prompt, []).append(number)
    last = len(turns)
    for said in reversed(messages.turns):
        waiting = places.get(said.prompt or "", [])
        while waiting and waiting[-1] >= last:
            waiting.pop()
        if waiting:
            last = waiting.pop()
            turns[last] = Spoken(_completed(turns[last].entries, said.entries))
    return turns


def _completed(shown: list[Entry], said: list[Entry]) -> list[Entry]:
    entries = list(shown)
    calls = [entry for entry in said if entry.kind == "tool_call"]
    results = {entry.call: entry for entry in said if entry.kind == "tool_result" and entry.call}
    if calls and len(calls) == sum(entry.kind == "tool_call" for entry in shown):
        entries = []
        later = iter(calls)
        answered = {entry.native for entry in shown if entry.kind == "tool_result"}
        twin: Entry | None = None
        for entry in shown:
            if entry.kind == "tool_call":
                call = next(later)
                twin = results.get(call.call or "")
                entries.append(entry._replace(call=call.call))
                if twin is not None and entry.native not in answered:
                    entries.append(twin._replace(native=entry.native, tool=entry.tool, copied=entry.copied))
            elif entry.kind == "tool_result":
                failed = entry.is_error or (twin is not None and twin.is_error)
                entries.append(entry._replace(is_error=failed, call=twin.call if twin else None))
            else:
                entries.append(entry)
    if not any(entry.kind == "thinking" for entry in entries):
        thoughts = [entry for entry in said if entry.kind == "thinking"]
        start = 1 if entries and entries[0].role == "user" else 0
        entries[start:start] = thoughts
    return entries
