"""Whether the bytes of a source are, or go on from, bytes that are preserved already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING

from prosa.events.catalogue import RawPreserved
from prosa.events.errors import DamageError
from prosa.events.raw import RawStore, Stored
from prosa.ingest.history import History, KnownRevision
from prosa.ingest.importer import Raw

if TYPE_CHECKING:
    from hashlib import _Hash as HASH


def continued(history: History, hash_at: Callable[[int], str | None], size: int) -> KnownRevision | None:
    """The revision whose raw the content is or continues: the longest of them."""
    fits = [
        (history.raws[known.raw].size, known.revision, known)
        for known in history.revisions.values()
        if known.raw in history.raws
        and history.raws[known.raw].size <= size
        and hash_at(history.raws[known.raw].size) == known.raw
    ]
    return max(fits)[2] if fits else None


def is_known_beginning(store: RawStore, history: History, digest: str, size: int) -> bool:
    """Whether the content is the beginning of a raw that is preserved: the file was cut, or is an older copy."""
    for known in history.raws.values():
        if known.size > size and store.has(known.sha256):
            found = sha256()
            try:
                for piece in store.read(known.sha256, size, whole=False):
                    found.update(piece)
            except (OSError, DamageError):
                continue
            if found.hexdigest() == digest:
                return True
    return False


def has_all_rows(store: RawStore, old: RawPreserved, new: Stored) -> bool:
    """Whether every line of a canonical raw but its first stands in its successor too: then that replaces it."""
    try:
        rows = Counter(_rows(store.read(new.sha256, new.size)))
        rows.subtract(islice(_rows(store.read(old.sha256, old.size)), 1, None))
    except (OSError, DamageError):
        return False
    return min(rows.values(), default=0) >= 0


def _rows(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """A short digest of every line."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield sha256(line).digest()[:12]
    if rest:
        yield sha256(rest).digest()[:12]


def hashes_at(pieces: Iterable[bytes], sizes: set[int]) -> dict[int, HASH]:
    """The running hash at each of the sizes that is reached, and at the end."""
    found: dict[int, HASH] = {}
    whole, place = sha256(), 0
    for piece in pieces:
        for edge in [edge for edge in sizes if place < edge < place + len(piece)]:
            found[edge] = whole.copy()
            found[edge].update(memoryview(piece)[: edge - place])
        whole.update(piece)
        place += len(piece)
        if place in sizes:
            found[place] = whole.copy()
    found[place] = whole
    return found


def between(raw: Raw, start: int, end: int) -> Iterator[bytes]:
    """The bytes of a raw from one place to another."""
    place = 0
    for piece in raw.chunks():
        part = piece[: end - place]
        if place + len(part) > start:
            yield part[max(0, start - place) :]
        place += len(part)
        if place >= end:
            return


def checked(pieces: Iterable[bytes], before: HASH, digest: str) -> Iterator[bytes]:
    """The pieces; raises DamageError at the end where, after what `before` has hashed, they do not make the digest."""
    running = before.copy()
    for piece in pieces:
        running.update(piece)
        yield piece
    if running.hexdigest() != digest:
        raise DamageError("The file was rewritten while it was read.")
