"""Decoding lines of foreign JSON into Structs: fast where the types are as known, field by field where they are not.

A field of an unexpected type costs that field and nothing beside it; a line that is no JSON gives what
`json_lines.values` can save of it.
"""

from __future__ import annotations

import json
import types
from typing import Any, Generic, TypeVar, Union, get_args, get_origin

import msgspec

from prosa.ingest import json_lines

S = TypeVar("S", bound=msgspec.Struct)
REFUSED = (msgspec.MsgspecError, ValueError, RecursionError)
"""What a decoder raises on a line it cannot take (UnicodeDecodeError is a ValueError)."""
DEPTH = 12


class Tolerant(Generic[S]):
    """Decodes lines into one kind of Struct."""

    def __init__(self, kind: type[S]) -> None:
        self.kind = kind
        self._decode = msgspec.json.Decoder(kind).decode

    def __call__(self, line: bytes) -> tuple[list[S], bool]:
        """The records of a line, nearly always one, and whether something of it was lost."""
        try:
            return [self._decode(line)], False
        except REFUSED:
            return self._saved(line)

    def _saved(self, line: bytes) -> tuple[list[S], bool]:
        if not line.strip(b" \t\r\xef\xbb\xbf"):
            return [], False
        try:
            found, lost = json_lines.values(line)
            return [fit(value, self.kind) for value in found], lost or not found
        except RecursionError:
            return [], True


def fit(value: dict[str, Any], kind: type[S], depth: int = 0) -> S:
    """A Struct from what fits it; what does not keeps its default."""
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        given = value.get(field.encode_name)
        if given is None:
            continue
        if field.type is msgspec.Raw:
            # json: a number beyond 64 bits is no number to msgspec
            fields[field.name] = msgspec.Raw(json.dumps(given).encode())
            continue
        try:
            fields[field.name] = msgspec.convert(given, field.type)
        except REFUSED:
            part = _part(given, field.type, depth + 1)
            if part is not None:
                fields[field.name] = part
    return kind(**fields)


def _part(given: Any, expected: Any, depth: int) -> Any:
    """What can be saved of a value that is not as expected."""
    if depth > DEPTH:
        return None
    for one in _choices(expected):
        origin, inner = get_origin(one), get_args(one)
        if isinstance(given, dict) and isinstance(one, type) and issubclass(one, msgspec.Struct):
            return fit(given, one, depth)
        if isinstance(given, list) and origin is list and _is_struct(inner[0]):
            return [fit(item, inner[0], depth) for item in given if isinstance(item, dict)]
        if isinstance(given, dict) and origin is dict and _is_struct(inner[1]):
            return {name: fit(item, inner[1], depth) for name, item in given.items() if isinstance(item, dict)}
    return None


def _choices(expected: Any) -> tuple[Any, ...]:
    return get_args(expected) if get_origin(expected) in (Union, types.UnionType) else (expected,)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
