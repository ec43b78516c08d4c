"""What lies in the agents' homes now, against what was there at the last sync."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from prosa.ingest.cache import Seen
from prosa.ingest.importer import Source, Trouble
from prosa.ingest.importing import Job

Profiles = Mapping[str, Mapping[str, Path]]
"""Agent → profile → its home, as configured."""


class AgentHome(NamedTuple):
    """One home of one agent."""

    importer: ModuleType
    profile: str
    path: Path


class Found(NamedTuple):
    """The outcome of looking: nothing was opened."""

    sources: int
    jobs: list[Job]
    """Sources that are new or changed."""
    vanished: list[Seen]
    """Sources that were there and are not, though the folder above could be read."""
    troubles: list[Trouble]


def agent_homes(
    importers: Iterable[ModuleType], profiles: Profiles, env: Mapping[str, str], user_home: Path
) -> list[AgentHome]:
    """Every home to look into, once: configured ones by their profile's name, the others as `default`."""
    homes: list[AgentHome] = []
    for importer in importers:
        taken: set[str] = set()
        named = profiles.get(importer.AGENT, {})
        default = [("default", path) for path in importer.homes(env, user_home)] if "default" not in named else []
        for profile, path in [*named.items(), *default]:
            real = os.path.realpath(path)
            if real not in taken:
                taken.add(real)
                homes.append(AgentHome(importer, profile, path))
    return homes


def look(homes: Iterable[AgentHome], seen: Mapping[str, Seen], *, everything: bool = False) -> Found:
    """Compare every source's files with what was seen; with `everything`, each is read again."""
    jobs: list[Job] = []
    troubles: list[Trouble] = []
    here: dict[str, str] = {}
    inodes: dict[int, str] = {}
    agents: set[str] = set()
    readable: list[str] = []
    for importer, profile, path in homes:
        agents.add(importer.AGENT)
        try:
            if not path.is_dir():
                if path.exists():
                    troubles.append(Trouble(importer.AGENT, str(path), "not a folder"))
                continue
        except OSError as bad:
            troubles.append(Trouble(importer.AGENT, str(path), f"cannot be entered: {bad.strerror}"))
            continue
        readable.append(f"{path}{os.sep}")
        for source in importer.sources(path, troubles.append):
            if source.path in here or not _is_text(source, troubles) or _is_twice(source, inodes):
                continue  # the first home that reaches it has it: one home can lie in another
            here[source.path] = profile
            old = seen.get(source.path)
            if everything or old is None or old.files != source.files or old.profile != profile:
                jobs.append(Job(source, profile))
    jobs.sort(key=lambda job: (job.source.rank, job.source.path))
    vanished = [
        old
        for old in seen.values()
        if old.path not in here and old.agent in agents and _is_gone(old.path, readable, troubles)
    ]
    return Found(len(here), jobs, vanished, troubles)


def _is_text(source: Source, troubles: list[Trouble]) -> bool:
    """A name that is not UTF-8 cannot be said in an event."""
    try:
        source.path.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(source.path).decode("utf-8", "backslashreplace")
        troubles.append(Trouble(source.agent, shown, "its name is not UTF-8"))
        return False
    return True


def _is_twice(source: Source, inodes: dict[int, str]) -> bool:
    """The same file under a second name, by a link to it or to a folder above."""
    inode = source.files[0].inode
    first = inodes.setdefault(inode, source.path)
    if first == source.path:
        return False
    try:
        return Path(first).samefile(source.path)
    except OSError:
        return False


def _is_gone(path: str, readable: list[str], troubles: list[Trouble]) -> bool:
    if not any(path.startswith(home) for home in readable):
        return False
    above = [trouble.path.rstrip(os.sep) for trouble in troubles]
    return not any(path == place or path.startswith(place + os.sep) for place in above)
