"""Cursor's transcript mirrors: JSON lines, and the text form of late 2025. Derived and lossy, without times.

They are written again whole on resume, so a record's name is its content and how often it came before, never its line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from prosa.events.facts import Kind
from prosa.ingest.cursor.prompts import REDACTED, Entry, prompt_of
from prosa.ingest.cursor.turns import Names
from prosa.ingest.json_lines import REFUSED, plain, plain_value, values
from prosa.ingest.native import readable
from prosa.ingest.tally import Tally

CALLS = frozenset({"tool_use", "tool-use", "tool_call", "tool-call"})
RESULTS = frozenset({"tool_result", "tool-result"})
THOUGHTS = frozenset({"thinking", "reasoning"})
HIDDEN = frozenset({"redacted_thinking", "redacted-thinking", "redacted-reasoning"})
IMAGES = frozenset({"image", "file", "document"})
CONTROL = frozenset({"turn_ended"})
MARKERS = ("[Thinking]", "[Tool call]", "[Tool result]")


class Mirror(NamedTuple):
    entries: list[Entry]
    known: int
    """Records of a known kind, also those that say nothing."""
    tally: Tally


def read_lines(data: bytes) -> Mirror:
    """A `.jsonl` mirror. A last line that is torn waits for its rest and is no damage."""
    names = Names()
    entries: list[Entry] = []
    tally = Tally()
    known = 0
    tools: dict[str, str] = {}
    lines = data.split(b"\n")
    for number, line in enumerate(lines):
        if not line.strip(b"\r\t \0"):
            continue
        found, lost = _records(line)
        if lost and number < len(lines) - 1:
            tally.damaged(len(line))
        for record in found:
            role = record.get("role")
            if role in ("user", "assistant", "tool"):
                known += 1
                entries += _record(role, record, names, tools)
            elif str(record.get("type")) in CONTROL or role == "system":
                known += 1
            else:
                tally.strange(plain(str(record.get("type") or role or "")), len(line))
    return Mirror(entries, known, tally)


def _records(line: bytes) -> tuple[list[dict[str, Any]], bool]:
    try:
        record = msgspec.json.decode(line)
    except REFUSED:
        return values(line)
    return ([record], False) if isinstance(record, dict) else ([], True)


def _record(role: str, record: dict[str, Any], names: Names, tools: dict[str, str]) -> Iterator[Entry]:
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else record.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    blocks = [block for block in blocks if isinstance(block, dict) and isinstance(block.get("type"), str)]
    texts = [text for block in blocks if block.get("type") == "text" and (text := _visible(block.get("text")))]
    images = [f"[{block['type']}]" for block in blocks if block.get("type") in IMAGES]
    if role == "user":
        yield from _user("\n".join(texts), images, names)
    for block in blocks:
        kind = block.get("type")
        if kind in THOUGHTS and role == "assistant":
            text = _visible(block.get("thinking") or block.get("text"))
            if text:
                yield Entry("thinking", "assistant", text, names.once(_digest("thinking", text)))
    if role == "assistant" and texts:
        text = "\n".join(texts)
        yield Entry("message", "assistant", text, names.once(_digest("assistant", text)))
    for block in blocks:
        kind = block.get("type")
        if kind in CALLS:
            yield _call(block, names, tools)
        elif kind in RESULTS:
            yield _result(block, names, tools)


def _user(text: str, images: list[str], names: Names) -> Iterator[Entry]:
    prompt = prompt_of(text)
    typed = prompt.text if prompt.counted else ""
    if not typed and images:
        typed = "\n".join(images)
    if typed:
        yield Entry("message", "user", typed, names.once(_digest("user", typed)), at=prompt.at)
    elif prompt.text:
        kind: Kind = "compaction" if prompt.is_summary else "message"
        yield Entry(kind, "system", prompt.text, names.once(_digest("system", prompt.text)), counted=False)


def _call(block: dict[str, Any], names: Names, tools: dict[str, str]) -> Entry:
    tool = _text(block.get("name") or block.get("toolName"))
    call = _text(block.get("id") or block.get("toolCallId"))
    text = readable(next((block[name] for name in ("input", "args", "arguments") if name in block), None))
    if call and tool:
        tools[call] = tool
    return Entry("tool_call", "assistant", text, names.once(_digest("call", call or f"{tool}\0{text}")), tool, call)


def _result(block: dict[str, Any], names: Names, tools: dict[str, str]) -> Entry:
    call = _text(block.get("tool_use_id") or block.get("toolCallId"))
    tool = tools.get(call or "") or _text(block.get("toolName") or block.get("name"))
    text = readable(next((block[name] for name in ("content", "result", "output") if name in block), None))
    error = block.get("is_error") is True or block.get("isError") is True
    native = names.once(_digest("result", f"{call}\0{text}"))
    return Entry("tool_result", "tool", text, native, tool, call, is_error=error)


def _visible(text: object) -> str:
    """A block's text without the mark of what was scrubbed."""
    if not isinstance(text, str):
        return ""
    text = plain(text)
    if REDACTED in text:
        text = text.replace(REDACTED, "")
    return text if text.strip() else ""


def _text(value: object) -> str | None:
    return plain_value(value) if isinstance(value, str) and value else None


def _digest(kind: str, text: str) -> str:
    return f"{kind} {hashlib.sha256(text.encode()).hexdigest()[:32]}"


# the text form


def read_text(data: bytes) -> Mirror:
    """A `.txt` mirror: `user:` and `assistant:` alone on a line begin a block, marks at column 0 a part of it."""
    names = Names()
    entries: list[Entry] = []
    text = data.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\0", "")
    role = ""
    block: list[str] = []
    known = 0
    for line in [*text.split("\n"), "user:"]:
        if line.rstrip() not in ("user:", "assistant:"):
            block.append(line)
            continue
        if role == "user":
            entries += _user("\n".join(block), [], names)
        elif role == "assistant":
            entries += _text_answer(block, names)
        known += bool(role)
        role, block = line.rstrip()[:-1], []
    return Mirror(entries, known, Tally())


def _text_answer(lines: list[str], names: Names) -> Iterator[Entry]:
    parts: list[tuple[str, str, list[str]]] = []
    prose: list[str] = []
    body: list[str] | None = None
    for line in lines:
        marker = next((mark for mark in MARKERS if line.startswith(mark)), None)
        if marker is not None:
            body = []
            parts.append((marker, line[len(marker) :].strip(), body))
        elif body is not None and (not line.strip() or line[0] in " \t"):
            body.append(line)
        else:
            body = None
            prose.append(line)
    said = _visible("\n".join(prose).strip())
    for marker, name, inner in parts:
        text = "\n".join(line.strip() for line in inner).strip()
        if marker == "[Thinking]":
            thought = _visible(f"{name}\n{text}".strip())
            if thought:
                yield Entry("thinking", "assistant", thought, names.once(_digest("thinking", thought)))
    if said:
        yield Entry("message", "assistant", said, names.once(_digest("assistant", said)))
    for marker, name, inner in parts:
        text = "\n".join(line.strip() for line in inner).strip()
        if marker == "[Tool call]":
            yield Entry("tool_call", "assistant", text, names.once(_digest("call", f"{name}\0{text}")), name or None)
        elif marker == "[Tool result]":
            yield Entry("tool_result", "tool", text, names.once(_digest("result", f"{name}\0{text}")), name or None)
