"""Importer of OpenAI Codex: rollout files below `sessions/` and `archived_sessions/`.

A rollout may lie live, archived and compressed at once: three sources of one session, and only the highest rank is
read. The id is that of the file's first session_meta; `session_id` beside it names the root of a family of agents.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
import zstandard

from prosa.ingest.chunks import CHUNK
from prosa.ingest.codex import AGENT
from prosa.ingest.decoding import records_in
from prosa.ingest.folders import Folders, Place, below_home
from prosa.ingest.importer import Aside, FileStat, Fold, Identity, Raw, Report, Source, Trouble
from prosa.ingest.json_lines import REFUSED

__all__ = ["AGENT", "ASIDE_FILES", "HOMES", "PARSER", "asides", "fold", "homes", "raws", "resume", "sources"]

PARSER = "codex/1"
HOMES: tuple[str, ...] = ("~/.codex",)
ASIDE_FILES: tuple[str, ...] = ("session_index.jsonl",)

HEAD = 16 << 20
"""Most bytes read to find the first line; session_meta lines of 30 KB are ordinary."""

ROLLOUT = re.compile(r"rollout-.*?([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})?\.(jsonl|jsonl\.zst|json)$")
DOCUMENT_ID = re.compile(rb'"session"\s*:\s*\{[^{}]*?"id"\s*:\s*"([^"]+)"')
TREES = (("sessions", True), ("archived_sessions", False))
"""Folders below a home, and whether their rollouts are live."""


def homes(env: Mapping[str, str], user_home: Path) -> list[Path]:
    """`$CODEX_HOME`, else `~/.codex`; may not exist."""
    named = env.get("CODEX_HOME")
    return [below_home(named, user_home) if named else user_home / ".codex"]


def sources(home: Path, report: Report) -> Iterator[Source]:
    """Every rollout below a home, from names and stat alone. Links are followed, each folder and file once."""
    folders = Folders(AGENT, report)
    seen: set[tuple[int, int]] = set()
    for tree, live in TREES:
        for file in _files(folders, home / tree):
            found = ROLLOUT.fullmatch(Path(file.path).name)
            if found is None or (file.inode, file.mtime_ns) in seen:
                continue
            seen.add((file.inode, file.mtime_ns))
            packed = found[2] == "jsonl.zst"
            yield Source(AGENT, file.path, (file,), found[1], packed=packed, rank=_rank(file.size, live, packed))


def _rank(size: int, live: bool, packed: bool) -> int:
    """A plain file before a compressed one, the longer plain one first (corpus case archived-zst-and-index-titles)."""
    return (0 if packed else 2 + 2 * size) + live


def _files(folders: Folders, top: Path) -> Iterator[FileStat]:
    waiting: list[Place] = [top] if folders.enter(top) else []
    while waiting:
        below = []
        for entry in folders.entries(waiting.pop()):
            if folders.enter(entry):
                below.append(entry)
            elif (file := folders.file(entry)) is not None:
                yield file
        waiting.extend(reversed(below))


def raws(source: Source, report: Report) -> Iterator[Raw]:
    """The session of a rollout. An empty file is none yet."""
    try:
        head = _head(source)
    except (OSError, zstandard.ZstdError) as bad:
        # a client that compresses a cold rollout removes the plain file between listing and opening
        report(Trouble(AGENT, source.path, f"cannot read: {bad}", retry=isinstance(bad, FileNotFoundError)))
        return
    if not head.strip(b"\0\r\n\t "):
        return
    native = _first_id(head) or source.id
    if native is None:
        report(Trouble(AGENT, source.path, "not a transcript: no session id in its first line or its name"))
        return
    yield Raw(Identity(AGENT, native), lambda: _chunks(source, report))


def _first_id(head: bytes) -> str | None:
    """Id in the first record; None if that is no header (then the name of the file tells)."""
    from prosa.ingest.codex.records import line_of, recovered

    if head.lstrip().startswith(b"{\n") or head.lstrip().startswith(b"{\r\n"):
        document = DOCUMENT_ID.search(head)
        return document[1].decode("utf-8", "replace") if document else None
    for line in head.splitlines():
        if not line.strip(b"\0\r\t "):
            continue
        try:
            record = line_of(line)
        except REFUSED:
            records, _ = recovered(line)
            if not records:
                return None
            record = records[0][0]
        if record.type == "session_meta":
            return record.payload.id if record.payload is not None else None
        if record.session is not None and record.items is not None:
            return record.session.id
        return record.id if record.type is None else None
    return None


def _head(source: Source) -> bytes:
    """The bytes up to the end of the first line that is not blank."""
    head = b""
    for piece in _pieces(source):
        head += piece
        if b"\n" in head.lstrip(b"\0\r\n\t ") or len(head) >= HEAD:
            break
    return head


def _chunks(source: Source, report: Report) -> Iterator[bytes]:
    try:
        yield from _pieces(source)
    except zstandard.ZstdError as bad:
        report(Trouble(AGENT, source.path, f"damaged: {bad}; read up to there"))


def _pieces(source: Source) -> Iterator[bytes]:
    with Path(source.path).open("rb") as file:
        if not source.packed:
            while piece := file.read(CHUNK):
                yield piece
            return
        with zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as plain:
            while piece := plain.read(CHUNK):
                yield piece


def fold(identity: Identity, state: bytes | None = None) -> Fold:
    from prosa.ingest.codex import fold  # a sync with nothing new folds nothing

    return fold.Fold(identity, state)


class _Named(msgspec.Struct):
    """A line of session_index.jsonl."""

    id: str
    thread_name: str | None = None


def asides(home: Path, known: Mapping[str, Iterable[Identity]], report: Report) -> Iterator[Aside]:
    """Titles in session_index.jsonl: the last line of an id wins, ids without a rollout are stale."""
    names: dict[str, str | None] = {}
    for named in records_in(home / "session_index.jsonl", _Named, AGENT, report):
        if named.id in known:
            names[named.id] = named.thread_name
    for native, name in names.items():
        if name:
            for identity in known[native]:
                yield Aside(identity, "title", name, "session_index.jsonl: thread_name", rank=1)


def resume(identity: Identity, cwd: str | None) -> list[str] | None:
    """`codex resume <id>`, to be run in the session's own folder."""
    return ["codex", "resume", identity.id]
