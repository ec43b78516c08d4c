"""Entries of a Pi session, typed: only the fields prosa reads. `entries` decodes one damaged line.

Fields that no Struct names (image bytes, tool details, costs) are skipped by the decoder. What the strict decoder
refuses goes through `json_lines.values` and `lenient`, field by field.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from prosa.ingest import json_lines

S = TypeVar("S", bound=msgspec.Struct)

REFUSED = (msgspec.DecodeError, ValueError, RecursionError)
"""What the strict decoder raises; a ValidationError is a DecodeError."""
DEPTH = 50
COUNT_LIMIT = 1 << 53
IMAGE = "[image]"


class Tokens(msgspec.Struct, rename="camel"):
    input: int | None = None
    """Uncached."""
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = msgspec.field(name="cacheWrite1h", default=None)
    """The part of `cacheWrite` that lives an hour."""
    reasoning: int | None = None


class Block(msgspec.Struct):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    arguments: Any = None


Content = str | list[Block] | None


class Message(msgspec.Struct, rename="camel"):
    role: str | None = None
    content: Content = None
    timestamp: int | float | str | None = None
    model: str | None = None
    usage: Tokens | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    is_error: bool | None = None
    command: str | None = None
    output: str | None = None
    summary: str | None = None


class Entry(msgspec.Struct, rename="camel"):
    """A line of any type, the header too."""

    type: str | None = None
    id: str | None = None
    timestamp: int | float | str | None = None
    message: Message | None = None
    content: Content = None
    summary: str | None = None
    tokens_before: int | None = None
    usage: Tokens | None = None
    model: str | None = None
    name: str | None = None
    cwd: str | None = None
    version: int | None = None
    parent_session: str | None = None
    branched_from: str | None = None


NESTED: dict[str, type[msgspec.Struct]] = {"message": Message, "content": Block, "usage": Tokens}

decode = msgspec.json.Decoder(Entry).decode


def entries(line: bytes) -> tuple[list[Entry], bool]:
    """The entries of a line the strict decoder refused, and whether something of the line was lost."""
    try:
        found, lost = json_lines.values(line)
    except RecursionError:
        return [], True
    blank = not line.strip(b" \t\r\0\xef\xbb\xbf")
    return [lenient(value, Entry) for value in found], lost or not (found or blank)


def lenient(value: dict[str, Any], kind: type[S], depth: int = 0) -> S:
    """A Struct from what fits it; a field of another type keeps its default, a bad block takes no good one with it."""
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        given = value.get(field.encode_name)
        nested = NESTED.get(field.encode_name)
        if given is None or depth > DEPTH:
            continue
        if nested is Block and isinstance(given, (dict, list)):
            fields[field.name] = [
                lenient(item, Block, depth + 1) if isinstance(item, dict) else Block(type="text", text=item)
                for item in (given if isinstance(given, list) else [given])
                if isinstance(item, (dict, str))
            ]
        elif nested is not None and isinstance(given, dict):
            fields[field.name] = lenient(given, nested, depth + 1)
        else:
            try:
                fields[field.name] = msgspec.convert(given, field.type, strict=False)
            except (msgspec.ValidationError, ValueError, OverflowError, RecursionError):
                continue
    return kind(**fields)


def spoken(content: Content) -> str:
    """The texts of a content; where there is none, in place of each image a word."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = [block.text for block in content if block.type == "text" and block.text]
    text = texts[0] if len(texts) == 1 else "\n".join(texts)
    return text if text and not text.isspace() else "\n".join(IMAGE for block in content if block.type == "image")


def output_of(content: Content) -> str:
    """What a tool gave back, images in their places."""
    return "\n".join(spoken([block]) for block in content) if isinstance(content, list) else content or ""


def readable(value: Any, depth: int = 0) -> str:
    """A tool's input as people read it: names and values by line, strings with their own line breaks."""
    if isinstance(value, str):
        return value
    if not isinstance(value, (dict, list)):
        return "" if value is None else msgspec.json.encode(value).decode()
    if depth > DEPTH:
        return "…"
    if isinstance(value, list):
        return "\n".join(f"- {readable(item, depth + 1)}" for item in value)
    if depth == 0 and len(value) == 1:
        return readable(next(iter(value.values())), 1)
    return "\n".join(f"{name}: {readable(item, depth + 1)}" for name, item in value.items())


def count(number: int | None) -> int:
    """A number of tokens, or 0 where no agent can have meant it."""
    return number if number is not None and 0 <= number < COUNT_LIMIT else 0
