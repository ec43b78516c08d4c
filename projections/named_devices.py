"""Devices as they are shown: what is merged under one fingerprint, by the name given last or the hostname.

The tables keep what each replica said; merges and names are applied when asked, so that a revert is exact.
"""

from __future__ import annotations

from typing import Final

from prosa.projections.aliases import Aliases, Merge
from prosa.projections.tables import Tables

HOSTNAME, NAME, MERGE = range(3)
ALL: Final = f"""
SELECT {HOSTNAME} AS what, position AS at, device, hostname AS name, '' AS into_device, '' AS evidence, 0 AS reverted
FROM devices
UNION ALL SELECT {NAME}, at_us, device, name, '', '', 0 FROM device_names
UNION ALL SELECT {MERGE}, at_us, device, id, into_device, evidence, reverted FROM merges
ORDER BY what, at"""
"""In one statement: it may have a way to go."""


class Devices:
    """All of one state of the tables."""

    def __init__(self, tables: Tables) -> None:
        self._hostnames: dict[str, str] = {}
        self._names: dict[str, tuple[str, int]] = {}
        merges = []
        for what, at, device, name, into, evidence, reverted in tables.execute(ALL):
            if what == HOSTNAME:
                self._hostnames[device] = name
            elif what == NAME:
                self._names[device] = name, at
            else:
                merges.append(Merge(name, device, into, evidence, at, reverted))
        self._aliases = Aliases(merges)
        self._found: dict[str | None, str | None] = {None: None}

    def shown(self, device: str) -> str:
        """The fingerprint that is shown for this one."""
        return self._aliases.canonical(device)

    def name(self, device: str | None) -> str | None:
        """What it was called last, else the last hostname of the entry that is shown; None where neither is known."""
        if device is not None and device not in self._found:
            self._found[device] = self._aliases.name(device, self._names) or self._hostnames.get(self.shown(device))
        return self._found[device]
