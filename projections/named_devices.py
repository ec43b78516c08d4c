"""Devices as they are shown: what is merged under one fingerprint, by the name given last or the hostname.

The tables keep what each replica said; merges and names are applied when asked, so that a revert is exact.
"""

from __future__ import annotations

from typing import Final

from prosa.projections.aliases import Aliases, Merge
from prosa.projections.tables import Tables

HOSTNAMES: Final = "SELECT device, hostname FROM devices ORDER BY position"
NAMES: Final = "SELECT device, name, at_us FROM device_names"
MERGES: Final = "SELECT id, device, into_device, evidence, at_us, reverted FROM merges"


class Devices:
    """All of one state of the tables."""

    def __init__(self, tables: Tables) -> None:
        self._hostnames: dict[str, str] = dict(tables.execute(HOSTNAMES))
        self._names = {device: (name, at_us) for device, name, at_us in tables.execute(NAMES)}
        self._aliases = Aliases(Merge._make(row) for row in tables.execute(MERGES))
        self._found: dict[str | None, str | None] = {None: None}

    def shown(self, device: str) -> str:
        """The fingerprint that is shown for this one."""
        return self._aliases.canonical(device)

    def name(self, device: str | None) -> str | None:
        """What it was called last, else the last hostname of the entry that is shown; None where neither is known."""
        if device is not None and device not in self._found:
            self._found[device] = self._aliases.name(device, self._names) or self._hostnames.get(self.shown(device))
        return self._found[device]
