"""What a prune says about its work: one item for each session, and a summary."""

from __future__ import annotations

from typing import Literal

import msgspec


class PruneItem(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="prune"):
    """One session."""

    session: str
    status: Literal["planned", "pruned", "skipped", "failed"]
    raws: list[str] = []
    size: int = 0
    """Bytes of its transcripts."""
    bytes: int = 0
    """On disk, that this frees."""
    reason: str | None = None


class PruneSummary(msgspec.Struct, kw_only=True, tag_field="type", tag="summary"):
    """The last item of a prune."""

    status: Literal["planned", "complete", "partial", "stopped"] = "complete"
    """planned: a dry run; partial: some session failed; stopped: the server could not be asked any more."""
    rule: str = ""
    sessions: int = 0
    """In the plan."""
    pruned: int = 0
    skipped: int = 0
    failed: int = 0
    bytes: int = 0
    """On disk, freed; of a dry run those that would be."""
    leftovers: int = 0
    """Files that an earlier prune had said were gone, removed now."""
    unconfirmed: int = 0
    """Sessions old enough whose copy no sync has confirmed yet."""
    unconfirmed_bytes: int = 0
    seconds: float = 0.0


PruneAnswer = PruneItem | PruneSummary
