"""Records of a Gemini CLI chat, typed: only the fields prosa reads. `records` decodes one damaged line.

Every generation comes down to the same lines: a header (with the messages in it, where the file is one document), one
message, `$set`, `$rewindTo`. What no Struct names (resultDisplay, inline data) never becomes a Python object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from prosa.ingest import json_lines

S = TypeVar("S", bound=msgspec.Struct)

REFUSED = (msgspec.DecodeError, ValueError, RecursionError)
"""What the strict decoder raises; a ValidationError is a DecodeError."""
DEPTH = 50
COUNT_LIMIT = 1 << 53
IMAGE, FILE = "[image]", "[file]"


class Blob(msgspec.Struct, rename="camel"):
    mime_type: str | None = None


class FunctionCall(msgspec.Struct):
    id: str | None = None
    name: str | None = None
    args: Any = None


class FunctionResponse(msgspec.Struct):
    id: str | None = None
    name: str | None = None
    response: Any = None


class Part(msgspec.Struct, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    function_call: FunctionCall | None = None
    function_response: FunctionResponse | None = None
    inline_data: Blob | None = None
    file_data: Blob | None = None


Content = str | Part | list[str | Part] | None


class Thought(msgspec.Struct):
    subject: str | None = None
    description: str | None = None
    timestamp: str | None = None


class Tokens(msgspec.Struct):
    input: int | None = None
    """With what came from the cache."""
    output: int | None = None
    """Without thoughts."""
    cached: int | None = None
    thoughts: int | None = None
    tool: int | None = None


class ToolCall(msgspec.Struct):
    id: str | None = None
    name: str | None = None
    args: Any = None
    result: Content = None
    status: str | None = None
    timestamp: str | None = None


class Message(msgspec.Struct, rename="camel"):
    id: str | None = None
    timestamp: str | None = None
    type: str | None = None
    content: Content = None
    display_content: Content = None
    parts: Content = None
    model: str | None = None
    thoughts: list[Thought] | None = None
    tokens: Tokens | None = None
    tool_calls: list[ToolCall] | None = None


class Meta(msgspec.Struct, rename="camel"):
    """What `$set` merges into the header."""

    session_id: str | None = None
    project_hash: str | None = None
    start_time: str | None = None
    last_updated: str | None = None
    kind: str | None = None
    directories: list[str] | None = None
    summary: str | None = None
    messages: list[Message] | None = None


class Container(msgspec.Struct):
    """The first line of a raw, written by prosa: what the folder says about the session."""

    cwd: str | None = None
    evidence: str | None = None


class Record(Message, rename="camel"):
    session_id: str | None = None
    project_hash: str | None = None
    start_time: str | None = None
    last_updated: str | None = None
    kind: str | None = None
    directories: list[str] | None = None
    summary: str | None = None
    messages: list[Message] | None = None
    set: Meta | None = msgspec.field(name="$set", default=None)
    rewind_to: Any = msgspec.field(name="$rewindTo", default=None)
    container: Container | None = msgspec.field(name="$container", default=None)
    message: str | None = None
    """A prompt in logs.json."""
    message_id: int | str | None = None

    def meta(self) -> Meta:
        return Meta(
            self.session_id, self.project_hash, self.start_time, self.last_updated, self.kind, self.directories,
            self.summary, self.messages,
        )  # fmt: skip


NESTED: dict[str, type[msgspec.Struct]] = {
    "content": Part,
    "displayContent": Part,
    "parts": Part,
    "result": Part,
    "functionCall": FunctionCall,
    "functionResponse": FunctionResponse,
    "inlineData": Blob,
    "fileData": Blob,
    "thoughts": Thought,
    "tokens": Tokens,
    "toolCalls": ToolCall,
    "messages": Message,
    "$set": Meta,
    "$container": Container,
}
"""Field → the Struct in it, by itself or in a list. `thoughts` of Tokens is a number."""
LISTS = ("thoughts", "toolCalls", "messages")

decode = msgspec.json.Decoder(Record).decode


def records(line: bytes) -> tuple[list[Record], bool]:
    """The records of a line the strict decoder refused, and whether something of the line was lost."""
    try:
        found, lost = json_lines.values(line)
    except RecursionError:
        return [], True
    blank = not line.strip(b" \t\r\0\xef\xbb\xbf")
    return [lenient(value, Record) for value in found], lost or not (found or blank)


def lenient(value: dict[str, Any], kind: type[S], depth: int = 0) -> S:
    """A Struct from what fits it; a field of another type keeps its default, a bad item takes no good one with it."""
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        name, given = field.encode_name, value.get(field.encode_name)
        nested = NESTED.get(name) if kind is not Tokens else None
        if given is None or depth > DEPTH:
            continue
        if nested is not None and isinstance(given, (dict, list)):
            items = [
                lenient(item, nested, depth + 1) if isinstance(item, dict) else item
                for item in (given if isinstance(given, list) else [given])
            ]
            fits = (Part, str) if nested is Part else nested
            items = [item for item in items if isinstance(item, fits)]
            if nested is Part or name in LISTS:
                fields[field.name] = items
            elif isinstance(given, dict):
                fields[field.name] = items[0]
        else:
            try:
                fields[field.name] = msgspec.convert(given, field.type, strict=False)
            except (msgspec.ValidationError, ValueError, OverflowError, RecursionError):
                continue
    return kind(**fields)


def parts_of(content: Content) -> Iterator[Part]:
    """The parts of a content in any of its shapes."""
    if content is None:
        return
    for part in content if isinstance(content, list) else (content,):
        if isinstance(part, Part):
            yield part
        else:
            yield Part(text=part)


def spoken(content: Content) -> str:
    """What a message says: its texts without thoughts; where there is none, in place of images and files a word."""
    if content is None or isinstance(content, str):
        return content or ""
    texts, blobs = [], []
    for part in parts_of(content):
        blob = part.inline_data or part.file_data
        if part.text is not None:
            if not part.thought:
                texts.append(part.text)
        elif blob is not None:
            blobs.append(FILE if blob.mime_type and not blob.mime_type.startswith("image/") else IMAGE)
    text = texts[0] if len(texts) == 1 else "\n".join(text for text in texts if text)
    return text if text and not text.isspace() else "\n".join(blobs)


def output_of(content: Content) -> str:
    """What a tool gave back."""
    texts = []
    for part in parts_of(content):
        if part.function_response is not None:
            texts.append(response_text(part.function_response.response))
        else:
            texts.append(spoken(part))
    return "\n".join(text for text in texts if text)


def response_text(response: Any) -> str:
    """`{output}` or `{error}` without the word around it."""
    if isinstance(response, dict) and len(response) == 1:
        return readable(next(iter(response.values())))
    return readable(response)


def says_error(response: Any) -> bool:
    """A response that is an error and no cancellation."""
    error = response.get("error") if isinstance(response, dict) else None
    return bool(error) and not (isinstance(error, str) and error.startswith("[Operation Cancelled]"))


def readable(value: Any, depth: int = 0) -> str:
    """A JSON value as people read it: names and values by line, strings with their own line breaks."""
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


def strings(value: Any, depth: int = 0) -> Iterator[str]:
    """Every string in a JSON value."""
    if isinstance(value, str):
        yield value
    elif depth < DEPTH and isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from strings(item, depth + 1)


def count(number: int | None) -> int:
    """A number of tokens, or 0 where no agent can have meant it."""
    return number if number is not None and 0 <= number < COUNT_LIMIT else 0
