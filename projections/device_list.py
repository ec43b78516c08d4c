"""The machines that a log knows: each entry with its name, what it is merged into and what was done on it."""

from __future__ import annotations

from typing import Final

import msgspec

from prosa.projections.aliases import Aliases, Merge
from prosa.projections.tables import Tables
from prosa.projections.zones import rfc3339

ENTRIES: Final = "SELECT device, hostname, platform FROM devices ORDER BY position"
NAMES: Final = "SELECT device, name, at_us FROM device_names"
MERGES: Final = "SELECT id, device, into_device, evidence, at_us, reverted FROM merges"
WORK: Final = "SELECT device, count(*), max(last) FROM sessions WHERE device IS NOT NULL GROUP BY device"


class ListedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One entry. What is counted of a machine includes the entries that are merged into it."""

    device: str
    name: str
    hostname: str | None
    platform: str | None
    merged_into: str | None
    merge: str | None
    """Id of the merge that holds, for unmerge."""
    sessions: int
    last_activity_at: str | None


def listed(tables: Tables) -> list[ListedDevice]:
    """Every entry, by name."""
    with tables.one_state():
        entries = {device: (hostname, platform) for device, hostname, platform in tables.execute(ENTRIES)}
        names = {device: (name, at_us) for device, name, at_us in tables.execute(NAMES)}
        aliases = Aliases(Merge._make(row) for row in tables.execute(MERGES))
        work = {device: (sessions, last) for device, sessions, last in tables.execute(WORK)}
    found = []
    for device in {*entries, *names, *work, *aliases.named}:
        shown = aliases.canonical(device)
        members = aliases.members(device) if shown == device else [device]
        own = names[device][0] if device in names else None
        hostname, platform = entries.get(device, (None, None))
        last = max((at for member in members if (at := work.get(member, (0, None))[1]) is not None), default=None)
        found.append(
            ListedDevice(
                device=device,
                name=(aliases.name(device, names) if shown == device else own) or hostname or device,
                hostname=hostname,
                platform=platform,
                merged_into=None if shown == device else shown,
                merge=aliases.merged_by.get(device),
                sessions=sum(work.get(member, (0, None))[0] for member in members),
                last_activity_at=None if last is None else rfc3339(last),
            )
        )
    return sorted(found, key=lambda row: (row.name.casefold(), row.device))
