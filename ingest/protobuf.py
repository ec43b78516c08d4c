"""Protobuf without a schema, as Cursor and Antigravity store it: fields by number, nested messages on demand.

The wire format does not say whether bytes are a text, a message or neither: the caller knows, or `leaves` guesses.
A message that is no message raises WireError at its top and reads as empty further down, so one strange field never
costs the record around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from prosa.ingest.json_lines import plain

DEPTH = 32
"""Messages within messages; deeper ones read as empty."""
FIELDS = 1_000_000
"""Fields of one message, and of one walk over nested ones."""

LOOK = 4096
"""Bytes in which control characters are looked for."""
CONTROL = re.compile(rb"[\x00-\x07\x0b\x0e-\x1a\x1c-\x1f]")

Value = int | bytes


class WireError(ValueError):
    """The bytes are no protobuf message."""


class Message:
    """One message, its own fields decoded. Absent and wrong-typed fields read as nothing."""

    __slots__ = ("_depth", "fields")

    def __init__(self, data: bytes = b"", depth: int = 0) -> None:
        """Raises WireError."""
        self.fields: dict[int, list[Value]] = {}
        self._depth = depth
        if depth > DEPTH:
            raise WireError("nested too deeply")
        for number, value in _pairs(data):
            self.fields.setdefault(number, []).append(value)

    def numbers(self, number: int) -> list[int]:
        return [value for value in self.fields.get(number, ()) if isinstance(value, int)]

    def number(self, number: int) -> int | None:
        """The last one, as protobuf has it for a field that is not repeated."""
        found = self.numbers(number)
        return found[-1] if found else None

    def blobs(self, number: int) -> list[bytes]:
        return [value for value in self.fields.get(number, ()) if isinstance(value, bytes)]

    def texts(self, number: int) -> list[str]:
        return [plain(value.decode("utf-8", "replace")) for value in self.blobs(number)]

    def text(self, number: int) -> str | None:
        found = self.blobs(number)
        return plain(found[-1].decode("utf-8", "replace")) if found else None

    def messages(self, number: int) -> list[Message]:
        """One for each occurrence; what is no message reads as empty."""
        return [self._inner(value) for value in self.blobs(number)]

    def message(self, number: int) -> Message:
        found = self.blobs(number)
        return self._inner(found[-1]) if found else EMPTY

    def _inner(self, data: bytes) -> Message:
        try:
            return Message(data, self._depth + 1)
        except WireError:
            return EMPTY

    def __contains__(self, number: int) -> bool:
        return number in self.fields


def _pairs(data: bytes) -> list[tuple[int, Value]]:
    """Number and value of each field: varints and fixed widths as unsigned numbers, the rest as bytes."""
    pairs: list[tuple[int, Value]] = []
    place, end = 0, len(data)
    while place < end:
        # nearly every tag and length is one byte
        tag = data[place]
        place += 1
        if tag > 0x7F:
            tag, place = _varint(data, place - 1)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise WireError(f"no field number: {number}")
        value: Value
        if wire == 2:
            size, place = _varint(data, place)
            if size > end - place:
                raise WireError("cut short")
            value = data[place : place + size]
            place += size
        elif wire == 0:
            value, place = _varint(data, place)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            if size > end - place:
                raise WireError("cut short")
            value = int.from_bytes(data[place : place + size], "little")
            place += size
        else:
            raise WireError(f"wire type {wire}")
        pairs.append((number, value))
        if len(pairs) > FIELDS:
            raise WireError("too many fields")
    return pairs


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """The number, and the place behind it."""
    result = shift = 0
    try:
        byte = data[place]
        if byte < 0x80:
            return byte, place + 1
        while True:
            byte = data[place]
            place += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise WireError("a number of more than 10 bytes")
    except IndexError:
        raise WireError("cut short") from None
    return result & 0xFFFF_FFFF_FFFF_FFFF, place


def packed(values: list[Value]) -> list[int]:
    """The numbers of a repeated field, one by one or packed into bytes; a broken pack gives what came before."""
    found: list[int] = []
    for value in values:
        if isinstance(value, int):
            found.append(value)
            continue
        place = 0
        try:
            while place < len(value):
                number, place = _varint(value, place)
                found.append(number)
        except WireError:
            continue
    return found


def leaves(data: bytes) -> Iterator[int | str]:
    """Every number and every readable text in a message, in order, however it is nested.

    Bytes that are printable text are text, else a message if they parse as one, else nothing. Raises WireError if the
    outermost bytes are no message.
    """
    waiting: list[tuple[Iterator[tuple[int, Value]], int]] = [(iter(_pairs(data)), 0)]
    count = 0
    while waiting:
        pairs, depth = waiting[-1]
        for _, value in pairs:
            count += 1
            if count > FIELDS:
                return
            if isinstance(value, int):
                yield value
                continue
            text = readable(value)
            if text is not None:
                yield text
            elif depth < DEPTH and (inner := _parsed(value)):
                waiting.append((iter(inner), depth + 1))
                break
        else:
            waiting.pop()


def _parsed(data: bytes) -> list[tuple[int, Value]]:
    try:
        return _pairs(data)
    except WireError:
        return []


def readable(data: bytes) -> str | None:
    """The bytes as text, if they are nothing else: UTF-8 without control characters but those of a terminal."""
    if not data or CONTROL.search(data, 0, LOOK):
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


EMPTY = Message()
