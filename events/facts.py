"""What one parse of one raw yields: turns, usage, marks, compactions, and the header beside them.

A fact's key is the one thing a newcomer gets wrong: it names the record, not its content. It is made from what
a copy of the record cannot change, so the same record in a fork, a resume copy or a restored log has the same key.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

Kind = Literal["message", "thinking", "tool_call", "tool_result", "compaction"]
Role = Literal["user", "assistant", "tool", "system"]

TEXT_LIMIT = 1_000_000
"""Characters of a turn that are kept whole; above it the first and last half of this many bytes."""
HALF = 512 * 1024

NOT_COPIED, SUGGESTED, PROVEN = 0, 1, 2
"""`copied` of a fact: nothing says so; the file suggests it (a burst of equal times); the file proves it."""


COUNT_LIMIT = 1_000_000_000
"""No answer has more tokens; a larger count is damage, and sums of it would leave 64 bits."""


TIME_LIMIT = 4_102_444_800_000_000
"""2100-01-01. No record is of 1969 or of then; such a time is damage, and no calendar may reach to it."""


def moment(at: int | None) -> int | None:
    """The time of a record; None also where it cannot be one."""
    return at if at is not None and 0 <= at < TIME_LIMIT else None


class Turn(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One entry of a conversation, and one thing that is counted."""

    key: int
    """Signed 64 bits, from `fact_key`."""
    kind: Kind
    role: Role
    at: int | None = None
    """Microseconds since 1970, UTC."""
    text: str = ""
    """Whole up to TEXT_LIMIT; never image bytes, never a lone surrogate. Calls: their input as text."""
    size: int | None = None
    """Characters of the full text where `text` was cut, else None."""
    tool: str | None = None
    tool_call_id: str | None = None
    is_error: bool = False
    """On the result of a failed call; on the call itself only where no result exists. So errors = sum of flags."""
    model: str | None = None
    counted: bool = True
    """False: shown, but no prompt or answer (injected text, built-in commands, summaries, inline side chains)."""
    copied: int = NOT_COPIED
    copied_from: str | None = None
    """Native id of the session the copy names."""


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Tokens of one answer as the agent logged them last. The four counts are disjoint."""

    key: int
    at: int | None = None
    model: str | None = None
    input: int = 0
    """Uncached input."""
    output: int = 0
    """Includes reasoning."""
    cache_read: int = 0
    cache_write_5m: int = 0
    """Also where the agent does not say how long the cache lives."""
    cache_write_1h: int = 0
    reasoning: int | None = None
    """Part of output; None where the agent does not record it."""
    tier: str | None = None
    """Service tier or speed, where it changes the price (`priority`, `batch`, `fast`)."""
    apart: bool = False
    """Spent beside the conversation (a cache kept warm, a summary): its model is none of the session's."""
    copied: int = NOT_COPIED
    copied_from: str | None = None


class Mark(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """First and last time of a run of records that are no turn.

    Without key where none of them can be copied and the run does not depend on how the raw was cut.
    """

    first: int
    last: int
    key: int | None = None
    copied: int = NOT_COPIED
    copied_from: str | None = None


class Compaction(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One completed compaction."""

    key: int
    id: str
    """Stable id as the format document of the agent defines it."""
    at: int | None = None
    trigger: str | None = None
    size_before: int | None = None
    """Tokens in the context before."""
    copied: int = NOT_COPIED
    copied_from: str | None = None


class Summary(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A title this raw states for a session it names only by one of its records."""

    leaf: str
    text: str


class Header(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a raw says about its session beside the records. Unknown is None."""

    cwd: str | None = None
    branch: str | None = None
    title: str | None = None
    objective: str | None = None
    """First prompt of a session that has none of its own (a goal's objective)."""
    kinds: tuple[str, ...] = ()
    """goal, workflow, ralph-loop; never orchestrator, which is worked out from the parents of others."""
    parent: str | None = None
    """Native id of the session that spawned this one."""
    forked_from: str | None = None
    cleared_from: str | None = None
    resumed_from: str | None = None
    clients: tuple[str, ...] = ()
    """Versions of the client, in order of first use."""
    models: tuple[str, ...] = ()
    """Models the raw names, in order of first use; they serve only where no record carries one."""
    started_at: int | None = None
    """Times that no record carries (a header written before the first line), microseconds UTC."""
    last_activity_at: int | None = None
    compactions_known: bool = True
    compactions_reason: str | None = None
    has_usage: bool = False
    """The agent recorded usage for this session at all: zero is then a number, else unknown."""
    state: Literal["plain", "encrypted", "partial"] = "plain"
    state_reason: str | None = None
    unknown: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    """Kinds of record this parser does not know: count and bytes."""
    malformed: int = 0
    """Lines that were not one JSON value. Raw keeps them; nothing else does."""
    malformed_bytes: int = 0
    leaf: str | None = None
    """The last record of the conversation, by which other files may name this session."""
    foreign_titles: tuple[Summary, ...] = ()
    """Titles stated for sessions that are named by a record; used where a session has none of its own."""


def plausible(item: Usage) -> Usage:
    """The record, a time and counts that no answer can have taken as not recorded."""
    if item.at is not None and moment(item.at) is None:
        item = msgspec.structs.replace(item, at=None)
    counts = (item.input, item.output, item.cache_read, item.cache_write_5m, item.cache_write_1h, item.reasoning or 0)
    if min(counts) >= 0 and max(counts) <= COUNT_LIMIT:
        return item
    kept = [count if 0 <= count <= COUNT_LIMIT else 0 for count in counts]
    reasoning = item.reasoning if item.reasoning == kept[5] else None
    return msgspec.structs.replace(
        item, input=kept[0], output=kept[1], cache_read=kept[2], cache_write_5m=kept[3], cache_write_1h=kept[4],
        reasoning=reasoning,
    )  # fmt: skip


class Facts(msgspec.Struct, omit_defaults=True):
    """New or changed facts, in reading order. A key that comes again replaces the earlier fact in its place."""

    turns: list[Turn] = []
    usage: list[Usage] = []
    marks: list[Mark] = []
    compactions: list[Compaction] = []

    def __bool__(self) -> bool:
        return bool(self.turns or self.usage or self.marks or self.compactions)


def fact_key(agent: str, kind: str, native: str, witness: str = "") -> int:
    """Signed 64-bit key of a record: `kind` separates the facts of one record, `witness` is what no copy changes."""
    text = f"{agent}\0{kind}\0{native}\0{witness}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big", signed=True)


def key_hex(key: int) -> str:
    """A key as people and links see it: 16 hex digits."""
    return f"{key & 0xFFFF_FFFF_FFFF_FFFF:016x}"


def bounded(text: str) -> tuple[str, int | None]:
    """A turn's text within the bound, and its full size in characters if it was cut."""
    if len(text) <= TEXT_LIMIT:
        return text, None
    return f"{text[:HALF]}\n… {len(text) - 2 * HALF:,} characters left out …\n{text[-HALF:]}", len(text)
