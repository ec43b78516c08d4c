"""Hermes counts tokens for each session and model, not for each answer: what its two tables say of one session."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from prosa.ingest.hermes.rows import time_of

Record = dict[str, Any]
COLUMNS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
NO_MODEL = "unknown"
"""Written by the migration that filled the table of models from the sessions."""


class Spent(msgspec.Struct):
    """One model's tokens. `name` is the same in every later state of the session."""

    name: str
    model: str | None
    tokens: list[int | None]
    at: int | None


class Tokens(NamedTuple):
    rows: list[Spent]
    recorded: bool


def usage_of(session: Record, table: list[Record]) -> Tokens:
    """The main loop's tokens. Auxiliary requests (titles, compressions) stand in rows with a task and are left out.

    The first model has the name that the whole session had before there was a row for each model, so that an
    upgraded client's rows take the place of what was known and are not added to it.
    """
    model = _text(session.get("model")) or None
    models: dict[str | None, Spent] = {}
    for row in sorted(table, key=lambda row: (time_of(row.get("first_seen")) or 0, _text(row.get("model")))):
        if _text(row.get("task")):
            continue
        name = _text(row.get("model"))
        name = model or "" if name == NO_MODEL else name
        spent = models.get(name)
        if spent is None:
            spent = models[name] = Spent(name if models else "", name or None, [None] * len(COLUMNS), None)
        spent.tokens = [_sum(one, _count(row.get(column))) for one, column in zip(spent.tokens, COLUMNS, strict=True)]
        spent.at = max((at for at in (spent.at, time_of(row.get("last_seen"))) if at is not None), default=None)
    whole = [_count(session.get(column)) for column in COLUMNS]
    if not any(whole):
        return Tokens(list(models.values()), bool(models))
    left = [
        count and count - sum(one.tokens[place] or 0 for one in models.values()) for place, count in enumerate(whole)
    ]
    if not models or any(count is not None and count < 0 for count in left):
        return Tokens([Spent("", model, whole, None)], True)
    if any(left):
        models[None] = Spent("#rest", model, left, None)
    return Tokens(list(models.values()), True)


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
        return None
    return int(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
