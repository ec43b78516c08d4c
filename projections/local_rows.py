"""Reading the index: rows whose types the reader knows, and several statements over one state of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import apsw


def rows(db: apsw.Connection, sql: str, values: Sequence[object] | Mapping[str, object] = ()) -> Iterator[Any]:
    """Rows as tuples. The tables are STRICT, so their columns' types are those of schema.sql."""
    return iter(db.execute(sql, values))


def value(db: apsw.Connection, sql: str, values: Sequence[object] | Mapping[str, object] = ()) -> Any:
    """The first column of the first row, None if there is none."""
    row = db.execute(sql, values).fetchone()
    return None if row is None else row[0]


@contextmanager
def one_state(db: apsw.Connection) -> Iterator[None]:
    """Everything read inside is of one commit, also while another process catches up."""
    with db:
        yield
