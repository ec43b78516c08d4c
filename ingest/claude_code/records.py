"""Records of a Claude Code transcript, typed: only the fields prosa reads.

Fields that no Struct names (image bytes, `toolUseResult`, snapshots) are skipped by the decoder and never become
Python objects.
"""

from __future__ import annotations

from typing import Any

import msgspec

from prosa.events.facts import Usage
from prosa.ingest.decoding import Decoder
from prosa.ingest.tally import Count


class CacheSplit(msgspec.Struct):
    ephemeral_5m_input_tokens: Count | None = None
    ephemeral_1h_input_tokens: Count | None = None


class OutputDetails(msgspec.Struct):
    thinking_tokens: Count | None = None


class Tokens(msgspec.Struct):
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
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

    @classmethod
    def of_text(cls, text: str) -> Block:
        """A plain string among blocks, as gateways write it."""
        return cls(type="text", text=text)


class Message(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    content: str | list[Block] | None = None
    usage: Tokens | None = None


class CompactMetadata(msgspec.Struct, rename="camel"):
    trigger: str | None = None
    pre_tokens: Count | None = None


class ForkedFrom(msgspec.Struct, rename="camel"):
    session_id: str | None = None


class Origin(msgspec.Struct):
    kind: str | None = None


class Attachment(msgspec.Struct, rename="camel"):
    type: str | None = None
    prompt: str | list[Block] | None = None
    command_mode: str | None = None
    is_meta: bool | None = None
    origin: Origin | None = None


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
    turn_origin: str | None = None
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


decoder = Decoder(Record)


def usage_of(
    tokens: Tokens, key: int, at: int | None, model: str | None, copied: int, copied_from: str | None
) -> Usage:
    """Counts of one line. Cache writes: the flat field, else the sum of the split; what is not 1 hour is 5 minutes."""
    split = tokens.cache_creation or CacheSplit()
    hour = split.ephemeral_1h_input_tokens or 0
    written = tokens.cache_creation_input_tokens or hour + (split.ephemeral_5m_input_tokens or 0)
    hour = min(hour, written)
    tier = tokens.speed if tokens.speed not in (None, "", "standard") else tokens.service_tier
    thinking = tokens.output_tokens_details.thinking_tokens if tokens.output_tokens_details is not None else None
    return Usage(
        key=key,
        at=at,
        model=model,
        input=tokens.input_tokens or 0,
        output=tokens.output_tokens or 0,
        cache_read=tokens.cache_read_input_tokens or 0,
        cache_write_5m=written - hour,
        cache_write_1h=hour,
        reasoning=thinking,
        tier=None if tier in (None, "", "standard", "default") else tier,
        copied=copied,
        copied_from=copied_from,
    )
