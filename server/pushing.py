"""The endpoints of push: heads, events, and what the server holds of which session, for reconciling and pruning."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import asyncpg

from prosa.events.messages import (
    MISSING_LIMIT,
    ConfirmAnswer,
    Confirmed,
    ConfirmQuestion,
    Head,
    Heads,
    Manifest,
    ManifestEntry,
    PushBatch,
    Receipt,
)
from prosa.server import batches, entries, uploads
from prosa.server.endpoints import Call, Endpoint, Refused
from prosa.server.log import append_pushed
from prosa.server.raws import raw_name
from prosa.server.state import Server

PAGE: Final = 1_000
MOST: Final = 10_000
LOOKING: Final = asyncio.Semaphore(32)
"""Objects that are looked for in the store at a time."""

ORIGINS: Final = "SELECT origin, device, position, hash FROM origins WHERE owner = $1 AND device IS NOT NULL"
ORIGIN: Final = "SELECT position, hash FROM origins WHERE owner = $1 AND origin = $2"
ORIGIN_AT: Final = """
SELECT e.origin_position AS position, e.hash FROM events e JOIN origins o ON o.owner = e.owner AND o.number = e.origin
WHERE o.owner = $1 AND o.origin = $2 AND e.origin_position = $3"""
LOG_HEAD: Final = "SELECT position FROM log_head WHERE owner = $1"
SERVING: Final = "SELECT schema, position FROM projections WHERE owner = $1 AND state = 'serving'"
MANIFEST: Final = """
SELECT p.session, p.sha256, r.size, (extract(epoch FROM r.stored_at) * 1000000)::bigint
FROM "{schema}".raws p JOIN public.raws r ON r.owner = $1 AND r.sha256 = p.sha256
WHERE (p.session, p.sha256) > ($2, $3) ORDER BY p.session, p.sha256 LIMIT $4"""
RAW_ROWS: Final = "SELECT sha256, size, stored FROM raws WHERE owner = $1 AND sha256 = ANY($2)"
PROJECTED: Final = """
SELECT asked.session, asked.sha256 FROM unnest($2::text[], $3::text[]) AS asked (session, sha256)
JOIN "{schema}".sessions s ON s.key = asked.session
WHERE (
    EXISTS (SELECT 1 FROM "{schema}".revisions v WHERE v.sid = s.sid AND v.raw = asked.sha256)
    OR EXISTS (SELECT 1 FROM "{schema}".raws x WHERE x.session = asked.session AND x.extends = asked.sha256)
) AND NOT EXISTS (
    SELECT 1 FROM public.parked k WHERE k.owner = $1 AND k.stream = 'session-' || asked.session
) AND NOT EXISTS (
    SELECT 1 FROM public.events e WHERE e.owner = $1 AND e.stream = 'session-' || asked.session AND e.position > $4
)"""
FORGET: Final = "DELETE FROM raws WHERE owner = $1 AND sha256 = $2"


async def heads(call: Call) -> Heads:
    server = call.server
    async with server.pool.acquire() as connection:
        known = await entries.aliases(connection, server.owner)
        rows = await connection.fetch(ORIGINS, server.owner)
        position = await connection.fetchval(LOG_HEAD, server.owner)
        serving = await connection.fetchrow(SERVING, server.owner)
        mine = known.canonical(call.caller.device or "")
        found = {
            r["origin"].hex(): Head(r["position"], r["hash"]) for r in rows if known.canonical(r["device"]) == mine
        }
        for name in call.request.query_params.getlist("origin"):
            of, _, place = name.partition("@")
            if place and not (place.isascii() and place.isdigit() and len(place) <= 18):
                raise Refused("invalid", f"origin is {name!r}, not an origin or one at a position.")
            values = (server.owner, batches.origin_bytes(of), *((int(place),) if place else ()))
            row = await connection.fetchrow(ORIGIN_AT if place else ORIGIN, *values)
            if row is not None:
                found[name] = Head(row["position"], row["hash"])
    return Heads(server.id, position, found, serving["position"] if serving else 0)


async def events(call: Call) -> Receipt:
    return await append_pushed(call.server, call.caller, call.question)


async def manifest(call: Call) -> Manifest:
    sha256, _, session = (call.parameter("after") or "").partition(".")
    limit = call.number("limit", PAGE, 1, MOST)
    values = (_text(session), _text(sha256), limit + 1)
    position, rows = await _ask(call.server, MANIFEST, lambda _: values)
    uri = call.server.raws.uri
    found = [ManifestEntry(row[0], row[1], row[2], row[3], uri(raw_name(row[1]))) for row in rows[:limit]]
    after = f"{found[-1].sha256}.{found[-1].session}" if len(rows) > limit else None
    return Manifest(found, after, position)


async def confirm(call: Call) -> ConfirmAnswer:
    """Looks for every object in the store now, whatever the rows say."""
    question: ConfirmQuestion = call.question
    if len(question.copies) > MISSING_LIMIT:
        raise Refused("too_large", f"{len(question.copies):,} copies are more than {MISSING_LIMIT:,}.")
    server = call.server
    copies = [(_text(session), _text(sha256)) for session, sha256 in question.copies]
    hashes = [sha256 for _, sha256 in copies]
    await server.pool.execute(uploads.STILL_WANTED, server.owner, hashes)  # the prune that is confirmed now names them
    rows = await server.pool.fetch(RAW_ROWS, server.owner, hashes)
    sizes = {row["sha256"]: row["size"] for row in rows}
    here = await asyncio.gather(*(_is_here(server, row["sha256"], row["stored"]) for row in rows))
    held = {row["sha256"] for row, is_here in zip(rows, here, strict=True) if is_here}
    projected = await _projected(server, copies)
    return ConfirmAnswer(
        server.now_us(),
        [
            Confirmed(
                session, sha256, sha256 in held, sizes.get(sha256, 0), (session, sha256) in projected,
                server.raws.uri(raw_name(sha256)),
            )
            for session, sha256 in copies
        ],
    )  # fmt: skip


async def _is_here(server: Server, sha256: str, stored: int) -> bool:
    """Whether the object is in the store. Of one that is gone the row goes too, so that it is asked for again."""
    async with LOOKING:
        size = await server.raws.size(raw_name(sha256))
    if size is None:
        await server.pool.execute(FORGET, server.owner, sha256)
    return size == stored


async def _projected(server: Server, copies: list[tuple[str, str]]) -> set[tuple[str, str]]:
    """Those whose session has a parse of them in the tables, and nothing in the log that is not."""
    sessions, hashes = [session for session, _ in copies], [sha256 for _, sha256 in copies]
    _, rows = await _ask(server, PROJECTED, lambda position: (sessions, hashes, position))
    return {(row["session"], row["sha256"]) for row in rows}


async def _ask(
    server: Server, sql: str, values: Callable[[int], tuple[object, ...]]
) -> tuple[int, list[asyncpg.Record]]:
    """The serving projection's position and what it answers; (0, []) before there is one."""
    for _ in range(3):
        serving = await server.pool.fetchrow(SERVING, server.owner)
        if serving is None:
            return 0, []
        position = serving["position"]
        try:
            rows = await server.pool.fetch(sql.format(schema=serving["schema"]), server.owner, *values(position))
        except asyncpg.UndefinedTableError:  # another schema serves since then
            continue
        return position, rows
    raise Refused("unavailable", "The projections are being switched.", "", "Try again.", retry_after_s=1)


def _text(value: str) -> str:
    """Postgres has no NUL."""
    return value.replace("\0", "\ufffd")


ENDPOINTS: Final = (
    Endpoint(
        "GET", "/v1/heads", "device", heads, "How far the server has this device's origins", Heads,
        parameters=(("origin", str, "Another one to tell of, as hex; may be repeated."),),
    ),
    Endpoint("POST", "/v1/events", "device", events, "Append events of one origin", Receipt, PushBatch),
    Endpoint(
        "GET", "/v1/manifest", "device", manifest, "Raw of sessions that the server holds", Manifest,
        parameters=(("after", str, "`next` of the page before."), ("limit", int, "Entries of a page.")),
    ),
    Endpoint(
        "POST", "/v1/prune/confirm", "device", confirm, "Whether these copies are in the store at this moment",
        ConfirmAnswer, ConfirmQuestion,
    ),
)  # fmt: skip
