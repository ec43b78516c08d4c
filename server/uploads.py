"""Keeping raw that a device sends, whole or in parts, and forgetting what nobody finished.

The object comes first and its row second, so a row never names bytes that are not there; what a crash leaves is an
object without a row, which the same upload finds again. Everything is hashed here: no store does that for us.
"""

from __future__ import annotations

import hashlib
import tempfile
from asyncio import to_thread
from collections.abc import AsyncIterator, Sequence
from typing import IO, Final

from prosa.events.messages import PART_BYTES, RawPart, RawParts, RawStored
from prosa.server.endpoints import Refused
from prosa.server.frames import check_frames
from prosa.server.raws import part_name, raw_name
from prosa.server.state import Server

UPLOAD_BYTES: Final = 64 * 1024 * 1024
"""Of one request. Devices send what is above 8 MB in parts."""
PARTS: Final = 10_000

ROW: Final = "SELECT size, stored FROM raws WHERE owner = $1 AND sha256 = $2"
WANT_ROW: Final = """
UPDATE raws SET unused_since = CASE WHEN unused_since = '-infinity' THEN unused_since END
WHERE owner = $1 AND sha256 = $2 RETURNING size, stored"""
PUT_ROW: Final = """
INSERT INTO raws (owner, sha256, size, stored) VALUES ($1, $2, $3, $4)
ON CONFLICT (owner, sha256) DO UPDATE SET unused_since = NULL, stored = excluded.stored"""
STILL_WANTED: Final = """
UPDATE raws SET unused_since = NULL
WHERE owner = $1 AND sha256 = ANY($2) AND unused_since IS NOT NULL AND unused_since <> '-infinity'"""
HELD: Final = "SELECT sha256 FROM raws WHERE owner = $1 AND sha256 = ANY($2)"
PART: Final = "SELECT part FROM raw_parts WHERE owner = $1 AND sha256 = $2 AND number = $3"
PUT_PART: Final = """
INSERT INTO raw_parts (owner, sha256, number, part, size) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (owner, sha256, number) DO UPDATE SET part = excluded.part, size = excluded.size, stored_at = now()"""
PARTS_OF: Final = "SELECT number, part, size FROM raw_parts WHERE owner = $1 AND sha256 = $2 ORDER BY number"
DROP_PARTS: Final = "DELETE FROM raw_parts WHERE owner = $1 AND sha256 = $2 RETURNING number, part"


async def missing(server: Server, asked: Sequence[str]) -> list[str]:
    """Those the server does not hold, in the order they were asked for. What it holds is wanted from now on."""
    async with server.pool.acquire() as connection, connection.transaction():
        await connection.execute(STILL_WANTED, server.owner, asked)  # waits for a collector that has the row
        held = {row[0] for row in await connection.fetch(HELD, server.owner, asked)}
    return [sha256 for sha256 in dict.fromkeys(asked) if sha256 not in held]


async def spool(server: Server, pieces: AsyncIterator[bytes], most: int) -> tuple[IO[bytes], int, str]:
    """A body as a nameless file, its size and sha256. Raises Refused(too_large). The caller closes the file."""
    file: IO[bytes] = tempfile.TemporaryFile(dir=server.settings.work_folder)  # noqa: SIM115
    size, found = 0, hashlib.sha256()
    try:
        async for piece in pieces:
            size += len(piece)
            if size > most:
                raise Refused("too_large", f"The body is larger than {most:,} bytes.", "", "Send it in parts.")
            found.update(piece)
            file.write(piece)
    except BaseException:
        file.close()
        raise
    return file, size, found.hexdigest()


async def keep(server: Server, sha256: str, size: int, pieces: AsyncIterator[bytes]) -> RawStored:
    """A whole raw. Raises Refused where the bytes are not what they are said to be; the same again is a no-op."""
    file, stored, _ = await spool(server, pieces, UPLOAD_BYTES)
    with file:
        return await _known(server, sha256, size) or await _keep(server, sha256, size, file, stored)


