"""The list of devices as it is shown: what the server knows at once, and what the projections have counted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import asyncpg

from prosa.events.messages import DeviceRow, Devices
from prosa.projections.aliases import Aliases
from prosa.projections.zones import rfc3339
from prosa.server.entries import Entry, aliases, entries
from prosa.server.state import Server

SERVING: Final = "SELECT schema, prices FROM projections WHERE owner = $1 AND state = 'serving'"
SESSIONS: Final = """
SELECT device, count(*) AS sessions, max(last) AS last FROM "{schema}".sessions WHERE device IS NOT NULL GROUP BY device
"""
PUSHES: Final = """
SELECT device, (extract(epoch FROM max(pushed_at)) * 1000000)::bigint AS at_us FROM origins
WHERE owner = $1 AND device IS NOT NULL GROUP BY device"""
TOKENS: Final = """
SELECT device, count(*) AS valid FROM tokens
WHERE owner = $1 AND device IS NOT NULL AND revoked_at_us IS NULL AND expires_at_us > $2 GROUP BY device"""
TRIES: Final = 3


class Counts(NamedTuple):
    """By the fingerprint that things were recorded under."""

    sessions: dict[str, int]
    last_us: dict[str, int]
    pushed_us: dict[str, int]
    tokens: dict[str, int]


async def listed(server: Server) -> Devices:
    """Every entry, by name. What is counted of a machine includes the entries that are merged into it."""
    sessions, last_us, prices = await _projected(server)
    pushed = {row["device"]: row["at_us"] for row in await server.pool.fetch(PUSHES, server.owner)}
    tokens = {row["device"]: row["valid"] for row in await server.pool.fetch(TOKENS, server.owner, server.now_us())}
    counts = Counts(sessions, last_us, {name: at for name, at in pushed.items() if at is not None}, tokens)
    known = await entries(server.pool, server.owner)
    for device in sorted({*sessions, *pushed, *tokens} - set(known)):
        known[device] = Entry(device)
    merged = await aliases(server.pool, server.owner)
    rows = [_row(entry, known, merged, counts) for entry in known.values()]
    return Devices(sorted(rows, key=lambda row: (row.name.casefold(), row.device)), prices)


async def _projected(server: Server) -> tuple[dict[str, int], dict[str, int], str]:
    """Sessions and last activity by device, and the price table their costs were made with."""
    for _ in range(TRIES):
        serving = await server.pool.fetchrow(SERVING, server.owner)
        if serving is None:
            break
        try:
            rows = await server.pool.fetch(SESSIONS.format(schema=serving["schema"]))
        except asyncpg.UndefinedTableError:  # another schema serves since then
            continue
        last = {row["device"]: row["last"] for row in rows if row["last"] is not None}
        return {row["device"]: row["sessions"] for row in rows}, last, serving["prices"]
    return {}, {}, ""


def _row(entry: Entry, known: dict[str, Entry], merged: Aliases, counts: Counts) -> DeviceRow:
    device = entry.device
    shown = merged.canonical(device)
    members = merged.members(device) if shown == device else [device]
    names = {other.device: (other.name, other.named_at_us or 0) for other in known.values() if other.name is not None}
    name = merged.name(device, names) if shown == device else entry.name
    return DeviceRow(
        device=device,
        name=name or entry.hostname or device,
        hostname=entry.hostname,
        platform=entry.platform,
        merged_into=None if shown == device else shown,
        merge=merged.merged_by.get(device),
        sessions=sum(counts.sessions.get(member, 0) for member in members),
        last_activity_at=_latest(counts.last_us, members),
        last_push_at=_latest(counts.pushed_us, members),
        revoked=entry.revoked_at_us is not None,
        tokens=sum(counts.tokens.get(member, 0) for member in members),
    )


def _latest(times: dict[str, int], members: Iterable[str]) -> str | None:
    found = [times[member] for member in members if member in times]
    return rfc3339(max(found)) if found else None
