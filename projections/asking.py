"""The questions as parameters of a URL, and the answers that come in pages: what the API takes and `--remote` sends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from prosa.events.errors import UsageError
from prosa.projections.queries import Filters, Match, Report, Search, ShownTurn, Timeline

Question = TypeVar("Question", Timeline, Search, Report)

FILTERS: Final = tuple(Filters.__struct_fields__)
UNIQUE_BYTES: Final = 4_000
"""Of texts in one question: proxies take addresses of 8,000 bytes."""
MOST_US: Final = 1 << 62
SCOPES: Final = ("remote", "marker", "path")


class Matches(msgspec.Struct, frozen=True):
    """GET /v1/sessions/find: sessions of that key or id, else those whose key or id begins so."""

    matches: list[Match]


class Texts(msgspec.Struct, frozen=True):
    """GET /v1/sessions/unique?text=…&text=…: of ids and their beginnings those that find one session alone."""

    texts: list[str]


class TurnsPage(msgspec.Struct, frozen=True):
    """GET /v1/sessions/…/turns: in reading order."""

    turns: list[ShownTurn]
    next: str | None
    """`after` of the next page; None: this was the last."""


class Rows(msgspec.Struct, frozen=True):
    """GET /v1/reports/{name} and /v1/storage: rows with snake_case columns."""

    rows: list[dict[str, Any]]


class Values(msgspec.Struct, frozen=True):
    """GET /v1/values/{what}: every value a filter can have."""

    values: list[str]


class LogPage(msgspec.Struct, frozen=True):
    """GET /v1/log and /v1/why/…: records of events in order of arrival, positions being those of the server's log."""

    events: list[dict[str, Any]]
    next: int | None
    """The next page's `after`, or its `before` where that was asked for; None: this was the last."""
    head: int


class ShownEvent(msgspec.Struct, frozen=True):
    """GET /v1/log/{position}."""

    event: dict[str, Any]
    body_hash: str
    hash: str


def filter_parameters(filters: Filters) -> dict[str, str]:
    """Those that are set; the scope as `remote:github.com/owner/repo`."""
    said = {name: getattr(filters, name) for name in FILTERS}
    if filters.scope is not None:
        said["scope"] = ":".join(filters.scope)
    return {name: str(value) for name, value in said.items() if value is not None}


def to_parameters(question: Timeline | Search | Report) -> dict[str, str]:
    """Every field that is not its default, flags as `true`."""
    found = filter_parameters(question.filters)
    defaults = dict(zip(reversed(question.__struct_fields__), reversed(question.__struct_defaults__), strict=False))
    for name in question.__struct_fields__:
        value = getattr(question, name)
        if name != "filters" and value is not None and value != defaults.get(name, msgspec.NODEFAULT):
            found[name] = "true" if value is True else str(value)
    return found


def filters_of(parameters: Mapping[str, str]) -> Filters:
    """Raises UsageError where a value is not of its field's type."""
    said: dict[str, Any] = {name: parameters[name] for name in FILTERS if name in parameters}
    if "scope" in said:
        kind, colon, value = said["scope"].partition(":")
        if not colon or kind not in SCOPES:
            raise UsageError(f"scope is {said['scope']!r}, not {', '.join(f'{each}:…' for each in SCOPES)}.")
        said["scope"] = (kind, value)
    for name in ("since_us", "until_us"):
        if name in said:
            said[name] = moment_us(said[name], name)
    return _convert(said, Filters)


def to_question(parameters: Mapping[str, str], kind: type[Question]) -> Question:
    """The question that the parameters ask. Raises UsageError where one is missing or has another type."""
    names = (name for name in kind.__struct_fields__ if name != "filters")
    said: dict[str, Any] = {name: parameters[name] for name in names if name in parameters}
    return _convert({**said, "filters": filters_of(parameters)}, kind)


Made = TypeVar("Made", Timeline, Search, Report, Filters)


def _convert(said: Mapping[str, Any], kind: type[Made]) -> Made:
    try:
        return msgspec.convert(said, type=kind, strict=False)
    except msgspec.ValidationError as bad:
        raise UsageError(f"The question is not understood: {bad}.", "Nothing was done.") from None


def moment_us(text: str, name: str) -> int:
    """Microseconds since 1970 from a parameter, within what a log can hold."""
    try:
        found = int(text)
    except ValueError:
        found = MOST_US
    if not -MOST_US < found < MOST_US:
        raise UsageError(f"{name} is {text[:40]!r}, not microseconds since 1970.", "Nothing was done.")
    return found
