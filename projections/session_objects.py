"""Session objects from rows; what depends on the moment (active, raw state) is worked out here.

Ten thousand of them are one query and no statement for each.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec

from prosa.projections.filtering import texts
from prosa.projections.named_devices import Devices
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
    no_session,
)
from prosa.projections.tables import Tables, value
from prosa.projections.zones import rfc3339

ACTIVE_US = 10 * 60 * 1_000_000

SID = "SELECT sid FROM sessions WHERE key = :key"
MATCH_COLUMNS = "key, id, agent, device, parent, started"
WHOLE = f"SELECT {MATCH_COLUMNS} FROM sessions WHERE key = :text OR id = :text ORDER BY last DESC NULLS LAST, key"
BEGINNING = f"""
SELECT {MATCH_COLUMNS} FROM sessions WHERE key >= :text AND key < :end OR id >= :text AND id < :end
ORDER BY last DESC NULLS LAST, key"""
LAST_CHARACTER = "\U0010ffff"

NO_LINEAGE = Lineage()
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
SELECT {", ".join(_Row._fields)} FROM sessions WHERE sid IN list(:sids)"""
ORCHESTRATORS = "SELECT DISTINCT agent, parent FROM sessions WHERE parent IS NOT NULL AND parent IN list(:ids)"
PRUNED = "SELECT session, raw FROM prunes WHERE session IN list(:keys) AND gone <> 0"


class Raws(Protocol):
    """What a back end holds of the preserved bytes."""

    def here(self, hashes: Collection[str]) -> Collection[str]:
        """Of these raws the ones it has, and maybe others."""


class RawStates(NamedTuple):
    """Where the current raws of sessions are."""

    pruned: Collection[tuple[str, str]]
    """(key, raw) that a prune names, with no restore after it."""
    here: Collection[str]

    def state(self, key: str, raw: str) -> Literal["local", "pruned", "missing"]:
        if (key, raw) in self.pruned:
            return "pruned"
        return "local" if raw in self.here else "missing"


class Sessions:
    """Reads sessions at one moment."""

    def __init__(self, tables: Tables, raws: Raws, now_us: int) -> None:
        self._tables, self._raws, self._now_us = tables, raws, now_us

    def of(self, sids: Sequence[int]) -> list[Session]:
        """In the order of the sids, which are all in the index."""
        read = [_Row._make(row) for row in self._tables.execute(SESSIONS, {"sids": sids})]
        devices = Devices(self._tables)
        states = self._raw_states(read)
        parents = set(self._tables.execute(ORCHESTRATORS, {"ids": [row.id for row in read]}))
        found = {row.sid: _session(row, self._now_us, devices, states, (row.agent, row.id) in parents) for row in read}
        return [found[sid] for sid in sids]

    def _raw_states(self, read: Sequence[_Row]) -> RawStates:
        pruned = set(self._tables.execute(PRUNED, {"keys": [row.key for row in read]}))
        return RawStates(pruned, self._raws.here({row.raw for row in read if row.raw is not None}))

    def sid(self, key: str) -> int:
        """Raises UsageError for a key that is not in the index."""
        sid: int | None = value(self._tables, SID, {"key": key})
        if sid is None:
            raise no_session(key)
        return sid

    def find(self, text: str) -> list[Match]:
        """Sessions whose key or id is the text, else those whose key or id begins with it; newest first."""
        if not text:
            return []
        parameters = {"text": text, "end": text + LAST_CHARACTER}
        matches = list(self._tables.execute(WHOLE, parameters)) or self._tables.execute(BEGINNING, parameters)
        devices = Devices(self._tables)
        return [
            Match(
                key=key,
                id=native,
                agent=agent,
                device_name=devices.name(device),
                parent_id=parent,
                started_at=None if started is None else rfc3339(started),
            )
            for key, native, agent, device, parent, started in matches
        ]


def _session(row: _Row, now_us: int, devices: Devices, raws: RawStates, is_parent: bool) -> Session:
    kinds = [] if row.kinds == "[]" else texts(row.kinds)
    if is_parent:
        kinds.insert(0, "orchestrator")
    models = texts(row.models)
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
        copy = RawCopy(row.raw, row.raw_size or 0, row.raw_stored or 0, raws.state(row.key, row.raw))
    project = None
    if row.project is not None or row.cwd is not None:
        project = Project(row.project, row.remote, row.marker, row.cwd)
    return Session(
        key=row.key,
        id=row.id,
        agent=row.agent,
        device=None if row.device is None else devices.shown(row.device),
        device_name=devices.name(row.device),
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
        active=row.last is not None and now_us - row.last < ACTIVE_US,
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
