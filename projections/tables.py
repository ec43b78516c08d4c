"""What the queries need of the tables they read: the index in SQLite on a device, the same tables in Postgres.

Every statement is written once, in what both understand: CASE for iif, a flag compared with 0, NULLS FIRST or LAST
wherever a column of ORDER BY can be unknown, all that is not summed in GROUP BY, a name for each sub-select. What the
two say differently is `list(:name)`: `x IN list(:name)`, and of numbers `FROM list(:name) l` with the column l.value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, Protocol

import apsw
import msgspec

Value = str | int | Sequence[int] | Sequence[str] | None
Values = Mapping[str, Value]
NOTHING: Final[Values] = MappingProxyType({})

IN_LIST: Final = re.compile(r"IN list\(:(\w+)\)")
OF_LIST: Final = re.compile(r"list\(:(\w+)\)")


class Tables(Protocol):
    """Reads them. Counts and sums come as int, rows as tuples whose types are those of schema.sql."""

    def execute(self, sql: str, values: Values = NOTHING) -> Iterator[Any]:
        """Rows of a statement; of the values it takes those that it names."""

    def one_state(self) -> AbstractContextManager[None]:
        """Everything read inside is of one commit, also while the tables are brought up to date."""

    def named(self, name: str, sql: str, values: Values) -> AbstractContextManager[None]:
        """Inside, the rows of the query have a name that statements read them by; they get its values too."""


def value(tables: Tables, sql: str, values: Values = NOTHING) -> Any:
    """The first column of the first row, None if there is none."""
    row = next(tables.execute(sql, values), None)
    return None if row is None else row[0]


class SqliteTables:
    """An index."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    def execute(self, sql: str, values: Values = NOTHING) -> Iterator[Any]:
        return iter(self._db.execute(_with_json(sql), {name: _bound(given) for name, given in values.items()}))

    @contextmanager
    def one_state(self) -> Iterator[None]:
        with self._db:
            yield

    @contextmanager
    def named(self, name: str, sql: str, values: Values) -> Iterator[None]:
        """A temporary table: the query runs once, however often it is read."""
        self._db.execute(f"DROP TABLE IF EXISTS temp.{name}")
        self.execute(f"CREATE TEMP TABLE {name} AS {sql}", values)
        yield
        self._db.execute(f"DROP TABLE temp.{name}")


@lru_cache(256)
def _with_json(sql: str) -> str:
    return OF_LIST.sub(r"json_each(:\1)", IN_LIST.sub(r"IN (SELECT value FROM json_each(:\1))", sql))


def _bound(given: Value) -> str | int | None:
    return given if given is None or isinstance(given, str | int) else msgspec.json.encode(given).decode()
