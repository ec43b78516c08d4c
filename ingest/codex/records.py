"""Lines of a Codex rollout as typed records, and the readable text in them.

One struct serves all payloads: msgspec walks over what is not named here without making objects of it, so
`replacement_history`, base instructions and base64 images cost a scan and nothing else. What is rarely needed
stays `Raw`. Format facts and where each was read: docs/formats/codex.md.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

import msgspec
from msgspec import Raw, Struct

from prosa.ingest.json_lines import REFUSED, plain, plain_value, values
from prosa.ingest.tally import Count

IMAGE = "[image]"
NOTHING = Raw(b"")


class Block(Struct):
    """One part of a message: text, or an image of which only the type is kept."""

    type: str = ""
    text: str | None = None


class Output(Struct):
    """Result of a tool as an object; the older form is this inside a JSON string, with an exit code."""

    content: str | list[Block] | None = None
    success: bool | None = None
    output: str | None = None
    metadata: Metadata | None = None


class Metadata(Struct):
    """`metadata` of a result, or of a line (0.171)."""

    exit_code: int | None = None
    compaction_output: bool = False
    """The message is the summary that a local compaction asked for."""


class Tokens(Struct):
    """Counts as the client writes them: input includes cached, output includes reasoning."""

    input_tokens: Count = 0
    cached_input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_write_input_tokens: Count = 0
    output_tokens: Count = 0
    reasoning_output_tokens: Count = 0
    total_tokens: Count | None = None


class Info(Struct):
    """`info` of a token_count."""

    total_token_usage: Tokens | None = None
    last_token_usage: Tokens | None = None


class Git(Struct):
    """State of the work tree when the session began."""

    branch: str | None = None


class HistoryBase(Struct):
    """What a paginated fork continues."""

    thread_id: str | None = None


class Passthrough(Struct):
    """`internal_chat_message_metadata_passthrough`: the turn of a response item, and what its blocks are."""

    turn_id: str | None = None
    content_item_kinds: list[str] | None = None


class ThreadItem(Struct):
    """`item` of an item_completed."""

    type: str | None = None
    id: str | None = None
    content: Raw = NOTHING
    status: str | None = None
    exit_code: int | None = None
    aggregated_output: Raw = NOTHING
    error: Raw = NOTHING


class Goal(Struct):
    """`goal` of a thread_goal_updated."""

    objective: str | None = None


class Settings(Struct):
    """`thread_settings`."""

    model: str | None = None
    service_tier: str | None = None


class Payload(Struct):
    """Everything read of any payload, and of any line of the flat era."""

    type: str | None = None
    id: str | None = None
    timestamp: str | None = None
    role: str | None = None
    content: str | list[Block] | None = None
    summary: str | list[Block] | None = None
    name: str | None = None
    call_id: str | None = None
    arguments: Raw = NOTHING
    input: str | None = None
    output: str | list[Block] | Output | None = None
    action: Raw = NOTHING
    tools: Raw = NOTHING
    revised_prompt: str | None = None
    turn_id: str | None = None
    thread_id: str | None = None
    passthrough: Passthrough | None = msgspec.field(default=None, name="internal_chat_message_metadata_passthrough")
    message: Raw = NOTHING
    images: Raw = NOTHING
    local_images: Raw = NOTHING
    info: Info | None = None
    usage: Tokens | None = None
    response_id: str | None = None
    item: ThreadItem | None = None
    success: bool | None = None
    exit_code: int | None = None
    status: str | None = None
    result: Raw = NOTHING
    stdout: Raw = NOTHING
    stderr: Raw = NOTHING
    aggregated_output: Raw = NOTHING
    model: str | None = None
    cwd: str | None = None
    cli_version: str | None = None
    git: Git | None = None
    source: Raw = NOTHING
    parent_thread_id: str | None = None
    forked_from_id: str | None = None
    history_mode: str | None = None
    history_base: HistoryBase | None = None
    window_id: str | None = None
    thread_name: str | None = None
    thread_settings: Settings | None = None
    goal: Goal | None = None


class Session(Struct):
    """Header of the TypeScript client's document (April 2025)."""

    id: str | None = None
    timestamp: str | None = None


