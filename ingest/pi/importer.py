"""Pi coding agent: one append-only file a session, below `~/.pi/agent/sessions`, byte for byte.

The id is that of the header, the first line of type `session`; a file without one is no session. Folder names say
nothing reliable about the project. Format facts and where they were seen: docs/formats/pi.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from stat import S_ISREG

import msgspec

from prosa.ingest.importer import Aside, FileStat, Identity, Raw, Report, Source, Trouble
from prosa.ingest.pi.fold import AGENT, NAME, Fold, id_of_path
from prosa.ingest.pi.records import REFUSED, Entry, decode, entries

__all__ = ["AGENT", "ASIDE_FILES", "HOMES", "PARSER", "Fold", "asides", "fold", "homes", "raws", "resume", "sources"]

PARSER = "pi/1"
HOMES: tuple[str, ...] = ("~/.pi/agent",)
ASIDE_FILES: tuple[str, ...] = ()

CHUNK = 1 << 20
HEAD_LINES = 32
"""Lines among which the header must stand: blank ones, damage and a title may come before it."""
HEAD = 8 << 20
"""Most bytes of one of them that are read."""
DEPTH = 3
"""Folders below `sessions`: the project's, and that of a session whose sub-agents have files of their own."""
ID_LIMIT = 200
LINEAR = "v1"
"""Surface of files before entries had ids: a newer client rewrites them with random ones. Sorts behind `main`."""


class Settings(msgspec.Struct, rename="camel"):
    session_dir: str | None = None


def homes(env: Mapping[str, str], user_home: Path) -> list[Path]:
    """`$PI_CODING_AGENT_DIR`, else `~/.pi/agent`, and the session folder that a variable or settings.json names."""
    agent = _path(env.get("PI_CODING_AGENT_DIR") or "~/.pi/agent", user_home, user_home)
    named = env.get("PI_CODING_AGENT_SESSION_DIR")
    if not named:
        try:
            named = msgspec.json.decode((agent / "settings.json").read_bytes(), type=Settings).session_dir
        except (OSError, *REFUSED):
            named = None
    return [agent, *([_path(named, user_home, agent)] if named else [])]


def _path(text: str, user_home: Path, base: Path) -> Path:
    return user_home / text[2:] if text.startswith("~/") else base / text


def sources(home: Path, report: Report) -> Iterator[Source]:
    """Sessions below `sessions`, and in the home itself: misplaced ones of 0.30, and a session folder that is flat."""
    home = home.absolute()
    seen: set[tuple[int, int]] = set()
    if not _enter(str(home), seen, report):
        return
    below = home / "sessions"
    for entry in _entries(str(home), report):
        if entry.name.endswith(".jsonl"):
            yield from _source(entry, None, report)
        elif entry.name.startswith("--") and _is_folder(entry, report):
            yield from _tree(entry.path, None, seen, report, DEPTH - 1)
    yield from _tree(str(below), None, seen, report, DEPTH)


def _tree(folder: str, scope: str | None, seen: set[tuple[int, int]], report: Report, depth: int) -> Iterator[Source]:
    if not _enter(folder, seen, report):
        return
    for entry in _entries(folder, report):
        if entry.name.endswith(".jsonl"):
            yield from _source(entry, scope, report)
        elif depth and _is_folder(entry, report):
            # a folder named like a session has the files of its sub-agents
            inner = id_of_path(entry.name) if NAME.fullmatch(entry.name) else scope
            yield from _tree(entry.path, inner, seen, report, depth - 1)


def _entries(folder: str, report: Report) -> list[os.DirEntry[str]]:
    """A folder's entries by name, links last: what a link and a folder both reach is known by the folder."""
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: (entry.is_symlink(), entry.name))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as bad:
        report(Trouble(AGENT, folder, f"cannot be listed: {bad.strerror}"))
        return []


def _is_folder(entry: os.DirEntry[str], report: Report) -> bool:
    """A link that leads nowhere is reported; files are simply none of ours."""
    try:
        if entry.is_dir():
            return True
        if entry.is_symlink():
            entry.stat()
    except OSError as bad:
        report(Trouble(AGENT, entry.path, f"cannot be followed: {bad.strerror}"))
    return False


def _enter(folder: str, seen: set[tuple[int, int]], report: Report) -> bool:
    """Whether the folder is there and was not yet visited by another way."""
    try:
        found = Path(folder).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as bad:
        report(Trouble(AGENT, folder, f"cannot be entered: {bad.strerror}"))
        return False
    place = (found.st_dev, found.st_ino)
    if place in seen:
        return False
    seen.add(place)
    return True


def _source(entry: os.DirEntry[str], scope: str | None, report: Report) -> Iterator[Source]:
    """One file. Where a session lies in two, the longer one is read last and serves."""
    try:
        found = entry.stat()
    except OSError as bad:
        report(Trouble(AGENT, entry.path, f"cannot be read: {bad.strerror}"))
        return
    if S_ISREG(found.st_mode):
        named = NAME.fullmatch(entry.name.removesuffix(".jsonl"))
        files = (FileStat(entry.path, found.st_size, found.st_mtime_ns, found.st_ino),)
        yield Source(AGENT, entry.path, files, named[1] if named else None, scope, rank=found.st_size)


def raws(source: Source, report: Report) -> Iterator[Raw]:
    """The session of a file. Other programs' lines, and a file that is empty so far, hold none."""
    try:
        header, blank = _header(source.path)
    except OSError as bad:
        report(Trouble(AGENT, source.path, f"cannot be read: {bad.strerror}"))
        return
    if header is None or not header.id:
        if not blank and source.id is not None and "." not in source.id:
            report(Trouble(AGENT, source.path, "not a session: no header among its first lines"))
        return
    if len(header.id) > ID_LIMIT:
        report(Trouble(AGENT, source.path, f"its session id has {len(header.id):,} characters"))
        return
    scope = source.scope if source.scope != header.id else None
    surface = LINEAR if (header.version or 1) < 2 else "main"
    yield Raw(Identity(AGENT, header.id, scope), partial(_chunks, source.path), surface=surface)


def _header(path: str) -> tuple[Entry | None, bool]:
    """The header of a file, and whether nothing, or nothing whole, is in the file so far."""
    blank = True
    with Path(path).open("rb") as file:
        for line in islice(iter(partial(file.readline, HEAD), b""), HEAD_LINES):
            if not line.strip(b" \t\r\n"):
                continue
            # one torn line alone is a client at its first writing
            blank = blank and line.startswith(b"{") and not line.endswith(b"\n")
            try:
                found = [decode(line)]
            except REFUSED:
                found, _ = entries(line)
            for entry in found:
                if entry.type == "session":
                    return entry, False
    return None, blank


def _chunks(path: str) -> Iterator[bytes]:
    with Path(path).open("rb", buffering=0) as file:
        while data := file.read(CHUNK):
            yield data


def fold(identity: Identity, state: bytes | None = None) -> Fold:
    return Fold(identity, state)


def asides(home: Path, known: Mapping[str, Iterable[Identity]], report: Report) -> Iterator[Aside]:
    """Nothing: a session's file says all there is about it."""
    return iter(())


def resume(identity: Identity, cwd: str | None) -> list[str] | None:
    """From the session's own folder."""
    return ["pi", "--session", identity.id] if identity.scope is None else None
