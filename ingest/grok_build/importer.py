"""Importer of Grok Build: one folder a session below `~/.grok/sessions/<group>/`.

The id is the one inside summary.json: folders are moved. Who spawned a sub-agent stands only in the spawner's folder
(`subagents/<child>/meta.json`), so that file is a file of the child's source. Nothing else beside the transcript is
read: lock files, terminal logs, prompts of the client. Format facts: docs/formats/grok-build.md.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from stat import S_ISREG
from urllib.parse import unquote

import msgspec

from prosa.ingest.grok_build.fold import CHAT, SUMMARY, UPDATES, Fold
from prosa.ingest.grok_build.records import AGENT, Section, document, records, text_of
from prosa.ingest.importer import Aside, FileStat, Identity, Raw, Report, Source, Trouble

__all__ = ["AGENT", "ASIDE_FILES", "HOMES", "PARSER", "Fold", "asides", "fold", "homes", "raws", "resume", "sources"]

PARSER = "grok-build/1"
HOMES: tuple[str, ...] = ("~/.grok",)
ASIDE_FILES: tuple[str, ...] = ()

SESSION = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.IGNORECASE)
ABSOLUTE = re.compile(r"/|[A-Za-z]:[\\/]|\\\\")
CHUNK = 1 << 20
SMALL = 4 << 20
"""A summary or meta.json above this size is none."""
TURNS = re.compile(rb'"sessionUpdate"\s*:\s*"(?:user_message_chunk|agent_message_chunk|agent_thought_chunk|tool_call)')
SHORT = 64 << 10
"""Logs up to this size are folded before they are handed out, to see whether there is a session in them."""


def homes(env: Mapping[str, str], user_home: Path) -> list[Path]:
    """`$GROK_HOME`, else `~/.grok`; may not exist."""
    named = env.get("GROK_HOME", "").strip()
    if named.startswith("~/"):
        return [user_home / named[2:]]
    return [Path(named) if named else user_home / ".grok"]


def sources(home: Path, report: Report) -> Iterator[Source]:
    """One for each session folder that has a transcript. All folders are listed before the first is handed out."""
    seen: set[tuple[int, int]] = set()
    found: list[tuple[str, str, list[FileStat]]] = []
    metas: dict[str, list[FileStat]] = defaultdict(list)
    for group in _entries(_sessions(home), report):
        if not _enter(group, seen, report):
            continue
        cwd = _stat(f"{group.path}/.cwd", report)
        for entry in _entries(group.path, report):
            if not (SESSION.match(entry.name) and _enter(entry, seen, report)):
                continue
            files = [file for name in (UPDATES, CHAT) for file in _stat(f"{entry.path}/{name}", report)]
            if any(file.size for file in files):
                found.append((entry.path, entry.name, [*files, *_stat(f"{entry.path}/{SUMMARY}", report), *cwd]))
            for child in _entries(f"{entry.path}/subagents", report):
                if SESSION.match(child.name):
                    metas[child.name] += _stat(f"{child.path}/meta.json", report)
    for path, name, files in found:
        yield Source(AGENT, path, tuple(files + sorted(metas.get(name, ()), key=lambda file: file.path)), name)


def _sessions(home: Path) -> str:
    home = home.absolute()
    below = home / "sessions"
    return str(below if home.name != "sessions" or below.is_dir() else home)


def _entries(folder: str, report: Report) -> list[os.DirEntry[str]]:
    """A folder's entries by name, links last: what a link and a folder both reach is known by the folder."""
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: (entry.is_symlink(), entry.name))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError) as bad:
        report(Trouble(AGENT, folder, f"cannot be listed: {_why(bad)}"))
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
        report(Trouble(AGENT, entry.path, f"cannot be entered: {_why(bad)}"))
        return False
    place = (found.st_dev, found.st_ino)
    if place in seen:
        return False
    seen.add(place)
    return True


