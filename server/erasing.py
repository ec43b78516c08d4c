"""What an erasure on a device clears on the server: bodies at once, raw as soon as the collector has looked.

The order does not matter: the event that erases may come before the body it names, by way of another origin.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

import msgspec

from prosa.events import codec
from prosa.events.catalogue import BodyErased, RawPreserved
from prosa.events.messages import PushedEvent
from prosa.server.state import Connection

LARGEST: Final = 2**63

ERASED_BEFORE: Final = """
SELECT e.position, e.type, e.body FROM events e JOIN events b
ON b.owner = e.owner AND b.type = 'body_erased' AND b.stream = 'event-' || encode(e.id, 'hex')
WHERE e.owner = $1 AND e.position >= $2 AND e.body IS NOT NULL"""
ERASED_NOW: Final = """
SELECT e.position, e.id, e.type, e.body FROM events e JOIN origins o ON o.owner = e.owner AND o.number = e.origin
WHERE e.owner = $1 AND (o.origin, e.origin_position) IN (SELECT * FROM unnest($2::bytea[], $3::bigint[]))"""
ERASE: Final = "SELECT erase_body($1, $2)"
DOOM_RAWS: Final = "UPDATE raws SET unused_since = '-infinity' WHERE owner = $1 AND sha256 = ANY($2)"
"""The collector removes them as soon as it sees that no other session names them."""


async def clear_late(connection: Connection, owner: int, since: int) -> None:
    """Bodies that came after the event that erased them, by way of another origin."""
    rows = await connection.fetch(ERASED_BEFORE, owner, since)
    await _clear(connection, owner, [(row["position"], row["type"], row["body"]) for row in rows])


async def clear_named(connection: Connection, owner: int, events: Sequence[PushedEvent]) -> int:
    """Clear what the batch's body_erased events name. Returns how many of those bodies are cleared now."""
    named: dict[tuple[bytes, int], str] = {}
    for event in events:
        if event.type == BodyErased.TYPE and event.body is not None:
            with contextlib.suppress(msgspec.DecodeError, ValueError):
                said = codec.decode_as(BodyErased, codec.unpack(event.body))
                if 0 < said.origin_position < LARGEST:
                    named[bytes.fromhex(said.origin), said.origin_position] = event.stream
    if not named:
        return 0
    origins, places = [origin for origin, _ in named], [place for _, place in named]
    rows = await connection.fetch(ERASED_NOW, owner, origins, places)
    streams = set(named.values())
    rows = [row for row in rows if f"event-{row['id'].hex()}" in streams]
    await _clear(connection, owner, [(row["position"], row["type"], row["body"]) for row in rows])
    return len(rows)


async def _clear(connection: Connection, owner: int, found: list[tuple[int, str, bytes | None]]) -> None:
    raws: list[str] = []
    for position, kind, body in found:
        if kind == RawPreserved.TYPE and body is not None:
            with contextlib.suppress(msgspec.DecodeError):
                raws.append(codec.decode_as(RawPreserved, codec.unpack(body)).sha256.replace("\0", "\ufffd"))
        await connection.execute(ERASE, owner, position)
    if raws:
        await connection.execute(DOOM_RAWS, owner, raws)
