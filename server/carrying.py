"""From a working file into Postgres: which rows changed, and carrying them with the checkpoint in one transaction.

Triggers note the keys of changed rows in the transaction that changes them, so a kill at any moment loses none. To
carry is to delete those keys and copy the rows that are there: carrying twice gives the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from prosa.events.database import Database
from prosa.server.mirror import PIECE_ROWS, Row, Table, copy, storable, tables
from prosa.server.state import Connection
from prosa.server.threads import in_thread

STANDING: Final = """
CREATE TABLE standing (carried INTEGER NOT NULL, due TEXT) STRICT"""
"""Where Postgres is, or was before a kill; and why this file is to be made anew, if it is."""
PARKED: Final = """
CREATE TABLE parked (stream TEXT PRIMARY KEY, position INTEGER NOT NULL, reason TEXT NOT NULL, again INTEGER NOT NULL)
STRICT, WITHOUT ROWID"""
"""What could not be applied; `again`: its next event tries once more."""

LOCK: Final = """
SELECT state FROM projections WHERE owner = $1 AND number = $2 AND worker = $3 AND state <> 'retired'
FOR UPDATE SKIP LOCKED"""
STATE: Final = "SELECT state FROM projections WHERE owner = $1 AND number = $2 AND worker = $3"
SAVE: Final = """
UPDATE projections SET position = $3, hash = $4, prices = $5, changed_at = now() WHERE owner = $1 AND number = $2"""
BY_INDEX: Final = "SET LOCAL enable_seqscan = {0}; SET LOCAL enable_nestloop = {0}; SET LOCAL enable_mergejoin = {0}"
"""Keys are looked up by index: what the planner knows of a table that grows is old."""
DELETE: Final = 'DELETE FROM {place} t WHERE t."{first}" = ANY($1)'
DELETE_BY_MORE: Final = f"{DELETE} AND ({{columns}}) IN (SELECT * FROM unnest({{arrays}}))"
"""The first column by index, the others among what that gives: a join may be made the wrong way round, and then costs
the rows of the table for each key."""
UNPARK: Final = "DELETE FROM parked WHERE owner = $1 AND NOT stream = ANY($2)"
PARK: Final = """
INSERT INTO parked (owner, stream, position, reason) SELECT $1, * FROM unnest($2::text[], $3::bigint[], $4::text[])
ON CONFLICT (owner, stream) DO UPDATE SET position = excluded.position, reason = excluded.reason
WHERE (parked.position, parked.reason) <> (excluded.position, excluded.reason)"""

log = logging.getLogger(__name__)


class Place(NamedTuple):
    """A projection in Postgres: the row of `projections` that is its name."""

    owner: int
    number: int
    worker: str

    @property
    def schema(self) -> str:
        return f"p{self.owner}_{self.number}"


class Displaced(Exception):
    """Another projection serves now, or this one was given up."""


class Held(Exception):
    """Somebody holds the projection's row for a moment."""


def start_carrying(db: Database) -> None:
    """From here on the file notes what changes in it. What it holds now is in Postgres already."""
    db.execute(STANDING)
    db.execute("INSERT INTO standing SELECT position, NULL FROM checkpoint")
    for table in tables():
        if not table.key:
            continue
        kinds = [table.types[table.columns.index(name)] for name in table.key]
        columns = ", ".join(f'"{name}" {kind} NOT NULL' for name, kind in zip(table.key, kinds, strict=True))
        key = _list(table.key)
        db.execute(f"CREATE TABLE carry_{table.name} ({columns}, PRIMARY KEY ({key})) STRICT, WITHOUT ROWID")
        events = ("INSERT", "DELETE") if table.is_text else ("INSERT", "UPDATE", "DELETE")
        for event in events:
            row = "old" if event == "DELETE" else "new"
            values = ", ".join(f'{row}."{name}"' for name in table.key)
            db.execute(
                f"CREATE TRIGGER carry_{table.name}_{event} AFTER {event} ON {table.name} BEGIN "
                f"INSERT INTO carry_{table.name} VALUES ({values}) ON CONFLICT DO NOTHING; END"
            )


async def carry(connection: Connection, db: Database, place: Place) -> int:
    """Bring Postgres to where the working file is. Returns that position.

    Raises Displaced where this file's rows are no longer wanted, Held where its
    row is locked: try again.
    """
    async with connection.transaction():
        state = await connection.fetchval(LOCK, *place)
        if state is None:
            raise Held if await connection.fetchval(STATE, *place) in ("serving", "filling") else Displaced
        await connection.execute(BY_INDEX.format("off"))
        for table in tables():
            await _carry_table(connection, place.schema, db, table)
        await connection.execute(BY_INDEX.format("DEFAULT"))  # a rebuild compares in the same transaction
        if state == "serving":
            await save_parked(connection, place.owner, db)
        position, hash_, prices, _ = db.execute("SELECT position, hash, prices, overrides FROM checkpoint").fetchone()
        await connection.execute(SAVE, place.owner, place.number, position, hash_, prices)
    await in_thread(lambda: _carried(db, position))
    return int(position)


async def save_parked(connection: Connection, owner: int, db: Database) -> None:
    """What is parked, as the working file has it."""
    parked = [storable(row) for row in db.execute("SELECT stream, position, reason FROM parked")]
    columns = [list(column) for column in zip(*parked, strict=True)] or [[], [], []]
    await connection.execute(UNPARK, owner, columns[0])
    if parked:
        await connection.execute(PARK, owner, *columns)


async def _carry_table(connection: Connection, schema: str, db: Database, table: Table) -> None:
    columns = _list(table.columns, "t.")
    if not table.key:
        await connection.execute(f"DELETE FROM {schema}.{table.name}")
        await copy(connection, schema, table, db.execute(f"SELECT {columns} FROM {table.name} t"))
        return
    key = _list(table.key)
    arrays = ", ".join(f"${n}::{kind.split()[0]}[]" for n, kind in enumerate(table.key_types, 1))
    delete = (DELETE_BY_MORE if len(table.key) > 1 else DELETE).format(
        place=f"{schema}.{table.name}", first=table.key[0], columns=_list(table.key, "t."), arrays=arrays
    )
    keys = db.execute(f"SELECT {key} FROM carry_{table.name}")
    some = False
    for rows in _pieces(keys):
        some = True
        await connection.execute(delete, *(list(column) for column in zip(*map(storable, rows), strict=True)))
    if some:
        there = db.execute(f"SELECT {columns} FROM carry_{table.name} JOIN {table.name} t USING ({key})")
        await copy(connection, schema, table, there)


def _pieces(rows: Iterator[Row]) -> Iterator[list[Row]]:
    piece: list[Row] = []
    for row in rows:
        piece.append(row)
        if len(piece) == PIECE_ROWS:
            yield piece
            piece = []
    if piece:
        yield piece


def _carried(db: Database, position: int) -> None:
    """Postgres has it: texts have done their work, their rows stay so that it is known when they go."""
    with db:
        for table in tables():
            if table.is_text:
                db.execute(f"UPDATE {table.name} SET text = NULL WHERE rowid IN (SELECT rowid FROM carry_{table.name})")
            if table.key:
                db.execute(f"DELETE FROM carry_{table.name}")
        db.execute("UPDATE standing SET carried = ?", (position,))


def _list(names: tuple[str, ...], of: str = "") -> str:
    return ", ".join(f'{of}"{name}"' for name in names)
