"""The tables of a projection in Postgres: those of the index, by the same names, filled from a working file.

A working file is an index on the worker's disk whose full text lies in plain tables. It can always be made again
from the log. Tables that only replay itself reads stay in it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from prosa.events.database import Database, connect
from prosa.projections.index import lay_out
from prosa.projections.records import TEXTS, create_plain_texts
from prosa.server import text_rows
from prosa.server.state import Connection
from prosa.server.threads import in_thread

KEPT: Final = frozenset({"pushed", "claims", "contested", "families", "suggestions", "tariffs", "foreign_titles"})
"""Tables that no question reads on a server."""
TYPES: Final = {"INTEGER": "bigint", "TEXT": 'text COLLATE "C"', "BLOB": "bytea", "REAL": "double precision"}

PIECE_ROWS: Final = 5_000
PIECE_CHARACTERS: Final = 2_000_000
"""Bounds of what is in memory on its way to Postgres; a single longer text stands alone."""

INDEX_MEMORY: Final = "256MB"

UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")
"""What is text to SQLite or Python and none to Postgres."""

Row = tuple[Any, ...]


class Table(NamedTuple):
    name: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    """As SQLite names them."""
    required: tuple[bool, ...]
    key: tuple[str, ...]
    """Empty: the table has one row."""

    @property
    def is_text(self) -> bool:
        return self.name in TEXTS

    @property
    def key_types(self) -> list[str]:
        """As Postgres names them."""
        return [TYPES[self.types[self.columns.index(name)]] for name in self.key]


@cache
def tables() -> tuple[Table, ...]:
    """Every table that is carried into Postgres, as the present schema has it."""
    db = Database(":memory:")
    lay_out(db, create_plain_texts)
    names = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
    found = [_table(db, name) for name in names if name not in KEPT]
    db.close()
    return tuple(found)


def _table(db: Database, name: str) -> Table:
    info = db.execute('SELECT name, type, "notnull", pk FROM pragma_table_info(?) ORDER BY cid', (name,)).fetchall()
    key = [column for column, _, _, place in sorted(info, key=lambda row: row[3]) if place]
    return Table(
        name,
        tuple(column for column, _, _, _ in info),
        tuple(kind for _, kind, _, _ in info),
        tuple(bool(required or place) for _, _, required, place in info),
        tuple(key),
    )


MIRRORED: Final = tuple(table.name for table in tables())


# working files


def open_working(path: Path) -> Database:
    """The working file at a path, made where there is none. Only its rows' changes are kept to be carried, if at all.

    A fresh one is filled inside one transaction, so until it is filled nothing of it is written ahead.
    """
    fresh = not path.exists()
    db = connect(path, create=fresh)
    if fresh:
        for name, value in (("journal_mode", "memory"), ("synchronous", 0)):
            db.pragma(name, value)
        lay_out(db, create_plain_texts)
    db.pragma("cache_size", -64 * 1024)
    return db


# the schema in Postgres


def ddl(schema: str) -> str:
    """Statements that make the schema and its tables; `fill` adds keys and indexes."""
    statements = [f"CREATE SCHEMA {schema}", text_rows.FUNCTION.format(schema)]
    for table in tables():
        if table.is_text:
            columns = [f"{name} {kind}" for name, kind in text_rows.COLUMNS.items()]
        else:
            columns = [
                f'"{name}" {TYPES[kind]}{" NOT NULL" if required else ""}'
                for name, kind, required in zip(table.columns, table.types, table.required, strict=True)
            ]
        statements.append(f"CREATE TABLE {schema}.{table.name} ({', '.join(columns)})")
    return ";\n".join(statements)


def indexes(schema: str) -> Iterator[str]:
    """Statements for keys and indexes. Text is found by hash: a path or a name can be longer than a sorted entry."""
    for table in tables():
        place = f"{schema}.{table.name}"
        text = [name for name in table.key if table.types[table.columns.index(name)] == "TEXT"]
        if table.key and not text:
            yield f"ALTER TABLE {place} ADD PRIMARY KEY ({', '.join(_quoted(table.key))})"
        for name in text:
            yield f'CREATE INDEX ON {place} USING hash ("{name}")'
        if table.is_text:
            yield text_rows.INDEX.format(schema, table.name)
    for column in ("key", "id", "parent", "leaf"):
        yield f"CREATE INDEX ON {schema}.sessions USING hash ({column})"
    yield f"CREATE INDEX ON {schema}.sessions (last DESC NULLS LAST)"
    yield f"CREATE INDEX ON {schema}.names USING hash (name)"
    yield f"CREATE INDEX ON {schema}.pieces (turn)"


async def fill(connection: Connection, schema: str, db: Database) -> int:
    """Copy every row of a working file into a schema that `ddl` made. Returns how many."""
    rows = 0
    for table in tables():
        cursor = db.execute(f"SELECT {', '.join(_quoted(table.columns))} FROM {table.name}")
        rows += await copy(connection, schema, table, cursor)
    await connection.execute(f"SET maintenance_work_mem = '{INDEX_MEMORY}'")
    for statement in indexes(schema):
        await connection.execute(statement)
    await connection.execute("RESET maintenance_work_mem")
    for table in tables():
        await connection.execute(f"ANALYZE {schema}.{table.name}")
    return rows


async def copy(connection: Connection, schema: str, table: Table, rows: Iterable[Row]) -> int:
    """Copy rows as they lie in the working file. Returns how many."""
    columns = list(text_rows.COLUMNS) if table.is_text else list(table.columns)
    pieces = _pieces(table, rows)
    done = 0
    coming = asyncio.ensure_future(in_thread(lambda: next(pieces, None)))
    try:
        while piece := await coming:
            coming = asyncio.ensure_future(in_thread(lambda: next(pieces, None)))  # made while this one is sent
            await connection.copy_records_to_table(table.name, schema_name=schema, columns=columns, records=piece)
            done += len(piece)
    finally:
        await asyncio.wait([coming])  # it reads the file
    return done


# rows


def _pieces(table: Table, rows: Iterable[Row]) -> Iterator[list[Row]]:
    texts = [place for place, kind in enumerate(table.types) if kind == "TEXT"]
    piece: list[Row] = []
    size = 0
    for row in rows:
        size += sum(len(row[place]) for place in texts if row[place] is not None)
        piece.append(text_rows.text_row(*row) if table.is_text else storable(row) if texts else row)
        if len(piece) >= PIECE_ROWS or size > PIECE_CHARACTERS:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def storable(row: Row) -> Row:
    """A row whose text Postgres takes: NUL and lone surrogates become U+FFFD."""
    return tuple(
        UNSTORABLE.sub("\ufffd", value) if isinstance(value, str) and UNSTORABLE.search(value) else value
        for value in row
    )


def _quoted(names: Iterable[str]) -> list[str]:
    return [f'"{name}"' for name in names]
