"""What a sync says about its work: one item for each source that did something or failed, and a summary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

Progress = Callable[[int, int | None, str], None]
"""Bytes done, how many in all, and what is being worked on."""

SourceStatus = Literal["imported", "extended", "reparsed", "unchanged", "rejected", "vanished", "moved", "failed"]


class SyncOptions(NamedTuple):
    """What `prosa sync` was asked for."""

    agent: str | None = None
    verify: bool = False
    """Hash every file, not only those whose size, time or inode changed."""
    reparse: bool = False
    """Read preserved raw again although the parser is the same."""
    dry_run: bool = False
    """With `reparse`: yield what would change and append nothing."""


class SourceDone(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="source"):
    """One source that sync looked at."""

    agent: str
    path: str
    status: SourceStatus
    reason: str | None = None
    """Why it was rejected or failed; also damage in a source that was imported (`3 malformed lines`)."""
    sessions: list[str] = []
    """Keys of the sessions it holds."""


class Outline(msgspec.Struct, frozen=True, kw_only=True):
    """A session in the few numbers that a new parse can change."""

    turns: int
    tokens: int
    title: str | None


class Reparsed(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="session"):
    """What reading a session's raw again changes."""

    key: str
    before: Outline
    after: Outline


class SyncSummary(msgspec.Struct, kw_only=True, tag_field="type", tag="summary"):
    """The last item of a sync."""

    status: Literal["complete", "partial"] = "complete"
    """partial: some items failed, the others are done."""
    sources: int = 0
    imported: int = 0
    extended: int = 0
    reparsed: int = 0
    unchanged: int = 0
    moved: int = 0
    vanished: int = 0
    rejected: int = 0
    failed: int = 0
    pruned: int = 0
    """Preserved raws that were to be parsed again and are not on this machine any more."""
    events: int = 0
    bytes: int = 0
    """Read from the agents' files."""
    seconds: float = 0.0


SyncItem = SourceDone | Reparsed | SyncSummary
