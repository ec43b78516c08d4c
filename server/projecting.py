"""One projection as its worker has it: the working file that replay writes, and the schema it is carried to.

A working file is held by one process. It fits Postgres where the serving row is at what was carried last, or at what
was being carried when a process was killed; a file that fits not is made anew.
"""

from __future__ import annotations

import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from prosa.events import codec
from prosa.events.catalogue import BodyErased
from prosa.events.database import Database, use_wal
from prosa.events.errors import DamageError, ProsaError, UpgradeError
from prosa.events.locks import held
from prosa.events.log import Recorded
from prosa.projections.building import Load
from prosa.projections.engine import Applied, step
from prosa.projections.erasing import forget_texts
from prosa.projections.index import APPLICATION_ID, SCHEMA_VERSION
from prosa.projections.records import TEXTS
from prosa.projections.replay import PARSES
from prosa.server.carrying import PARKED, Place, start_carrying
from prosa.server.mirror import open_working
from prosa.server.reading import PgLog

PARK: Final = "INSERT INTO parked VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
UNPARK: Final = "DELETE FROM parked WHERE stream = ? AND again"
ERASED: Final = "a session was erased"
NEWER: Final = "of a newer prosa: "
"""How the reason begins why an event was passed over that this prosa will know once it is upgraded."""

Asides = dict[str, tuple[int, Exception]]
"""Stream → the first position that could not be applied, and why."""


class Projection:
    """A working file that is held, and its place in Postgres. `close` lets it go."""

    def __init__(self, folder: Path, place: Place) -> None:
        """Raises LockedError where another process has the file, DamageError where it is none any more."""
        self.place, self.path = place, folder / f"{place.worker}.db"
        self._stack = ExitStack()
        self._stack.enter_context(held(folder, f"{place.worker}.lock"))
        try:
            self.db = open_working(self.path)
        except BaseException:
            self._stack.close()
            raise

    def close(self) -> None:
        self.db.close()
        self._stack.close()

    def fits(self, position: int) -> bool:
        """Whether this version of prosa filled the file, and it goes on where Postgres is."""
        made = self.db.pragma("application_id"), self.db.pragma("user_version")
        if made != (APPLICATION_ID, SCHEMA_VERSION) or self.db.pragma("journal_mode") != "wal":
            return False
        return position in (self.carried, self.position)

    @property
    def position(self) -> int:
        return int(self.db.execute("SELECT position FROM checkpoint").fetchone()[0])

    @property
    def carried(self) -> int:
        return int(self.db.execute("SELECT carried FROM standing").fetchone()[0])

    @property
    def due(self) -> str | None:
        """Why this is to be made anew from the log."""
        found: str | None = self.db.execute("SELECT due FROM standing").fetchone()[0]
        return found

    @property
    def parked(self) -> int:
        return int(self.db.execute("SELECT count(*) FROM parked").fetchone()[0])

    # in a thread

    def load(self, log: PgLog) -> None:
        """Fill the empty file with everything the log has."""
        position, hash_ = log.head()
        asides: Asides = {}
        load = Load(self.db, log, {}, lambda stream, at, why: _put(asides, stream, at, why))
        load.load(position)
        self.db.execute(PARKED)
        load.finish(position, hash_, lambda: _park(self.db, log, asides))

    def filled(self) -> None:
        """Postgres has the rows: drop the texts, and note what changes from here on."""
        self.db.pragma("journal_mode", "off")  # until this ends nobody takes the file for whole
        for table in TEXTS:
            self.db.execute(f"UPDATE {table} SET text = NULL")
        start_carrying(self.db)
        self.db.execute("VACUUM")
        use_wal(self.db, synchronous="full")  # Postgres must not have what a power cut took from here

    def step(self, log: PgLog) -> Applied | None:
        """Apply the next events; what changed is noted to be carried."""
        asides: Asides = {}

        def along(batch: list[Recorded]) -> None:
            for stream in {recorded.stream for recorded in batch if recorded.type in PARSES} - asides.keys():
                self.db.execute(UNPARK, (stream,))
            _park(self.db, log, asides)
            for recorded in batch:
                if recorded.type == BodyErased.TYPE and _erase(self.db, recorded):
                    self.db.execute("UPDATE standing SET due = ?", (ERASED,))

        return step(self.db, log, {}, lambda stream, at, why: _put(asides, stream, at, why), along)


def _put(asides: Asides, stream: str, position: int, why: Exception) -> None:
    asides.setdefault(stream, (position, why))


def _park(db: Database, log: PgLog, asides: Asides) -> None:
    for stream, (position, why) in asides.items():
        header = log.header_at(position)
        db.execute(PARK, (stream, position, reason(why), header is not None and header.type in PARSES))


def reason(why: Exception) -> str:
    """For the log and for `parked`: what a message says may be of a transcript, where it was raised is not."""
    if isinstance(why, UpgradeError):
        return f"{NEWER}{why.what}"
    if isinstance(why, ProsaError):
        return why.what
    last = traceback.extract_tb(why.__traceback__)[-1]
    return f"{type(why).__name__} at {Path(last.filename).name}:{last.lineno}"


def _erase(db: Database, recorded: Recorded) -> bool:
    """Take a session's words out at once where its erasure was requested; the rest goes when the file is made anew."""
    if recorded.erased or not codec.known(recorded.type, recorded.version):
        return False
    try:
        event = codec.decode_as(BodyErased, recorded.body())
    except (DamageError, msgspec.DecodeError):
        return False  # replay has put it aside
    if event.reason != "requested" or not event.subject.startswith("session-"):
        return False
    forget_texts(db, event.subject.removeprefix("session-"))
    return True
