"""What a push says about its work: one item for each thing sent, refused or noticed, and a summary."""

from __future__ import annotations

from typing import Literal

import msgspec


class PushItem(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="push"):
    """One raw copy, the events of one origin, a fork, or a merge of this machine's device entries."""

    what: Literal["raw", "events", "origin", "device"]
    id: str
    """sha256, origin as hex, or fingerprint."""
    status: Literal["sent", "refused", "forked", "merged"]
    sessions: list[str] = []
    """Keys of the sessions whose raw it is."""
    bytes: int = 0
    """Sent, as they are stored."""
    reason: str | None = None
    """Why it was refused or forked."""


class Prunable(msgspec.Struct, frozen=True, kw_only=True):
    """What lies at the server for a while and was not touched for longer: `prosa prune` could free it."""

    sessions: int
    bytes: int
    """On disk."""


class Left(msgspec.Struct, frozen=True):
    """What the next sync has to send."""

    raws: int = 0
    events: int = 0


class PushSummary(msgspec.Struct, kw_only=True):
    """The last item of a push."""

    status: Literal["complete", "partial", "offline", "off"] = "complete"
    """partial: something was refused or is left; offline: the server could not be reached or refused the login;
    off: not logged in, or not asked to push."""
    server: str | None = None
    sent: int = 0
    """Raw copies."""
    events: int = 0
    bytes: int = 0
    """Sent, as they are stored."""
    confirmed: int = 0
    """Sessions whose raw the server was shown to hold, for the first time."""
    refused: int = 0
    left: Left = Left()
    reason: str | None = None
    """Why it is offline, or why something is left."""
    next_step: str | None = None
    seconds: float = 0.0
