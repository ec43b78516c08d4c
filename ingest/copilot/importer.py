"""Importer of the GitHub Copilot CLI: `session-state/<id>/events.jsonl`, and the two generations of files before it.

Title, and where the events do not say them directory and branch, stand in `workspace.yaml` beside the events: they
are told as asides, so the raw is the file as it is. Format facts: docs/formats/copilot.md.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from stat import S_ISREG
from typing import Literal

from prosa.ingest.copilot.fold import Fold
from prosa.ingest.copilot.history import MARK
from prosa.ingest.copilot.records import AGENT, events
from prosa.ingest.importer import Aside, FileStat, Identity, Raw, Report, Source, Trouble

__all__ = ["AGENT", "ASIDE_FILES", "HOMES", "PARSER", "Fold", "asides", "fold", "homes", "raws", "resume", "sources"]

PARSER = "copilot/1"
HOMES: tuple[str, ...] = ("~/.copilot",)
ASIDE_FILES: tuple[str, ...] = ()

STATE, HISTORY, EVENTS, WORKSPACE = "session-state", "history-session-state", "events.jsonl", "workspace.yaml"
FLAT = re.compile(r"([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\.jsonl\Z")
OLD = re.compile(r"session_(.+)_\d{10,16}\.json\Z")
DIRECTORY_RANK, FLAT_RANK, OLD_RANK = 2, 1, 0
CHUNK = 1 << 20
SMALL = 1 << 20
"""A workspace.yaml above this size is none."""
HEAD_LINES = 8
FIELDS: tuple[tuple[Literal["title", "cwd", "branch"], str, int], ...] = (
    ("title", "name", 0),
    ("cwd", "cwd", -1),
    ("branch", "branch", -1),
)
"""What workspace.yaml says, under which name, and its rank against the events."""
LINE = re.compile(r"([A-Za-z_][\w-]*):(?:[ \t]+(.*))?\Z")


def homes(env: Mapping[str, str], user_home: Path) -> list[Path]:
    """`$COPILOT_HOME`, else `~/.copilot`; may not exist."""
    named = env.get("COPILOT_HOME", "").strip()
    if named.startswith("~/"):
        return [user_home / named[2:]]
    return [Path(named) if named else user_home / ".copilot"]


def sources(home: Path, report: Report) -> Iterator[Source]:
    """Every session file below a home. Links to folders are followed, each folder once."""
    home = home.absolute()
    seen: set[tuple[int, int]] = set()
    for entry in _entries(f"{home}/{STATE}", report):
        flat = FLAT.match(entry.name)
        if flat:
            yield from _source(entry.path, flat[1], FLAT_RANK, report)
        elif not entry.name.startswith(".") and _enter(entry, seen, report):
            yield from _source(f"{entry.path}/{EVENTS}", entry.name, DIRECTORY_RANK, report)
    for entry in _entries(f"{home}/{HISTORY}", report):
        old = OLD.match(entry.name)
        if old:
            yield from _source(entry.path, old[1], OLD_RANK, report)


def _source(path: str, id_: str, rank: int, report: Report) -> Iterator[Source]:
    try:
        found = os.stat(path)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as bad:
        report(Trouble(AGENT, path, f"cannot be read: {bad.strerror}"))
        return
    if not S_ISREG(found.st_mode):
        report(Trouble(AGENT, path, "not a file"))
    elif found.st_size:
        files = (FileStat(path, found.st_size, found.st_mtime_ns, found.st_ino),)
        yield Source(AGENT, path, files, id_, rank=rank)


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


def _enter(entry: os.DirEntry[str], seen: set[tuple[int, int]], report: Report) -> bool:
    """Whether it is a folder that was not yet visited by another way."""
    try:
        if not entry.is_dir():
            if entry.is_symlink():
                entry.stat()
            return False
        found = entry.stat()
    except OSError as bad:
        report(Trouble(AGENT, entry.path, f"cannot be entered: {bad.strerror}"))
        return False
    place = (found.st_dev, found.st_ino)
    if place in seen:
        return False
    seen.add(place)
    return True


def raws(source: Source, report: Report) -> Iterator[Raw]:
    """The session of a file; none where a later generation of files holds it too."""
    path = Path(source.path)
    stated = (source.id or path.stem).encode("utf-8", "replace").decode()
    try:
        if source.rank < DIRECTORY_RANK and _is_kept_elsewhere(path, stated, source.rank):
            return
        if source.rank == OLD_RANK:
            mark = MARK + json.dumps(path.name).encode() + b"}\n"
            yield Raw(Identity(AGENT, stated), partial(_document, mark, path), verbatim=False, surface="history")
            return
        native = _session_id(path) or stated
    except OSError as bad:
        report(Trouble(AGENT, source.path, f"cannot be read: {bad.strerror}", retry=isinstance(bad, FileNotFoundError)))
        return
    yield Raw(Identity(AGENT, native), partial(_pieces, path))


def _is_kept_elsewhere(path: Path, id_: str, rank: int) -> bool:
    state = path.parent.parent / STATE
    later = [state / id_ / EVENTS] + ([state / f"{id_}.jsonl"] if rank == OLD_RANK else [])
    return any(other.is_file() and other.stat().st_size for other in later)


def _session_id(path: Path) -> str | None:
    """The id in `session.start`, which is among the first events."""
    with path.open("rb") as file:
        for line in file.read(CHUNK).split(b"\n")[:HEAD_LINES]:
            for event in events(line)[0]:
                if event.type == "session.start" and event.data is not None and event.data.session_id:
                    return event.data.session_id[:200]
    return None


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while data := file.read(CHUNK):
            yield data


def _document(mark: bytes, path: Path) -> Iterator[bytes]:
    yield mark
    yield from _pieces(path)


def fold(identity: Identity, state: bytes | None = None) -> Fold:
    """A new fold, or one that goes on from a saved state."""
    return Fold(identity, state)


def asides(home: Path, known: Mapping[str, Iterable[Identity]], report: Report) -> Iterator[Aside]:
    """What each session's workspace.yaml says: its name wins, directory and branch serve where the events have none."""
    seen: set[tuple[int, int]] = set()
    for entry in _entries(f"{home.absolute()}/{STATE}", report):
        if not _enter(entry, seen, lambda _: None):
            continue
        path = Path(entry.path, WORKSPACE)
        try:
            if not S_ISREG(path.stat().st_mode):
                continue
            with path.open("rb") as file:
                data = file.read(SMALL + 1)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as bad:
            report(Trouble(AGENT, str(path), f"cannot be read: {bad.strerror}"))
            continue
        said = workspace(data.decode("utf-8", "replace")) if len(data) <= SMALL else {}
        for identity in known.get(said.get("id", ""), ()) or known.get(entry.name, ()):
            for field, name, rank in FIELDS:
                if said.get(name):
                    yield Aside(identity, field, said[name], f"{WORKSPACE}: {name}", rank)


