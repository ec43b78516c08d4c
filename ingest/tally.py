"""What a fold counts beside its facts; kept in its state."""

from __future__ import annotations

from typing import Annotated

import msgspec

COUNT_LIMIT = 1 << 53
Count = Annotated[int, msgspec.Meta(ge=0, lt=COUNT_LIMIT)]
"""A number of tokens; a decoder refuses what no agent can have meant, which costs nothing where all is well."""
KIND_LIMIT = 100
"""Characters of a name that are kept: where no kind is known the name may be anything."""


class Tally(msgspec.Struct, array_like=True):
    """What could not be understood."""

    unknown: dict[str, tuple[int, int]] = {}
    """Kinds of record that nobody has described: how many, and their bytes."""
    malformed: int = 0
    malformed_bytes: int = 0

    def strange(self, kind: str | None, size: int) -> None:
        """Counts a record of an unknown kind."""
        kind = (kind or "")[:KIND_LIMIT]
        count, known = self.unknown.get(kind, (0, 0))
        self.unknown[kind] = (count + 1, known + size)

    def damaged(self, size: int) -> None:
        """Counts a line of which something was lost."""
        self.malformed += 1
        self.malformed_bytes += size


class Span(msgspec.Struct, array_like=True):
    """The first and the last of some times."""

    first: int | None = None
    last: int | None = None

    def add(self, at: int | None) -> None:
        if at is not None:
            self.first = at if self.first is None else min(at, self.first)
            self.last = at if self.last is None else max(at, self.last)


def count(number: int | float | None) -> int:
    """A number of tokens, or 0 where no agent can have meant it: 2^53 and more, or less than none."""
    return int(number) if number is not None and 0 <= number < COUNT_LIMIT else 0
