"""Hermes' messages as rows of state.db, lines of a .jsonl and entries of a snapshot write them: one reading for all."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

import msgspec

from prosa.ingest.clock import from_number, parse_iso
from prosa.ingest.json_lines import REFUSED, plain_value

STRUCTURED = "\0json:"
"""Begins a content that is a JSON document."""
BLOB = "$base64"
"""Stands in a projection for a BLOB."""

SUMMARY = re.compile(r"\s*(?:\[CONTEXT COMPACTION\s*[—–-]+\s*REFERENCE ONLY\]|\[CONTEXT SUMMARY\]:)")
PRIOR = "[PRIOR CONTEXT — for reference only; not a new message]"
MERGED = re.compile(r"\[END OF PRIOR CONTEXT\s*[—–-]+\s*COMPACTION SUMMARY BELOW\]")
SUMMARY_END = re.compile(r"--- END OF CONTEXT SUMMARY\s*[—–-]+\s*respond to [^\n]*?---")

TEXTS = ("tool_call_id", "tool_name", "name", "message_uid", "reasoning", "reasoning_content", "display_kind")
FLAGS = ("active", "compacted", "observed", "compressed_summary")

_encode = msgspec.json.Encoder(order="deterministic").encode
Record = dict[str, Any]


class Call(msgspec.Struct, frozen=True, gc=False):
    """A tool call as the agent's own form or OpenAI's writes it."""

    id: str | None
    name: str | None
    arguments: str


class Message(msgspec.Struct, gc=False):
    """One message, whatever it was read from. Wrong types are as good as missing."""

    role: str
    text: str
    """As a person reads it."""
    content: str
    """What identifies the content: the text, or the structured parts as canonical JSON."""
    calls: list[Call]
    call_id: str | None = None
    tool: str | None = None
    at: int | None = None
    uid: str | None = None
    absorbed: tuple[str, ...] = ()
    """Uids of the rows that were made this one."""
    number: str = ""
    """Row id, or the place among the messages of a file."""
    thought: str = ""
    undone: bool = False
    """Taken back, or superseded by an edit: said, but no part of the context any more."""
    observed: bool = False
    display: str | None = None
    is_summary: bool = False


class Piece(msgspec.Struct, gc=False):
    """What one message says of one kind: a compaction may have merged its summary into a message."""

    message: Message
    text: str
    is_summary: bool
    identity: str
    calls: tuple[str, ...] = ()
    """Ids of the calls it makes or answers: they survive where an older client shortened the arguments."""
    is_whole: bool = True


class Row(msgspec.Struct, gc=False):
    """What is read of a row or a file's message. Decoded at once where all types are as they should be."""

    id: int | str | None = None
    role: str = ""
    content: str | list[Any] | None = None
    tool_calls: str | list[Any] | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    name: str | None = None
    timestamp: float | str | None = None
    message_uid: str | None = None
    absorbed_message_uids: Any = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    reasoning_details: Any = None
    active: int | None = None
    compacted: int | None = None
    observed: int | None = None
    display_kind: str | None = None
    compressed_summary: int | None = msgspec.field(default=None, name="_compressed_summary")


def row_of(record: Record) -> Row:
    """A row of any types: text that is none is missing, a BLOB is text."""
    row = Row()
    for field in msgspec.structs.fields(Row):
        value = _unblob(record.get(field.encode_name))
        if field.name == "role" or (field.name in TEXTS and value is not None):
            value = value if isinstance(value, str) else None if field.name in TEXTS else ""
        elif field.name in FLAGS and value is not None:
            value = int(bool(value))
        elif field.name == "content" and not isinstance(value, (str, list, dict)) and value is not None:
            value = str(value)
        setattr(row, field.name, value)
    return row


def message_of(row: Row, number: str = "") -> Message:
    """A row's columns, or the dict of a file. Everything but the role is optional."""
    content: Any = row.content or ""
    if isinstance(content, str) and content.startswith(STRUCTURED):
        found = decoded(content[len(STRUCTURED) :])
        content = content if found is None else found
    return Message(
        role=row.role,
        text=readable(content),
        content=content if isinstance(content, str) else _encode(content).decode(),
        calls=_calls(row.tool_calls) if row.tool_calls else [],
        call_id=row.tool_call_id or None,
        tool=row.tool_name or row.name or None,
        at=time_of(row.timestamp),
        uid=row.message_uid or None,
        absorbed=_uids(row.absorbed_message_uids) if row.absorbed_message_uids else (),
        number=str(row.id) if row.id is not None else number,
        thought=_thought(row),
        undone=row.active is not None and not row.active and not row.compacted,
        observed=bool(row.observed),
        display=row.display_kind or None,
        is_summary=bool(row.compressed_summary),
    )


