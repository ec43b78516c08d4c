"""One session's turns in reading order: places from the index, words from the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import apsw

from prosa.events.facts import Turn, key_hex
from prosa.events.log import Log
from prosa.projections.local_rows import rows
from prosa.projections.local_turns import LogTurns
from prosa.projections.queries import ShownTurn
from prosa.projections.records import span
from prosa.projections.zones import rfc3339

TURNS: Final = """
SELECT own, counted, position, number FROM turns WHERE id BETWEEN ? AND ? ORDER BY place, id"""
ERASED: Final = Turn(key=0, kind="message", role="system", text="")


def turns(db: apsw.Connection, log: Log, sid: int) -> Iterator[ShownTurn]:
    """Lazily; the rows are read at once, so no transaction stays open while the words are written out."""
    return _shown(LogTurns(log), list(rows(db, TURNS, span(sid))))


def _shown(log_turns: LogTurns, places: list[tuple[int, int, int, int]]) -> Iterator[ShownTurn]:
    for ordinal, (own, counted, position, number) in enumerate(places):
        turn = log_turns.turn(position, number) or ERASED
        yield ShownTurn(
            ordinal=ordinal,
            key=key_hex(turn.key),
            role=turn.role,
            kind=turn.kind,
            at=None if turn.at is None else rfc3339(turn.at),
            text=turn.text,
            tool=turn.tool,
            tool_call_id=turn.tool_call_id,
            is_error=turn.is_error,
            model=turn.model,
            truncated=turn.size is not None,
            counted=bool(counted),
            inherited=own < 2,
        )
