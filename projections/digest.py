"""What an index says, as hashes: no row ids, positions, prices or clock, so two builds of one log are equal."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from prosa.events.database import Database
from prosa.projections.records import SHIFT, TEXTS

SESSIONS = """
SELECT key, agent, scope, id, profile, device, raw, visible, started, last, title, first_prompt, models, tools, users,
    assistants, thinkings, tool_calls, tool_results, tool_errors, has_usage, input, output, cache_read, cache_write,
    reasoning, compactions, compactions_known, compactions_reason, inherited, inherited_from, parent, forked_from,
    cleared_from, resumed_from, cwd, branch, kinds, state, state_reason, project, remote, marker, raw_size, raw_stored,
    source, source_state, sid
FROM sessions ORDER BY key"""
TURNS = """
SELECT group_concat(row, ';') FROM (
    SELECT concat_ws(',', ifnull(at, '-'), kind, counted, error, own,
        ifnull((SELECT name FROM names WHERE number = tool), '-'),
        ifnull((SELECT name FROM names WHERE number = model), '-')) AS row
    FROM turns WHERE id BETWEEN ? AND ? ORDER BY place)"""
USAGES = """
SELECT group_concat(row, ';') FROM (
    SELECT concat_ws(',', ifnull(at, '-'), own, input, output, cache_read, cache_write_5m, cache_write_1h,
        ifnull(reasoning, '-'), ifnull((SELECT name FROM names WHERE number = model), '-'), apart) AS row
    FROM usages WHERE id BETWEEN ? AND ? ORDER BY row)"""
COMPACTIONS = """
SELECT group_concat(row, ';') FROM (
    SELECT concat_ws(',', event, ifnull(at, '-'), own) AS row FROM compactions WHERE id BETWEEN ? AND ? ORDER BY row)"""
TEXT = """
SELECT group_concat(size, '')
FROM (SELECT hex(sz) AS size FROM {table}_docsize WHERE id BETWEEN ? AND ? ORDER BY size)"""
CLAIMS = "SELECT count(*), total(key & 4294967295), total(copied) FROM claims"
OTHERS = {
    "sources": "SELECT path, agent, profile, sha256, state, reason, sessions FROM sources ORDER BY path, sha256, state",
    "projects": "SELECT path, remote, marker FROM projects ORDER BY path, remote, marker",
    "devices": "SELECT device, hostname, machine, platform FROM devices ORDER BY 1, 2, 3, 4",
    "described": "SELECT session, field, value, rank, evidence FROM described ORDER BY session, field, evidence",
    "prunes": "SELECT session, raw, at_us, server, uri, size, stored, plan, gone FROM prunes ORDER BY session, raw",
    "merges": "SELECT id, device, into_device, evidence, by, at_us, reverted FROM merges ORDER BY id",
    "names of devices": "SELECT device, name, at_us, origin_position FROM device_names ORDER BY device",
    "erased": "SELECT session FROM erased ORDER BY session",
}


class Digest(NamedTuple):
    """A hash for every session and every other table, and one of them all."""

    sessions: dict[str, str]
    tables: dict[str, str]

    @property
    def whole(self) -> str:
        parts = [*sorted(self.sessions.items()), *sorted(self.tables.items())]
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def differences(self, other: Digest) -> list[str]:
        """What differs, one line each, sessions first."""
        found = [
            f"session {key}: {_difference(key in self.sessions, key in other.sessions)}"
            for key in sorted({*self.sessions, *other.sessions})
            if self.sessions.get(key) != other.sessions.get(key)
        ]
        names = sorted({*self.tables, *other.tables})
        return found + [f"table {name}: differs" for name in names if self.tables.get(name) != other.tables.get(name)]


def _difference(here: bool, there: bool) -> str:
    return "differs" if here and there else "not in the log" if here else "missing"


def digest(db: Database) -> Digest:
    """Hashes of everything an index says. Raises apsw.Error where the file is damaged."""
    sessions: dict[str, str] = {}
    for *row, sid in db.execute(SESSIONS):
        low, high = sid << SHIFT, (sid + 1 << SHIFT) - 1
        found = hashlib.sha256(repr(row).encode("utf-8", "surrogatepass"))
        statements = [TURNS, USAGES, COMPACTIONS, *(TEXT.format(table=table) for table in TEXTS)]
        for statement in statements:
            (text,) = db.execute(statement, (low, high)).fetchone()
            found.update(b"\0" + (text or "").encode())
        sessions[row[0]] = found.hexdigest()
    tables = {
        name: hashlib.sha256(repr(db.execute(statement).fetchall()).encode()).hexdigest()
        for name, statement in OTHERS.items()
    }
    tables["claims"] = repr(db.execute(CLAIMS).fetchone())
    return Digest(sessions, tables)
