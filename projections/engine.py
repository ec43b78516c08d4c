"""Keeping the index with the log: catch up, build anew and swap, compare.

Rows and checkpoint are written in one transaction, so every event is applied exactly once. A checkpoint that is not
on the log's chain means that one of the two was replaced: the index is built anew, never guessed at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import apsw

from prosa.events import codec
from prosa.events.catalogue import SessionPart
from prosa.events.chain import START
from prosa.events.database import Database
from prosa.events.errors import LockedError, UpgradeError
from prosa.events.locks import held
from prosa.events.log import BATCH_BYTES, BATCH_EVENTS, Log, Recorded
from prosa.projections.digest import Digest, digest
from prosa.projections.index import IndexMissing, NewIndex, open_index
from prosa.projections.pricing import Overrides, pricer, reprice, stamp
from prosa.projections.records import TEXTS
from prosa.projections.replay import PARSES, Replay

FAR_BEHIND = 20_000
"""Events; catching up with more is slower than building anew."""
HASH_SIZES = {"text_rest": 16, "text_answer": 8, "text_thinking": 4, "text_prompt": 4}
"""MB of postings that a bulk load gathers before it writes a segment."""

Progress = Callable[[int, int], None]
"""(done, total) events."""


class Standing(NamedTuple):
    """Where an index is against its log."""

    position: int
    head: int

    @property
    def behind(self) -> int:
        return self.head - self.position


class Index:
    """The serving index, opened to be read; `standing` says how far behind the log it is."""

    def __init__(self, db: Database, standing: Standing, warning: str = "") -> None:
        self.db, self.standing, self.warning = db, standing, warning


def is_current(db: Database, log: Log, overrides: Overrides) -> bool:
    """Whether there is nothing to catch up with."""
    return (_position(db), _hash(db)) == log.head() and _stamp(db) == stamp(overrides)


def open_current(folder: Path, locks: Path, log: Log, overrides: Overrides, *, busy_ms: int = 250) -> Index:
    """The index for a question: caught up first; where that cannot be, as it is, with `standing.behind` > 0.

    Built first where there is none.
    """
    warning = ""
    try:
        db = open_index(folder, busy_ms=busy_ms)
    except IndexMissing:
        db, warning = _built(folder, locks, log, overrides), ""
    try:
        if not _on_chain(db, log):
            db.close()
            warning = "The index was ahead of the log or beside it: one of them was cut or replaced. It was built anew."
            db = _built(folder, locks, log, overrides)
        if not is_current(db, log, overrides):
            catch_up(db, log, overrides)
    except (apsw.BusyError, apsw.ReadOnlyError, UpgradeError):
        if not db.get_autocommit():
            db.execute("ROLLBACK")
    return Index(db, Standing(_position(db), log.head()[0]), warning)


def _built(folder: Path, locks: Path, log: Log, overrides: Overrides) -> Database:
    try:
        with held(locks, "rebuild"):
            rebuild(folder, log, overrides)
    except LockedError:
        return open_index(folder)  # somebody else builds: what serves meanwhile, or IndexMissing
    return open_index(folder)


def catch_up(db: Database, log: Log, overrides: Overrides, progress: Progress | None = None) -> int:
    """Apply what is after the checkpoint. Returns the number of events applied.

    Raises IndexMissing where the checkpoint is not on the log's chain, UpgradeError on an event of a newer prosa.
    """
    done = 0
    while True:
        db.execute("BEGIN IMMEDIATE")
        try:
            if not _on_chain(db, log):
                raise IndexMissing
            batch = list(_batch(log, _position(db)))
            stale = _stamp(db) != stamp(overrides)
            if not batch and not stale:
                db.execute("ROLLBACK")
                return done
            replay = Replay(db, log, pricer(db, overrides))
            if stale:
                replay.touch_all(reprice(db, overrides))
            replay.apply(batch)
            position, hash_ = (batch[-1].position, batch[-1].hash) if batch else (_position(db), _hash(db))
            _save(db, position, hash_, overrides)
            db.execute("COMMIT")
        except BaseException:
            if not db.get_autocommit():
                db.execute("ROLLBACK")
            raise
        done += len(batch)
        if progress:
            progress(done, done + log.head()[0] - position)


class Building:
    """A new index, fed with events in order, then published. Nobody sees it before."""

    def __init__(self, folder: Path, log: Log, overrides: Overrides) -> None:
        self._new = NewIndex(folder)
        self.db = self._new.db
        self._log, self._overrides = log, overrides
        db = self._new.db
        for table in TEXTS:
            for option, value in (("hashsize", HASH_SIZES[table] << 20), ("automerge", 0), ("crisismerge", 1000)):
                db.execute(f"INSERT INTO {table} ({table}, rank) VALUES (?, ?)", (option, value))
        db.execute("BEGIN")
        self.replay = Replay(db, log, pricer(db, overrides), bulk=True)

    def finish(self, position: int, head: bytes) -> None:
        """End the load up to the log's position."""
        db = self._new.db
        for table in TEXTS:  # first: what comes after fills the pages this frees
            db.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")
            for option, value in (("hashsize", 1 << 20), ("automerge", 4), ("crisismerge", 16)):
                db.execute(f"INSERT INTO {table} ({table}, rank) VALUES (?, ?)", (option, value))
        self.replay.finish()
        _save(db, position, head, self._overrides)
        db.execute("COMMIT")
        db.execute("ANALYZE")

    def publish(self) -> None:
        self._new.finish()
        self._new.publish()

    def discard(self) -> None:
        self._new.discard()