class Line(Struct):
    """One line: an envelope, or a bare record of the flat era, or a whole TypeScript document."""

    timestamp: str | None = None
    type: str | None = None
    payload: Payload | None = None
    metadata: Metadata | None = None
    record_type: str | None = None
    id: str | None = None
    git: Git | None = None
    session: Session | None = None
    items: list[Payload] | None = None


class Mcp(Struct):
    """`result` of an mcp_tool_call_end."""

    err: Raw = msgspec.field(default=NOTHING, name="Err")
    ok: McpOk | None = msgspec.field(default=None, name="Ok")


class McpOk(Struct):
    """A call that came back; the tool itself may still say error."""

    content: list[Block] | None = None
    failed: bool | None = msgspec.field(default=None, name="isError")
    failed_too: bool | None = msgspec.field(default=None, name="is_error")


class Command(Struct):
    """Arguments of the tools that run a command."""

    cmd: str | None = None
    command: str | list[str] | None = None


line_of = msgspec.json.Decoder(Line).decode
payload_of = msgspec.json.Decoder(Payload).decode
_blocks_of = msgspec.json.Decoder(list[Block]).decode
_mcp_of = msgspec.json.Decoder(Mcp).decode
_output_of = msgspec.json.Decoder(Output).decode
_command_of = msgspec.json.Decoder(Command).decode
_text_of = msgspec.json.Decoder(str).decode


def recovered(line: bytes) -> tuple[list[tuple[Line, bytes]], bool]:
    """Records of a line the strict decoder refused, each with its JSON, and whether something was lost."""
    try:
        found, lost = values(line)
    except RecursionError:
        return [], True
    records = []
    for value in found:
        record = _without_wrong_types(value)
        if record is None:
            lost = True
        else:
            records.append(record)
    return records, lost


def _without_wrong_types(value: dict[str, Any]) -> tuple[Line, bytes] | None:
    """Drops one field after another that has a type nobody documents, until the rest is a record."""
    for _ in range(32):
        try:
            data = json.dumps(value, allow_nan=False).encode()
            return line_of(data), data
        except msgspec.ValidationError as bad:
            if not _drop(value, str(bad)):
                return None
        except REFUSED:
            return None
    return None


def _drop(value: dict[str, Any], complaint: str) -> bool:
    """Removes what `Expected … - at `$.payload.cwd`` names; of a list the whole list."""
    names = complaint.rpartition("`$.")[2].rstrip("`").partition("[")[0].split(".")
    holder: Any = value
    for name in names[:-1]:
        holder = holder.get(name) if isinstance(holder, dict) else None
    return isinstance(holder, dict) and holder.pop(names[-1], holder) is not holder


def raw_text(raw: Raw) -> str:
    """The string in a raw value; anything else as readable JSON; empty for null and absent."""
    data = bytes(raw)
    if not data or data == b"null":
        return ""
    try:
        return _text_of(data)
    except REFUSED:
        return readable(raw_value(raw))


def raw_value(raw: Raw) -> Any:
    """Any raw value as Python has it; None where it cannot be decoded."""
    data = bytes(raw)
    try:
        return plain_value(json.loads(data.decode("utf-8", "replace"), strict=False)) if data else None
    except REFUSED:
        return None