def _stat(path: str, report: Report) -> list[FileStat]:
    """The stat of a regular file; nothing if it is not there."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as bad:
        report(Trouble(AGENT, path, f"cannot be read: {_why(bad)}"))
        return []
    if not S_ISREG(found.st_mode):
        report(Trouble(AGENT, path, "not a file"))
        return []
    return [FileStat(path, found.st_size, found.st_mtime_ns, found.st_ino)]


def _why(bad: Exception) -> str:
    return getattr(bad, "strerror", None) or str(bad)


def raws(source: Source, report: Report) -> Iterator[Raw]:
    """The session of a folder; none where neither log holds a prompt or an answer."""
    folder = Path(source.path)
    logs = [file.path for file in source.files if file.path in (str(folder / UPDATES), str(folder / CHAT))]
    heads, id_ = _heads(source, folder, report)
    updates = str(folder / UPDATES)
    try:
        if id_ is None and updates in logs:
            id_ = _session_id(updates)
        turns = updates in logs and _has_turns(updates)
        inherited = _inherited(folder, heads[0]) if turns else 0
        identity = Identity(AGENT, id_ or source.id or folder.name)
        sections = [Section(file=Path(path).name, inherited=inherited if path == updates else 0) for path in logs]
        chunks = partial(_chunks, heads, list(zip(logs, sections, strict=True)))
        size = sum(file.size for file in source.files if file.path in logs)
        if (not turns or size <= SHORT) and not _speaks(identity, chunks()):
            return
    except OSError as bad:
        retry = isinstance(bad, FileNotFoundError)
        report(Trouble(AGENT, bad.filename or source.path, f"cannot be read: {_why(bad)}", retry=retry))
        return
    yield Raw(identity, chunks, verbatim=False, surface="main" if turns else "chat")


def _heads(source: Source, folder: Path, report: Report) -> tuple[list[Section], str | None]:
    """The small files, summary first, and the id that the summary states."""
    names = {file.path for file in source.files}
    text = _small(folder / SUMMARY, report) if str(folder / SUMMARY) in names else None
    summary = document(text.encode()) if text is not None else None
    if text is not None and summary is None:
        report(Trouble(AGENT, str(folder / SUMMARY), "not JSON: read without it"))
    info = (summary or {}).get("info")
    id_ = text_of(info, "id") if isinstance(info, dict) else None
    if id_ is not None and not SESSION.match(id_):
        id_ = None
    cwd = _group_cwd(folder.parent, names, report)
    heads = [Section(file=SUMMARY, text=text, group=_utf8(folder.parent.name), group_cwd=cwd)]
    for file in source.files:
        path = Path(file.path)
        if path.name != "meta.json":
            continue
        said = _small(path, report)
        meta = document(said.encode()) if said is not None else None
        if meta is None:
            report(Trouble(AGENT, file.path, "not JSON: left out"))
        elif text_of(meta, "child_session_id") in (None, id_, source.id):
            heads.append(Section(file=f"subagents/{path.parent.name}/meta.json", text=said))
    return heads, id_


def _utf8(name: str) -> str:
    return name.encode("utf-8", "replace").decode()


def _small(path: Path, report: Report) -> str | None:
    try:
        with path.open("rb") as file:
            data = file.read(SMALL + 1)
    except FileNotFoundError:
        return None
    except OSError as bad:
        report(Trouble(AGENT, str(path), f"cannot be read: {_why(bad)}"))
        return None
    return data.decode("utf-8", "replace") if len(data) <= SMALL else ""


def _group_cwd(group: Path, names: set[str], report: Report) -> str | None:
    """The directory that a group stands for: `.cwd` in it, else its name where that is a path and no slug."""
    if str(group / ".cwd") in names:
        said = (_small(group / ".cwd", report) or "").strip()
        if ABSOLUTE.match(said):
            return said
    named = unquote(_utf8(group.name))
    return named if "%" in group.name and ABSOLUTE.match(named) and "\0" not in named else None


def _session_id(updates: str) -> str | None:
    """The session that the log's first record says it is of: a fork rewrites that in what it copies."""
    for line in _first_lines(updates):
        for record in records(line)[0]:
            params = record.params or record
            if params.session_id and SESSION.match(params.session_id):
                return params.session_id
    return None


def _first_lines(path: str) -> list[bytes]:
    with Path(path).open("rb") as file:
        return file.read(CHUNK).split(b"\n")[:8]


def _has_turns(updates: str) -> bool:
    """Whether the log holds any turn; mostly the first line says so."""
    tail = b""
    for data in _pieces(updates):
        if TURNS.search(tail + data):
            return True
        tail = data[-64:]
    return False


def _speaks(identity: Identity, pieces: Iterable[bytes]) -> bool:
    """Whether there is a prompt, an answer, a call or a token in it: a chat that was only opened is no session."""
    folding = Fold(identity)
    for data in pieces:
        folding.feed(data)
        facts = folding.take()
        if facts.usage or any(turn.counted for turn in facts.turns):
            return True
    return False


def _inherited(folder: Path, head: Section) -> int:
    """How many leading lines of a fork stand in its parent too, where the client wrote no eventId to tell."""
    summary = document((head.text or "").encode()) or {}
    parent = text_of(summary, "parent_session_id")
    if parent is None or not SESSION.match(parent):
        return 0
    updates = folder / UPDATES
    if any(b'"eventId"' in line for line in _first_lines(str(updates))):
        return 0
    count = 0
    for other in sorted(folder.parent.parent.glob(f"*/{parent}/{UPDATES}")):
        if not other.is_file():
            continue
        with updates.open("rb") as own, other.open("rb") as theirs:
            same = 0
            for line, copied in zip(_said(own), _said(theirs), strict=False):
                if line != copied:
                    break
                same += 1
        count = max(count, same)
    return count


class _Bare(msgspec.Struct):
    update: msgspec.Raw = msgspec.Raw(b"")
    params: _Bare | None = None


def _said(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The update of each line, as it stands there."""
    decode = msgspec.json.Decoder(_Bare).decode
    for line in lines:
        try:
            bare = decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
        yield bytes((bare.params or bare).update)


def _chunks(heads: list[Section], logs: list[tuple[str, Section]]) -> Iterator[bytes]:
    """The small files as text on a line each; each log as it is, below a line that names it."""
    for section in heads:
        line = _line(section)
        for place in range(0, len(line), CHUNK):
            yield line[place : place + CHUNK]
    for path, section in logs:
        yield _line(section)
        last = b"\n"
        for data in _pieces(path):
            yield data
            last = data[-1:]
        if last != b"\n":
            yield b"\n"


def _line(section: Section) -> bytes:
    return msgspec.json.encode(section) + b"\n"


def _pieces(path: str) -> Iterator[bytes]:
    with Path(path).open("rb", buffering=0) as file:
        while data := file.read(CHUNK):
            yield data


def fold(identity: Identity, state: bytes | None = None) -> Fold:
    """A new fold; this agent's have no saved state."""
    return Fold(identity, state)


def asides(home: Path, known: Mapping[str, Iterable[Identity]], report: Report) -> Iterator[Aside]:
    """None: no shared file says more about a session than its own folder."""
    return iter(())


def resume(identity: Identity, cwd: str | None) -> list[str] | None:
    """`grok --resume <id>`, to be run in the session's own folder."""
    return ["grok", "--resume", identity.id]
