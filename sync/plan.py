"""What to send of one origin: a pure comparison of where its log ends here and at the server."""

from __future__ import annotations

from typing import Literal

import msgspec

Reason = Literal["restored", "refused"]


class Here(msgspec.Struct, frozen=True):
    """One origin in this device's log."""

    position: int
    """Its last event that holds."""
    hash: bytes
    hash_there: bytes | None
    """Of its event at the position where the server's copy ends; None where that is behind its end."""
    acknowledged: int
    """Up to here the server said once that it has these events; 0: never."""
    current: bool
    """What is appended now goes under it."""


class There(msgspec.Struct, frozen=True):
    """The same origin in the server's log; position 0 of one it never heard of."""

    position: int
    hash: bytes
    hash_here: bytes | None
    """Of its event at the position where the device's copy ends; None where it has none there."""


class Nothing(msgspec.Struct, frozen=True):
    """Both sides have the same, or the server has more of an origin that another log goes on with."""


class Send(msgspec.Struct, frozen=True):
    """The events behind a position."""

    after: int
    lost: bool = False
    """The server had more of them before: it lost data, and maybe raw too."""


class Fork(msgspec.Struct, frozen=True):
    """This log cannot go on under the origin, or a part of it cannot be sent: the server has other events there."""

    reason: Reason
    most: int
    """Both sides are equal up to here at most."""


Step = Nothing | Send | Fork


def plan(here: Here, there: There) -> Step:
    """What to do with one origin."""
    if there.position <= here.position:
        if here.hash_there != there.hash:
            return Fork("refused", there.position)
        if there.position == here.position:
            return Nothing()
        return Send(there.position, lost=there.position < here.acknowledged)
    if there.hash_here != here.hash:
        return Fork("refused", here.position)
    return Fork("restored", here.position) if here.current else Nothing()
