"""Records of a Gemini CLI chat, typed: only the fields prosa reads.

Every generation comes down to the same lines: a header (with the messages in it, where the file is one document), one
message, `$set`, `$rewindTo`. What no Struct names (resultDisplay, inline data) never becomes a Python object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from prosa.ingest.decoding import Decoder
from prosa.ingest.readable import DEPTH, readable

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


decoder = Decoder(Record)


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


def strings(value: Any, depth: int = 0) -> Iterator[str]:
    """Every string in a JSON value."""
    if isinstance(value, str):
        yield value
    elif depth < DEPTH and isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from strings(item, depth + 1)
