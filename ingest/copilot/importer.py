"""Importer of the GitHub Copilot CLI: `session-state/<id>/events.jsonl`, and the two generations of files before it.

Title, and where the events do not say them directory and branch, stand in `workspace.yaml` beside the events: they
are told as asides, so the raw is the file as it is. Format facts: docs/formats/copilot.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from stat import S_ISREG
from typing import Literal

from prosa.ingest.chunks import CHUNK, file_chunks
from prosa.ingest.copilot import AGENT
from prosa.ingest.folders import Folders, Place, below_home, quiet
from prosa.ingest.importer import Aside, Fold, Identity, Raw, Report, Source, Trouble

__all__ = ["AGENT", "ASIDE_FILES", "HOMES", "PARSER", "asides", "fold", "homes", "raws", "resume", "sources"]

PARSER = "copilot/1"
HOMES: tuple[str, ...] = ("~/.copilot",)
ASIDE_FILES: tuple[str, ...] = ()

STATE, HISTORY, EVENTS, WORKSPACE = "session-state", "history-session-state", "events.jsonl", "workspace.yaml"
FLAT = re.compile(r"([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\.jsonl\Z")
OLD = re.compile(r"session_(.+)_\d{10,16}\.json\Z")
DIRECTORY_RANK, FLAT_RANK, OLD_RANK = 2, 1, 0
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
    return [below_home(named, user_home) if named else user_home / ".copilot"]


def sources(home: Path, report: Report) -> Iterator[Source]:
    """Every session file below a home. Links to folders are followed, each folder once."""
    home = home.absolute()
    folders = Folders(AGENT, report)
    for entry in folders.entries(home / STATE):
        flat = FLAT.match(entry.name)
        if flat:
            yield from _source(folders, entry, flat[1], FLAT_RANK)
        elif not entry.name.startswith(".") and folders.enter(entry):
            yield from _source(folders, f"{entry.path}/{EVENTS}", entry.name, DIRECTORY_RANK)
    for entry in folders.entries(home / HISTORY):
        old = OLD.match(entry.name)
        if old:
            yield from _source(folders, entry, old[1], OLD_RANK)


def _source(folders: Folders, place: Place, id_: str, rank: int) -> Iterator[Source]:
    file = folders.file(place)
    if file is not None and file.size:
        yield Source(AGENT, file.path, (file,), id_, rank=rank)


def raws(source: Source, report: Report) -> Iterator[Raw]:
    """The session of a file; none where a later generation of files holds it too."""
    from prosa.ingest.copilot.history import MARK

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
    yield Raw(Identity(AGENT, native), partial(file_chunks, path))


def _is_kept_elsewhere(path: Path, id_: str, rank: int) -> bool:
    state = path.parent.parent / STATE
    later = [state / id_ / EVENTS] + ([state / f"{id_}.jsonl"] if rank == OLD_RANK else [])
    return any(other.is_file() and other.stat().st_size for other in later)


def _session_id(path: Path) -> str | None:
    """The id in `session.start`, which is among the first events."""
    from prosa.ingest.copilot.records import events

    with path.open("rb") as file:
        for line in file.read(CHUNK).split(b"\n")[:HEAD_LINES]:
            for event in events(line)[0]:
                if event.type == "session.start" and event.data is not None and event.data.session_id:
                    return event.data.session_id[:200]
    return None


def _document(mark: bytes, path: Path) -> Iterator[bytes]:
    yield mark
    yield from file_chunks(path)


def fold(identity: Identity, state: bytes | None = None) -> Fold:
    from prosa.ingest.copilot import fold  # a sync with nothing new folds nothing

    return fold.Fold(identity, state)


def asides(home: Path, known: Mapping[str, Iterable[Identity]], report: Report) -> Iterator[Aside]:
    """What each session's workspace.yaml says: its name wins, directory and branch serve where the events have none."""
    for entry in Folders(AGENT, quiet).inside(home.absolute() / STATE):
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