async def keep_part(server: Server, sha256: str, number: int, part: str, pieces: AsyncIterator[bytes]) -> RawPart:
    """One part; another one of the same number takes its place."""
    file, size, found = await spool(server, pieces, PART_BYTES)
    with file:
        if found != part or not size:
            raise Refused("invalid", f"Part {number} has {size:,} bytes of hash {found}, not {part}.")
        old = await server.pool.fetchval(PART, server.owner, sha256, number)
        await server.raws.put(part_name(sha256, number, part), file, size)
    await server.pool.execute(PUT_PART, server.owner, sha256, number, part, size)
    if old and old != part:
        await server.raws.remove(part_name(sha256, number, old))
    return RawPart(number, part, size)


async def parts(server: Server, sha256: str) -> RawParts:
    rows = await server.pool.fetch(PARTS_OF, server.owner, sha256)
    return RawParts([RawPart(row["number"], row["part"], row["size"]) for row in rows])


async def join(server: Server, sha256: str, size: int, wanted: Sequence[str]) -> RawStored:
    """The raw of its parts, which are dropped then. Raises Refused(conflict) where they are not all there."""
    if done := await _known(server, sha256, size):
        await drop_parts(server, sha256)
        return done
    here = (await parts(server, sha256)).parts[: len(wanted)]  # one that was sent before may have had more
    if [(part.number, part.sha256) for part in here] != list(enumerate(wanted, 1)) or not here:
        raise Refused(
            "conflict",
            f"The server has {len(here):,} parts of {sha256}, and they are not the {len(wanted):,} to be joined.",
            "Those that are there stay for 7 days.",
            "Send those that GET …/parts does not list.",
        )
    with tempfile.TemporaryFile(dir=server.settings.work_folder) as file:
        stored = 0
        for part in here:
            try:
                async for piece in server.raws.read(part_name(sha256, part.number, part.sha256)):
                    stored += file.write(piece)
            except FileNotFoundError:
                await drop_parts(server, sha256)
                raise Refused("conflict", f"A part of {sha256} is gone.", "", "Send all parts again.") from None
        try:
            kept = await _keep(server, sha256, size, file, stored)
        except Refused:
            await drop_parts(server, sha256)
            raise
    await drop_parts(server, sha256)
    return kept


async def drop_parts(server: Server, sha256: str) -> int:
    """Forget an upload. Returns how many parts it had."""
    rows = await server.pool.fetch(DROP_PARTS, server.owner, sha256)
    for row in rows:
        await server.raws.remove(part_name(sha256, row["number"], row["part"]))
    return len(rows)


async def _known(server: Server, sha256: str, size: int) -> RawStored | None:
    row = await server.pool.fetchrow(WANT_ROW, server.owner, sha256)  # waits for a collector that has it
    if row is None:
        return None
    if row["size"] != size:
        raise Refused("invalid", f"Raw {sha256} has {row['size']:,} bytes, not {size:,}.")
    return RawStored(sha256, size, row["stored"], server.raws.uri(raw_name(sha256)))


async def _keep(server: Server, sha256: str, size: int, file: IO[bytes], stored: int) -> RawStored:
    async with server.checking:
        await to_thread(check_frames, file, sha256, size)
    name = raw_name(sha256)
    for _ in range(3):
        await server.raws.put(name, file, stored)
        await server.pool.execute(PUT_ROW, server.owner, sha256, size, stored)  # waits for a collector that has it
        held = await server.raws.size(name)
        if held is not None:
            break  # else the collector took it before there was a row
    else:
        raise Refused("unavailable", f"The store does not keep raw {sha256}.", "", "Try again later.", 60)
    if held != stored:  # an earlier upload left these bytes, compressed otherwise
        await server.pool.execute(PUT_ROW, server.owner, sha256, size, held)
    server.metrics.count_raw(size, held)
    return RawStored(sha256, size, held, server.raws.uri(name))
