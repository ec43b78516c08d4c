"""The index as sync feeds it: caught up after the appends, or, where there is none yet, built along with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import msgspec

from prosa.cli.terminal import hint
from prosa.events.home import Home
from prosa.events.locks import held
from prosa.events.log import Log, Recorded
from prosa.ingest.cache import Seen
from prosa.ingest.importer import Identity
from prosa.ingest.importing import Reparse
from prosa.projections.building import Building, rebuild
from prosa.projections.engine import catch_up, is_current
from prosa.projections.index import IndexMissing, open_index
from prosa.projections.prices import Overrides
from prosa.projections.pruned import last_prune, leftovers

CUT = "The index was ahead of the log or beside it: one of them was cut or replaced. It was built anew."
DESCRIBED = "SELECT session, field, evidence, value FROM described"
REVISIONS = """
SELECT s.agent, s.id, s.scope, s.profile, r.revision, r.parser FROM revisions r JOIN sessions s USING (sid)
WHERE r.origin = ? ORDER BY s.key, r.revision"""
REFERENCED = "SELECT 1 FROM revisions WHERE raw = ? LIMIT 1"
SUPERSEDED = "SELECT extends FROM raws WHERE extends IS NOT NULL"
PRESENT = """
SELECT path, agent, profile, sha256, sessions FROM sources WHERE origin = ? AND state IN ('present', 'rejected')"""


class IndexProjector:
    """Implements the `Projector` of prosa.ingest.run over one index."""

    def __init__(self, home: Home, log: Log, overrides: Overrides) -> None:
        self._home, self._log, self._overrides = home, log, overrides
        self._locks = ExitStack()
        self._building: Building | None = None
        try:
            self._db = open_index(home.index)
        except IndexMissing:
            self._locks.enter_context(held(home.locks, "rebuild", wait=True))
            self._building = Building(home.index, log, overrides)
            self._db = self._building.db
            try:
                self._building.load(log.head()[0])
            except BaseException:
                self.close(complete=False)
                raise

    def appended(self, events: list[Recorded]) -> None:
        if self._building is not None:
            self._building.replay.apply(events)

    def settle(self) -> None:
        if self._building is not None or is_current(self._db, self._log, self._overrides):
            return
        try:
            catch_up(self._db, self._log, self._overrides)
        except IndexMissing:
            hint(CUT)
            self._db.close()
            with held(self._home.locks, "rebuild", wait=True):  # not longer: it can happen twice in one sync
                rebuild(self._home.index, self._log, self._overrides)
            self._db = open_index(self._home.index)

    def described(self) -> dict[tuple[str, str, str], str | None]:
        return {(session, field, evidence): value for session, field, evidence, value in self._rows(DESCRIBED)}

    def outdated(self, parsers: Mapping[str, str], everything: bool) -> list[Reparse]:
        return [
            Reparse(Identity(agent, native, scope), profile, revision)
            for agent, native, scope, profile, revision, parser in self._rows(REVISIONS, self._log.shared.number)
            if agent in parsers and (everything or parser != parsers[agent])
        ]

    def referenced(self, raw: str) -> bool:
        return self._db.execute(REFERENCED, (raw,)).fetchone() is not None

    def superseded(self) -> list[str]:
        return [raw for (raw,) in self._rows(SUPERSEDED)]

    def leftovers(self, since_us: int) -> tuple[list[str], int]:
        return leftovers(self._db, since_us), last_prune(self._db)

    def sources(self) -> dict[str, Seen]:
        decode = msgspec.json.Decoder(tuple[str, ...]).decode
        return {
            path: Seen(path, agent, profile, (), sha, decode(keys))
            for path, agent, profile, sha, keys in self._rows(PRESENT, self._log.shared.number)
        }

    def close(self, *, complete: bool) -> None:
        try:
            if self._building is None:
                self._db.close()
            elif complete:
                self._building.finish(*self._log.head())
                self._building.publish()
            else:
                self._building.discard()
        finally:
            self._locks.close()

    def _rows(self, statement: str, *values: object) -> Iterator[Any]:
        return iter(self._db.execute(statement, values))
