"""Times as agents write them, to microseconds UTC."""

from __future__ import annotations

from datetime import UTC, datetime

EARLIEST_US = 1_577_836_800_000_000
"""2020-01-01: an earlier stamp is a clock that was not set, never an activity."""
LATEST_US = 4_102_444_800_000_000
"""2100-01-01."""


def plausible(us: int) -> int | None:
    """The time itself, or None where no agent can have worked then."""
    return us if EARLIEST_US <= us < LATEST_US else None


def parse_iso(text: object) -> int | None:
    """RFC 3339 or a near form of it; naive stamps are UTC; None for anything else or implausible."""
    if not isinstance(text, str) or not 10 <= len(text) <= 40:
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    elapsed = when - EPOCH
    return plausible((elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds)


def from_number(value: object) -> int | None:
    """Seconds, milliseconds or microseconds since 1970, told apart by size."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or not 1e9 <= value < 1e17:
        return None
    scale = 1_000_000 if value < 1e11 else 1_000 if value < 1e14 else 1
    return plausible(round(value * scale))


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
