"""One session's turns in reading order: places from the tables, words from the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prosa.events.facts import Turn, key_hex
from prosa.events.log import LogReader
from prosa.projections.log_turns import LogTurns
from prosa.projections.queries import ShownTurn
from prosa.projections.records import span
from prosa.projections.tables import Tables
from prosa.projections.zones import rfc3339

TURNS: Final = """
SELECT own, counted, position, number FROM turns WHERE id BETWEEN :low AND :high ORDER BY place, id
LIMIT :most OFFSET :first"""
ALL: Final = 1 << 62
ERASED: Final = Turn(key=0, kind="message", role="system", text="")


def turns(tables: Tables, log: LogReader, sid: int, first: int = 0, most: int = ALL) -> Iterator[ShownTurn]:
    """Lazily; the rows are read at once, so no transaction stays open while the words are written out."""
    low, high = span(sid)
    return _shown(
        LogTurns(log), list(tables.execute(TURNS, {"low": low, "high": high, "first": first, "most": most})), first
    )


def _shown(log_turns: LogTurns, places: list[tuple[int, int, int, int]], first: int) -> Iterator[ShownTurn]:
    for ordinal, (own, counted, position, number) in enumerate(places, first):
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
