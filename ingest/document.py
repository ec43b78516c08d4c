"""The fold of a format that is read whole: what its end says decides how its beginning reads."""

from __future__ import annotations

from collections.abc import Callable

from prosa.events.facts import Facts, Header


class DocumentFold:
    """See `importer.Fold`: collects the bytes and reads them when they are complete."""

    def __init__(self, read: Callable[[bytes], tuple[Facts, Header]]) -> None:
        self._read = read
        self._data = bytearray()
        self._known = -1
        """Bytes that were read."""
        self._facts = Facts()
        self._header = Header()

    def feed(self, data: bytes) -> None:
        self._data += data

    def take(self) -> Facts:
        facts, self._facts = self._facts, Facts()
        return facts

    def header(self) -> Header:
        return self._header

    def end(self) -> None:
        if self._known != len(self._data):
            self._known = len(self._data)
            self._facts, self._header = self._read(bytes(self._data))

    def state(self) -> bytes | None:
        """Always read from its start."""
        return None
