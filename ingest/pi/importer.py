"""Pi coding agent: one append-only file a session, below `~/.pi/agent/sessions`, byte for byte.

The id is that of the header, the first line of type `session`; a file without one is no session. Folder names say
nothing reliable about the project. Format facts and where they were seen: docs/formats/pi.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from prosa.ingest.chunks import file_chunks, read_file
from prosa.ingest.folders import Folders, Place
from prosa.ingest.importer import Aside, Fold, Identity, Raw, Report, Source, Trouble
from prosa.ingest.json_lines import REFUSED
from prosa.ingest.pi import AGENT
from prosa.ingest.pi.names import NAME, id_of_path

if TYPE_CHECKING:
    from prosa.ingest.pi.records import Entry

__all__ = ["AGENT", "ASIDE_FILES", "HOMES", "PARSER", "asides", "fold", "homes", "raws", "resume", "sources"]

PARSER = "pi/1"
HOMES: tuple[str, ...] = ("~/.pi/agent",)
ASIDE_FILES: tuple[str, ...] = ()

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
            named = msgspec.json.decode(read_file(agent / "settings.json"), type=Settings).session_dir
        except (OSError, *REFUSED):
            named = None
    return [agent, *([_path(named, user_home, agent)] if named else [])]


def _path(text: str, user_home: Path, base: Path) -> Path:
    return user_home / text[2:] if text.startswith("~/") else base / text


def sources(home: Path, report: Report) -> Iterator[Source]:
    """Sessions below `sessions`, and in the home itself: misplaced ones of 0.30, and a session folder that is flat."""
    home = home.absolute()
    folders = Folders(AGENT, report)
    if not folders.enter(home):
        return
    for entry in folders.entries(home):
        if entry.name.endswith(".jsonl"):
            yield from _source(folders, entry, None)
        elif entry.name.startswith("--"):
            yield from _tree(folders, entry, None, DEPTH - 1)
    yield from _tree(folders, home / "sessions", None, DEPTH)


def _tree(folders: Folders, folder: Place, scope: str | None, depth: int) -> Iterator[Source]:
    if not folders.enter(folder):
        return
    for entry in folders.entries(folder):
        if entry.name.endswith(".jsonl"):
            yield from _source(folders, entry, scope)
        elif depth:
            # a folder named like a session has the files of its sub-agents
            inner = id_of_path(entry.name) if NAME.fullmatch(entry.name) else scope
            yield from _tree(folders, entry, inner, depth - 1)


def _source(folders: Folders, entry: Place, scope: str | None) -> Iterator[Source]:
    """One file. Where a session lies in two, the longer one is read last and serves."""
    file = folders.file(entry)
    if file is not None:
        named = NAME.fullmatch(Path(file.path).name.removesuffix(".jsonl"))
        yield Source(AGENT, file.path, (file,), named[1] if named else None, scope, rank=file.size)


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
    yield Raw(Identity(AGENT, header.id, scope), partial(file_chunks, source.path), surface=surface)


def _header(path: str) -> tuple[Entry | None, bool]:
    """The header of a file, and whether nothing, or nothing whole, is in the file so far."""
    from prosa.ingest.pi.records import decoder

    blank = True
    with Path(path).open("rb") as file:
        for line in islice(iter(partial(file.readline, HEAD), b""), HEAD_LINES):
            if not line.strip(b" \t\r\n"):
                continue
            # one torn line alone is a client at its first writing
            blank = blank and line.startswith(b"{") and not line.endswith(b"\n")
            for entry in decoder(line)[0]:
                if entry.type == "session":
                    return entry, False
    return None, blank


def fold(identity: Identity, state: bytes | None = None) -> Fold:
    from prosa.ingest.pi import fold  # a sync with nothing new folds nothing

    return fold.Fold(identity, state)


def asides(home: Path, known: Mapping[str, Iterable[Identity]], report: Report) -> Iterator[Aside]:
    """Nothing: a session's file says all there is about it."""
    return iter(())


def resume(identity: Identity, cwd: str | None) -> list[str] | None:
    """From the session's own folder."""
    return ["pi", "--session", identity.id] if identity.scope is None else None
