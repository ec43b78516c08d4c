"""Building an index from the log alone, beside the one that serves: rebuild, and comparing without switching."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw

from prosa.events import codec
from prosa.events.catalogue import SessionPart
from prosa.events.database import Database
from prosa.events.log import LogReader
from prosa.events.restating import standing
from prosa.projections.digest import Digest, digest
from prosa.projections.engine import Progress, catch_up, save_checkpoint
from prosa.projections.index import IndexMissing, NewIndex, open_index
from prosa.projections.prices import Overrides
from prosa.projections.pricing import pricer
from prosa.projections.records import TEXTS
from prosa.projections.replay import PARSES, Aside, Replay

HASH_SIZES = {"text_rest": 16, "text_answer": 8, "text_thinking": 4, "text_prompt": 4}
"""MB of postings that a bulk load gathers before it writes a segment."""
EXPECTED = 200
"""Sessions that a log is told of before they are read: one that is far away brings them along."""


class Load:
    """A log brought into an empty index at once, in one transaction that `finish` ends.

    With `aside`, what cannot be applied is told to it and passed over; without, it raises.
    """

    def __init__(self, db: Database, log: LogReader, overrides: Overrides, aside: Aside | None = None) -> None:
        self._db, self._log, self._overrides, self._aside = db, standing(log), overrides, aside
        db.execute("BEGIN")
        self.replay = Replay(db, self._log, pricer(db, overrides), bulk=True, aside=aside)

    def load(self, until: int, progress: Progress | None = None) -> None:
        """Everything the log has up to a position, session by session: full-text row ids must rise."""
        streams: dict[str, int] = {}
        for recorded in self._log.read(bodies=False):
            if recorded.position > until:
                break
            if not codec.known(recorded.type, recorded.version):
                newer = codec.newer(recorded.type, recorded.version)
                if self._aside is None:
                    raise newer
                self._aside(recorded.stream, recorded.position, newer)
            elif recorded.type in PARSES:
                streams.setdefault(recorded.stream, recorded.position)
            elif recorded.type != SessionPart.TYPE:
                whole = self._log.at(recorded.position)
                assert whole is not None
                self.replay.noted(whole)
        names = list(streams)
        for number, (stream, position) in enumerate(streams.items(), 1):
            if number % EXPECTED == 1:
                self._log.expect(dict.fromkeys(names[number - 1 : number - 1 + EXPECTED], 0))
            self.replay.advanced(stream, position, until)
            if progress:
                progress(number, len(streams))

    def finish(self, position: int, head: bytes, along: Callable[[], None] = lambda: None) -> None:
        """End the load up to the log's position. `along` does more in the same transaction."""
        self.replay.finish()
        along()
        save_checkpoint(self._db, position, head, self._overrides)
        self._db.execute("COMMIT")
        self._db.execute("ANALYZE")


class Building:
    """A new index, fed with events in order, then published. Nobody sees it before."""

    def __init__(self, folder: Path, log: LogReader, overrides: Overrides) -> None:
        self._new = NewIndex(folder)
        self.db = db = self._new.db
        for table in TEXTS:
            for option, value in (("hashsize", HASH_SIZES[table] << 20), ("automerge", 0), ("crisismerge", 1000)):
                db.execute(f"INSERT INTO {table} ({table}, rank) VALUES (?, ?)", (option, value))
        self._load = Load(db, log, overrides)
        self.replay = self._load.replay
        self.load = self._load.load

    def finish(self, position: int, head: bytes) -> None:
        """End the load up to the log's position."""
        for table in TEXTS:  # first: what comes after fills the pages this frees
            self.db.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")
            for option, value in (("hashsize", 1 << 20), ("automerge", 4), ("crisismerge", 16)):
                self.db.execute(f"INSERT INTO {table} ({table}, rank) VALUES (?, ?)", (option, value))
        self._load.finish(position, head)

    def publish(self) -> None:
        self._new.finish()
        self._new.publish()

    def discard(self) -> None:
        self._new.discard()


def build(
    folder: Path, log: LogReader, overrides: Overrides, progress: Progress | None = None
) -> tuple[Building, Digest]:
    """A complete index beside the serving one, neither published nor discarded."""
    head, hash_ = log.head()
    building = Building(folder, log, overrides)
    try:
        building.load(head, progress)
        building.finish(head, hash_)
        return building, digest(building.db)
    except BaseException:
        building.discard()
        raise


def rebuild(folder: Path, log: LogReader, overrides: Overrides, progress: Progress | None = None) -> Digest:
    """Build the index anew from the log alone and switch to it. Hold the rebuild lock."""
    building, done = build(folder, log, overrides, progress)
    building.publish()
    return done


def check(folder: Path, log: LogReader, overrides: Overrides, progress: Progress | None = None) -> list[str]:
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