def raw_blocks(raw: Raw) -> list[Block]:
    """A raw list of blocks; empty for anything else."""
    try:
        return _blocks_of(raw)
    except REFUSED:
        value = raw_value(raw)
        found = [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
        texts = [(one.get("type"), one.get("text")) for one in found]
        return [Block(str(kind), text if isinstance(text, str) else None) for kind, text in texts]


def is_empty(raw: Raw) -> bool:
    """True for an absent, null or empty list."""
    return len(memoryview(raw)) < 8 and bytes(raw).replace(b" ", b"") in (b"", b"null", b"[]")


def joined(content: str | list[Block] | None) -> str:
    """The text of a message's content, each block on its own line; images as `[image]`."""
    if not isinstance(content, list):
        return content or ""
    if len(content) == 1 and content[0].text is not None:
        return content[0].text
    parts = [block.text if block.text is not None else IMAGE if "image" in block.type else "" for block in content]
    return "\n".join(part.removesuffix("\n") for part in parts if part)


def readable(value: Any) -> str:
    """A JSON value for people and for search: one line a field, real newlines."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        if len(value) == 1:
            return readable(next(iter(value.values())))
        return "\n".join(f"{name}: {one if isinstance(one, str) else _compact(one)}" for name, one in value.items())
    return "" if value is None else _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\\n", "\n")


def arguments_text(raw: Raw) -> str:
    """Arguments of a call: the command line of a shell, else one line a field. Mostly JSON inside a string."""
    data = bytes(raw)
    if data.startswith(b'"'):
        text = raw_text(raw)
        if not text.startswith("{"):
            return text
        data = text.encode()
    try:
        command = _command_of(data)
    except REFUSED:
        command = Command()
    if command.cmd is not None:
        return command.cmd
    if command.command is not None:
        return command_line(command.command)
    try:
        return readable(plain_value(json.loads(data, strict=False)))
    except REFUSED:
        return plain(data.decode("utf-8", "replace"))


def command_line(command: str | list[str]) -> str:
    """What was run: `bash -lc` and its like left out."""
    if isinstance(command, str):
        return command
    if len(command) == 3 and command[1] in ("-lc", "-c", "-Command"):
        return command[2]
    return shlex.join(command)


def action_text(raw: Raw) -> str:
    """Of a web search the query or address, of a local shell the command line."""
    action = raw_value(raw)
    if not isinstance(action, dict):
        return readable(action)
    command = action.get("command")
    if isinstance(command, list):
        return command_line([str(word) for word in command])
    queries = action.get("queries")
    if isinstance(queries, list) and queries:
        return "\n".join(str(query) for query in queries)
    return "\n".join(str(action[name]) for name in ("query", "url", "pattern") if action.get(name))


def output_text(output: str | list[Block] | Output | None) -> tuple[str, bool]:
    """Text of a result, and whether it says that the call failed."""
    if isinstance(output, str):
        packed = _packed(output)
        if packed is None:
            return output, _says_failed(output)
        output = packed
    if isinstance(output, Output):
        if output.content is not None:
            text, failed = output_text(output.content)
        else:
            text = output.output or ""
            failed = _says_failed(text)
        if output.metadata is not None and output.metadata.exit_code is not None:
            failed = output.metadata.exit_code != 0
        return text, failed or output.success is False
    text = joined(output)
    return text, _says_failed(text)


def _packed(text: str) -> Output | None:
    """The object in a string that clients of 2025 wrote as a result; other JSON is what a tool printed."""
    if not text.lstrip().startswith("{") or ('"metadata"' not in text and '"success"' not in text):
        return None
    try:
        packed = _output_of(text.encode())
    except REFUSED:
        return None
    by_code = packed.metadata is not None and (packed.output is not None or packed.metadata.exit_code is not None)
    by_success = packed.content is not None and packed.success is not None
    return packed if by_code or by_success else None


HEADS = ("Chunk ID: ", "Wall time", "Exit code: ", "Process exited", "Script failed")


def _says_failed(text: str) -> bool:
    """The header the client itself writes above an output; the output below it proves nothing."""
    text = text.lstrip()
    if not text.startswith(HEADS):
        return False
    if text.startswith("Script failed"):
        return True
    for line in text[:400].partition("\nOutput:")[0].split("\n"):
        for mark in ("Exit code: ", "Process exited with code "):
            if line.startswith(mark):
                return line.removeprefix(mark).strip() != "0"
    return False


def mcp_result(raw: Raw) -> tuple[str, bool]:
    """Text of a failed MCP call and True, or ("", False)."""
    try:
        result = _mcp_of(raw)
    except REFUSED:
        return "", False
    if bytes(result.err):
        return raw_text(result.err), True
    if result.ok is not None and (result.ok.failed or result.ok.failed_too):
        return joined(result.ok.content), True
    return "", False


def is_review(source: Raw) -> bool:
    """`{"subagent": "review"}`: a reviewer's thread has turns under the ids of its caller's (0.171, driven)."""
    value = raw_value(source) if bytes(source).startswith(b"{") else None
    return isinstance(value, dict) and value.get("subagent") == "review"


def spawn_parent(source: Raw) -> str | None:
    """`source.subagent.thread_spawn.parent_thread_id`; other shapes of `source` have none."""
    value = raw_value(source) if bytes(source).startswith(b"{") else None
    for name in ("subagent", "thread_spawn", "parent_thread_id"):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None
