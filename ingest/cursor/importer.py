"""Cursor: the CLI's chat stores, the transcripts mirrored beside them, and the IDE's own database.

One chat may lie in several of them. Each is a surface of its own, because their records have no ids in common, and the
one with the most prompts serves; names of surfaces sort in the order of trust. Format: docs/formats/cursor.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from prosa.ingest.chunks import line_chunks
from prosa.ingest.cursor import AGENT, siblings
from prosa.ingest.cursor import ide as cursor_ide
from prosa.ingest.cursor import store as cursor_store
from prosa.ingest.cursor.fold import is_tree, plain_root, read, readings
from prosa.ingest.cursor.mirror import read_lines, read_text
from prosa.ingest.cursor.turns import read_messages, read_tree
from prosa.ingest.document import DocumentFold
from prosa.ingest.folders import Folders, Place, below_home, newest, quiet
from prosa.ingest.foreign_db import BrokenError, BusyError
from prosa.ingest.importer import Aside, Fold, Identity, Raw, Report, Source, Trouble
from prosa.ingest.spool import Database, spooled

__all__ = ["AGENT", "ASIDE_FILES", "HOMES", "PARSER", "asides", "fold", "homes", "raws", "resume", "sources"]

PARSER = "cursor/1"
HOMES: tuple[str, ...] = ("~/.cursor", "~/.config/Cursor/User")
ASIDE_FILES: tuple[str, ...] = ()

DEPTH = 4
"""Sub-agents of sub-agents."""
NO_PLACE = "empty-window"


def homes(env: Mapping[str, str], user_home: Path) -> list[Path]:
    """The CLI's folder by its own variables, the usual one, which the IDE mirrors into, and the IDE's."""
    variables = ("CURSOR_CONFIG_DIR", "CURSOR_DATA_DIR")
    found = [below_home(env[name], user_home) for name in variables if env.get(name)]
    config = env.get("XDG_CONFIG_HOME")
    if config and not found:
        found.append(below_home(config, user_home) / "cursor")
    if not env.get("CURSOR_CONFIG_DIR"):
        found.append(user_home / ".cursor")
    ide = below_home(config, user_home) if config else user_home / ".config"
    found.append(ide / "Cursor" / "User")
    mac = user_home / "Library" / "Application Support" / "Cursor" / "User"
    if mac.is_dir():
        found.append(mac)
    return list(dict.fromkeys(found))


def sources(home: Path, report: Report) -> Iterator[Source]:
    """Stores, mirrors and the IDE's database below one home, from names and stat alone."""
    home = home.absolute()
    folders = Folders(AGENT, report)
    for folder in folders.inside(home / "chats"):
        for chat in folders.inside(folder):
            names = ("store.db", "store.db-wal", "meta.json")
            yield from _source(folders, [f"{chat.path}/{name}" for name in names], chat.name)
    for project in folders.inside(home / "projects"):
        yield from _mirrors(folders, f"{project.path}/agent-transcripts", DEPTH)
    for user in (home, home / "User"):
        path = user / "globalStorage" / "state.vscdb"
        yield from _source(folders, [f"{path}", f"{path}-wal"], None)


def _source(folders: Folders, paths: list[str], native: str | None) -> Iterator[Source]:
    """A database, if its file is there."""
    files = folders.files(paths)
    if files and files[0].path == paths[0]:
        yield Source(AGENT, paths[0], files, native, rank=newest(files))


def _mirrors(folders: Folders, folder: Place, depth: int) -> Iterator[Source]:
    """`<id>.jsonl`, else `.txt`, flat or in a folder of the same name; sub-agents lie in a folder of their parent's."""
    entries = list(folders.entries(folder))
    lines = {entry.name.removesuffix(".jsonl") for entry in entries if entry.name.endswith(".jsonl")}
    for entry in entries:
        stem, dot, kind = entry.name.rpartition(".")
        if dot and stem and (kind == "jsonl" or (kind == "txt" and stem not in lines)):
            files = folders.files([entry])
            if files:
                yield Source(AGENT, entry.path, files, stem, rank=newest(files))
    for inner in folders.inside(folder) if depth else ():
        yield from _mirrors(folders, inner, depth - 1)


# raws


def raws(source: Source, report: Report) -> Iterator[Raw]:
    path = Path(source.path)
    try:
        match path.name:
            case "store.db":
                yield from _store(path, report)
            case "state.vscdb":
                yield from _chats(path, report)
            case _:
                yield from _mirror(path, source, report)
    except BusyError as bad:
        report(Trouble(AGENT, source.path, str(bad), retry=True))
    except (BrokenError, cursor_store.UnreadableError) as bad:
        report(Trouble(AGENT, source.path, f"cannot be read: {bad}"))
    except OSError as bad:
        report(Trouble(AGENT, source.path, f"cannot be read: {bad}", retry=isinstance(bad, FileNotFoundError)))


def _store(path: Path, report: Report) -> Iterator[Raw]:
    """The chat of a store; a mirror of the same id serves where this one has nothing to say."""
    store = cursor_store.read_store(path)
    if store is None:
        return
    surface: str | None = "store"
    if store.root is None:
        report(Trouble(AGENT, str(path), "its newest root is missing: nothing else says which records count"))
    else:
        surface = _surface(store)
    if surface is not None:
        identity = Identity(AGENT, cursor_store.id_of(store.meta, path))
        lines = list(cursor_store.lines_of(path, store, siblings.proven(path, store)))
        yield Raw(identity, partial(line_chunks, lines), verbatim=False, surface=surface)


