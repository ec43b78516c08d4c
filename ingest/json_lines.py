"""Lines of JSON as agents really write them: torn, glued, with NULs, BOMs, bad UTF-8 and lone surrogates.

`Lines` cuts a stream into terminated lines with bounded state; `values` decodes one damaged line into all that can
be saved of it. Damage seen in public reports is listed in docs/formats/claude-code.md.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

REFUSED = (msgspec.MsgspecError, ValueError, RecursionError)
"""What a strict decoder raises on what it cannot take (UnicodeDecodeError is a ValueError)."""
LONE = re.compile("[\ud800-\udfff]")
_raw_decode = json.JSONDecoder(strict=False).raw_decode


LONG = 8 << 20
"""Of a line that is longer, pieces that are nothing but base64 are left out: an image's bytes are no text."""
LIMIT = 32 << 20
"""A longer line without them is not read: it is one malformed line. Raw keeps it."""
OVERSIZED = b'{"a line that is too long to be read'
BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="


class Lines:
    """Splits fed bytes at newlines; the rest waits for its newline. Lines of any length need bounded memory."""

    def __init__(self, rest: bytes = b"") -> None:
        self._parts: list[bytes] = [rest] if rest else []
        self._size = len(rest)

    def feed(self, data: bytes) -> list[bytes]:
        """Terminated lines without their newline, in order."""
        last = data.rfind(b"\n")
        if last < 0:
            self._wait(data)
            return []
        self._parts.append(data[:last])
        whole = b"".join(self._parts)
        self._parts, self._size = [], 0
        if last + 1 < len(data):
            self._wait(data[last + 1 :])
        return whole.split(b"\n") if b"\n" in whole else [whole]

    def _wait(self, data: bytes) -> None:
        if self._size > LONG and len(data) > 4096 and not data.translate(None, BASE64):
            return
        self._parts.append(data)
        self._size += len(data)
        if self._size > LIMIT:
            self._parts, self._size = [OVERSIZED], len(OVERSIZED)

    @property
    def rest(self) -> bytes:
        """Bytes after the last newline."""
        if len(self._parts) > 1:
            self._parts = [b"".join(self._parts)]
        return self._parts[0] if self._parts else b""


def plain(text: str) -> str:
    """Text that can be encoded: the one place where lone surrogates become U+FFFD."""
    if text.isascii():
        return text
    return LONE.sub("\ufffd", text)


def plain_value(value: Any) -> Any:
    """`plain` for every string inside a decoded JSON value."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, list):
        return [plain_value(item) for item in value]
    if isinstance(value, dict):
        return {plain(name): plain_value(item) for name, item in value.items()}
    return value


def values(line: bytes) -> tuple[list[dict[str, Any]], bool]:
    """The JSON objects of a line that a strict decoder refused, and whether something in it was lost.

    Tried in turn: the line without BOM, NULs and CR, decoded with replacement; several values one after the other;
    the last `{"` from which the rest of the line parses (a torn stub glued to the next record).
    """
    text = line.decode("utf-8", "replace").lstrip("\ufeff").replace("\0", "").strip()
    found: list[dict[str, Any]] = []
    place, lost = 0, False
    while place < len(text):
        try:
            value, place = _raw_decode(text, place)
        except (ValueError, RecursionError):
            lost = True
            later = _tail(text, place)
            if later is None:
                break
            value, place = later
        if isinstance(value, dict):
            found.append(plain_value(value))
        else:
            lost = True
        while place < len(text) and text[place] in " \t\r,":
            place += 1
    return found, lost


def document(data: bytes) -> Any:
    """The value of a whole file, over however many lines; None if it is damaged."""
    try:
        return msgspec.json.decode(data)
    except REFUSED:
        pass
    try:
        found, lost = values(b" ".join(data.splitlines()))
    except RecursionError:
        return None
    return found[0] if found and not lost else None


def _tail(text: str, place: int) -> tuple[Any, int] | None:
    """The first later `{"` that starts a value reaching to the end of the line; at most 64 are tried."""
    start = place
    for _ in range(64):
        start = text.find('{"', start + 1)
        if start < 0:
            return None
        try:
            value, end = _raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        if not text[end:].strip():
            return value, end
    return None
