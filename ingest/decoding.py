"""Foreign JSON lines as typed records: fast where the types are as known, field by field where they are not.

A field of an unexpected type costs that field and nothing beside it; a line that is no JSON gives what
`json_lines.values` can save of it.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar, Union, get_args, get_origin

import msgspec

from prosa.ingest.chunks import open_file
from prosa.ingest.importer import Report, Trouble
from prosa.ingest.json_lines import REFUSED, Lines, values
from prosa.ingest.tally import Tally

S = TypeVar("S", bound=msgspec.Struct)
DEPTH = 50
BLANK = b" \t\r\xef\xbb\xbf"


class Decoder(Generic[S]):
    """Decodes lines into one kind of Struct."""

    def __init__(self, kind: type[S]) -> None:
        self.kind = kind
        self.strict = msgspec.json.Decoder(kind).decode
        """The record of a line in which all is as known; raises REFUSED."""

    def __call__(self, line: bytes) -> tuple[list[S], bool]:
        """The records of a line, nearly always one, and whether something of it was lost."""
        try:
            return [self.strict(line)], False
        except REFUSED:
            return self.saved(line)

    def saved(self, line: bytes) -> tuple[list[S], bool]:
        """The same for a line that `strict` refused."""
        if not line.strip(BLANK):
            return [], False
        try:
            found, lost = values(line)
            return [fit(value, self.kind) for value in found], lost or not found
        except RecursionError:
            return [], True


class Records(Generic[S]):
    """The records in fed bytes, each with its line; damage is counted. Part of a fold."""

    def __init__(self, decoder: Decoder[S], tally: Tally, rest: bytes = b"", skip: tuple[bytes, ...] = ()) -> None:
        """`rest`: as an earlier reading left it. `skip`: beginnings of lines that are not decoded."""
        self._decoder, self._tally, self._skip = decoder, tally, skip
        self._lines = Lines(rest)

    @property
    def rest(self) -> bytes:
        """A last line without its newline."""
        return self._lines.rest

    def feed(self, data: bytes) -> Iterator[tuple[S, bytes]]:
        """The records of the lines that these bytes complete."""
        strict, skip = self._decoder.strict, self._skip
        for line in self._lines.feed(data):
            if not line or line.startswith(skip):
                continue
            try:
                record = strict(line)
            except REFUSED:
                yield from self._saved(line)
            else:
                yield record, line

    def end(self) -> Iterator[tuple[S, bytes]]:
        """The record of a last line that lacks only its newline; a torn one waits.

        Clients and copies often end without a newline. A JSON object is whole or no JSON, so what comes later begins a
        line of its own.
        """
        rest = self._lines.rest
        if not rest.rstrip().endswith(b"}"):
            return
        found, lost = self._decoder(rest)
        if not lost:
            self._lines = Lines()
            yield from _numbered(found, rest)

    def _saved(self, line: bytes) -> Iterator[tuple[S, bytes]]:
        found, lost = self._decoder.saved(line)
        if lost:
            self._tally.damaged(len(line))
        yield from _numbered(found, line)


def _numbered(found: list[S], line: bytes) -> Iterator[tuple[S, bytes]]:
    """Of several records on one line each has a line of its own, so that no two get one name from it."""
    for number, record in enumerate(found):
        yield record, line + b"#%d" % number if number else line


def records_in(path: Path, kind: type[S], agent: str, report: Report) -> Iterator[S]:
    """The records of a small shared file of lines, if there is one. Lines that are none are passed over."""
    decode = msgspec.json.Decoder(kind).decode
    try:
        with open_file(path) as file:
            for line in file:
                try:
                    record = decode(line)
                except REFUSED:
                    continue
                yield record
    except FileNotFoundError:
        return
    except OSError as bad:
        report(Trouble(agent, str(path), f"cannot be read: {bad.strerror}"))


def fit(value: dict[str, Any], kind: type[S], depth: int = 0) -> S:
    """A Struct from what fits it; what does not keeps its default, and a bad item of a list takes no good one along."""
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        given = value.get(field.encode_name)
        part = _part(given, field.type, depth) if given is not None else None
        if part is not None:
            fields[field.name] = part
    return kind(**fields)


def _part(given: Any, expected: Any, depth: int) -> Any:
    """A value as the expected type, or what can be saved of it."""
    if expected is msgspec.Raw:
        # json: a number beyond 64 bits is no number to msgspec
        return msgspec.Raw(json.dumps(given).encode())
    try:
        return msgspec.convert(given, expected, strict=False)
    except (*REFUSED, OverflowError):
        pass
    if depth > DEPTH:
        return None
    for one in _choices(expected):
        origin, inner = get_origin(one), get_args(one)
        if isinstance(one, type) and issubclass(one, msgspec.Struct):
            if isinstance(given, dict):
                return fit(given, one, depth + 1)
            if isinstance(given, str) and hasattr(one, "of_text"):
                return one.of_text(given)
        elif origin is list and isinstance(given, (list, dict)):
            items = given if isinstance(given, list) else [given]
            parts = (_part(item, inner[0], depth + 1) for item in items if item is not None)
            return [part for part in parts if part is not None]
        elif origin is dict and isinstance(given, dict):
            named = ((name, _part(item, inner[1], depth + 1)) for name, item in given.items() if item is not None)
            return {name: part for name, part in named if part is not None}
    return None


def _choices(expected: Any) -> tuple[Any, ...]:
    return get_args(expected) if get_origin(expected) in (Union, types.UnionType) else (expected,)
