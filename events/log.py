"""The append-only log: appending with a fence, reading in order of arrival, erasing bodies.

The one fact a newcomer would get wrong: nothing is ever "inserted or ignored". A draft names the version its stream
must have now; if another writer was faster, StaleError is raised, and the caller reads again.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import apsw

from prosa.events import codec
from prosa.events.catalogue import (
    BodyErased,
    Event,
    LocalLogOpened,
    LogForked,
    LogLocated,
    LogOpened,
    SessionParsed,
    SessionPart,
)
from prosa.events.chain import START, hash_body, hash_event
from prosa.events.clock import now_us, uuid7
from prosa.events.database import connect, refuse_network, use_wal
from prosa.events.errors import DamageError, ProsaError, UpgradeError

BATCH_EVENTS = 500
BATCH_BYTES = 4 * 1024 * 1024
"""Bounds of one transaction; a single larger event stands alone."""
PAGE_BYTES = 2048
"""A body fills its last page by half on average: with 4,096 that is 4 % of the log."""
VERSION = 1
"""Of the log's tables, not of its events."""
APPLICATION_ID = 0x70726F73  # "pros"
TRIES = 40

T = TypeVar("T")

SCHEMA = Path(__file__).with_name("log.sql")
COLUMNS = (
    "position, origin, origin_position, id, stream, stream_version, type, version, at_us, body_hash, hash, salt, body"
)
INSERT = f"INSERT INTO events ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
READ_AFTER = f"SELECT {COLUMNS} FROM events WHERE position > ? ORDER BY position"
READ_HEADERS_AFTER = READ_AFTER.replace("salt, body", "NULL, NULL")
READ_STREAM = f"SELECT {COLUMNS} FROM events WHERE stream = ? AND position > ? ORDER BY position"
READ_STREAM_HEADERS = READ_STREAM.replace("salt, body", "NULL, NULL")
READ_POSITION = f"SELECT {COLUMNS} FROM events WHERE position = ?"
READ_HEADER = READ_POSITION.replace("salt, body", "NULL, NULL")
LAST_OF_STREAM = f"SELECT {COLUMNS} FROM events WHERE stream = ? AND origin = ? ORDER BY stream_version DESC LIMIT 1"
LAST_OF_ORIGIN = "SELECT origin_position, hash FROM events WHERE origin = ? ORDER BY origin_position DESC LIMIT 1"
VERSION_OF_STREAM = "SELECT max(stream_version) FROM events WHERE origin = ? AND stream = ?"
READ_ORIGIN = f"SELECT {COLUMNS} FROM events WHERE origin = ? AND origin_position > ? ORDER BY origin_position"
READ_ORIGIN_HEADERS = READ_ORIGIN.replace("salt, body", "NULL, NULL")
HASH_AT = "SELECT hash FROM events WHERE origin = ? AND origin_position = ?"
HEAD = "SELECT position, hash FROM events ORDER BY position DESC LIMIT 1"
ORIGINS = "SELECT number, origin, scope FROM origins ORDER BY number"


class StaleError(ProsaError):
    """The stream has another version than the draft was made for."""

    exit_code = 3


class Draft(NamedTuple):
    """An event to append, and the version its stream has in this origin before it (0: no event yet)."""

    stream: str
    expected: int
    event: Event


class Prepared(NamedTuple):
    """A draft whose body was encoded and hashed elsewhere (by the process that parsed it)."""

    stream: str
    expected: int
    type: str
    version: int
    salt: bytes
    body_hash: bytes
    stored: bytes


class Recorded(NamedTuple):
    """An event as it lies in the log."""

    position: int
    origin: int
    origin_position: int
    id: bytes
    stream: str
    stream_version: int
    type: str
    version: int
    at_us: int
    body_hash: bytes
    hash: bytes
    salt: bytes | None
    stored: bytes | None

    @property
    def erased(self) -> bool:
        return self.stored is None

    def body(self) -> bytes:
        """The uncompressed canonical bytes."""
        if self.stored is None:
            raise ProsaError(f"The body of event {self.position} was erased.")
        return codec.unpack(self.stored)

    def event(self) -> Event:
        return codec.decode(self.type, self.version, self.body())

    def parse(self) -> SessionParsed | SessionPart | None:
        """The facts of a parse's event; None once they were erased."""
        if self.erased:
            return None
        event = self.event()
        assert isinstance(event, (SessionParsed, SessionPart))
        return event


class Origin(NamedTuple):
    number: int
    origin: bytes
    scope: str


