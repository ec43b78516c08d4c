"""Records of a Claude Code transcript, typed: only the fields prosa reads. `records` decodes one damaged line.

Fields that no Struct names (image bytes, `toolUseResult`, snapshots) are skipped by the decoder and never become
Python objects. What the strict decoder refuses goes through `json_lines.values` and `lenient`, field by field.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from prosa.events.facts import Usage
from prosa.ingest import json_lines

S = TypeVar("S", bound=msgspec.Struct)


class CacheSplit(msgspec.Struct):
    ephemeral_5m_input_tokens: int | None = None
    ephemeral_1h_input_tokens: int | None = None


class OutputDetails(msgspec.Struct):
    thinking_tokens: int | None = None


class Tokens(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_creation: CacheSplit | None = None
    output_tokens_details: OutputDetails | None = None
    service_tier: str | None = None
    speed: str | None = None


class Block(msgspec.Struct):
    """A content block of any kind; also the blocks inside a tool result."""

    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    tool_use_id: str | None = None
    content: str | list[Block] | Block | None = None
    is_error: bool | None = None
    title: str | None = None
    url: str | None = None


class Message(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    content: str | list[Block] | None = None
    usage: Tokens | None = None


class Attachment(msgspec.Struct, rename="camel"):
    type: str | None = None
    prompt: str | list[Block] | None = None
    command_mode: str | None = None


class CompactMetadata(msgspec.Struct, rename="camel"):
    trigger: str | None = None
    pre_tokens: int | None = None


class ForkedFrom(msgspec.Struct, rename="camel"):
    session_id: str | None = None


class Origin(msgspec.Struct):
    kind: str | None = None


class Record(msgspec.Struct, rename="camel"):
    type: str | None = None
    subtype: str | None = None
    uuid: str | None = None
    timestamp: str | None = None
    session_id: str | None = None
    process_session: str | None = msgspec.field(name="session_id", default=None)
    """The id the process started with (2.1.332): after /clear it is still the earlier session's."""
    cwd: str | None = None
    git_branch: str | None = None
    version: str | None = None
    is_meta: bool | None = None
    is_sidechain: bool | None = None
    is_compact_summary: bool | None = None
    is_api_error_message: bool | None = None
    prompt_source: str | None = None
    message: Message | None = None
    attachment: Attachment | None = None
    content: str | list[Block] | Block | None = None
    compact_metadata: CompactMetadata | None = None
    forked_from: ForkedFrom | None = None
    origin: Origin | None = None
    tool_use_id: str | None = msgspec.field(name="toolUseID", default=None)
    parent_tool_use_id: str | None = msgspec.field(name="parentToolUseID", default=None)
    custom_title: str | None = None
    ai_title: str | None = None
    summary: str | None = None
    leaf_uuid: str | None = None


NESTED: dict[tuple[type, str], type[msgspec.Struct]] = {
    (Record, "message"): Message,
    (Record, "attachment"): Attachment,
    (Record, "content"): Block,
    (Record, "compact_metadata"): CompactMetadata,
    (Record, "forked_from"): ForkedFrom,
    (Record, "origin"): Origin,
    (Message, "content"): Block,
    (Message, "usage"): Tokens,
    (Attachment, "prompt"): Block,
    (Block, "content"): Block,
    (Tokens, "cache_creation"): CacheSplit,
    (Tokens, "output_tokens_details"): OutputDetails,
}

decode = msgspec.json.Decoder(Record).decode


def records(line: bytes) -> tuple[list[Record], bool]:
    """The records of a line the strict decoder refused, and whether something of the line was lost."""
    try:
        found, lost = json_lines.values(line)
    except RecursionError:
        return [], True
    blank = not line.strip(b" \t\r\xef\xbb\xbf")
    return [lenient(value, Record) for value in found], lost or not (found or blank)


def lenient(value: dict[str, Any], kind: type[S], depth: int = 0) -> S:
    """A Struct from what fits it; a field of another type keeps its default, a bad block takes no good one with it."""
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        given = value.get(field.encode_name)
        nested = NESTED.get((kind, field.name))
        if given is None:
            continue
        if nested is Block and isinstance(given, (dict, list)) and depth < 8:
            items = given if isinstance(given, list) else [given]
            fields[field.name] = [_block(item, depth + 1) for item in items if isinstance(item, (dict, str))]
        elif nested is not None and isinstance(given, dict):
            fields[field.name] = lenient(given, nested, depth + 1)
        else:
            try:
                fields[field.name] = msgspec.convert(given, field.type, strict=False)
            except (msgspec.ValidationError, RecursionError):
                continue
    return kind(**fields)


def _block(item: dict[str, Any] | str, depth: int) -> Block:
    return Block(type="text", text=item) if isinstance(item, str) else lenient(item, Block, depth)


def usage_of(
    tokens: Tokens, key: int, at: int | None, model: str | None, copied: int, copied_from: str | None
) -> Usage:
    """Counts of one line. Cache writes: the flat field, else the sum of the split; what is not 1 hour is 5 minutes."""
    split = tokens.cache_creation or CacheSplit()
    hour = split.ephemeral_1h_input_tokens or 0
    written = tokens.cache_creation_input_tokens or hour + (split.ephemeral_5m_input_tokens or 0)
    hour = min(hour, written)
    tier = tokens.speed if tokens.speed not in (None, "", "standard") else tokens.service_tier
    return Usage(
        key=key,
        at=at,
        model=model,
        input=tokens.input_tokens or 0,
        output=tokens.output_tokens or 0,
        cache_read=tokens.cache_read_input_tokens or 0,
        cache_write_5m=written - hour,
        cache_write_1h=hour,
        reasoning=tokens.output_tokens_details.thinking_tokens if tokens.output_tokens_details is not None else None,
        tier=None if tier in (None, "", "standard", "default") else tier,
        copied=copied,
        copied_from=copied_from,
    )
