"""From what the user typed to one session: a key, an id, or a beginning of either that only one session has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prosa.events.errors import UsageError

if TYPE_CHECKING:
    from prosa.projections.queries import Backend, Match

LISTED = 10


class Ambiguous(UsageError):
    """Several sessions fit. The message lists them."""


def complete_session(incomplete: str) -> list[str]:
    """Ids that begin so, for the shell."""
    from prosa.cli.opening import open_backend
    from prosa.events.errors import ProsaError
    from prosa.events.home import Home

    if len(incomplete) < 2:
        return []
    try:
        with open_backend(Home.of()) as backend:
            return [match.id if match.id.startswith(incomplete) else match.key for match in backend.find(incomplete)]
    except (ProsaError, OSError):
        return []


def session_key(backend: Backend, text: str) -> str:
    """The key. Raises UsageError where nothing or more than one session fits."""
    found = backend.find(text)
    if len(found) == 1:
        return found[0].key
    if not found:
        raise UsageError(f"No session's id or key begins with {text!r}.", "", "List them: prosa --all")
    shown = "\n".join(map(match_line, found[:LISTED]))
    more = f"\n… and {len(found) - LISTED} more" if len(found) > LISTED else ""
    raise Ambiguous(f"{text!r} fits {len(found)} sessions:", shown + more, "Give more of the id, or the key.")


def match_line(match: Match) -> str:
    from prosa.cli.text import one_line

    parts = [match.key, match.device_name or "unknown device"]
    if match.parent_id:
        parts.append(f"child of {match.parent_id}")
    parts.append(f"started {match.started_at}" if match.started_at else "no start time")
    return "  " + one_line("  ".join(parts))