class LogReader(Protocol):
    """What projections need of a log: this device's file, or the server's table."""

    @property
    def origins(self) -> list[Origin]: ...

    def head(self) -> tuple[int, bytes]: ...

    def read(self, after: int = 0, *, bodies: bool = True) -> Iterator[Recorded]: ...

    def stream(self, name: str, after: int = 0, *, bodies: bool = True) -> Iterator[Recorded]: ...

    def expect(self, behind: Mapping[str, int]) -> None:
        """These streams are about to be read, the headers behind these positions: a log far away gets them at once."""

    def at(self, position: int) -> Recorded | None: ...

    def header_at(self, position: int) -> Recorded | None: ...


class Append(Protocol):
    """Append drafts as of a time, inside a transaction that is open."""

    def __call__(self, drafts: Sequence[Draft], at_us: int) -> list[Recorded]: ...


def prepare(draft: Draft) -> Prepared:
    """Encode, hash and compress a draft; needs no log."""
    body = codec.encode(draft.event)
    salt = os.urandom(16)
    kind = type(draft.event)
    return Prepared(
        draft.stream, draft.expected, kind.TYPE, kind.VERSION, salt, hash_body(salt, body), codec.pack(body)
    )


class Log:
    """One connection to a log. Not shared between threads."""

    def __init__(self, path: Path, *, create: bool = False, machine: str = "", prosa: str = "") -> None:
        """Opens the log; with `create`, makes it where there is none. `machine` is the hash of the machine id.

        Raises FileNotFoundError without `create` where there is no log, ProsaError on a network file system.
        """
        if create and not path.exists():
            refuse_network(path.parent)
        self.path, self._machine, self._prosa = path, machine, prosa
        self._db = connect(path, create=create)
        if create and not self._db.pragma("page_count"):
            self._db.pragma("page_size", PAGE_BYTES)
        use_wal(self._db, synchronous="full")
        self._db.pragma("recursive_triggers", True)
        self._db.pragma("secure_delete", True)
        self._db.pragma("foreign_keys", True)
        if not self._db.pragma("user_version"):
            if not create:
                raise DamageError(f"{path} is empty: it was cut or never written.")
            self._write(self._create)
        if self._db.pragma("application_id") != APPLICATION_ID:
            raise DamageError(f"{path} is not a log of prosa.")
        if (version := self._db.pragma("user_version")) > VERSION:
            self._db.close()
            raise UpgradeError(
                f"The log was made by a newer prosa (version {version}; this one knows {VERSION}).",
                "Nothing was changed.",
                "Upgrade prosa.",
            )
        self._origins = self._read_origins()
        self._located = False

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # reading

    @property
    def origins(self) -> list[Origin]:
        """Every origin that ever wrote here, oldest first; another process may have added some."""
        self._origins = self._read_origins()
        return self._origins

    @property
    def shared(self) -> Origin:
        """The origin that this installation's shared events are written under now."""
        return self._origins[-2]

    @property
    def local(self) -> Origin:
        return self._origins[-1]

    def head(self) -> tuple[int, bytes]:
        """Position and hash of the last event; (0, zeros) of an empty log."""
        row = self._db.execute(HEAD).fetchone()
        return (int(row[0]), bytes(row[1])) if row else (0, START)

    def read(self, after: int = 0, *, bodies: bool = True) -> Iterator[Recorded]:
        """Events behind a position, in order of arrival."""
        return map(Recorded._make, self._db.execute(READ_AFTER if bodies else READ_HEADERS_AFTER, (after,)))

    def stream(self, name: str, after: int = 0, *, bodies: bool = True) -> Iterator[Recorded]:
        """Events of one stream, of every origin, in order of arrival."""
        return map(Recorded._make, self._db.execute(READ_STREAM if bodies else READ_STREAM_HEADERS, (name, after)))

    def expect(self, behind: Mapping[str, int]) -> None:
        """Nothing is far away here."""

    def at(self, position: int) -> Recorded | None:
        row = self._db.execute(READ_POSITION, (position,)).fetchone()
        return Recorded._make(row) if row else None

    def integrity(self) -> list[str]:
        """What SQLite finds wrong with the file, its search trees included; nothing is changed."""
        found = [str(row[0]) for row in self._db.execute("PRAGMA integrity_check(10)")]
        return [] if found == ["ok"] else found

    def header_at(self, position: int) -> Recorded | None:
        """An event without its body."""
        row = self._db.execute(READ_HEADER, (position,)).fetchone()
        return Recorded._make(row) if row else None

    def last(self, stream: str, origin: Origin | None = None) -> Recorded | None:
        """The last event of a stream in one origin (the shared one unless named)."""
        row = self._db.execute(LAST_OF_STREAM, (stream, (origin or self.shared).number)).fetchone()
        return Recorded._make(row) if row else None

    def of_origin(self, origin: Origin, after: int = 0, *, bodies: bool = True) -> Iterator[Recorded]:
        """Events of one origin behind one of its positions, in its order."""
        statement = READ_ORIGIN if bodies else READ_ORIGIN_HEADERS
        return map(Recorded._make, self._db.execute(statement, (origin.number, after)))

    def head_of(self, origin: Origin) -> tuple[int, bytes]:
        """Origin position and hash of an origin's last event; (0, zeros) of one that has none."""
        row = self._db.execute(LAST_OF_ORIGIN, (origin.number,)).fetchone()
        return (int(row[0]), bytes(row[1])) if row else (0, START)

    def hash_at(self, origin: Origin, origin_position: int) -> bytes | None:
        """The hash of an origin's event; zeros at 0, None behind its end."""
        if origin_position == 0:
            return START
        row = self._db.execute(HASH_AT, (origin.number, origin_position)).fetchone()
        return bytes(row[0]) if row else None

    def forks(self) -> list[LogForked]:
        """Every fork of this log, oldest first."""
        shared = [origin.origin.hex() for origin in self.origins if origin.scope == "shared"][1:]
        events = (event for name in shared for event in self.stream(f"log-{name}") if event.type == LogForked.TYPE)
        return [said for event in events if isinstance(said := event.event(), LogForked)]

    def void_after(self) -> dict[int, int]:
        """Number of an origin → its last position that holds, of those that the server refused events of."""
        numbers = {origin.origin.hex(): origin for origin in self.origins}
        good: dict[int, int] = {}
        for fork in self.forks():
            origin = numbers.get(fork.old_origin)
            if origin is not None and fork.old_position < self.head_of(origin)[0]:
                good[origin.number] = min(good.get(origin.number, fork.old_position), fork.old_position)
        return good

    def stream_version(self, stream: str) -> int:
        """Number of the last event of a stream in the shared origin, 0 if there is none."""
        row = self._db.execute(VERSION_OF_STREAM, (self.shared.number, stream)).fetchone()
        return int(row[0] or 0)

    # writing

    def append(self, drafts: Sequence[Draft | Prepared]) -> list[Recorded]:
        """Append in one transaction, all or none. Raises StaleError where a stream moved on."""
        prepared = [draft if isinstance(draft, Prepared) else prepare(draft) for draft in drafts]

        def write() -> list[Recorded]:
            self._locate()
            return self._insert(prepared)

        return self._write(write)

    def erase(self, events: Iterable[Recorded], reason: str, by: str) -> int:
        """Clear bodies; each erasure is an event of its own. Returns how many were cleared; headers and hashes stay."""
        numbers = {origin.number: origin.origin for origin in self._origins}
        targets = [event for event in events if not event.erased]

        def write() -> int:
            self._locate()
            for event in targets:
                stream = f"event-{event.id.hex()}"
                said = BodyErased(
                    origin=numbers[event.origin].hex(),
                    origin_position=event.origin_position,
                    subject=event.stream,
                    reason=reason,
                    by=by,
                )
                self._insert([prepare(Draft(stream, 0, said))])
                self._db.execute("UPDATE events SET salt = NULL, body = NULL WHERE position = ?", (event.position,))
            return len(targets)

        done = self._write(write)
        self._db.pragma("wal_checkpoint(truncate)")
        return done

    def locate(self) -> None:
        """Notice that this log is a copy, before anything is prepared for it: it then has a new pair of origins."""
        if self._is_copy():
            self._write(self._locate)

    def fork(
        self, reason: str, restated: str, *, old: Origin | None = None, good: int | None = None,
        state: Callable[[Append], None] | None = None,
    ) -> None:  # fmt: skip
        """Take a new pair of origins: this log is a copy, or the server refused the present one, or `old`.

        What came after the origin position `good` is void; `state` says again what must not be lost, in the same
        transaction. Hold the sync lock.
        """

        def write() -> None:
            self._take_origins(reason, restated, old, good)
            if state is not None:
                state(self._state)

        try:
            self._write(write)
        except BaseException:
            self._origins = self._read_origins()
            raise

    def checkpoint(self) -> None:
        """Move what is in the write-ahead file into the log itself."""
        self._db.pragma("wal_checkpoint(truncate)")

    def _read_origins(self) -> list[Origin]:
        return [Origin(*row) for row in self._db.execute(ORIGINS)]

    # inside a transaction

    def _write(self, work: Callable[[], T]) -> T:
        """Run `work` in BEGIN IMMEDIATE; a busy log is tried again with jitter, a bounded number of times."""
        for attempt in range(TRIES):
            try:
                self._db.execute("BEGIN IMMEDIATE")
                break
            except apsw.BusyError:
                time.sleep(random.uniform(0.001, 0.02 * (attempt + 1)))  # noqa: S311
        else:
            raise ProsaError("The log is held by another process.", "Nothing was written.", "Try again in a moment.")
        try:
            done = work()
            self._db.execute("COMMIT")
        except BaseException:
            if not self._db.get_autocommit():
                self._db.execute("ROLLBACK")
            raise
        return done

    def _create(self) -> None:
        if self._db.pragma("user_version"):
            return  # another process was faster
        for _ in self._db.execute(SCHEMA.read_text(encoding="utf-8")):
            pass
        self._db.pragma("application_id", APPLICATION_ID)
        self._db.pragma("user_version", VERSION)
        self._take_origins(None, "")

    def _state(self, drafts: Sequence[Draft], at_us: int) -> list[Recorded]:
        """Append what was said before under another origin, as of when it was said."""
        return self._insert([prepare(draft) for draft in drafts], at_us)

    def _take_origins(
        self, reason: str | None, restated: str, of: Origin | None = None, good: int | None = None
    ) -> None:
        origins = self._read_origins()
        for scope in ("shared", "local"):
            self._db.execute("INSERT INTO origins (origin, scope) VALUES (?, ?)", (os.urandom(16), scope))
        self._origins = self._read_origins()
        shared, local = self.shared.origin.hex(), self.local.origin.hex()
        drafts: list[Draft] = [Draft(f"log-{shared}", 0, LogOpened(origin=shared, prosa=self._prosa))]
        if reason is not None:
            old = of or origins[-2]
            forked = LogForked(
                reason=reason,  # type: ignore[arg-type]
                old_origin=old.origin.hex(),
                old_position=self.head_of(old)[0] if good is None else good,
                restated=restated,
            )
            drafts.append(Draft(f"log-{shared}", 1, forked))
        opened = LocalLogOpened(origin=local, prosa=self._prosa, pair=shared)
        drafts.append(Draft(f"log-{local}", 0, opened))
        drafts.append(Draft(f"log-{local}", 1, LogLocated(inode=self.path.stat().st_ino, machine=self._machine)))
        self._insert([prepare(draft) for draft in drafts])
        self._located = True

    def _locate(self) -> None:
        """Before the first append: a copy takes its own origins."""
        if not self._located and self._is_copy():
            self._take_origins("copied", "sessions that go on")
        self._located = True

    def _is_copy(self) -> bool:
        """Whether this is another file, or on another machine, than these origins were opened for."""
        self._origins = self._read_origins()
        last = self.last(f"log-{self.local.origin.hex()}", self.local)
        located = last.event() if last else None
        if not isinstance(located, LogLocated):
            return False
        other = bool(self._machine and located.machine and located.machine != self._machine)
        return other or located.inode != self.path.stat().st_ino

    def _insert(self, prepared: Sequence[Prepared], said_us: int | None = None) -> list[Recorded]:
        position, _ = self.head()
        heads: dict[int, tuple[int, bytes]] = {}
        versions: dict[tuple[int, str], int] = {}
        done: list[Recorded] = []
        at_us = now_us() if said_us is None else said_us
        for item in prepared:
            cls = codec.BY_TYPE[item.type]
            origin = self.shared if cls.SCOPE == "shared" else self.local
            if origin.number not in heads:
                row = self._db.execute(LAST_OF_ORIGIN, (origin.number,)).fetchone()
                heads[origin.number] = (row[0], row[1]) if row else (0, START)
            stream = (origin.number, item.stream)
            if stream not in versions:
                row = self._db.execute(VERSION_OF_STREAM, stream).fetchone()
                versions[stream] = row[0] or 0
            if versions[stream] != item.expected:
                raise StaleError(
                    f"Stream {item.stream} is at version {versions[stream]}, not {item.expected}.",
                    "Nothing was written.",
                )
            before_position, before = heads[origin.number]
            position += 1
            event_id = uuid7(at_us)
            version = item.expected + 1
            digest = hash_event(
                origin.origin, before_position + 1, event_id, item.stream, version, item.type, item.version, at_us,
                before, item.body_hash,
            )  # fmt: skip
            heads[origin.number] = (before_position + 1, digest)
            versions[stream] = version
            done.append(
                Recorded(
                    position, origin.number, before_position + 1, event_id, item.stream, version, item.type,
                    item.version, at_us, item.body_hash, digest, item.salt, item.stored,
                )
            )  # fmt: skip
        self._db.executemany(INSERT, done)
        return done


def batches(items: Iterable[Prepared]) -> Iterator[list[Prepared]]:
    """Cut a series into transactions within the bounds."""
    batch: list[Prepared] = []
    size = 0
    for item in items:
        if batch and (len(batch) >= BATCH_EVENTS or size + len(item.stored) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += len(item.stored)
    if batch:
        yield batch
