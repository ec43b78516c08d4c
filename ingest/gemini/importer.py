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

import msgspec

from prosa.ingest.chunks import line_chunks
from prosa.ingest.folders import Folders, below_home, quiet
from prosa.ingest.gemini import AGENT, places
from prosa.ingest.gemini.files import Chat, chat_of, pieces, prompt_rows
from prosa.ingest.importer import Aside, FileStat, Fold, Identity, Raw, Report, Source, Trouble

__all__ = ["AGENT", "ASIDE_FILES", "HOMES", "PARSER", "asides", "fold", "homes", "raws", "resume", "sources"]

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
    return [(below_home(named, user_home) if named else user_home) / ".gemini"]


def sources(home: Path, report: Report) -> Iterator[Source]:
    """Files of one session are one source: all whose names have the same beginning of an id, in any project."""
    home = home.absolute()
    tmp = home / "tmp" if (home / "tmp").is_dir() else home
    registry = tmp.parent / places.REGISTRY
    places.check_registry(registry, report)
    folders = Folders(AGENT, report)
    groups: dict[tuple[str | None, str], list[tuple[FileStat, FileStat | None]]] = {}
    logs: list[list[tuple[FileStat, FileStat | None]]] = []
    for project in folders.inside(tmp):
        near = folders.file(f"{project.path}/{places.ROOT}") or folders.file(registry)
        for name, parent, entry in _chats(folders, f"{project.path}/chats"):
            found = folders.file(entry)
            if found is not None:
                groups.setdefault((parent, name), []).append((found, near))
        log = folders.file(f"{project.path}/{LOG}")
        if log is not None:
            logs.append([(log, near)])
    for (parent, name), files in groups.items():
        yield _source(files, name if parent else None, parent)
    for files in logs:
        yield _source(files, None, None)


def _chats(folders: Folders, folder: str) -> Iterator[tuple[str, str | None, os.DirEntry[str]]]:
    """Chat files with the part of their name that says whose they are, and the folder that names a parent."""
    if not folders.enter(folder):
        return
    for entry in folders.entries(folder):
        if found := CHAT.fullmatch(entry.name):
            yield found[1], None, entry
        elif "." not in entry.name and folders.enter(entry):
            for inner in folders.entries(entry):
                if found := SUB_AGENT.fullmatch(inner.name):
                    yield found[1], entry.name, inner


def _source(files: list[tuple[FileStat, FileStat | None]], native: str | None, scope: str | None) -> Source:
    own = sorted((file for file, _ in files), key=lambda file: (Path(file.path).name, file.path))
    near = {file.path: file for _, file in files if file is not None}
    return Source(AGENT, own[0].path, (*own, *(near[path] for path in sorted(near))), native, scope)


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
            yield Raw(
                Identity(AGENT, session), partial(line_chunks, [first + lines]), verbatim=False, surface=LOG_SURFACE
            )


def _chat_files(tmp: Path) -> dict[str, list[str]]:
    """Chat files of all projects, by the part of their name that stands for the session."""
    found: dict[str, list[str]] = {}
    folders = Folders(AGENT, quiet)
    for project in folders.entries(tmp):
        for entry in folders.entries(f"{project.path}/chats"):
            name = CHAT.fullmatch(entry.name)
            if name and folders.file(entry):
                found.setdefault(name[1], []).append(entry.path)
    return found


def _is_chat_of(path: str, session: str) -> bool:
    chat = chat_of(path, quiet)
    return chat is not None and chat.session == session and chat.kind != "subagent"


def fold(identity: Identity, state: bytes | None = None) -> Fold:
    from prosa.ingest.gemini import fold  # a sync with nothing new folds nothing

    return fold.Fold(identity, state)


def asides(home: Path, known: Mapping[str, Iterable[Identity]], report: Report) -> Iterator[Aside]:
    """Nothing: what other files say of a session is the first line of its raw."""
    return iter(())


def resume(identity: Identity, cwd: str | None) -> list[str] | None:
    """From the session's own folder; a sub-agent goes on in its parent alone."""
    return ["gemini", "--resume", identity.id] if identity.scope is None else None
