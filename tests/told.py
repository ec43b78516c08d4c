"""What prosa says of every session in a home, under the names that the corpus gives the fields."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from store import Store

from prosa.events.raw import RawStore
from prosa.projections.index import open_index
from prosa.projections.local import StoredRaws
from prosa.projections.queries import Session
from prosa.projections.session_objects import Sessions
from prosa.projections.tables import SqliteTables

Json = dict[str, Any]


def lines(*records: Any) -> bytes:
    """Records as JSON lines; bytes stand as they are."""
    return b"".join(one if isinstance(one, bytes) else json.dumps(one).encode() + b"\n" for one in records)


def put(store: Store, path: str, *records: Any) -> Path:
    """A file below the user's home."""
    place = store.user / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(lines(*records))
    return place


def told(store: Store) -> dict[str, Json]:
    """Session id → its fields after a sync. A second sync must add nothing, and a rebuild must give the same."""
    store.sync()
    assert store.sync().events == 0
    assert store.rebuilt() == store.serving()
    db = open_index(store.home.index)
    try:
        sids = [sid for (sid,) in db.execute("SELECT sid FROM sessions ORDER BY key")]
        found = Sessions(SqliteTables(db), StoredRaws(RawStore(store.home.raw)), 0).of(sids)
    finally:
        db.close()
    assert len({one.id for one in found}) == len(found), [one.key for one in found]
    return {one.id: _fields(one) for one in found}


def _fields(one: Session) -> Json:
    usage = one.usage
    return {
        "parent": one.parent_id,
        "forked_from": one.lineage.forked_from,
        "cleared_from": one.lineage.cleared_from,
        "cwd": one.project.path if one.project is not None else None,
        "branch": one.branch,
        "started": one.started_at,
        "last": one.last_activity_at,
        "title": one.title,
        "models": one.models,
        "first_prompt": one.first_prompt,
        "user": one.turns.user,
        "assistant": one.turns.assistant,
        "thinking": one.turns.thinking,
        "result": one.turns.tool_result,
        "tools": one.tools,
        "errors": one.tool_errors,
        "usage": usage
        and {
            "input": usage.input,
            "output": usage.output,
            "cache_read": usage.cache_read,
            "cache_creation": usage.cache_creation,
            "reasoning": usage.reasoning,
        },
        "compactions": one.compactions.count if one.compactions.known else None,
        "kinds": one.kinds,
    }


def only(session: Json, names: Iterable[str]) -> tuple[Any, ...]:
    """Some fields, in this order."""
    return tuple(session[name] for name in names)
