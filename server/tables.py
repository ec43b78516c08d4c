"""The tables of a projection in Postgres, asked from a worker thread: the same statements as on a device."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, TypeVar

import asyncpg

from prosa.projections.tables import IN_LIST, NOTHING, Value, Values
from prosa.server.mirror import storable
from prosa.server.state import Connection

T = TypeVar("T")

PARAMETER: Final = re.compile(r"(?<!:):([a-z_]\w*)")
NUMBERS: Final = re.compile(r"\blist\(:(\w+)\) (\w+)")
BEGIN: Final = """
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SET LOCAL search_path TO {}, public; SET LOCAL jit = off; SET LOCAL work_mem = '64MB';
SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL max_parallel_workers_per_gather = 0;
SET LOCAL statement_timeout = '{}s'"""
TIMEOUT_S: Final = 60


async def read_sums(connection: asyncpg.Connection) -> None:
    """Let a connection give whole numbers as int: the sum of bigints is a numeric, which can be anything."""
    await connection.set_type_codec("numeric", schema="pg_catalog", encoder=str, decoder=_number, format="text")


def _number(text: str) -> int | Decimal:
    return int(text) if text.lstrip("-").isdecimal() else Decimal(text)


class PgTables:
    """Reads one schema by one connection, which is its own as long. Called from other threads than the loop's."""

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop, schema: str) -> None:
        self._connection, self._loop, self._schema = connection, loop, schema
        self._named: dict[str, tuple[str, Values]] = {}

    def execute(self, sql: str, values: Values = NOTHING) -> Iterator[Any]:
        for name, (query, of_query) in self._named.items():
            if re.search(rf"\b{name}\b", sql):
                sql, values = f"WITH {name} AS ({query}) {sql}", {**of_query, **values}
        statement, names = _numbered(sql)
        rows = self.wait(self._connection.fetch(statement, *(_bound(values[name]) for name in names)))
        return map(tuple, rows)

    @contextmanager
    def one_state(self) -> Iterator[None]:
        self.wait(self._connection.execute(BEGIN.format(self._schema, TIMEOUT_S)))
        try:
            yield
        finally:
            self.wait(self._connection.execute("ROLLBACK"))

    @contextmanager
    def named(self, name: str, sql: str, values: Values) -> Iterator[None]:
        """A part of every statement that says the name: Postgres plans both together."""
        self._named[name] = sql, values
        yield
        del self._named[name]

    def wait(self, asked: Coroutine[Any, Any, T]) -> T:
        """What the loop's thread makes of it."""
        return asyncio.run_coroutine_threadsafe(asked, self._loop).result()


@lru_cache(1024)
def _numbered(sql: str) -> tuple[str, tuple[str, ...]]:
    """The statement with $1, $2, … and the names that stand there."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    sql = NUMBERS.sub(r"unnest(CAST(:\1 AS bigint[])) AS \2(value)", IN_LIST.sub(r"= ANY(:\1)", sql))
    return PARAMETER.sub(number, sql), tuple(names)


def _bound(given: Value) -> Value:
    return storable((given,))[0] if isinstance(given, str) else given
