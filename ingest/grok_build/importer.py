"""Importer of Grok Build: one folder a session below `~/.grok/sessions/<group>/`.

The id is the one inside summary.json: folders are moved. Who spawned a sub-agent stands only in the spawner's folder
(`subagents/<child>/meta.json`), so that file is a file of the child's source. Nothing else beside the transcript is
read: lock files, terminal logs, prompts of the client. Format facts: docs/formats/grok-build.md.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import msgspec

from prosa.ingest.chunks import CHUNK, file_chunks, line_chunks
from prosa.ingest.folders import Folders, below_home
from prosa.ingest.grok_build import AGENT
from prosa.ingest.grok_build.records import CHAT, SUMMARY, UPDATES, Section, document, records, text_of
from prosa.ingest.importer import Aside, FileStat, Fold, Identity, Raw, Report, Source, Trouble
from prosa.ingest.json_lines import REFUSED

__all__ = ["AGENT", "ASIDE_FILES", "HOMES", "PARSER", "asides", "fold", "homes", "raws", "resume", "sources"]

PARSER = "grok-build/1"
HOMES: tuple[str, ...] = ("~/.grok",)
ASIDE_FILES: tuple[str, ...] = ()

SESSION = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.IGNORECASE)
ABSOLUTE = re.compile(r"/|[A-Za-z]:[\\/]|\\\\")
SMALL = 4 << 20
"""A summary or meta.json above this size is none."""
TURNS = re.compile(rb'"sessionUpdate"\s*:\s*"(?:user_message_chunk|agent_message_chunk|agent_thought_chunk|tool_call)')
SHORT = 64 << 10
"""Logs up to this size are folded before they are handed out, to see whether there is a session in them."""


def homes(env: Mapping[str, str], user_home: Path) -> list[Path]:
    """`$GROK_HOME`, else `~/.grok`; may not exist."""
    named = env.get("GROK_HOME", "").strip()
    return [below_home(named, user_home) if named else user_home / ".grok"]


def sources(home: Path, report: Report) -> Iterator[Source]:
    """One for each session folder that has a transcript. All folders are listed before the first is handed out."""
    folders = Folders(AGENT, report)
    found: list[tuple[str, str, tuple[FileStat, ...]]] = []
    metas: dict[str, list[FileStat]] = defaultdict(list)
    for group in folders.inside(_sessions(home)):
        cwd = folders.files([f"{group.path}/.cwd"])
        for entry in folders.entries(group):
            if not (SESSION.match(entry.name) and folders.enter(entry)):
                continue
            files = folders.files(f"{entry.path}/{name}" for name in (UPDATES, CHAT))
            if any(file.size for file in files):
                found.append((entry.path, entry.name, (*files, *folders.files([f"{entry.path}/{SUMMARY}"]), *cwd)))
            for child in folders.entries(f"{entry.path}/subagents"):
                if SESSION.match(child.name):
                    metas[child.name] += folders.files([f"{child.path}/meta.json"])
    for path, name, files in found:
        yield Source(AGENT, path, (*files, *sorted(metas.get(name, ()), key=lambda file: file.path)), name)


def _sessions(home: Path) -> str:
    home = home.absolute()
    below = home / "sessions"
    return str(below if home.name != "sessions" or below.is_dir() else home)


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
    metas = [path for file in source.files if (path := Path(file.path)).name == "meta.json"]
    if id_ not in (None, source.id):
        # a moved folder: the spawner knows the session by its id
        metas += sorted(folder.parent.parent.glob(f"*/*/subagents/{id_}/meta.json"))
    for path in metas:
        said = _small(path, report)
        meta = document(said.encode()) if said is not None else None
        if meta is None:
            report(Trouble(AGENT, str(path), "not JSON: left out"))
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
    for data in file_chunks(updates):
        if TURNS.search(tail + data):
            return True
        tail = data[-64:]
    return False


def _speaks(identity: Identity, pieces: Iterable[bytes]) -> bool:
    """Whether there is a prompt, an answer, a call or a token in it: a chat that was only opened is no session."""
    folding = fold(identity)
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
        except REFUSED:
            continue
        yield bytes((bare.params or bare).update)


def _chunks(heads: list[Section], logs: list[tuple[str, Section]]) -> Iterator[bytes]:
    """The small files as text on a line each; each log as it is, below a line that names it."""
    for section in heads:
        yield from line_chunks([_line(section)])
    for path, section in logs:
        yield _line(section)
        last = b"\n"
        for data in file_chunks(path):
            yield data
            last = data[-1:]
        if last != b"\n":
            yield b"\n"


def _line(section: Section) -> bytes:
    return msgspec.json.encode(section) + b"\n"


def fold(identity: Identity, state: bytes | None = None) -> Fold:
    from prosa.ingest.grok_build import fold  # a sync with nothing new folds nothing

    return fold.Fold(identity, state)


def asides(home: Path, known: Mapping[str, Iterable[Identity]], report: Report) -> Iterator[Aside]:
    """None: no shared file says more about a session than its own folder."""
    return iter(())


def resume(identity: Identity, cwd: str | None) -> list[str] | None:
    """`grok --resume <id>`, to be run in the session's own folder."""
    return ["grok", "--resume", identity.id]
