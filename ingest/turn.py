"""One turn as every fold tells it."""

from __future__ import annotations

from typing import TypedDict

from prosa.events.facts import NOT_COPIED, Kind, Role, Turn, bounded


class About(TypedDict, total=False):
    """What a turn may have beside its text; the names are those of `Turn`."""

    tool: str | None
    tool_call_id: str | None
    is_error: bool
    model: str | None
    counted: bool


def turn_of(
    key: int,
    kind: Kind,
    role: Role,
    text: str,
    at: int | None,
    copied: int = NOT_COPIED,
    copied_from: str | None = None,
    *,
    tool: str | None = None,
    tool_call_id: str | None = None,
    is_error: bool = False,
    model: str | None = None,
    counted: bool = True,
) -> Turn:
    """A turn, its text within the bound."""
    text, size = bounded(text)
    return Turn(
        key=key,
        kind=kind,
        role=role,
        at=at,
        text=text,
        size=size,
        tool=tool,
        tool_call_id=tool_call_id,
        is_error=is_error,
        model=model,
        counted=counted,
        copied=copied,
        copied_from=copied_from,
    )
