"""What the preserved transcripts take: original and stored bytes by agent, project and age of the last activity."""

from __future__ import annotations

from typing import Final, NamedTuple

from prosa.projections.filtering import condition
from prosa.projections.queries import Filters
from prosa.projections.report_rows import Row
from prosa.projections.session_objects import Raws
from prosa.projections.tables import Tables

DAY_US: Final = 86_400_000_000
AGES: Final = ((7, "under 7 days"), (30, "7 to 30 days"), (90, "30 to 90 days"), (365, "90 days to a year"))
OLDEST: Final = "over a year"

RAWS: Final = """
SELECT r.sha256, r.extends, r.size, r.stored, s.sid, s.agent, s.project, s.last, CASE WHEN EXISTS (
    SELECT 1 FROM prunes g WHERE g.session = r.session AND g.raw = r.sha256 AND g.gone <> 0) THEN 1 ELSE 0 END
FROM sessions s JOIN raws r ON r.session = s.key WHERE {}"""


class _Copy(NamedTuple):
    sha256: str
    extends: str | None
    size: int
    stored: int
    sid: int
    agent: str
    project: str | None
    last: int | None
    pruned: int


class _Sum:
    def __init__(self) -> None:
        self.sids: set[int] = set()
        self.raw = self.stored = self.local = self.pruned = 0


def storage(tables: Tables, raws: Raws, filters: Filters, now_us: int) -> list[Row]:
    """Rows (by, value, sessions, raw_bytes, stored_bytes, local_bytes, pruned_bytes): `by` is agent, project or age.

    Every preserved copy counts, also one of a session's earlier revisions; a copy that grew counts once, as it is now.
    `local_bytes` are the stored ones that are on this machine, `pruned_bytes` those that a prune took from it. Agents
    and projects with the most stored bytes come first, ages the youngest first; `value` is null where it is not known.
    """
    chosen = condition(tables, filters)
    copies = [_Copy._make(row) for row in tables.execute(RAWS.format(chosen.sql), chosen.values)]
    outgrown = {copy.extends for copy in copies}
    copies = [copy for copy in copies if copy.sha256 not in outgrown]
    here = raws.here({copy.sha256 for copy in copies})
    sums: dict[str, dict[str | None, _Sum]] = {
        "agent": {},
        "project": {},
        "age": {age: _Sum() for age in (*(name for _, name in AGES), OLDEST, None)},
    }
    for copy in copies:
        for by, value in (("agent", copy.agent), ("project", copy.project), ("age", _age(copy.last, now_us))):
            total = sums[by].setdefault(value, _Sum())
            total.sids.add(copy.sid)
            total.raw += copy.size
            total.stored += copy.stored
            total.pruned += copy.stored if copy.pruned else 0
            total.local += copy.stored if copy.sha256 in here else 0
    found = []
    for by, totals in sums.items():
        values = [value for value in totals if totals[value].sids]
        if by != "age":
            values.sort(key=lambda value: (-totals[value].stored, value is None, value or ""))
        found += [
            {
                "by": by,
                "value": value,
                "sessions": len(totals[value].sids),
                "raw_bytes": totals[value].raw,
                "stored_bytes": totals[value].stored,
                "local_bytes": totals[value].local,
                "pruned_bytes": totals[value].pruned,
            }
            for value in values
        ]
    return found


def _age(last: int | None, now_us: int) -> str | None:
    if last is None:
        return None
    return next((name for days, name in AGES if now_us - last < days * DAY_US), OLDEST)
