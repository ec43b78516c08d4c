"""Entries of a Pi session, typed: only the fields prosa reads.

Fields that no Struct names (image bytes, tool details, costs) are skipped by the decoder.
"""

from __future__ import annotations

from typing import Any

import msgspec

from prosa.ingest.decoding import Decoder

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

    @classmethod
    def of_text(cls, text: str) -> Block:
        """A plain string among blocks."""
        return cls(type="text", text=text)


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


decoder = Decoder(Entry)


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
