"""Raws that are said to be pruned: the files that a killed run may have left behind."""

from __future__ import annotations

from typing import Final

from prosa.events.database import Database

NAMED_BY_NOBODY: Final = """
SELECT DISTINCT raw FROM prunes p WHERE gone AND at_us >= ? AND NOT EXISTS (
    SELECT 1 FROM raws r LEFT JOIN prunes o ON o.session = r.session AND o.raw = r.sha256
    WHERE r.sha256 = p.raw AND NOT coalesce(o.gone, 0))
ORDER BY raw"""
LAST_PRUNE: Final = "SELECT coalesce(max(at_us), 0) FROM prunes"


def leftovers(index: Database, since_us: int = 0) -> list[str]:
    """Raws that were pruned at or after this moment, by every session that names them."""
    return [raw for (raw,) in index.execute(NAMED_BY_NOBODY, (since_us,)).fetchall()]


def last_prune(index: Database) -> int:
    """When the last one was, microseconds; 0: never."""
    return int(index.execute(LAST_PRUNE).fetchone()[0])
