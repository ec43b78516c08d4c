"""Input and output of a tool as people read it."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from prosa.ingest.json_lines import REFUSED

DEPTH = 50


def readable(value: Any, depth: int = 0) -> str:
    """A JSON value by lines: names with their values, items behind a dash, strings with their own line breaks."""
    if isinstance(value, str):
        return value
    if not isinstance(value, (dict, list)):
        return "" if value is None else json.dumps(value)
    if depth > DEPTH:
        return "…"
    if isinstance(value, list):
        return "\n".join(f"- {readable(item, depth + 1)}" for item in value)
    if depth == 0 and len(value) == 1:
        return readable(next(iter(value.values())), 1)
    return "\n".join(f"{name}: {readable(item, depth + 1)}" for name, item in value.items())


def readable_input(raw: msgspec.Raw) -> str:
    """A tool's input that was left raw; it may be JSON inside a string."""
    value = value_of(raw)
    if isinstance(value, str) and value.startswith("{"):
        inner = value_of(value)
        value = value if inner is None else inner
    return readable(value)


def value_of(raw: msgspec.Raw | str) -> Any:
    """The value in a raw field; None for absent and broken."""
    try:
        return msgspec.json.decode(raw)
    except REFUSED:
        return None
