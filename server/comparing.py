"""What a projection in Postgres says, as hashes: no row numbers of its own, so two that say the same are equal."""

from __future__ import annotations

from typing import Final, NamedTuple

from prosa.projections.digest import Digest
from prosa.projections.records import TEXTS
from prosa.server.mirror import Table, tables
from prosa.server.state import Connection

OWN: Final = frozenset({"sid", "applied", "next", "header"})
"""Columns of a session's row that depend on how it was made."""
TOOL: Final = "LEFT JOIN {s}.names tool ON tool.number = t.tool"
MODEL: Final = "LEFT JOIN {s}.names model ON model.number = t.model"
TIER: Final = "LEFT JOIN {s}.names tier ON tier.number = t.tier"


class Said(NamedTuple):
    """What the rows of a table say of their session."""

    columns: str
    sid: str = "t.sid"
    joins: str = ""
    order: str = "0"
    """Where rows stand in an order of their own."""


FACTS: Final = {
    "turns": Said(
        "t.at, t.kind, t.counted, t.error, t.own, tool.name, model.name", "t.id >> 24", f"{TOOL} {MODEL}", "t.place"
    ),
    "usages": Said(
        "t.at, model.name, t.own, t.input, t.output, t.cache_read, t.cache_write_5m, t.cache_write_1h, t.reasoning, "
        "tier.name, t.cost, t.apart",
        "t.id >> 24",
        f"{MODEL} {TIER}",
    ),
    "marks": Said("t.first, t.last, t.own", "t.id >> 24"),
    "compactions": Said("t.at, t.own, t.event, t.trigger, t.size_before", "t.id >> 24"),
    "usage_sums": Said(
        "t.quarter, model.name, t.answers, t.input, t.output, t.cache_read, t.cache_write, t.reasoning, t.cost, "
        "t.unpriced",
        joins=MODEL,
    ),
    "turn_sums": Said("t.quarter, t.kind, tool.name, t.turns, t.errors", joins=TOOL),
    "active_sums": Said("t.quarter, t.seconds"),
    "revisions": Said(
        "t.origin, t.surface, t.revision, t.profile, t.parser, t.raw, t.first, t.first_at, t.last, t.latest, t.header"
    ),
    **dict.fromkeys(TEXTS, Said("t.words, t.cut", "t.rowid >> 24")),
}
OF_SESSIONS: Final = """
SELECT s.key, md5(string_agg(said, ';' ORDER BY place, said)) FROM (
    SELECT {said.sid} AS sid, {said.order}::float8 AS place, md5(ROW({said.columns})::text) AS said
    FROM {s}.{table} t {joins}
) AS rows JOIN {s}.sessions s USING (sid) GROUP BY s.key"""
SESSIONS: Final = "SELECT key, md5(ROW({columns})::text) FROM {s}.sessions"
WHOLE: Final = """
SELECT md5(coalesce(string_agg(said, ';' ORDER BY said), '')) FROM (
    SELECT md5(ROW({columns})::text) AS said FROM {s}.{table}
) AS rows"""
NOT_COMPARED: Final = frozenset({"checkpoint", "names", "origins", "pieces"})
"""They name and place what other tables say."""


async def digest(connection: Connection, schema: str) -> Digest:
    """Hashes of everything a schema says."""
    sessions: dict[str, list[str]] = {}
    whole: dict[str, str] = {}
    for table in tables():
        if table.name in NOT_COMPARED:
            continue
        if table.name == "sessions":
            statement = SESSIONS.format(columns=_columns(table, OWN), s=schema)
        elif said := FACTS.get(table.name):
            joins = said.joins.format(s=schema)
            statement = OF_SESSIONS.format(said=said, joins=joins, table=table.name, s=schema)
        else:
            statement = WHOLE.format(columns=_columns(table), table=table.name, s=schema)
            whole[table.name] = await connection.fetchval(statement)
            continue
        for key, found in await connection.fetch(statement):
            sessions.setdefault(key, []).append(f"{table.name} {found}")
    return Digest({key: ", ".join(found) for key, found in sessions.items()}, whole)


def _columns(table: Table, without: frozenset[str] = frozenset()) -> str:
    return ", ".join(f'"{name}"' for name in table.columns if name not in without)
