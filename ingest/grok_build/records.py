"""Lines of a Grok Build session as typed records: what stands in updates.jsonl, chat_history.jsonl and summary.json.

Fields that no Struct names (checkpoints, diffs, telemetry) are walked over and never become objects; input and output
of a tool stay raw until they are shown. Format facts and where each was read: docs/formats/grok-build.md.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from prosa.ingest import json_lines
from prosa.ingest.decoding import Decoder
from prosa.ingest.json_lines import REFUSED
from prosa.ingest.readable import readable, value_of

SUMMARY, UPDATES, CHAT = "summary.json", "updates.jsonl", "chat_history.jsonl"
IMAGE = "[image]"
NOTHING = Raw(b"")
QUERY = re.compile(r"<user_query>\s*(.*?)\s*</user_query>", re.DOTALL)
SHOWN = ("output_for_prompt", "tool_output_for_prompt", "text", "content", "output", "message", "error")
"""Members of a tool's raw output that hold its text, the best first."""


class ToolName(Struct):
    name: str | None = None


class Tag(Struct):
    """`_meta` of an update, and of a content block."""

    prompt_index: int | None = field(name="promptIndex", default=None)
    interjection: bool | None = None
    hidden: bool | None = field(name="hideFromScrollback", default=None)
    host_turn: bool | None = field(name="hostTurn", default=None)
    model_id: str | None = field(name="modelId", default=None)
    display_text: str | None = field(name="displayText", default=None)
    tool: ToolName | None = field(name="x.ai/tool", default=None)


class Content(Struct):
    """A content block, and the box ACP puts around the blocks of a tool's result."""

    type: str = ""
    text: str | None = None
    uri: str | None = None
    name: str | None = None
    path: str | None = None
    new_text: str | None = field(name="newText", default=None)
    content: Content | None = None
    resource: Content | None = None
    meta: Tag | None = field(name="_meta", default=None)


class Tokens(Struct, rename="camel"):
    """Amounts of one turn: input includes both cache counts, output includes reasoning."""

    input_tokens: int | float = 0
    output_tokens: int | float = 0
    cached_read_tokens: int | float = 0
    cache_creation_tokens: int | float = 0
    reasoning_tokens: int | float | None = None
    model_usage: dict[str, Tokens] | None = None


class Update(Struct):
    kind: str = field(name="sessionUpdate", default="")
    content: Content | list[Content] | str | None = None
    tool_call_id: str | None = field(name="toolCallId", default=None)
    title: str | None = None
    status: str | None = None
    raw_input: Raw = field(name="rawInput", default=NOTHING)
    raw_output: Raw = field(name="rawOutput", default=NOTHING)
    prompt_id: str | None = None
    usage: Tokens | None = None
    checkpoint_id: str | None = None
    created_at: str | None = None
    tokens_before: int | float | None = None
    meta: Tag | None = field(name="_meta", default=None)


class Stamp(Struct, rename="camel"):
    """`_meta` of a record."""

    event_id: str | None = None
    agent_timestamp_ms: int | float | None = None
    prompt_id: str | None = None


class Params(Struct):
    session_id: str | None = field(name="sessionId", default=None)
    update: Update | None = None
    meta: Stamp | None = field(name="_meta", default=None)


class Record(Params):
    """A line of updates.jsonl; the oldest ones are the bare params."""

    timestamp: int | float | None = None
    params: Params | None = None


class Function(Struct):
    name: str | None = None
    arguments: Raw = NOTHING


class Call(Struct):
    id: str | None = None
    name: str | None = None
    arguments: Raw = NOTHING
    function: Function | None = None


class Backend(Struct):
    """A call that ran at the vendor."""

    id: str | None = None
    tool_type: str | None = None
    status: str | None = None
    action: Raw = NOTHING


class Row(Struct):
    """A line of chat_history.jsonl: `type` since format 1, `role` before."""

    type: str | None = None
    role: str | None = None
    content: Content | list[Content] | str | None = None
    synthetic_reason: str | None = None
    prompt_index: int | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None
    is_error: bool | None = None
    model_id: str | None = None
    summary: Content | list[Content] | str | None = None
    reasoning_content: str | None = None
    kind: Backend | None = None


class Section(Struct, omit_defaults=True):
    """A line that prosa put into the raw: whose lines follow, or a small file as text."""

    file: str = field(name="prosa.file", default="")
    text: str | None = None
    group: str | None = None
    group_cwd: str | None = None
    inherited: int = 0


SECTION = b'{"prosa.file":'
records = Decoder(Record)
rows = Decoder(Row)
sections = Decoder(Section)


def document(data: bytes) -> dict[str, Any] | None:
    """The object in a small JSON file, or None if it is none."""
    value = json_lines.document(data)
    return value if isinstance(value, dict) else None


def text_of(value: dict[str, Any], name: str) -> str | None:
    """A string that is not blank, trimmed; early versions wrote camelCase."""
    head, *rest = name.split("_")
    for spelled in (name, head + "".join(part.title() for part in rest)):
        found = value.get(spelled)
        if isinstance(found, str) and found.strip():
            return found.strip()
    return None


def blocks_text(content: Content | list[Content] | str | None) -> str:
    """Content as text: blocks one below the other, `[image]` where bytes stood."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else [content] if content is not None else []
    return "\n".join(text for block in blocks if (text := _block_text(block)))


def _block_text(block: Content, depth: int = 0) -> str:
    if block.text is not None:
        return block.text
    inner = block.content or block.resource
    if inner is not None and depth < 8:
        return _block_text(inner, depth + 1)
    if block.new_text is not None:
        return f"{block.path or ''}\n{block.new_text}".strip()
    if "image" in block.type:
        return IMAGE
    named = block.uri or block.name
    return named or (f"[{block.type}]" if block.type not in ("", "text", "content", "diff") else "")


def unwrapped(text: str) -> str | None:
    """What a `<user_query>` holds, or None without one."""
    found = QUERY.search(text)
    return found[1] if found else None


def output_text(raw: Raw) -> str:
    """The text in a tool's raw output: a variant's own text, else the whole as lines."""
    value = value_of(raw)
    return _shown(value) or readable(value)


def _shown(value: Any, depth: int = 0) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, dict) or depth > 4:
        return ""
    for name in SHOWN:
        if isinstance(value.get(name), str) and value[name].strip():
            return str(value[name])
    for name, inner in value.items():
        if isinstance(inner, dict) and (text := _shown(inner, depth + 1)):
            return text
        if isinstance(inner, str) and name[:1].isupper():
            return inner
    return ""


def exit_code(raw: Raw) -> int:
    """`exit_code` of a raw output; 0 where there is none."""
    if b'"exit_code"' not in bytes(raw):
        return 0
    try:
        code = msgspec.json.decode(raw, type=_Exit).exit_code
    except REFUSED:
        return 0
    return code if isinstance(code, int) else 0


class _Exit(Struct):
    exit_code: Any = None
