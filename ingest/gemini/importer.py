"""Gemini CLI: chats below `~/.gemini/tmp/<project>/chats`, and the prompt log of each project.

One session can lie in several files (a document and the lines it was migrated to, stubs that a resume leaves), so its
raw is made here: a first line with what the folder says, then every file, documents as one line each. The name of a
file has only the first 8 characters of the id. Format facts and where they were seen: docs/formats/gemini.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from stat import S_ISREG

import msgspec

from prosa.ingest.gemini import places
from prosa.ingest.gemini.files import Chat, chat_of, pieces, prompt_rows
from prosa.ingest.gemini.fold import Fold
from prosa.ingest.gemini.state import AGENT
from prosa.ingest.importer import Aside, FileStat, Identity, Raw, Report, Source, Trouble

__all__ = ["AGENT", "ASIDE_FILES", "HOMES", "PARSER", "Fold", "asides", "fold", "homes", "raws", "resume", "sources"]

PARSER = "gemini/1"
HOMES: tuple[str, ...] = ("~/.gemini",)
ASIDE_FILES: tuple[str, ...] = ()

CHAT = re.compile(r"session-(?:\d{4}-\d\d-\d\dT\d\d-\d\d-)?(.+)\.jsonl?")
SUB_AGENT = re.compile(r"(.+)\.jsonl?")
LOG = "logs.json"
LOG_SURFACE = "~prompt-log"
"""The tilde: it serves only while there is nothing else. A client deletes chats by age, and keeps their prompts."""
ID_LIMIT = 200


def homes(env: Mapping[str, str], user_home: Path) -> list[Path]:
    """`.gemini` in `$GEMINI_CLI_HOME`, which stands for the user's home, else in that."""
    named = env.get("GEMINI_CLI_HOME")
    return [(Path(named).expanduser() if named else user_home) / ".gemini"]


def sources(home: Path, report: Report) -> Iterator[Source]:
    """Files of one session are one source: all whose names have the same beginning of an id, in any project."""
    home = home.absolute()
    tmp = home / "tmp" if (home / "tmp").is_dir() else home
    registry = tmp.parent / places.REGISTRY
    places.check_registry(registry, report)
    seen: set[tuple[int, int]] = set()
    groups: dict[tuple[str | None, str], list[tuple[FileStat, FileStat | None]]] = {}
    logs: list[list[tuple[FileStat, FileStat | None]]] = []
    for project in _entries(str(tmp), report):
        if not (_is_folder(project, report) and _enter(project.path, seen, report)):
            continue
        near = _stat(f"{project.path}/{places.ROOT}") or _stat(str(registry))
        for name, parent, entry in _chats(f"{project.path}/chats", seen, report):
            found = _regular(entry, report)
            if found is not None:
                groups.setdefault((parent, name), []).append((found, near))
        log = _stat(f"{project.path}/{LOG}")
        if log is not None:
            logs.append([(log, near)])
    for (parent, name), files in groups.items():
        yield _source(files, name if parent else None, parent)
    for files in logs:
        yield _source(files, None, None)


def _chats(
    folder: str, seen: set[tuple[int, int]], report: Report
) -> Iterator[tuple[str, str | None, os.DirEntry[str]]]:
    """Chat files with the part of their name that says whose they are, and the folder that names a parent."""
    if not _enter(folder, seen, report):
        return
    for entry in _entries(folder, report):
        if found := CHAT.fullmatch(entry.name):
            yield found[1], None, entry
        elif "." not in entry.name and _is_folder(entry, report) and _enter(entry.path, seen, report):
            for inner in _entries(entry.path, report):
                if found := SUB_AGENT.fullmatch(inner.name):
                    yield found[1], entry.name, inner


def _source(files: list[tuple[FileStat, FileStat | None]], native: str | None, scope: str | None) -> Source:
    own = sorted((file for file, _ in files), key=lambda file: (Path(file.path).name, file.path))
    near = {file.path: file for _, file in files if file is not None}
    return Source(AGENT, own[0].path, (*own, *(near[path] for path in sorted(near))), native, scope)


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


