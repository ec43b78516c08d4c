"""What to send of one origin, by table."""

from __future__ import annotations

import pytest

from prosa.sync.plan import Fork, Here, Nothing, Send, Step, There, plan

ZERO = bytes(32)


def h(position: int, *, other: bool = False) -> bytes:
    return ZERO if position == 0 else bytes([position, other]) * 16


def compared(here: int, there: int, *, acknowledged: int = 0, same: bool = True, current: bool = True) -> Step:
    """`same`: both chains are one up to the shorter's end."""
    hash_there = h(there) if there <= here else None
    hash_here = h(here, other=not same) if here <= there else None
    return plan(
        Here(here, h(here), hash_there, acknowledged, current),
        There(there, h(there, other=not same), hash_here),
    )


@pytest.mark.parametrize(
    ("here", "there", "more", "step"),
    [
        (0, 0, {}, Nothing()),
        (5, 5, {}, Nothing()),
        (5, 5, {"acknowledged": 3}, Nothing()),
        (5, 0, {}, Send(0)),
        (5, 3, {}, Send(3)),
        (5, 3, {"acknowledged": 3}, Send(3)),
        (5, 3, {"acknowledged": 5}, Send(3, lost=True)),
        (5, 0, {"acknowledged": 1}, Send(0, lost=True)),
        (5, 5, {"same": False}, Fork("refused", 5)),
        (5, 3, {"same": False}, Fork("refused", 3)),
        (5, 3, {"same": False, "acknowledged": 2}, Fork("refused", 3)),
        (5, 8, {}, Fork("restored", 5)),
        (5, 8, {"same": False}, Fork("refused", 5)),
        (5, 8, {"current": False}, Nothing()),
        (5, 8, {"current": False, "same": False}, Fork("refused", 5)),
        (5, 3, {"current": False}, Send(3)),
        (5, 5, {"current": False, "same": False}, Fork("refused", 5)),
        (0, 4, {"current": False}, Nothing()),
    ],
)
def test_what_to_do_with_an_origin(here: int, there: int, more: dict[str, object], step: Step) -> None:
    assert compared(here, there, **more) == step  # type: ignore[arg-type]
