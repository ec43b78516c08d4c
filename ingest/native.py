"""Values as agents write them into their databases: JSON of any kind, ids, file URIs, the input of a tool."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote

import msgspec

from prosa.ingest.json_lines import plain

IMAGE_BYTES = re.compile(r"data:image/[\w.+-]{1,40};base64,[A-Za-z0-9+/=\s]*")


def readable(value: Any, depth: int = 0) -> str:
    """Input and output of a tool as people read it: names and values by line, never the bytes of an image."""
    if isinstance(value, str):
        return plain(IMAGE_BYTES.sub("[image]", value) if ";base64," in value else value)
    if isinstance(value, bool) or value is None:
        return "" if value is None else str(value).lower()
    if isinstance(value, (int, float)):
        return str(value)
    if depth > 50:
        return "…"
    if isinstance(value, list):
        return "\n".join(text for item in value if (text := readable(item, depth + 1)))
    if not isinstance(value, dict):
        return plain(str(value))
    if value.get("type") in ("image", "file") or "mimeType" in value:
        return f"[{value.get('type') or 'image'}]"
    if value.get("type") == "text" and isinstance(value.get("text"), str):
        return plain(value["text"])
    if depth == 0 and len(value) == 1:
        return readable(next(iter(value.values())), 1)
    return "\n".join(f"{plain(str(name))}: {readable(item, depth + 1)}" for name, item in value.items())


def json_value(text: str | bytes) -> Any:
    """A JSON value as agents write it, lone surrogates and all; ValueError or RecursionError if it is none."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError):
        return json.loads(text, strict=False)


def path_of(uri: str) -> str | None:
    """The absolute path of a file URI, or of a path itself; None for anything else."""
    if uri.startswith("file://"):
        rest = uri[len("file://") :]
        path = unquote(rest if rest.startswith("/") else f"//{rest}" if rest else "")
        if len(path) > 3 and path[0] == "/" and path[2] == ":" and path[1].isalpha():
            return path[1:]
        return path or None
    return uri if uri.startswith("/") else None


def native_id(value: object) -> str | None:
    """An id that can name a session."""
    if isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable() and not value.isspace():
        return value
    return None
