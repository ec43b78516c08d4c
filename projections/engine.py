"""Keeping the index with the log: where it stands, catching up, opening it for a question.

Rows and checkpoint are written in one transaction, so every event is applied exactly once. A checkpoint that is not
on the log's chain means that one of the two was replaced: the index is built anew, never guessed at. What applies
events is imported when there are some: a question to a current index does not need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import apsw

from prosa.events import codec
from prosa.events.chain import START
from prosa.events.database import Database
from prosa.events.errors import LockedError, UpgradeError
from prosa.events.locks import held
from prosa.events.log import BATCH_BYTES, BATCH_EVENTS, LogReader, Recorded
from prosa.projections.index import IndexMissing, open_index
from prosa.projections.prices import Overrides, stamp

if TYPE_CHECKING:
    from prosa.projections.replay import Aside

READ_BUSY_MS = 250
"""How long a question waits for another process to finish catching up."""

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


def is_current(db: Database, log: LogReader, overrides: Overrides) -> bool:
    """Whether there is nothing to catch up with."""
    return (_position(db), _hash(db)) == log.head() and _stamp(db) == stamp(overrides)


def open_current(
    folder: Path, locks: Path, log: LogReader, overrides: Overrides, progress: Progress | None = None
) -> Index:
    """The index for a question: caught up first; where that cannot be, as it is, with `standing.behind` > 0.

    Built first where there is none. Raises IndexMissing where another process builds the first one.
    """
    warning = ""
    try:
        db = open_index(folder, busy_ms=READ_BUSY_MS)
    except IndexMissing:
        db = _built(folder, locks, log, overrides, progress)
    try:
        if not _on_chain(db, log):
            db.close()
            warning = "The index was ahead of the log or beside it: one of them was cut or replaced. It was built anew."
            db = _built(folder, locks, log, overrides, progress)
        if not is_current(db, log, overrides):
            try:
                catch_up(db, log, overrides, progress)
            except IndexMissing:
                db.close()
                db = _built(folder, locks, log, overrides, progress)
    except (apsw.BusyError, apsw.ReadOnlyError, apsw.FullError, UpgradeError) as why:
        if not db.get_autocommit():
            db.execute("ROLLBACK")
        if isinstance(why, UpgradeError):
            warning = f"{why.what} Upgrade prosa to see what came after it."
        elif not isinstance(why, apsw.BusyError):
            warning = "The index cannot be written: answers are from before the last sync."
    return Index(db, Standing(_position(db), log.head()[0]), warning)


def _built(folder: Path, locks: Path, log: LogReader, overrides: Overrides, progress: Progress | None) -> Database:
    from prosa.projections.building import rebuild

    try:
        with held(locks, "rebuild"):
            rebuild(folder, log, overrides, progress)
    except LockedError:
        return open_index(folder)  # somebody else builds: what serves meanwhile, or IndexMissing
    return open_index(folder)


def catch_up(db: Database, log: LogReader, overrides: Overrides, progress: Progress | None = None) -> int:
    """Apply what is after the checkpoint. Returns the number of events applied.

    Raises IndexMissing where the checkpoint is not on the log's chain, and where the server refused a part of the log
    since, UpgradeError on an event of a newer prosa.
    """
    done = 0
    while applied := step(db, log, overrides):
        done += len(applied.events)
        if progress:
            progress(done, done + log.head()[0] - applied.position)
    return done


class Applied(NamedTuple):
    """What one step applied, and where the index stands after it."""

    events: list[Recorded]
    position: int


Along = Callable[[list[Recorded]], None]


def step(
    db: Database, log: LogReader, overrides: Overrides, aside: Aside | None = None, along: Along | None = None
) -> Applied | None:
    """Apply the next events behind the checkpoint in one transaction; None where there are none.

    With `aside`, what cannot be applied, events of a newer prosa too, is told to it and passed over. `along` does
    more in the same transaction. Raises as `catch_up`.
    """
    from prosa.events.restating import Holding, standing
    from prosa.projections.pricing import pricer, reprice
    from prosa.projections.replay import Replay

    log = standing(log)
    db.execute("BEGIN IMMEDIATE")
    try:
        if not _on_chain(db, log):
            raise IndexMissing
        batch = list(_batch(log, _position(db)))
        if isinstance(log, Holding) and log.is_new(batch):
            raise IndexMissing  # what is void now may have been applied
        stale = _stamp(db) != stamp(overrides)
        if not batch and not stale:
            db.execute("ROLLBACK")
            return None
        replay = Replay(db, log, pricer(db, overrides), aside=aside)
        if stale:
            replay.touch_all(reprice(db, overrides))
        replay.apply(_known(batch, aside))
        if along:
            along(batch)
        position, hash_ = (batch[-1].position, batch[-1].hash) if batch else (_position(db), _hash(db))
        save_checkpoint(db, position, hash_, overrides)
        db.execute("COMMIT")
    except BaseException:
        if not db.get_autocommit():
            db.execute("ROLLBACK")
        raise
    return Applied(batch, position)


def _batch(log: LogReader, position: int) -> Iterator[Recorded]:
    size = 0
    for number, recorded in enumerate(log.read(position), 1):
        size += len(recorded.stored or b"")
        yield recorded
        if number >= BATCH_EVENTS or size > BATCH_BYTES:
            return


def _known(batch: list[Recorded], aside: Aside | None) -> Iterator[Recorded]:
    """The events that this prosa knows, also where their bodies were erased."""
    for recorded in batch:
        if codec.known(recorded.type, recorded.version):
            yield recorded
        else:
            why = codec.newer(recorded.type, recorded.version)
            if aside is None:
                raise why
            aside(recorded.stream, recorded.position, why)


def _position(db: Database) -> int:
    return int(db.execute("SELECT position FROM checkpoint").fetchone()[0])


def _hash(db: Database) -> bytes:
    return bytes(db.execute("SELECT hash FROM checkpoint").fetchone()[0])


def _stamp(db: Database) -> tuple[str, str]:
    row = db.execute("SELECT prices, overrides FROM checkpoint").fetchone()
    return row[0], row[1]


def _on_chain(db: Database, log: LogReader) -> bool:
    position, hash_ = _position(db), _hash(db)
    if position == 0:
        return hash_ == START
    recorded = log.header_at(position)
    return recorded is not None and recorded.hash == hash_


def save_checkpoint(db: Database, position: int, hash_: bytes, overrides: Overrides) -> None:
    """Inside the transaction that applied the events up to the position."""
    db.execute("DELETE FROM checkpoint")
    db.execute("INSERT INTO checkpoint VALUES (?, ?, ?, ?)", (position, hash_, *stamp(overrides)))
