"""Session objects from the index's rows; what depends on the moment (active, raw state) is worked out here.

Ten thousand of them are one query and no statement for each.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

import apsw
import msgspec

from prosa.events.errors import UsageError
from prosa.events.raw import RawStore
from prosa.projections.local_filters import device_names
from prosa.projections.local_rows import rows, value
from prosa.projections.prices import usd
from prosa.projections.queries import (
    Compactions,
    Inherited,
    Lineage,
    Match,
    Project,
    RawCopy,
    Session,
    SourceFile,
    Tokens,
    Turns,
)
from prosa.projections.zones import rfc3339

ACTIVE_US = 10 * 60 * 1_000_000
FEW = 1_000
"""Above so many raws the folders are listed instead of asking for each file (10,000: 9 ms instead of 57)."""

SID = "SELECT sid FROM sessions WHERE key = ?"
MATCH_COLUMNS = "key, id, agent, device, parent, started"
WHOLE = f"SELECT {MATCH_COLUMNS} FROM sessions WHERE key = :text OR id = :text ORDER BY last DESC, key"
BEGINNING = f"""
SELECT {MATCH_COLUMNS} FROM sessions WHERE key >= :text AND key < :end OR id >= :text AND id < :end
ORDER BY last DESC, key"""
LAST_CHARACTER = "\U0010ffff"

NO_LINEAGE = Lineage()
_list = msgspec.json.Decoder(list[str]).decode
_counts = msgspec.json.Decoder(dict[str, int]).decode


class _Row(NamedTuple):
    """Columns of the table sessions."""

    sid: int
    key: str
    id: str
    agent: str
    device: str | None
    profile: str
    parent: str | None
    forked_from: str | None
    cleared_from: str | None
    resumed_from: str | None
    title: str | None
    first_prompt: str | None
    kinds: str
    project: str | None
    remote: str | None
    marker: str | None
    cwd: str | None
    branch: str | None
    started: int | None
    last: int | None
    models: str
    users: int
    assistants: int
    thinkings: int
    tool_calls: int
    tool_results: int
    tools: str
    tool_errors: int
    has_usage: int
    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int | None
    cost: int
    unpriced: str
    compactions: int
    compactions_known: int
    compactions_reason: str | None
    inherited: int
    inherited_from: str | None
    state: Literal["plain", "encrypted", "partial"]
    raw: str | None
    raw_size: int | None
    raw_stored: int | None
    source: str | None
    source_state: Literal["present", "orphaned"]


SESSIONS = f"""
SELECT {", ".join(_Row._fields)} FROM sessions WHERE sid IN (SELECT value FROM json_each(?))"""
ORCHESTRATORS = "SELECT DISTINCT agent, parent FROM sessions WHERE parent IS NOT NULL"


class Sessions:
    """Reads sessions out of one index at one moment."""

    def __init__(self, db: apsw.Connection, raw: RawStore, now_us: int) -> None:
        self._db, self._raw, self._now_us = db, raw, now_us

    def of(self, sids: Sequence[int]) -> list[Session]:
        """In the order of the sids, which are all in the index."""
        read = [_Row._make(row) for row in rows(self._db, SESSIONS, (json.dumps(list(sids)),))]
        names = device_names(self._db)
        here = raws_here(self._raw, {row.raw for row in read if row.raw is not None})
        parents = set(rows(self._db, ORCHESTRATORS))
        found = {row.sid: self._session(row, names, here, (row.agent, row.id) in parents) for row in read}
        return [found[sid] for sid in sids]

    def sid(self, key: str) -> int:
        """Raises UsageError for a key that is not in the index."""
        sid: int | None = value(self._db, SID, (key,))
        if sid is None:
            raise UsageError(f"There is no session {key!r}.", "", "List them with: prosa --all --last 52w")
        return sid

    def find(self, text: str) -> list[Match]:
        """Sessions whose key or id is the text, else those whose key or id begins with it; newest first."""
        if not text:
            return []
        parameters = {"text": text, "end": text + LAST_CHARACTER}
        matches = list(rows(self._db, WHOLE, parameters)) or rows(self._db, BEGINNING, parameters)
        names = device_names(self._db)
        return [
            Match(
                key=key,
                id=native,
                agent=agent,
                device_name=names.get(device),
                parent_id=parent,
                started_at=None if started is None else rfc3339(started),
            )
            for key, native, agent, device, parent, started in matches
        ]

    def _session(self, row: _Row, names: dict[str, str], here: Collection[str], is_parent: bool) -> Session:
        kinds = [] if row.kinds == "[]" else _list(row.kinds)
        if is_parent:
            kinds.insert(0, "orchestrator")
        models = _list(row.models)
        lineage = NO_LINEAGE
        if row.forked_from or row.cleared_from or row.resumed_from:
            lineage = Lineage(row.forked_from, row.cleared_from, row.resumed_from)
        usage, cost_usd = None, None
        if row.has_usage:
            total = row.input + row.output + row.cache_read + row.cache_write
            usage = Tokens(row.input, row.output, row.cache_read, row.cache_write, row.reasoning, total)
            cost_usd = usd(row.cost) if row.unpriced == "[]" else None
        copy = None
        if row.raw is not None:
            state: Literal["local", "missing"] = "local" if row.raw in here else "missing"
            copy = RawCopy(row.raw, row.raw_size or 0, row.raw_stored or 0, state)
        project = None
        if row.project is not None or row.cwd is not None:
            project = Project(row.project, row.remote, row.marker, row.cwd)
        return Session(
            key=row.key,
            id=row.id,
            agent=row.agent,
            device=row.device,
            device_name=None if row.device is None else names.get(row.device),
            profile=row.profile,
            parent_id=row.parent,
            lineage=lineage,
            title=row.title,
            first_prompt=row.first_prompt,
            kinds=kinds,
            project=project,
            branch=row.branch,
            started_at=None if row.started is None else rfc3339(row.started),
            last_activity_at=None if row.last is None else rfc3339(row.last),
            active=row.last is not None and self._now_us - row.last < ACTIVE_US,
            model=models[0] if models else None,
            models=models,
            turns=Turns(row.users, row.assistants, row.thinkings, row.tool_calls, row.tool_results),
            tools=_counts(row.tools),
            tool_errors=row.tool_errors,
            usage=usage,
            cost_usd=cost_usd,
            compactions=Compactions(row.compactions, bool(row.compactions_known), row.compactions_reason),
            inherited=Inherited(row.inherited, row.inherited_from) if row.inherited else None,
            state=row.state,
            raw=copy,
            source=SourceFile(row.source, row.source_state),
        )


def raws_here(raw: RawStore, hashes: Collection[str]) -> Collection[str]:
    """Of these raws the ones whose file is in the store, and maybe others."""
    if len(hashes) <= FEW:
        return {digest for digest in hashes if raw.has(digest)}
    here: set[str] = set()
    for folder in {raw.path(digest).parent for digest in {digest[:2]: digest for digest in hashes}.values()}:
        try:
            here.update(name.removesuffix(".zst") for name in os.listdir(folder))  # noqa: PTH208 (no object for each)
        except OSError:
            continue
    return here
