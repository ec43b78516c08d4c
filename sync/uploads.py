"""Sending raw: the compressed bytes as they lie in the store, two raws at a time, large ones in parts that resume.

The server hashes what it is sent. Where it says that the stored bytes are not those of the raw (two raws can grow in
one file), they are compressed anew from what the store reads back, and sent once more.
"""

from __future__ import annotations

import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from hashlib import sha256
from typing import IO, Final, NamedTuple

from prosa.events.errors import DamageError
from prosa.events.messages import (
    MISSING_LIMIT,
    PART_BYTES,
    SIZE_HEADER,
    MissingAnswer,
    MissingQuestion,
    RawJoin,
    RawPart,
    RawParts,
    RawSize,
    RawStored,
)
from prosa.events.raw import RawStore
from prosa.sync.http import Connection, ServerRefused
from prosa.sync.receipts import Unsent

AT_ONCE: Final = 2
LOOK_EVERY_S: Final = 0.1
REPEATABLE: Final = frozenset({"invalid"})
"""Refusals that other bytes of the same raw may cure."""

Progress = Callable[[int, int | None, str], None]


class Uploaded(NamedTuple):
    """A raw that the server has taken, or why it did not; without both, its file is not here any more."""

    raw: Unsent
    stored: RawStored | None
    reason: str = ""
    retry_after_s: int | None = None


def missing(connection: Connection, raws: Sequence[Unsent]) -> set[str]:
    """Which of them the server does not hold."""
    found: set[str] = set()
    for start in range(0, len(raws), MISSING_LIMIT):
        page = [RawSize(raw.sha256, raw.size) for raw in raws[start : start + MISSING_LIMIT]]
        found.update(connection.post("/v1/raw/missing", MissingQuestion(page), MissingAnswer).missing)
    return found


def upload(connection: Connection, store: RawStore, raws: Sequence[Unsent], progress: Progress) -> Iterator[Uploaded]:
    """Send them, in no particular order. Raises whatever ends the push (Unreachable), once both lines are still."""
    sending = _Sending(connection, store)
    total = sum(raw.stored for raw in raws)
    waiting, running = deque(raws), set[Future[Uploaded]]()
    with ThreadPoolExecutor(AT_ONCE) as lines:
        try:
            while waiting or running:
                while waiting and len(running) < AT_ONCE:
                    running.add(lines.submit(sending.send, waiting.popleft()))
                done, running = wait(running, LOOK_EVERY_S, FIRST_COMPLETED)
                progress(sending.sent, max(total, sending.sent), "raw")
                for future in sorted(done, key=lambda future: future.exception() is not None):
                    yield future.result()
        finally:
            sending.stopped = True


class _Sending:
    """What the lines share."""

    def __init__(self, connection: Connection, store: RawStore) -> None:
        self._connection, self._store = connection, store
        self._lock = threading.Lock()
        self.sent = 0
        self.stopped = False

    def send(self, raw: Unsent) -> Uploaded:
        try:
            with self._store.path(raw.sha256).open("rb") as file:
                return Uploaded(raw, self._send(raw, file, raw.stored))
        except FileNotFoundError:
            return Uploaded(raw, None)  # pruned, or continued by a longer one, a moment ago
        except ServerRefused as refused:
            if refused.problem.code not in REPEATABLE:
                return _refused(raw, refused)
        try:
            with tempfile.TemporaryFile(dir=self._store.folder) as anew:
                self._store.repack(raw.sha256, raw.size, anew)
                return Uploaded(raw, self._send(raw, anew, anew.tell()))
        except FileNotFoundError:
            return Uploaded(raw, None)
        except DamageError as bad:
            return Uploaded(raw, None, bad.what)
        except ServerRefused as refused:
            return _refused(raw, refused)

    def _send(self, raw: Unsent, file: IO[bytes], stored: int) -> RawStored:
        place = f"/v1/raw/{raw.sha256}"
        file.seek(0)
        if stored <= PART_BYTES:
            body = file.read(stored)
            done = self._connection.put(place, body, len(body), RawStored, headers={SIZE_HEADER: str(raw.size)})
            self._count(len(body))
            return done
        there = {part.number: part for part in self._connection.get(f"{place}/parts", RawParts).parts}
        names: list[str] = []
        for number in range(1, -(-stored // PART_BYTES) + 1):
            if self.stopped:
                raise _Stopped
            part = file.read(min(PART_BYTES, stored - (number - 1) * PART_BYTES))
            names.append(sha256(part).hexdigest())
            known = there.get(number)
            if known is None or (known.sha256, known.size) != (names[-1], len(part)):
                asked = {"sha256": names[-1]}
                self._connection.put(f"{place}/parts/{number}", part, len(part), RawPart, asked)
            self._count(len(part))
        return self._connection.post(f"{place}/join", RawJoin(raw.size, names), RawStored)

    def _count(self, size: int) -> None:
        with self._lock:
            self.sent += size


class _Stopped(Exception):
    """The other line met an error that ends the push."""


def _refused(raw: Unsent, why: ServerRefused) -> Uploaded:
    return Uploaded(raw, None, why.what, why.problem.retry_after_s)
