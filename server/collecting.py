"""Removing raw that nothing needs: 7 days after it was last needed, and at once where it was erased on request.

Needed: the last raw of a revision of some session, and one that a prune names and nothing stored extends. That is
worked out from the projections, so nothing is collected while they are behind the log; who asks whether the server
holds a raw is about to name it, and that starts its 7 days anew.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, NamedTuple

import asyncpg

from prosa.events.errors import ProsaError
from prosa.server.raws import raw_name
from prosa.server.state import Connection, Server
from prosa.server.uploads import drop_parts
from prosa.server.wakeups import AWAY

KEPT_DAYS: Final = 7
LOOK_S: Final = 60.0
"""How often erasures are looked for; the rest is looked through once an hour."""
ROUND: Final = 60

STANDING: Final = """
SELECT p.schema FROM projections p JOIN log_head h USING (owner)
WHERE p.owner = $1 AND p.state = 'serving' AND p.position = h.position"""
NEEDED: Final = """
EXISTS (SELECT 1 FROM "{schema}".revisions v WHERE v.raw = r.sha256)
OR EXISTS (
    SELECT 1 FROM "{schema}".prunes p WHERE p.raw = r.sha256 AND NOT EXISTS (
        SELECT 1 FROM "{schema}".raws x JOIN public.raws held ON held.owner = r.owner AND held.sha256 = x.sha256
        WHERE x.extends = r.sha256))"""
NAMED: Final = """
EXISTS (SELECT 1 FROM "{schema}".raws n WHERE n.sha256 = r.sha256
    AND NOT EXISTS (SELECT 1 FROM "{schema}".erased e WHERE e.session = n.session))"""
SPARE: Final = f"UPDATE raws r SET unused_since = NULL WHERE r.owner = $1 AND r.unused_since = '-infinity' AND {NAMED}"
MARK: Final = f"UPDATE raws r SET unused_since = now() WHERE r.owner = $1 AND r.unused_since IS NULL AND NOT ({NEEDED})"
UNMARK: Final = f"""
UPDATE raws r SET unused_since = NULL
WHERE r.owner = $1 AND r.unused_since IS NOT NULL AND r.unused_since <> '-infinity' AND ({NEEDED})"""
DUE: Final = """
SELECT sha256 FROM raws WHERE owner = $1 AND unused_since < now() - make_interval(days => $2) ORDER BY sha256"""
TAKE: Final = """
DELETE FROM raws WHERE owner = $1 AND sha256 = $2 AND unused_since < now() - make_interval(days => $3)
RETURNING sha256"""
ERASED: Final = "SELECT EXISTS (SELECT 1 FROM raws WHERE owner = $1 AND unused_since = '-infinity')"
OLD_PARTS: Final = """
SELECT sha256 FROM raw_parts WHERE owner = $1
GROUP BY sha256 HAVING max(stored_at) < now() - make_interval(days => $2)"""

log = logging.getLogger(__name__)


class Collected(NamedTuple):
    raws: int
    parts: int


async def collect(server: Server) -> Collected:
    """One look at everything. Does nothing but drop old parts while the projections are behind."""
    async with server.pool.acquire() as connection:
        schema = await connection.fetchval(STANDING, server.owner)
        if schema is not None:
            for sql in (SPARE, UNMARK, MARK):
                await connection.execute(sql.format(schema=schema), server.owner)
        old = await connection.fetch(OLD_PARTS, server.owner, KEPT_DAYS)
        due = await connection.fetch(DUE, server.owner, KEPT_DAYS) if schema is not None else []
        taken = [await _take(server, connection, row["sha256"]) for row in due]
    dropped = [await drop_parts(server, row["sha256"]) for row in old]
    found = Collected(sum(taken), sum(dropped))
    if found != (0, 0):
        log.info("collected", extra=found._asdict())
    return found


async def _take(server: Server, connection: Connection, sha256: str) -> bool:
    """The row is held until the object is gone: an upload of the same bytes waits, and puts it there again."""
    async with connection.transaction():
        if await connection.fetchval(TAKE, server.owner, sha256, KEPT_DAYS) is None:
            return False  # somebody asked for it since
        await server.raws.remove(raw_name(sha256))
    return True


async def collect_on(server: Server) -> None:
    """Go on until cancelled. A database that is away is tried again."""
    looked = 0
    while True:
        await asyncio.sleep(LOOK_S)
        looked += 1
        try:
            if looked % ROUND == 0 or await server.pool.fetchval(ERASED, server.owner):
                await collect(server)
        except (*AWAY, asyncpg.PostgresError, ProsaError) as down:
            log.warning("not collected", extra={"error": type(down).__name__})