def build(folder: Path, log: Log, overrides: Overrides, progress: Progress | None = None) -> tuple[Building, Digest]:
    """A complete index beside the serving one, neither published nor discarded."""
    head, hash_ = log.head()
    building = Building(folder, log, overrides)
    try:
        streams: dict[str, int] = {}
        for recorded in log.read(bodies=False):
            if recorded.position > head:
                break
            if not codec.known(recorded.type, recorded.version):
                recorded.event()
            if recorded.type in PARSES:
                streams[recorded.stream] = streams.get(recorded.stream, 0) + 1
            elif recorded.type != SessionPart.TYPE:
                whole = log.at(recorded.position)
                assert whole is not None
                building.replay.note(whole)
        for number, stream in enumerate(streams):
            building.replay.advance(stream, until=head)
            if progress and number % 16 == 0:
                progress(number, len(streams))
        building.finish(head, hash_)
        done = digest(building.db)
        if progress:
            progress(len(streams), len(streams))
    except BaseException:
        building.discard()
        raise
    return building, done


def rebuild(folder: Path, log: Log, overrides: Overrides, progress: Progress | None = None) -> Digest:
    """Build the index anew from the log alone and switch to it. Hold the rebuild lock."""
    building, done = build(folder, log, overrides, progress)
    building.publish()
    return done


def check(folder: Path, log: Log, overrides: Overrides, progress: Progress | None = None) -> list[str]:
    """Build aside and say what differs from the serving index, which is caught up first; switches nothing."""
    try:
        db = open_index(folder)
    except IndexMissing:
        return ["there is no index that serves, or it is of another version"]
    try:
        catch_up(db, log, overrides)
        serving = digest(db)
    except IndexMissing:
        return ["the index does not belong to this log"]
    except apsw.Error as bad:
        return [f"the index is damaged: {bad}"]
    finally:
        db.close()
    building, fresh = build(folder, log, overrides, progress)
    building.discard()
    return serving.differences(fresh)


def _batch(log: Log, position: int) -> Iterator[Recorded]:
    size = 0
    for number, recorded in enumerate(log.read(position)):
        if number >= BATCH_EVENTS or (number and size > BATCH_BYTES):
            return
        if not codec.known(recorded.type, recorded.version):
            recorded.event()
        size += len(recorded.stored or b"")
        yield recorded


def _position(db: Database) -> int:
    return int(db.execute("SELECT position FROM checkpoint").fetchone()[0])


def _hash(db: Database) -> bytes:
    return bytes(db.execute("SELECT hash FROM checkpoint").fetchone()[0])


def _stamp(db: Database) -> tuple[str, str]:
    row = db.execute("SELECT prices, overrides FROM checkpoint").fetchone()
    return row[0], row[1]


def _on_chain(db: Database, log: Log) -> bool:
    position, hash_ = _position(db), _hash(db)
    if position == 0:
        return hash_ == START
    recorded = log.header_at(position)
    return recorded is not None and recorded.hash == hash_


def _save(db: Database, position: int, hash_: bytes, overrides: Overrides) -> None:
    db.execute("DELETE FROM checkpoint")
    db.execute("INSERT INTO checkpoint VALUES (?, ?, ?, ?)", (position, hash_, *stamp(overrides)))
