"""The current project: the one the working directory belongs to, if there are sessions of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prosa.projections.queries import Backend

Scope = tuple[str, str]


def current_project(backend: Backend) -> tuple[Scope, str] | None:
    """The filter and the name to show; None outside of every project that has sessions.

    The order is that of a session's project: git remote, marker, the directory itself.
    """
    from prosa.cli.opening import identify_project

    try:
        cwd = Path.cwd()
    except OSError:
        return None
    if cwd in (Path("/"), Path.home()):
        return None
    remote, marker = identify_project(cwd)
    if remote:
        found = ("remote", remote), remote.partition("/")[2] or remote
    elif marker:
        found = ("marker", marker), marker
    else:
        found = ("path", str(cwd)), cwd.name
    return found if has_sessions(backend, found[0]) else None


def has_sessions(backend: Backend, scope: Scope) -> bool:
    from prosa.projections.queries import Filters, Timeline

    question = Timeline(filters=Filters(scope=scope), limit=1, flat=True, include_empty=True)
    return bool(backend.timeline(question).sessions)
