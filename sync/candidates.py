"""Which local copies of raw may go: those a server was shown to hold, of sessions that nobody worked on for a while.

Copies are taken session by session, and sessions that name the same bytes together, because one file holds them.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from hashlib import sha256
from typing import Final, NamedTuple

from prosa.events.database import Database
from prosa.events.raw import RawStore

COPIES: Final = """
SELECT r.session, r.sha256, r.size, r.extends, p.raw IS NOT NULL
FROM raws r LEFT JOIN pushed p ON p.session = r.session AND p.raw = r.sha256 AND p.server = :server
WHERE NOT EXISTS (SELECT 1 FROM prunes g WHERE g.session = r.session AND g.raw = r.sha256 AND g.gone)"""
SESSIONS: Final = "SELECT key, raw, last FROM sessions WHERE raw IS NOT NULL"
OLD_AND_CONFIRMED: Final = """
SELECT count(*), coalesce(sum(s.raw_stored), 0)
FROM sessions s JOIN pushed p ON p.session = s.key AND p.raw = s.raw AND p.server = :server AND p.at_us <= :confirmed
WHERE s.last <= :last
    AND NOT EXISTS (SELECT 1 FROM prunes g WHERE g.session = s.key AND g.raw = s.raw AND g.gone)"""
DAY_US: Final = 86_400_000_000
UNTOUCHED_DAYS: Final = 30
CONFIRMED_DAYS: Final = 7


class Rule(NamedTuple):
    """How long ago the last activity must be."""

    words: str
    """`older than 30d`."""
    before_us: int


class Copy(NamedTuple):
    """A raw of a session. The file of its name holds at least its bytes."""

    session: str
    raw: str
    size: int


class Group(NamedTuple):
    """Sessions whose copies go together, all or none."""

    copies: tuple[Copy, ...]
    files: tuple[str, ...]
    """What to unlink, in this order: first the names of what the copies continue."""
    last_us: int
    """Their latest activity."""

    @property
    def sessions(self) -> list[str]:
        return list(dict.fromkeys(copy.session for copy in self.copies))

    def of(self, session: str) -> list[Copy]:
        return [copy for copy in self.copies if copy.session == session]


class Left(NamedTuple):
    """Sessions old enough whose current copy no sync has confirmed yet."""

    sessions: int = 0
    bytes: int = 0
    """On disk."""


class Plan(NamedTuple):
    """What a prune does; the one that is shown is the one that is executed."""

    rule: Rule
    groups: tuple[Group, ...]
    skipped: tuple[tuple[str, str], ...]
    """Session and reason."""
    unconfirmed: Left
    bytes: int
    """On disk, that it frees."""
    position: int
    """Of the log, that it was made at."""

    @property
    def copies(self) -> list[Copy]:
        return sorted(copy for group in self.groups for copy in group.copies)

    @property
    def sessions(self) -> int:
        return sum(len(group.sessions) for group in self.groups)

    @property
    def list_sha256(self) -> str:
        """As prune_planned says it."""
        return sha256("".join(f"{copy.session} {copy.raw}\n" for copy in self.copies).encode()).hexdigest()


def plan(index: Database, store: RawStore, server: str, rule: Rule, limit: int = 0) -> Plan:
    """The copies that may go, the longest untouched first; at most so many sessions, 0: all."""
    copies = _Copies(index, store, server, rule)
    groups: list[Group] = []
    skipped: list[tuple[str, str]] = []
    room = limit or len(copies.ready)
    for sessions in copies.together():
        reason = copies.reason_against(sessions)
        if reason:
            skipped += [(session, reason) for session in sessions if session in copies.ready]
        elif len(sessions) <= room:
            group = copies.group(sessions)
            groups.append(group)
            room -= len(sessions)
    freed = sum(sum(freed_by(store, group).values()) for group in groups)
    position = index.execute("SELECT position FROM checkpoint").fetchone()[0]
    return Plan(rule, tuple(groups), tuple(skipped), copies.unconfirmed, freed, position)


def advisory(index: Database, server: str, now_us: int) -> Left:
    """What a sync says could go: untouched for 30 days, and confirmed by that server more than 7 days ago."""
    last, confirmed = now_us - UNTOUCHED_DAYS * DAY_US, now_us - CONFIRMED_DAYS * DAY_US
    row = index.execute(OLD_AND_CONFIRMED, {"server": server, "last": last, "confirmed": confirmed}).fetchone()
    return Left(*row)


def freed_by(store: RawStore, group: Group) -> dict[Copy, int]:
    """Bytes on disk that unlinking the group's files frees, each file counted for one of its copies."""
    names: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
    sizes: dict[tuple[int, int], tuple[int, int]] = {}
    for raw in group.files:
        try:
            stat = store.path(raw).stat()
        except OSError:
            continue
        file = (stat.st_dev, stat.st_ino)
        names[file].append(raw)
        sizes[file] = (stat.st_nlink, stat.st_size)
    freed: defaultdict[Copy, int] = defaultdict(int)
    for file, raws in names.items():
        links, size = sizes[file]
        if len(raws) == links:  # no other raw has a name for this file
            freed[next((copy for copy in group.copies if copy.raw in raws), group.copies[-1])] += size
    return freed


