"""Events of a GitHub Copilot CLI session as typed records: only the fields prosa reads.

What no Struct names (telemetry, transformed prompts, system prompts) is walked over and never becomes an object.
Format facts and where each was read: docs/formats/copilot.md.
"""

from __future__ import annotations

from msgspec import Raw, Struct

from prosa.ingest.decoding import Decoder

NOTHING = Raw(b"")


class Block(Struct):
    type: str | None = None
    text: str | None = None


class Attachment(Struct, rename="camel"):
    type: str | None = None
    display_name: str | None = None
    path: str | None = None


class Context(Struct):
    cwd: str | None = None
    branch: str | None = None


class Request(Struct, rename="camel"):
    """A tool call that an answer asks for."""

    tool_call_id: str | None = None
    name: str | None = None
    arguments: Raw = NOTHING


class Result(Struct, rename="camel"):
    content: str | list[Block] | None = None
    detailed_content: str | None = None


class Failure(Struct):
    message: str | None = None


class Shell(Struct, rename="camel"):
    exit_code: int | float | None = None


class Accounting(Struct, rename="camel"):
    source_session_id: str | None = None
    sequence: int | None = None
    usage_id: str | None = None


class Tokens(Struct, rename="camel"):
    """Input includes cache reads and writes, output includes reasoning."""

    model: str | None = None
    input_tokens: int | float | None = None
    output_tokens: int | float | None = None
    cache_read_tokens: int | float | None = None
    cache_write_tokens: int | float | None = None
    reasoning_tokens: int | float | None = None
    accounting: Accounting | None = None


class Metrics(Struct):
    usage: Tokens | None = None


class Snapshot(Struct, rename="camel"):
    model_metrics: dict[str, Metrics] | None = None


class Data(Tokens, rename="camel"):
    """`data` of every type of event."""

    session_id: str | None = None
    copilot_version: str | None = None
    start_time: str | None = None
    selected_model: str | None = None
    context: Context | None = None
    parent_tool_call_id: str | None = None
    content: str | list[Block] | None = None
    source: str | None = None
    attachments: list[Attachment] | None = None
    message_id: str | None = None
    reasoning_text: str | None = None
    tool_requests: list[Request] | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    arguments: Raw = NOTHING
    success: bool | None = None
    result: Result | str | None = None
    error: Failure | str | None = None
    message: str | None = None
    shell_execution: Shell | None = None
    trigger: str | None = None
    pre_compaction_tokens: int | float | None = None
    summary_content: str | None = None
    usage: Tokens | None = None
    model_metrics: dict[str, Metrics] | None = None
    accounting_snapshot: Snapshot | None = None


class Event(Struct, rename="camel"):
    type: str | None = None
    id: str | None = None
    timestamp: str | None = None
    agent_id: str | None = None
    data: Data | None = None


events = Decoder(Event)


def text_of(content: str | list[Block] | None) -> str:
    """Content as text: blocks one below the other, `[image]` where bytes stood."""
    if isinstance(content, str):
        return content
    return "\n".join(block.text if block.text is not None else f"[{block.type}]" for block in content or ())


def attached(attachments: list[Attachment] | None) -> str:
    """What a prompt without text was made of."""
    names = ((one.display_name or one.path or one.type or "file", one.type) for one in attachments or ())
    return "\n".join("[image]" if kind in ("image", "blob") else f"[{name}]" for name, kind in names)
