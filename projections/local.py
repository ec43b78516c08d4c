"""The back end of this machine: its index, its log, the raw store on its disk."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import apsw

from prosa.events.log import Log
from prosa.events.raw import RawStore
from prosa.projections.answers import Answers
from prosa.projections.hits import IndexFinder
from prosa.projections.tables import SqliteTables

if TYPE_CHECKING:
    from prosa.projections.device_list import ListedDevice

FEW: Final = 1_000
"""Above so many raws the folders are listed instead of asking for each file (10,000: 9 ms instead of 57)."""


class LocalBackend(Answers):
    """Answers from an open index, also while another process catches up."""

    def __init__(self, db: apsw.Connection, log: Log, raw: RawStore, *, now_us: int) -> None:
        super().__init__(SqliteTables(db), log, StoredRaws(raw), IndexFinder, now_us=now_us)

    def devices(self) -> list[ListedDevice]:
        """Every machine that wrote into this log, and what it was told about others."""
        from prosa.projections.device_list import listed  # one command asks

        return listed(self._tables)


class StoredRaws:
    """Raws on this machine's disk."""

    def __init__(self, raw: RawStore) -> None:
        self._raw = raw

    def here(self, hashes: Collection[str]) -> Collection[str]:
        """Of these the ones whose file is in the store, and maybe others."""
        raw = self._raw
        if len(hashes) <= FEW:
            return {digest for digest in hashes if raw.has(digest)}
        here: set[str] = set()
        for folder in {raw.path(digest).parent for digest in {digest[:2]: digest for digest in hashes}.values()}:
            try:
                here.update(name.removesuffix(".zst") for name in os.listdir(folder))  # noqa: PTH208 (no object each)
            except OSError:
                continue
        return here
