"""What the fold of a Claude Code transcript remembers between two lines, and can store and restore.

No text is kept: a text that comes again is recognised by its length and digest.
"""

from __future__ import annotations

import hashlib

import msgspec

from prosa.ingest.tally import Span, Tally


class Answer(msgspec.Struct, array_like=True):
    """What is remembered of one message id: no text, only what recognises a block that comes again."""

    total: int = -1
    """Tokens of the usage that was kept; -1: none yet."""
    texts: list[Said] = []
    thoughts: list[Said] = []


class Said(msgspec.Struct, array_like=True):
    length: int
    digest: int
    counted: bool


class Run(msgspec.Struct, array_like=True):
    """Records of one key that follow each other."""

    key: int
    first: int
    last: int


class Boundary(msgspec.Struct, array_like=True):
    """A compaction that has begun; it is one when its summary comes."""

    id: str
    at: int | None
    trigger: str | None
    size_before: int | None


class State(msgspec.Struct, omit_defaults=True):
    """All that a fold knows between two lines, beside the facts not yet taken."""

    rest: bytes = b""
    uuids: bytes = b""
    """Of all records, 8 bytes each: a summary titles this session only if its leaf is here."""
    answers: dict[str, Answer] = {}
    tools: dict[str, tuple[str | None, str]] = {}
    """Open calls: id → name, message id."""
    progress: Run | None = None
    boundary: Boundary | None = None
    compacted: dict[str, Boundary] = {}
    """By the summary that completed it."""
    cwd: str | None = None
    branch: str | None = None
    leaf: str | None = None
    custom_title: str | None = None
    ai_title: str | None = None
    summaries: dict[str, str] = {}
    kinds: list[str] = []
    clients: list[str] = []
    forked_from: str | None = None
    resumed: str | None = None
    """The other id on the records before the first own one."""
    own_seen: bool = False
    cleared: bool = False
    cleared_from: str | None = None
    spoken: bool = False
    side: Span = msgspec.field(default_factory=Span)
    """Times of records that no fork copies."""
    has_usage: bool = False
    tally: Tally = msgspec.field(default_factory=Tally)


def digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def short(uuid: str) -> int:
    """48 bits of a uuid: enough to tell whether it is a record of this file."""
    try:
        return int(uuid[-12:], 16)
    except ValueError:
        return digest(uuid)
