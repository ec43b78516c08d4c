"""opencode's records as the fold reads them: a row's or a file's JSON, wrong types as good as missing."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec

from prosa.events.facts import NOT_COPIED
from prosa.ingest.clock import from_number
from prosa.ingest.json_lines import REFUSED, plain_value

Record = dict[str, Any]


def decoded(text: Any) -> Record | None:
    """The object of a JSON text; None where it is damaged."""
    if isinstance(text, dict) and isinstance(text.get("$base64"), str):
        try:
            text = base64.b64decode(text["$base64"]).decode("utf-8", "replace")
        except ValueError:
            return None
    if not isinstance(text, str):
        return None
    text = text.strip("\ufeff\0\r\n\t ")
    try:
        value = msgspec.json.decode(text)
    except REFUSED:
        try:  # lone surrogates and NaN, which a strict decoder refuses
            value = plain_value(json.loads(text, strict=False))
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


class Message(msgspec.Struct):
    """A message and its parts."""

    id: str
    data: Record
    created: int | None = None
    """Microseconds, as everywhere behind this module."""
    completed: int | None = None
    copy_of: str | None = None
    copied: int = NOT_COPIED
    copied_from: str | None = None
    parts: list[tuple[str, Record]] = []

    @property
    def role(self) -> str:
        return text_of(self.data.get("role"))


def message_of(row: Record, copy_of: Any) -> Message | None:
    """None where the data is damaged."""
    data = decoded(row.get("data"))
    if data is None:
        return None
    begun, completed = times_of(data)
    created = from_number(row.get("time_created")) or begun
    parts = _inline(data) if "parts" in data else []
    return Message(text_of(row.get("id")), data, created, completed, text_of(copy_of) or None, parts=parts)


def times_of(data: Record) -> tuple[int | None, int | None]:
    """When a message or part began and when it was complete."""
    time = data.get("time")
    if not isinstance(time, dict):
        time = _dict(_dict(data.get("metadata")).get("time"))
        if not time:
            return None, None
    begun = time.get("created", time.get("start"))
    return from_number(begun), from_number(time.get("completed", time.get("end")))


def _inline(data: Record) -> list[tuple[str, Record]]:
    """Parts inside the message (before July 2025), tool calls in the words of that time."""
    found = []
    parts = data.get("parts")
    for place, part in enumerate(parts if isinstance(parts, list) else ()):
        if not isinstance(part, dict):
            continue
        asked = _dict(part.get("toolInvocation"))
        if part.get("type") == "tool-invocation" and asked:
            state: Record = {"status": "running", "input": asked.get("args")}
            if asked.get("state") == "result":
                told = _dict(_dict(_dict(data.get("metadata")).get("tool")).get(text_of(asked.get("toolCallId"))))
                state |= {"status": "error" if told.get("error") else "completed", "output": asked.get("result")}
                state["error"] = asked.get("result")
            part = {"type": "tool", "tool": asked.get("toolName"), "callID": asked.get("toolCallId"), "state": state}
        found.append((f"#{place:06}", part))
    return found


def assistant_of(data: Record) -> Record:
    """Model and tokens of an answer, which the oldest messages hold in their metadata."""
    if "tokens" in data or "modelID" in data:
        return data
    return _dict(_dict(data.get("metadata")).get("assistant")) or data


def counts_of(data: Record) -> tuple[int, int, int, int, int] | None:
    """Input, output with reasoning, cache read, cache written, reasoning; None where nothing is recorded."""
    tokens = data.get("tokens")
    if not isinstance(tokens, dict):
        return None
    cache = _dict(tokens.get("cache"))
    reasoning = _count(tokens.get("reasoning"))
    output = _count(tokens.get("output")) + reasoning
    return _count(tokens.get("input")), output, _count(cache.get("read")), _count(cache.get("write")), reasoning


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
        return 0
    return int(value)


def _dict(value: Any) -> Record:
    return value if isinstance(value, dict) else {}


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""
