"""What a fold of a Gemini chat remembers of the messages and calls it has read: no text, so a state stays small."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from prosa.ingest.tally import Span, Tally


class Said(msgspec.Struct, array_like=True):
    """A message, by (id, type), after all its records so far."""

    at: int | None = None
    """The earliest: a list written on resume stamps everything anew."""
    model: str | None = None
    has_text: bool = False
    thoughts: int = 0
    """Thinking turns it has given."""
    has_usage: bool = False
    has_calls: bool = False
    """Its calls came as `toolCalls`; those among the parts of its content are the same."""
    nameless: int = 0
    """Results without a call's id that it has given."""
    part_calls: list[str] = msgspec.field(default_factory=list)
    """Calls known from parts only, by name in `State.calls`."""


class Call(msgspec.Struct, array_like=True):
    """A tool call."""

    native: str
    tool: str | None = None
    status: str | None = None
    answered: bool = False
    flagged: bool = False
    """The call itself carries the error: no result was there."""


class State(msgspec.Struct):
    """All that is needed to go on."""

    rest: bytes = b""
    messages: dict[str, Said] = msgspec.field(default_factory=dict)
    texts: dict[str, str] = msgspec.field(default_factory=dict)
    """Type and digest of a text → the message that said it first."""
    aliases: dict[str, str] = msgspec.field(default_factory=dict)
    """Message that repeats another one under a new id → that one."""
    calls: dict[str, Call] = msgspec.field(default_factory=dict)
    begun: bool = False
    """A header or message was read, not only the prompt log."""
    logged: bool = False
    title: str | None = None
    project_hash: str | None = None
    cwd: str | None = None
    """As the folder says it."""
    hashed_cwd: str | None = None
    """A path in the session whose sha256 is the project's."""
    workspace: str | None = None
    directory: str | None = None
    stated: Span = msgspec.field(default_factory=Span)
    """Times in headers."""
    has_usage: bool = False
    tally: Tally = msgspec.field(default_factory=Tally)


def digest(text: str) -> int:
    """A number for a text, never 0."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=7).digest(), "big") or 1