def workspace(text: str) -> dict[str, str]:
    """The scalars at the top of a YAML file as the client writes it; null and blank ones left out.

    Plain, quoted and block scalars; of nested values nothing.
    """
    found: dict[str, str] = {}
    lines = [line.rstrip("\r") for line in text.lstrip("\ufeff").replace("\0", "").split("\n")]
    place = 0
    while place < len(lines):
        match = LINE.match(lines[place])
        place += 1
        if match is None:
            continue
        more = []
        while place < len(lines) and (not lines[place].strip() or lines[place][:1] in " \t"):
            more.append(lines[place].strip())
            place += 1
        value = _scalar((match[2] or "").strip(), more).strip()
        if value:
            found.setdefault(match[1], value)
    return found


def _scalar(first: str, more: list[str]) -> str:
    if first[:1] in ("|", ">"):
        return ("\n" if first[0] == "|" else " ").join(more).strip()
    whole = " ".join(part for part in (first, *more) if part)
    if whole[:1] == '"':
        try:
            value = json.loads(whole, strict=False)
        except (ValueError, RecursionError):
            return whole.strip('"')
        return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""
    if whole[:1] == "'":
        return whole[1:].removesuffix("'").replace("''", "'")
    return "" if whole in ("null", "~", "Null", "NULL") or whole[:1] in ("{", "[", "&", "*", "!") else whole


def resume(identity: Identity, cwd: str | None) -> list[str] | None:
    """`copilot --resume=<id>`, to be run in the session's own folder."""
    return ["copilot", f"--resume={identity.id}"]