def _regular(entry: os.DirEntry[str], report: Report) -> FileStat | None:
    try:
        found = entry.stat()
    except OSError as bad:
        report(Trouble(AGENT, entry.path, f"cannot be read: {bad.strerror}"))
        return None
    if not S_ISREG(found.st_mode):
        return None
    return FileStat(entry.path, found.st_size, found.st_mtime_ns, found.st_ino)


def _stat(path: str) -> FileStat | None:
    """The stat of a regular file, None where there is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return FileStat(path, found.st_size, found.st_mtime_ns, found.st_ino) if S_ISREG(found.st_mode) else None


def raws(source: Source, report: Report) -> Iterator[Raw]:
    if Path(source.path).name == LOG and Path(source.path).parent.name != "chats":
        yield from _logged(source, report)
        return
    sessions: dict[Identity, list[Chat]] = {}
    for file in source.files:
        if Path(file.path).name in (places.ROOT, places.REGISTRY):
            continue
        chat = chat_of(file.path, report)
        if chat is not None and len(chat.session) > ID_LIMIT:
            report(Trouble(AGENT, file.path, f"its session id has {len(chat.session):,} characters"))
        elif chat is not None:
            sessions.setdefault(_identity(chat, source.scope), []).append(chat)
    for identity, chats in sessions.items():
        first = _first_line(places.of_chats((chat.path, chat.project_hash) for chat in chats))
        yield Raw(identity, partial(pieces, first, chats), verbatim=False)


def _identity(chat: Chat, parent: str | None) -> Identity:
    """Sub-agents are named within their parent: clients of 2025 gave them short ids, of early 2026 the parent's own."""
    stem = Path(chat.path).name.partition(".json")[0]
    if parent is not None:
        return Identity(AGENT, chat.session if chat.session != parent else stem, parent)
    if chat.kind == "subagent":
        return Identity(AGENT, stem, chat.session)
    return Identity(AGENT, chat.session)


def _first_line(place: places.Place | None) -> bytes:
    """What the folder says, as the first line of a raw."""
    said = {} if place is None else {"cwd": place.cwd, "evidence": place.evidence}
    return msgspec.json.encode({"$container": said}) + b"\n"


def _logged(source: Source, report: Report) -> Iterator[Raw]:
    """Sessions of which nothing is left but their prompts in logs.json."""
    folder = Path(source.path).parent
    rows = prompt_rows(source.path, report)
    if not rows:
        return
    first = _first_line(places.of_chats([(f"{folder}/chats", None)]))
    chats = _chat_files(folder.parent)
    for session, lines in rows.items():
        named = [*chats.get(session[:8], ()), *chats.get(session, ())]
        if len(session) <= ID_LIMIT and not any(_is_chat_of(path, session) for path in named):
            yield Raw(Identity(AGENT, session), partial(_once, first + lines), verbatim=False, surface=LOG_SURFACE)


def _once(data: bytes) -> list[bytes]:
    return [data[place : place + (1 << 20)] for place in range(0, len(data), 1 << 20)]


def _chat_files(tmp: Path) -> dict[str, list[str]]:
    """Chat files of all projects, by the part of their name that stands for the session."""
    found: dict[str, list[str]] = {}
    for project in _entries(str(tmp), _quiet):
        for entry in _entries(f"{project.path}/chats", _quiet):
            name = CHAT.fullmatch(entry.name)
            if name and _regular(entry, _quiet):
                found.setdefault(name[1], []).append(entry.path)
    return found


def _is_chat_of(path: str, session: str) -> bool:
    chat = chat_of(path, _quiet)
    return chat is not None and chat.session == session and chat.kind != "subagent"


def _quiet(trouble: Trouble) -> None:
    """Reported where the file is a source of its own."""


def fold(identity: Identity, state: bytes | None = None) -> Fold:
    return Fold(identity, state)


def asides(home: Path, known: Mapping[str, Iterable[Identity]], report: Report) -> Iterator[Aside]:
    """Nothing: what other files say of a session is the first line of its raw."""
    return iter(())


def resume(identity: Identity, cwd: str | None) -> list[str] | None:
    """From the session's own folder; a sub-agent goes on in its parent alone."""
    return ["gemini", "--resume", identity.id] if identity.scope is None else None