def _surface(store: cursor_store.Store) -> str | None:
    """Which list of the store serves: their records have different names. None for a chat that never started."""
    root = plain_root(store.root or b"")
    if root is None:
        return "store"
    blobs = {blob.id: blob.data for blob in store.blobs}
    messages, tree = read_messages(root, blobs), read_tree(root, blobs)
    if is_tree(tree, messages):
        return "store"
    if messages.turns or readings(root, blobs).turns:
        return "store-list"
    return "store" if store.missing or messages.unreadable or tree.unreadable else None


def _chats(path: Path, report: Report) -> Iterator[Raw]:
    places = cursor_ide.Places(path.parent.parent)
    headers = cursor_ide.chats(path)

    def project(db: Database, composer: str) -> Iterator[bytes]:
        return cursor_ide.lines_of(db, composer, headers[composer], places)

    for one in spooled(path, list(headers), project):
        if one.problem is not None:
            report(Trouble(AGENT, f"{path}: {one.id}", f"cannot be read: {one.problem}"))
        else:
            yield Raw(Identity(AGENT, one.id), one.chunks, verbatim=False, surface="ide")


def _mirror(path: Path, source: Source, report: Report) -> Iterator[Raw]:
    data = path.read_bytes()
    kind = "jsonl" if path.suffix == ".jsonl" else "txt"
    mirror = read_lines(data) if kind == "jsonl" else read_text(data)
    if not mirror.known:
        if data.strip(b"\0\r\n\t "):
            report(Trouble(AGENT, str(path), "not a transcript: no record in it can be read"))
        return
    head: dict[str, Any] = {
        "cursor": f"{kind}/1",
        "mtime_ms": path.stat().st_mtime_ns // 1_000_000,
        "parent": _parent(path),
        "project": _project(path),
    }
    identity = Identity(AGENT, source.id or path.stem)
    home = _home(path)
    if home is not None:
        head |= cursor_store.about(home, identity.id)
    surface = "transcript" if kind == "jsonl" else "transcript-text"
    lines = [msgspec.json.encode(head, order="sorted") + b"\n", data]
    yield Raw(identity, partial(line_chunks, lines), verbatim=False, surface=surface)


def _parent(path: Path) -> str | None:
    """A sub-agent's mirror lies in a folder of its parent's."""
    return path.parent.parent.name if path.parent.name == "subagents" else None


def _project(path: Path) -> str | None:
    """The folder below `projects`: the working folder with its signs gone."""
    folder = next((above for above in path.parents if above.name == "agent-transcripts"), None)
    return folder.parent.name if folder is not None else None


def _home(path: Path) -> Path | None:
    """The home that a mirror lies in."""
    folder = next((above for above in path.parents if above.name == "agent-transcripts"), None)
    return folder.parents[2] if folder is not None and folder.parents[1].name == "projects" else None


def fold(identity: Identity, state: bytes | None = None) -> Fold:
    return DocumentFold(partial(read, identity))


# asides


def asides(home: Path, known: Mapping[str, Iterable[Identity]], report: Report) -> Iterator[Aside]:
    """The parent of a sub-agent by the place of its mirror, and the folder of a chat that is only mirrored.

    That is the one known path that makes the name of its project. The name alone is lossy and proves nothing; so where
    two known paths make it, nothing is said.
    """
    mirrored: dict[str, list[str]] = {}
    for source in sources(home, quiet):
        project = _project(Path(source.path))
        if project and project != NO_PLACE and source.id in known:
            mirrored.setdefault(project, []).append(source.id or "")
        parent = _parent(Path(source.path))
        if parent and parent != source.id:
            for identity in known.get(source.id or "", ()):
                yield Aside(identity, "parent", parent, f"projects/{project}: place of its transcript", rank=-1)
    if not mirrored:
        return
    paths: dict[str, set[str]] = {}
    for cwd in _known_paths(home):
        paths.setdefault(slug(cwd), set()).add(cwd)
    for project, natives in sorted(mirrored.items()):
        found = paths.get(project, set())
        if len(found) != 1:
            continue
        for native in sorted(set(natives)):
            for identity in known[native]:
                yield Aside(identity, "cwd", next(iter(found)), f"projects/{project}: a chat's folder", rank=-1)


def _known_paths(home: Path) -> set[str]:
    """Working folders that the home's stores state themselves."""
    found: set[str] = set()
    folders = Folders(AGENT, quiet)
    for folder in folders.inside(home.absolute() / "chats"):
        for chat in folders.inside(folder):
            cwd = siblings.folder_path(Path(chat))
            if cwd is not None:
                found.add(cwd)
                break
    return found


def slug(path: str) -> str:
    """A path as Cursor names a project's folder."""
    return re.sub(r"[^A-Za-z0-9]", "-", path).strip("-")


def resume(identity: Identity, cwd: str | None) -> list[str] | None:
    """The CLI goes on with its own chats; for one of the IDE it says that it does not know it."""
    return ["cursor-agent", f"--resume={identity.id}"]
