"""What the fold of a Copilot session remembers between two events, and can store and restore."""

from __future__ import annotations

import msgspec

from prosa.ingest.tally import Span, Tally


class Call(msgspec.Struct, array_like=True):
    """A tool call that is known. An id that comes again after its result is another call: `again` counts these."""

    name: str | None
    asked: str
    """Message or event that asked for it."""
    again: int = 0
    done: bool = False
    at: int | None = None
    """When its result came."""


Counts = tuple[int, int, int, int, int | None]
"""Input with cache, output, cache read, cache write, reasoning."""


class State(msgspec.Struct, omit_defaults=True):
    """All that a fold knows between two events, beside the facts not yet taken."""

    rest: bytes = b""
    calls: dict[str, Call] = {}
    nameless: dict[str, int] = {}
    """Events without id, by digest: how many."""
    booked: dict[str, Counts] = {}
    """Amounts of the last shutdown, by model."""
    recorded: bool = False
    """Requests were recorded one by one since the last shutdown."""
    has_usage: bool = False
    cwd: str | None = None
    branch: str | None = None
    clients: list[str] = []
    selected: str | None = None
    started: int | None = None
    times: Span = msgspec.field(default_factory=Span)
    tally: Tally = msgspec.field(default_factory=Tally)
