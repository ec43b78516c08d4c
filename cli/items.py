"""What rebuild, erasure and doctor learn from cli/opening.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

Progress = Callable[[int, int | None, str], None]
"""Done, how much in all if known, and what is being worked on."""


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """A new index that serves now."""

    digest: str
    """Hash of the projections' content."""
    events: int
    seconds: float


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """An index built aside and compared with the one in use; nothing was switched."""

    differences: list[str]
    events: int
    seconds: float


class IndexState(msgspec.Struct, frozen=True, kw_only=True):
    """How far the index is."""

    state: Literal["current", "behind", "ahead", "foreign", "missing", "newer", "damaged"]
    """ahead: the log was cut; foreign: its checkpoint is not on the chain; missing: also of an older schema."""
    position: int
    log_position: int
