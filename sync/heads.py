"""Where the log ends here and at the server, origin by origin, and up to where both sides have the same."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from prosa.events.errors import ProsaError
from prosa.events.log import Log, Origin
from prosa.events.messages import Head, Heads
from prosa.sync.plan import Fork, Here, Step, There, plan
from prosa.sync.receipts import Receipts

if TYPE_CHECKING:
    from prosa.sync.http import Connection

SERVER: Final = re.compile(r"[0-9a-f]{1,64}")
LARGEST: Final = 2**63
PROBES: Final = 16
"""Places of an origin that are compared by one request."""
NO_EVENTS: Final = Head(0, bytes(32))


class Part(msgspec.Struct, frozen=True):
    """One origin of the log and what to do with it."""

    origin: Origin
    position: int
    """Its last event that holds here."""
    step: Step
    there: Head | None
    """Where the server's copy ends, as far as it is ours; None where both sides have other events."""


def ask_heads(connection: Connection, log: Log) -> Heads:
    """The request that every push begins with, and an unchanged one ends with."""
    names = [name for origin, end in ends(log) for name in (origin.origin.hex(), _at(origin, end))]
    return _sane(connection.ask("/v1/heads", Heads, {"origin": names}))


def _sane(heads: Heads) -> Heads:
    """Raises ProsaError for heads that no log has: what follows from them would be said in ours."""
    ends = heads.origins.values()
    if not SERVER.fullmatch(heads.server) or not all(0 <= h.position < LARGEST and len(h.hash) == 32 for h in ends):
        raise ProsaError(
            "The server says of its log what cannot be.", "Everything is kept here.", "Upgrade the server."
        )
    return heads


def ends(log: Log) -> list[tuple[Origin, int]]:
    """Every shared origin and its last event that holds."""
    good = log.void_after()
    shared = [origin for origin in log.origins if origin.scope == "shared"]
    return [(origin, good.get(origin.number, log.head_of(origin)[0])) for origin in shared]


def compare(log: Log, receipts: Receipts, heads: Heads) -> list[Part]:
    """What to do with every origin, the present one last."""
    parts = []
    for origin, end in ends(log):
        there = heads.origins.get(origin.origin.hex(), NO_EVENTS)
        at = heads.origins.get(_at(origin, end)) if end else NO_EVENTS
        here = Here(
            position=end,
            hash=log.hash_at(origin, end) or b"",
            hash_there=log.hash_at(origin, there.position) if there.position <= end else None,
            acknowledged=receipts.acknowledged(origin),
            current=origin == log.shared,
        )
        step = plan(here, There(there.position, there.hash, at.hash if at else None))
        ours = there if here.hash_there == there.hash else Head(end, here.hash)
        parts.append(Part(origin, end, step, None if isinstance(step, Fork) else ours))
    return parts


def common(connection: Connection, log: Log, origin: Origin, most: int) -> int:
    """Up to where both sides have the same events of an origin: where hashes are equal, all before is equal too."""
    least = 0
    while least < most:
        step = max(1, (most - least) // PROBES)
        places = [*range(least + step, most, step), most]
        there = connection.ask("/v1/heads", Heads, {"origin": [_at(origin, place) for place in places]}).origins
        for place in places:
            found = there.get(_at(origin, place))
            if found is None or found.hash != log.hash_at(origin, place):
                most = place - 1
                break
            least = place
    return least


def _at(origin: Origin, position: int) -> str:
    return f"{origin.origin.hex()}@{position}"