def _names(store: RawStore) -> set[str]:
    """Every raw that has a file, without looking at it."""
    return {path.name.removesuffix(".zst") for folder in store.folder.glob("??") for path in os.scandir(folder)}


class _Copies:
    """Every copy that was not pruned, and the sessions that are ready to be."""

    def __init__(self, index: Database, store: RawStore, server: str, rule: Rule) -> None:
        self._store = store
        self._here = _names(store)
        self._size: dict[str, dict[str, int]] = defaultdict(dict)
        self._extends: dict[str, dict[str, str]] = defaultdict(dict)
        self._current: dict[str, str] = {}
        self._worked_out: dict[str, tuple[list[str], set[str]]] = {}
        self._confirmed: set[tuple[str, str]] = set()
        self._holders: dict[str, set[str]] = defaultdict(set)
        for session, raw, size, extends, confirmed in index.execute(COPIES, {"server": server}):
            self._size[session][raw] = size
            self._holders[raw].add(session)
            if extends:
                self._extends[session][raw] = extends
            if confirmed:
                self._confirmed.add((session, raw))
        self.ready: dict[str, int] = {}
        """Session → last activity."""
        self.unconfirmed = Left()
        for key, raw, last in index.execute(SESSIONS):
            self._current[key] = raw
            if last is not None and last <= rule.before_us:
                self._sort(key, raw, last)

    def _sort(self, key: str, current: str, last: int) -> None:
        tops = [raw for raw in self._tops(key) if raw in self._here]
        was_pruned = current not in self._size[key]
        if not tops or (not was_pruned and current not in self._here):
            return  # nothing of it is here, or what should be is not: doctor says so
        if was_pruned or (key, current) in self._confirmed:
            if any((key, raw) in self._confirmed for raw in tops):
                self.ready[key] = last
        else:
            size = sum(self._store.path(raw).stat().st_size for raw in tops)
            self.unconfirmed = Left(self.unconfirmed.sessions + 1, self.unconfirmed.bytes + size)

    def _tops(self, key: str) -> list[str]:
        """The session's raws that no other one of it continues, and its current one."""
        below = set(self._extends[key].values()) - {self._current[key]}
        return [raw for raw in self._size[key] if raw not in below]

    def together(self) -> Iterator[list[str]]:
        """Ready sessions with all that name the same bytes, the longest untouched first."""
        seen: set[str] = set()
        for key in sorted(self.ready, key=lambda key: (self.ready[key], key)):
            if key in seen:
                continue
            found, waiting = {key}, [key]
            while waiting:
                raws = self._size[waiting.pop()]
                more = {other for raw in raws for other in self._holders[raw]} - found
                found |= more
                waiting += more
            seen |= found
            yield sorted(found)

    def reason_against(self, sessions: list[str]) -> str | None:
        for session in sessions:
            if session not in self.ready:
                return f"{session} names the same bytes and is not to be pruned"
        for session in sessions:
            for raw in self._pruned(session):
                if any(raw not in self._released(other) for other in self._holders[raw]):
                    return "an earlier revision with the same bytes is not confirmed yet"
        return None

    def _pruned(self, session: str) -> list[str]:
        return self._going(session)[0]

    def _released(self, session: str) -> set[str]:
        """The session's raws that nothing of it needs once it is pruned."""
        return self._going(session)[1]

    def _going(self, session: str) -> tuple[list[str], set[str]]:
        if session not in self._worked_out:
            tops = self._tops(session)
            pruned = [raw for raw in tops if (session, raw) in self._confirmed and raw in self._here]
            released: set[str] = set()
            for raw in pruned:
                while raw and raw not in released:
                    released.add(raw)
                    raw = self._extends[session].get(raw, "")
            self._worked_out[session] = pruned, released - (set(tops) - set(pruned))
        return self._worked_out[session]

    def group(self, sessions: list[str]) -> Group:
        copies = [Copy(key, raw, self._size[key][raw]) for key in sessions for raw in sorted(self._pruned(key))]
        pruned = {copy.raw for copy in copies}
        released = {raw for key in sessions for raw in self._released(key)}
        free = {raw for raw in released & self._here if self._is_free(raw)}
        files = [*sorted(free - pruned), *sorted(free & pruned)]
        return Group(tuple(copies), tuple(files), max(self.ready[key] for key in sessions))

    def _is_free(self, raw: str) -> bool:
        return all(raw in self._released(session) for session in self._holders[raw])
