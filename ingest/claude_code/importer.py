"""Claude Code: transcripts below `~/.claude/projects`, one file a session, one more for each sub-agent.

The file name is the session's id; the records inside may name another one (a resume copy, a sub-agent). The folder's
name says nothing reliable about the project. Format facts and where they were seen: docs/formats/claude-code.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec

from prosa.ingest.chunks import file_chunks, read_file
from prosa.ingest.claude_code import AGENT
from prosa.ingest.decoding import records_in
from prosa.ingest.folders import Folders, Place, below_home
from prosa.ingest.importer import Aside, Fold, Identity, Raw, Report, Source, Trouble
from prosa.ingest.json_lines import REFUSED

__all__ = ["AGENT", "ASIDE_FILES", "HOMES", "PARSER", "asides", "fold", "homes", "raws", "resume", "sources"]

PARSER = "claude-code/1"
HOMES = ("~/.claude", "~/.config/claude")
ASIDE_FILES = ("history.jsonl",)

SESSION = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.IGNORECASE)
SUB_AGENT = re.compile(r"agent-[A-Za-z0-9_-]+\Z")
PARENT = re.compile(rb'"sessionId"\s*:\s*"([^"\\]+)"')
HEAD_CHUNKS = 24
"""A first line with images is up to 20 MB long before it names its session."""
CLEAR = ("/clear", "/reset", "/new")
CLEARED = re.compile(rb"<command-name>/(?:clear|reset|new)</command-name>")
CLEARED_WITHIN = 128 * 1024
DEPTH = 6
"""Folders below `subagents`: workflows/wf_x today, room for nested ones."""


class TypedPrompt(msgspec.Struct, rename="camel"):
    """A line of history.jsonl."""

    display: str = ""
    project: str = ""
    session_id: str = ""


class TitleFile(msgspec.Struct, rename="camel"):
    custom_title: str = ""
    by: str | None = None


def homes(env: Mapping[str, str], user_home: Path) -> list[Path]:
    """`CLAUDE_CONFIG_DIR` (several with commas, each may end in `projects`), else the two usual places."""
    named = [part.strip() for part in env.get("CLAUDE_CONFIG_DIR", "").split(",")]
    if any(named):
        return [below_home(part, user_home) for part in named if part]
    config = Path(env.get("XDG_CONFIG_HOME") or user_home / ".config")
    return [user_home / ".claude", *(place for place in [config / "claude"] if place.is_dir())]


def sources(home: Path, report: Report) -> Iterator[Source]:
    folders = Folders(AGENT, report)
    for project in folders.inside(_projects(home)):
        for entry in folders.entries(project):
            name = entry.name
            stem = name[:-6]
            if name.endswith(".jsonl") and (SESSION.match(stem) or SUB_AGENT.match(stem)):
                yield from _source(folders, entry, stem, None)
            elif SESSION.match(name):
                yield from _agents(folders, f"{entry.path}/subagents", name, DEPTH)


def _agents(folders: Folders, folder: Place, scope: str, depth: int) -> Iterator[Source]:
    if not folders.enter(folder):
        return
    for entry in folders.entries(folder):
        name = entry.name
        if name.endswith(".jsonl"):
            if SUB_AGENT.match(name[:-6]):
                yield from _source(folders, entry, name[:-6], scope)
        elif depth and "." not in name:
            # the folder above the innermost `subagents` is the parent
            inner = Path(folder).name if name == "subagents" else scope
            yield from _agents(folders, entry, inner, depth - 1)


def _source(folders: Folders, entry: Place, stem: str, scope: str | None) -> Iterator[Source]:
    file = folders.file(entry)
    if file is not None:
        yield Source(AGENT, file.path, (file,), stem, scope)


def _projects(home: Path) -> Path:
    home = home.absolute()
    below = home / "projects"
    return below if home.name != "projects" or below.is_dir() else home


def raws(source: Source, report: Report) -> Iterator[Raw]:
    stem = source.id or Path(source.path).stem
    scope = source.scope
    if scope is None and SUB_AGENT.match(stem):
        try:
            scope = _parent(source.path)
        except OSError as bad:
            report(Trouble(AGENT, source.path, f"cannot be read: {bad.strerror}"))
            return
    yield Raw(Identity(AGENT, stem, scope), partial(file_chunks, source.path))


def _parent(path: str) -> str | None:
    """The session that a flat sub-agent file (2.0.x) names in its records."""
    tail = b""
    for data in islice(file_chunks(path), HEAD_CHUNKS):
        if found := PARENT.search(tail + data):
            return found[1].decode("utf-8", "replace")
        tail = data[-256:]
    return None


def fold(identity: Identity, state: bytes | None = None) -> Fold:
    from prosa.ingest.claude_code import fold  # a sync with nothing new folds nothing

    return fold.Fold(identity, state)


def asides(home: Path, known: Mapping[str, Iterable[Identity]], report: Report) -> Iterator[Aside]:
    yield from _titles(home, known, report)
    yield from _clears(home, known, report)


def _titles(home: Path, known: Mapping[str, Iterable[Identity]], report: Report) -> Iterator[Aside]:
    """`<session>/custom-title.json` (2.1.332). What the user set there is newer than every title in the transcript."""
    folders = Folders(AGENT, report)
    for project in folders.entries(_projects(home)):
        for entry in folders.entries(project):
            if not SESSION.match(entry.name) or entry.name not in known:
                continue
            path = Path(entry.path, "custom-title.json")
            try:
                said = msgspec.json.decode(read_file(path), type=TitleFile)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except (OSError, *REFUSED) as bad:
                report(Trouble(AGENT, str(path), f"cannot be read: {bad}"))
                continue
            rank = 1 if said.by == "user" else -1
            for identity in known[entry.name] if said.custom_title else ():
                yield Aside(identity, "title", said.custom_title, "custom-title.json", rank)


def _clears(home: Path, known: Mapping[str, Iterable[Identity]], report: Report) -> Iterator[Aside]:
    """history.jsonl: a `/clear` under the old id, then the first line of a new id in the same project.

    Another terminal may start a session between the two: its file does not begin with the command.
    """
    path = _projects(home).parent / "history.jsonl"
    sessions: set[str] = set()
    cleared: dict[str, str] = {}
    for typed in records_in(path, TypedPrompt, AGENT, report):
        if not typed.session_id:
            continue
        before = cleared.get(typed.project)
        new = typed.session_id not in sessions
        if new and before is not None and _may_begin_cleared(home, typed):
            del cleared[typed.project]
            for identity in known.get(typed.session_id, ()):
                yield Aside(identity, "cleared_from", before, "history.jsonl: /clear", 1)
        sessions.add(typed.session_id)
        if typed.display.strip().split(" ")[0] in CLEAR:
            cleared[typed.project] = typed.session_id


def _may_begin_cleared(home: Path, first: TypedPrompt) -> bool:
    """False where the session's file is there and does not begin with the command."""
    if not SESSION.match(first.session_id):
        return True
    slug = re.sub("[^A-Za-z0-9]", "-", first.project)
    try:
        with (_projects(home) / slug / f"{first.session_id}.jsonl").open("rb") as file:
            return CLEARED.search(file.read(CLEARED_WITHIN)) is not None
    except OSError:
        return True


def resume(identity: Identity, cwd: str | None) -> list[str] | None:
    """Claude finds a session only from its own folder; a sub-agent goes on in its parent alone."""
    return None if SUB_AGENT.match(identity.id) else ["claude", "--resume", identity.id]
