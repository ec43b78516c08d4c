"""Which device entries are one machine: what a user says, and what prosa says by itself when the hostname changed.

The fingerprint is made of hostname and machine id, so a new hostname is a new entry. Sessions never move: they follow
the merges that hold (projections/aliases.py), and a merge that is reverted is as if it had never been.
"""

from __future__ import annotations

from typing import Final

from prosa.events.catalogue import DeviceMerged, DeviceMergeReverted, DeviceRenamed, Event
from prosa.events.database import Database
from prosa.events.device import Device, identify
from prosa.events.home import Home
from prosa.events.log import Draft, Log, Recorded
from prosa.events.messages import Done, SelfMerge
from prosa.projections.aliases import SAME_MACHINE
from prosa.sync import auth_file
from prosa.sync.http import Connection, ServerRefused

PROSA: Final = "prosa"
"""Who says a merge that nobody asked for."""
OTHER_NAMES: Final = """
SELECT DISTINCT device FROM devices d WHERE machine = :machine AND device <> :here AND NOT EXISTS (
    SELECT 1 FROM merges m WHERE m.device = d.device AND m.into_device = :here)
ORDER BY device"""


def merge_self(log: Log, index: Database, here: Device | None = None) -> list[str]:
    """Merge this machine's earlier entries onto its present one; their fingerprints.

    Once for each: one that was reverted stays so. A machine without an id is never known to be another's.
    """
    here = here or identify()
    if not here.machine_hash:
        return []
    found = [row[0] for row in index.execute(OTHER_NAMES, {"machine": here.machine_hash, "here": here.id})]
    for device in found:
        merge(log, device, here.id, by=PROSA, evidence=SAME_MACHINE)
    return found


def merge_at_server(home: Home, connection: Connection, refused: ServerRefused) -> bool:
    """Explain to the server why another fingerprint shows this device's token; whether to ask again.

    It takes the explanation if both entries have the same machine id.
    """
    auth, here = auth_file.read(home), identify()
    if refused.problem.code != "other_device" or auth is None or not here.machine_hash or auth.device == here.id:
        return False
    question = SelfMerge(device=auth.device, into=here.id, hostname=here.hostname, machine=here.machine_hash)
    try:
        connection.post("/v1/devices/merge-self", question, Done)
    except ServerRefused:
        return False
    return True


def rename(log: Log, device: str, name: str, by: str) -> Recorded:
    return _say(log, device, DeviceRenamed(device=device, name=name, by=by))


def merge(log: Log, device: str, into: str, by: str, evidence: str) -> Recorded:
    return _say(log, device, DeviceMerged(device=device, into=into, evidence=evidence, by=by))


def unmerge(log: Log, device: str, merged_by: str, by: str) -> Recorded:
    """Take back one merge, named by the id of its event."""
    return _say(log, device, DeviceMergeReverted(merge=merged_by, by=by))


def _say(log: Log, device: str, event: Event) -> Recorded:
    stream = f"device-{device}"
    return log.append([Draft(stream, log.stream_version(stream), event)])[0]
