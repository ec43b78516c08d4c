"""Which project a folder of Gemini CLI belongs to.

The folder's name is a slug, or the sha256 of the project's path (until about 0.30): neither can be read backwards, so
the path is taken from a file that states it, or from a path that is known and has the hash.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from prosa.ingest.chunks import file_chunks, open_file, read_file
from prosa.ingest.gemini import AGENT
from prosa.ingest.importer import Report, Trouble
from prosa.ingest.json_lines import REFUSED

ROOT = ".project_root"
REGISTRY = "projects.json"
TRUSTED = "trustedFolders.json"
ABSOLUTE = re.compile(r"/|[A-Za-z]:[\\/]|\\\\")
WORKSPACES = re.compile(r"\*\*Workspace Directories:\*\*\s*\n((?:[ \t]+-[ \t]+.+\n?)+)")
PATH_LIMIT = 4096
NAMED = re.compile(rb'["\s-](/[^"\\]{1,1024}|[A-Za-z]:(?:\\\\[^"\\]{1,255}){1,64})')
"""A path inside JSON: a value, or a line of a list."""
HASH = re.compile(r"[0-9a-f]{64}")


class Place(NamedTuple):
    cwd: str
    evidence: str
    """The file, and how it says it."""


def of_chats(chats: Iterable[tuple[str, str | None]]) -> Place | None:
    """The project of the first chat (path, project hash) whose folder says it."""
    for path, project_hash in chats:
        folder = Path(path)
        while folder.name != "chats" and folder != folder.parent:
            folder = folder.parent
        found = _of_folder(folder.parent, project_hash)
        if found is not None:
            return found
    return None


def _of_folder(folder: Path, project_hash: str | None) -> Place | None:
    root = _root(folder)
    if root is not None:
        return Place(root, ROOT)
    if HASH.fullmatch(folder.name):
        project_hash = project_hash or folder.name
    home = folder.parent.parent
    registry = _object(home / REGISTRY).get("projects")
    slugs = registry if isinstance(registry, dict) else {}
    named = sorted(path for path, slug in slugs.items() if slug == folder.name and _is_path(path))
    if len(named) == 1 or (named and project_hash is None):
        return Place(named[0], REGISTRY)
    for evidence, path in _known(home, folder.parent, [*named, *sorted(slugs)]):
        if _is_path(path) and project_hash in path_hashes(path):
            return Place(path, f"{evidence}: sha256")
    if named:
        return Place(named[0], REGISTRY)
    told = _named_in_chats(folder.parent).get(project_hash) if project_hash else None
    return Place(told, "another chat: sha256") if told else None


def _known(home: Path, tmp: Path, registered: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Every path that some file of this home names as a project."""
    yield from ((REGISTRY, path) for path in registered)
    yield from ((TRUSTED, path) for path in sorted(_object(home / TRUSTED)))
    try:
        with os.scandir(tmp) as entries:
            folders = sorted(entry.path for entry in entries)
    except OSError:
        return
    for folder in folders:
        root = _root(Path(folder))
        if root is not None:
            yield ROOT, root


def _named_in_chats(tmp: Path) -> dict[str, str]:
    """Every path that stands in a chat of this home, by its hash."""
    chats = [*tmp.glob("*/chats/*.json*"), *tmp.glob("*/chats/*/*.json*")]
    stats = [(str(chat), chat.stat()) for chat in sorted(chats) if chat.is_file()]
    return _hashes_in(tuple((path, stat.st_size, stat.st_mtime_ns) for path, stat in stats))


@lru_cache(maxsize=1)
def _hashes_in(files: tuple[tuple[str, int, int], ...]) -> dict[str, str]:
    """`files` with size and time, so that all sessions of a home share one reading."""
    paths: set[str] = set()
    for name, _, _ in files:
        try:
            for data in file_chunks(name):
                for found in set(NAMED.findall(data)):
                    paths.update(_upwards(found.decode("utf-8", "replace").replace("\\\\", "\\")))
        except OSError:
            continue  # reported where its own session is read
    return {digest: path for path in sorted(paths) for digest in path_hashes(path)}


def _root(folder: Path) -> str | None:
    try:
        with open_file(folder / ROOT) as file:
            text = file.read(PATH_LIMIT + 1).decode("utf-8", "replace").strip("\ufeff\0 \t\r\n")
    except OSError:
        return None
    return text if _is_path(text) and "\n" not in text else None


def _is_path(text: str) -> bool:
    return len(text) <= PATH_LIMIT and ABSOLUTE.match(text) is not None


def _object(path: Path) -> dict[str, Any]:
    """A JSON object in a file, {} where there is none."""
    try:
        found = msgspec.json.decode(read_file(path))
    except (OSError, *REFUSED):
        return {}
    return found if isinstance(found, dict) else {}


def check_registry(path: Path, report: Report) -> None:
    """Report a registry that cannot be read: sessions would silently lose their project."""
    try:
        found = msgspec.json.decode(read_file(path))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as bad:
        report(Trouble(AGENT, str(path), f"cannot be read: {bad.strerror}"))
        return
    except REFUSED as bad:
        report(Trouble(AGENT, str(path), f"damaged: {bad}"))
        return
    if not isinstance(found, dict):
        report(Trouble(AGENT, str(path), "damaged: no JSON object"))


def workspaces(text: str) -> list[str]:
    """The folders that a session's context names."""
    found = WORKSPACES.search(text)
    paths = [line.strip()[1:].strip() for line in found[1].splitlines()] if found else []
    return [path for path in paths if _is_path(path)]


def path_with_hash(texts: Iterable[str], project_hash: str, tried: set[str]) -> str | None:
    """The first path among the texts, or folder above one, that is the project's. `tried` ones are not."""
    for text in texts:
        if not _is_path(text):
            continue
        for path in _upwards(text):
            if path in tried:
                break
            tried.add(path)
            if project_hash in path_hashes(path):
                return path
    return None


def _upwards(path: str) -> Iterator[str]:
    """A path and the folders above it, the innermost first."""
    path = path.rstrip("/\\")
    while path:
        yield path
        cut = max(path.rfind("/"), path.rfind("\\"))
        if cut <= 0:
            return
        path = path[:cut]


def path_hashes(path: str) -> tuple[str, ...]:
    """The project hash of a path: its sha256; the client for Windows writes it in lower case."""
    texts = (path, path.lower()) if "\\" in path else (path,)
    return tuple(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() for text in texts)
