"""A session in one or two lines: the words that timeline, search, show and why share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prosa.cli import amounts
from prosa.cli.terminal import Paint
from prosa.cli.text import cut, cut_left, one_line, width

if TYPE_CHECKING:
    from prosa.projections.queries import Backend, Session

ID_CELLS = (8, 13, 18, 24)
"""Lengths of a short id: the first by which the session alone is found."""
PROJECT_CELLS = 28
TOP_TOOLS = 3


def title(session: Session) -> str | None:
    """What the session is about, as one line: its title, else its first prompt."""
    return one_line(session.title or "") or one_line(session.first_prompt or "") or None


def shown_title(session: Session, paint: Paint) -> str:
    return title(session) or paint("(no prompt)", "dim")


def project_name(session: Session) -> str | None:
    """The name; of a project that is only a path, the end of the path."""
    if session.project is None:
        return None
    return one_line(session.project.name or session.project.path or "") or None


def project_label(session: Session, cells: int = PROJECT_CELLS) -> str | None:
    """The name within so many cells; the owner goes first, as the repository says more."""
    name = project_name(session)
    if name and len(name) > cells and session.project and session.project.remote:
        name = name.rsplit("/", 1)[-1]
    return cut_left(name, cells) if name else None


def device_label(session: Session) -> str | None:
    return one_line(session.device_name).split(".")[0] if session.device_name else (session.device or "")[:8] or None


def seconds(session: Session) -> int | None:
    return amounts.seconds_between(session.started_at, session.last_activity_at)


def facts(session: Session) -> list[str]:
    """Length, prompts, tokens, cost and the tools used most, each where it is known."""
    parts = []
    length = seconds(session)
    if length:
        parts.append(amounts.duration(length))
    if session.turns.user:
        parts.append(amounts.count(session.turns.user, "prompt"))
    if session.usage and session.usage.total:
        parts.append(f"{amounts.compact(session.usage.total)} tokens")
    if session.cost_usd is not None and session.usage and session.usage.total:
        parts.append(amounts.money(session.cost_usd))
    if session.tools:
        most = sorted(session.tools, key=lambda tool: (-session.tools[tool], tool))[:TOP_TOOLS]
        parts.append(", ".join(one_line(tool) for tool in most))
    if session.source.state == "orphaned":
        parts.append("source gone")
    return parts


def join(parts: Iterable[str], cells: int) -> str:
    """`a · b · c`, as many whole parts as fit; the first is cut if it alone does not."""
    line = ""
    for part in parts:
        longer = f"{line} · {part}" if line else part
        if width(longer) > cells:
            return line or cut(part, cells)
        line = longer
    return line


def short_ids(backend: Backend, sessions: Iterable[Session]) -> dict[str, str]:
    """Key → the beginning of the id that `prosa show` accepts: it finds this session and no other."""
    found: dict[str, str] = {}
    left = list(sessions)
    for cells in (*ID_CELLS, None):
        shorter = {session.key: session.id[:cells] for session in left if not cells or len(session.id) > cells + 2}
        alone = backend.unique(list(dict.fromkeys(shorter.values())))
        found |= {key: one_line(text) for key, text in shorter.items() if text in alone}
        left = [session for session in left if session.key not in found]
    return found | {session.key: one_line(session.key) for session in left}