def time_of(value: object) -> int | None:
    """Epoch seconds (or milliseconds) as a number or a text, or an ISO stamp; naive stamps are UTC."""
    if isinstance(value, str):
        try:
            return from_number(float(value))
        except ValueError:
            return parse_iso(value.strip())
    return from_number(value)


def pieces_of(message: Message) -> list[Piece]:
    """A message as it is, or the parts of one into which a summary was merged."""
    text = message.text
    merged = MERGED.search(text) if "[END OF PRIOR CONTEXT" in text else None
    if merged is not None:
        carried = text[: merged.start()].strip()
        carried = carried.removeprefix(PRIOR).strip()
        return [_piece(message, text[merged.end() :], is_summary=True), *_rest(message, carried)]
    if not SUMMARY.match(text) and not message.is_summary:
        return [_piece(message, message.content, is_summary=False, is_whole=True)]
    end = SUMMARY_END.search(text)
    if end is None:
        return [_piece(message, text, is_summary=True), *_rest(message, "")]
    return [_piece(message, text[: end.start()], is_summary=True), *_rest(message, text[end.end() :].strip())]


def _rest(message: Message, text: str) -> list[Piece]:
    return [_piece(message, text, is_summary=False, is_whole=False)] if text or message.calls else []


def _piece(message: Message, text: str, *, is_summary: bool, is_whole: bool = False) -> Piece:
    text = text.strip() if is_summary else text
    role = "summary" if is_summary else message.role
    calls = [] if is_summary else message.calls
    told = _encode([role, text, None if is_summary else message.call_id, [(c.id, c.name, c.arguments) for c in calls]])
    ids = tuple(call.id for call in calls if call.id)
    if message.role == "tool" and message.call_id:
        ids = (message.call_id,)
    return Piece(
        message=message,
        text=message.text if is_whole else text,
        is_summary=is_summary,
        identity=hashlib.sha256(told).hexdigest()[:24],
        calls=() if is_summary or len(ids) < len(calls) else ids,
        is_whole=is_whole,
    )


def readable(content: Any) -> str:
    """The text parts of a content; where there are none, `[image]` for each image."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        content = [content]
    texts, others = [], []
    for part in content if isinstance(content, list) else ():
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif isinstance(part, dict):
            others.append(f"[{_text(part.get('type')).removesuffix('_url') or 'part'}]")
    return "\n".join(text for text in texts if text.strip()) or "\n".join(others)


def decoded(value: Any) -> Any:
    """A JSON text as its value; a value that is none already as it is; None where the text is damaged."""
    value = _unblob(value)
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except REFUSED:
        pass
    try:  # lone surrogates and NaN, which a strict decoder refuses
        return plain_value(json.loads(value, strict=False))
    except (ValueError, RecursionError):
        return None


def _calls(value: Any) -> list[Call]:
    value = decoded(value)
    found = []
    for call in value if isinstance(value, list) else ():
        if not isinstance(call, dict):
            continue
        function = call.get("function")
        inner = function if isinstance(function, dict) else call
        arguments = inner.get("arguments")
        if not isinstance(arguments, str):
            arguments = "" if arguments is None else _encode(arguments).decode()
        name = _text(inner.get("name")) or _text(call.get("name")) or None
        found.append(Call(_text(call.get("id")) or _text(call.get("call_id")) or None, name, arguments))
    return found


def _uids(value: Any) -> tuple[str, ...]:
    value = decoded(value)
    return tuple(uid for uid in value if isinstance(uid, str)) if isinstance(value, list) else ()


def _thought(row: Row) -> str:
    """Readable reasoning. The same text is often in two of the columns; encrypted items are none."""
    for text in (row.reasoning, row.reasoning_content):
        if text and text.strip():
            return text
    return "\n\n".join(_thoughts(decoded(row.reasoning_details))) if row.reasoning_details else ""


def _thoughts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts = value if isinstance(value, list) else [value] if isinstance(value, dict) else []
    texts = []
    for part in parts:
        if isinstance(part, dict):
            texts += [part[name] for name in ("text", "thinking", "summary") if isinstance(part.get(name), str)][:1]
        elif isinstance(part, str):
            texts.append(part)
    return [text for text in texts if text.strip()]


def _unblob(value: Any) -> Any:
    if isinstance(value, dict) and len(value) == 1 and isinstance(value.get(BLOB), str):
        try:
            return plain_value(base64.b64decode(value[BLOB], validate=False).decode("utf-8", "replace"))
        except ValueError:
            return None
    return value


def _text(value: Any) -> str:
    value = _unblob(value)
    return value if isinstance(value, str) else ""
