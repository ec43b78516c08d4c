"""Which session hangs under which, worked out when asked: every back end folds its timeline here.

Parents are native ids, so several sessions can be meant: one of the same scope is, else one without scope, else the
lowest key. In a cycle the session that started first is the root (unknown last, then the lowest key).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Member(NamedTuple):
    """What folding needs of a session."""

    key: str
    agent: str
    id: str
    scope: str | None
    parent: str | None
    started: int | None


def roots(members: Iterable[Member]) -> dict[str, str]:
    """Key → key of the topmost session above it among these; a session whose parent is not here is its own root."""
    by_key = {member.key: member for member in members}
    parents = _parents(by_key)
    found: dict[str, str] = {}
    for key in by_key:
        path: list[str] = []
        on_path: set[str] = set()
        at = key
        while at not in found:
            if at in on_path:
                at = min(path[path.index(at) :], key=lambda k: _first(by_key[k]))
                found[at] = at
                break
            path.append(at)
            on_path.add(at)
            above = parents.get(at)
            if above is None:
                found[at] = at
                break
            at = above
        root = found[at]
        for below in path:
            found[below] = root
    return found


def below(roots: Mapping[str, str]) -> Counter[str]:
    """Root → number of sessions under it, at any depth."""
    return Counter(root for key, root in roots.items() if root != key)


def _parents(members: Mapping[str, Member]) -> dict[str, str]:
    named = {(m.agent, m.parent) for m in members.values() if m.parent is not None and m.parent != m.id}
    if not named:
        return {}
    candidates: dict[tuple[str, str], list[Member]] = {}
    for member in members.values():
        if (member.agent, member.id) in named:
            candidates.setdefault((member.agent, member.id), []).append(member)
    return {
        member.key: min(meant, key=lambda m: (m.scope != member.scope, m.scope is not None, m.key)).key
        for member in members.values()
        if member.parent is not None
        and member.parent != member.id
        and (meant := candidates.get((member.agent, member.parent)))
    }


def _first(member: Member) -> tuple[bool, int, str]:
    return member.started is None, member.started or 0, member.key
