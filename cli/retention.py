"""What an agent deletes by itself. Claude Code removes transcripts that were not touched for 30 days.

`cleanupPeriodDays` in the settings of the home the transcript lies in says otherwise; 30 is Claude Code's default.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from prosa.projections.queries import Session

DEFAULT_DAYS = 30
SOON_DAYS = 7
DAY_S = 86_400


class Due(NamedTuple):
    """A transcript that its agent deletes within SOON_DAYS."""

    session: Session
    size_bytes: int
    days_left: float


@cache
def cleanup_days(settings: Path) -> tuple[float, bool]:
    """The period in force, and whether the settings state it."""
    import msgspec

    from prosa.ingest.chunks import read_file

    try:
        stated = msgspec.json.decode(read_file(settings))
    except (OSError, msgspec.DecodeError):
        return DEFAULT_DAYS, False
    days = stated.get("cleanupPeriodDays") if isinstance(stated, dict) else None
    if isinstance(days, (int, float)) and not isinstance(days, bool) and days >= 0:
        return float(days), True
    return DEFAULT_DAYS, False


def claude_home(path: str) -> Path | None:
    """The home a transcript lies in: what stands before `/projects/`."""
    before, found, _ = path.rpartition("/projects/")
    return Path(before) if found else None


def due_soon(sessions: Iterable[Session]) -> list[Due]:
    """Transcripts on this machine that Claude Code will delete within a week, the next first.

    The file's own time decides, as it does for the agent; files that are not here are not looked for elsewhere.
    """
    found, now = [], time.time()
    for session in sessions:
        path = session.source.path
        if session.agent != "claude-code" or not path or session.source.state != "present":
            continue
        home = claude_home(path)
        if home is None:
            continue
        try:
            stat = Path(path).stat()
        except OSError:
            continue
        days, _ = cleanup_days(home / "settings.json")
        left = days - (now - stat.st_mtime) / DAY_S
        if left <= SOON_DAYS:
            found.append(Due(session, stat.st_size, max(0.0, left)))
    return sorted(found, key=lambda due: (due.days_left, due.session.key))
