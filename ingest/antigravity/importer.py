"""Antigravity: the desktop app, its IDE and the `agy` CLI, each an instance folder below `~/.gemini`.

A conversation is a database, or logs below `brain/`, or both, which are merged by step; of the older encrypted files
only the frame is known. The same conversation may lie in several instances. Format: docs/formats/antigravity.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from prosa.ingest.antigravity import AGENT, places, store
from prosa.ingest.antigravity.steps import Step, step_of
from prosa.ingest.antigravity.store import Logs, Stored
from prosa.ingest.chunks import line_chunks
from prosa.ingest.document import DocumentFold
from prosa.ingest.folders import Folders, below_home, newest, quiet
from prosa.ingest.foreign_db import BrokenError, BusyError
from prosa.ingest.importer import Aside, FileStat, Fold, Identity, Raw, Report, Source, Trouble
from prosa.ingest.native import path_of
from prosa.ingest.protobuf import EMPTY, Message, WireError

__all__ = ["AGENT", "ASIDE_FILES", "HOMES", "PARSER", "asides", "fold", "homes", "raws", "resume", "sources"]

PARSER = "antigravity/1"
HOMES: tuple[str, ...] = ("~/.gemini/antigravity", "~/.gemini/antigravity-ide", "~/.gemini/antigravity-cli")
ASIDE_FILES: tuple[str, ...] = ("conversation_summaries.db", "conversation_summaries.db-wal")

NATIVE = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{7,63}\Z")
NO_INSTANCE = "antigravity-history"
"""An extension's cache."""
LOGS = (".system_generated", "logs")
FIRST_STEPS = 50
"""A conversation's first prompt stands among these."""


def homes(env: Mapping[str, str], user_home: Path) -> list[Path]:
    """`$ANTIGRAVITY_DATA_DIR`, else every instance there is."""
    named = env.get("ANTIGRAVITY_DATA_DIR")
    if named:
        return [below_home(named, user_home)]
    found = [user_home / ".gemini" / name for name in ("antigravity", "antigravity-ide", "antigravity-cli")]
    return [*found, *(place for place in _instances(user_home / ".gemini") if place not in found)]


def _instances(folder: Path) -> list[Path]:
    try:
        names = sorted(folder.glob("antigravity*"))
    except OSError:
        return []
    return [place for place in names if place.name != NO_INSTANCE and place.is_dir()]


def sources(home: Path, report: Report) -> Iterator[Source]:
    """One source for each conversation of an instance, of all its files; or of the instances in the folder."""
    home = home.absolute()
    if not (home / "conversations").exists() and not (home / "brain").exists():
        for instance in _instances(home):
            yield from _conversations(instance, report)
        return
    yield from _conversations(home, report)


def _conversations(instance: Path, report: Report) -> Iterator[Source]:
    folders = Folders(AGENT, report)
    names: set[str] = set()
    for entry in folders.entries(instance / "conversations"):
        stem, _, kind = entry.name.rpartition(".")
        if kind in ("db", "pb") and NATIVE.match(stem):
            names.add(stem)
    logs: dict[str, list[Path]] = {}
    for folder in folders.inside(instance / "brain"):
        if not NATIVE.match(folder.name):
            continue
        try:
            found = store.log_files(Path(folder).joinpath(*LOGS))
        except OSError as bad:
            report(Trouble(AGENT, folder.path, f"cannot be listed: {bad.strerror}"))
            continue
        if found:
            logs[folder.name] = found
    for name in sorted({*names, *logs}):
        base = instance / "conversations" / name
        files = folders.files((f"{base}.db", f"{base}.db-wal", f"{base}.pb", *logs.get(name, ())))
        if files and not files[0].path.endswith("-wal"):
            yield Source(AGENT, files[0].path, files, name, rank=newest(files))


# raws


class _Place(NamedTuple):
    """Where a conversation lies."""

    instance: Path
    native: str

    @property
    def database(self) -> Path:
        return self.instance / "conversations" / f"{self.native}.db"

    @property
    def encrypted(self) -> Path:
        return self.instance / "conversations" / f"{self.native}.pb"

    @property
    def brain(self) -> Path:
        return self.instance / "brain" / self.native


def _place(path: str, native: str | None) -> _Place:
    found = Path(path)
    if found.parent.name == "conversations":
        return _Place(found.parent.parent, native or found.stem)
    parts = found.parts
    brain = len(parts) - 1 - parts[::-1].index("brain")
    return _Place(Path(*parts[:brain]), native or parts[brain + 1])


def raws(source: Source, report: Report) -> Iterator[Raw]:
    place = _place(source.path, source.id)
    identity = Identity(AGENT, place.native)
    stored = Stored({}, [], None)
    head: dict[str, Any] = {}
    try:
        if place.database.is_file():
            stored = store.read_database(place.database)
    except BusyError as bad:
        report(Trouble(AGENT, str(place.database), str(bad), retry=True))
        return
    except (BrokenError, OSError) as bad:
        report(Trouble(AGENT, str(place.database), f"cannot be read: {bad}", isinstance(bad, FileNotFoundError)))
        head["broken"] = True
    logs = _logs(place, report)
    try:
        head["encrypted"] = not stored.rows and place.encrypted.is_file() and not store.is_blank(place.encrypted)
        if stored.rows or logs.lines:
            lines = list(store.lines_of(stored, logs, head | _hints(place, stored, logs)))
        elif head["encrypted"]:
            lines = [_encrypted(place)]
        else:
            if logs.malformed:
                report(Trouble(AGENT, str(place.brain), "not a transcript: no line of its logs can be read"))
            return
    except OSError as bad:
        report(Trouble(AGENT, source.path, f"cannot be read: {bad}", isinstance(bad, FileNotFoundError)))
        return
    yield Raw(identity, partial(line_chunks, lines), verbatim=False)


def _logs(place: _Place, report: Report) -> Logs:
    """All logs that can be read."""
    try:
        paths = store.log_files(place.brain.joinpath(*LOGS))
    except OSError:
        paths = []
    readable = []
    for path in paths:
        try:
            with path.open("rb"):
                readable.append(path)
        except OSError as bad:
            report(Trouble(AGENT, str(path), f"cannot be read: {bad.strerror}"))
    try:
        return store.read_logs(readable)
    except OSError as bad:
        report(Trouble(AGENT, str(place.brain), f"cannot be read: {bad.strerror}", retry=True))
        return Logs({}, 0, 0)


def _hints(place: _Place, stored: Stored, logs: Logs) -> dict[str, Any]:
    """What the files around the conversation say where its own do not: the folder, and at worst a time."""
    found: dict[str, Any] = {}
    try:
        blob = Message(stored.blob or b"")
    except WireError:
        blob = EMPTY
    if not any(row.get("metadata") for row in stored.rows.values()) and not logs.lines and 2 not in blob:
        found["mtime_ms"] = place.database.stat().st_mtime_ns // 1_000_000
    uri = next((workspace.text(1) for workspace in blob.messages(1)), None) or blob.text(7)
    if not (uri and path_of(uri)):
        found["cwd"] = _cwd(place, _first_prompt(stored, logs))
    return found


def _first_prompt(stored: Stored, logs: Logs) -> Step | None:
    for idx in sorted({*stored.rows, *logs.lines})[:FIRST_STEPS]:
        step = step_of({"idx": idx, "row": stored.rows.get(idx), "log": logs.lines.get(idx)})
        if step is not None and step.kind == "user" and step.text:
            return step
    return None


def _cwd(place: _Place, first: Step | None) -> str | None:
    """By the index, the prompt history, the client's log, the sidebar: the first that knows."""
    summary = _summaries(place.instance, quiet).get(place.native)
    if summary is not None and summary.cwd:
        return summary.cwd
    prompts = places.history(place.instance / "history.jsonl")
    found = places.place_in_history(prompts, place.native, first.text if first else None, first.at if first else None)
    if found is None:
        found = places.place_in_logs(place.instance, place.native)
    if found is None:
        found = _sidebar(place.instance).get(place.native, {}).get("cwd")
    return found


def _encrypted(place: _Place) -> bytes:
    row = _sidebar(place.instance).get(place.native, {})
    return store.encrypted_line(place.encrypted, store.artifacts_of(place.brain), row, _cwd(place, None))


def _summaries(instance: Path, report: Report) -> dict[str, places.Summary]:
    path = instance / "conversation_summaries.db"
    try:
        return places.summaries(path) if path.is_file() else {}
    except BusyError as bad:
        report(Trouble(AGENT, str(path), str(bad), retry=True))
    except (BrokenError, OSError) as bad:
        report(Trouble(AGENT, str(path), f"cannot be read: {bad}"))
    return {}


def _sidebar(instance: Path) -> dict[str, dict[str, Any]]:
    """The desktop app keeps its list beside its settings, not in the instance."""
    user = instance.parent.parent
    found: dict[str, dict[str, Any]] = {}
    for config in (user / ".config", user / "Library" / "Application Support"):
        path = config / "Antigravity" / "User" / "globalStorage" / "state.vscdb"
        if path.is_file():
            found |= places.sidebar(path)
    return found


def fold(identity: Identity, state: bytes | None = None) -> Fold:
    from prosa.ingest.antigravity.fold import read  # a sync with nothing new folds nothing

    return DocumentFold(partial(read, identity))


# asides


def asides(home: Path, known: Mapping[str, Iterable[Identity]], report: Report) -> Iterator[Aside]:
    """Titles, parents and folders by the index, by the sidebar, and by the calls that made a sub-agent."""
    home = home.absolute()
    instances = [home] if (home / "conversations").exists() or (home / "brain").exists() else _instances(home)
    for instance in instances:
        where = f"{instance.name}/conversation_summaries.db"
        summaries = _summaries(instance, report)
        for native, summary in sorted(summaries.items()):
            for identity in known.get(native, ()):
                if summary.title:
                    yield Aside(identity, "title", summary.title, where, rank=1)
                if summary.parent and summary.parent != native:
                    yield Aside(identity, "parent", summary.parent, where, rank=1)
                if summary.cwd:
                    yield Aside(identity, "cwd", summary.cwd, where, rank=-1)
        for native, row in sorted(_sidebar(instance).items()):
            for identity in known.get(native, ()):
                if row["title"]:
                    yield Aside(identity, "title", row["title"], "state.vscdb: trajectorySummaries", rank=-1)
        yield from _parents(instance, known, {native for native, one in summaries.items() if one.parent})


def _parents(instance: Path, known: Mapping[str, Iterable[Identity]], named: set[str]) -> Iterator[Aside]:
    """A sub-agent does not say who made it; the result of the call that did names it. The first to name it counts."""
    for source in _conversations(instance, quiet):
        if source.id is None or source.id not in known:
            continue
        for child, cwd in _children(source.path, source.id, source.files):
            if child in named or child == source.id:
                continue
            named.add(child)
            for identity in known.get(child, ()):
                yield Aside(identity, "parent", source.id, "result of invoke_subagent", rank=-1)
                if cwd:
                    yield Aside(identity, "cwd", cwd, "result of invoke_subagent", rank=-2)


@lru_cache(maxsize=4096)
def _children(path: str, native: str, files: tuple[FileStat, ...]) -> tuple[tuple[str, str | None], ...]:
    """The sub-agents of a conversation, remembered while its files stay as they are."""
    place = _place(path, native)
    found: dict[str, str | None] = {}
    with suppress(OSError):
        found |= store.children_in_logs(store.log_files(place.brain.joinpath(*LOGS)))
    with suppress(BusyError, BrokenError, OSError):
        if place.database.is_file():
            found |= store.children_in_database(place.database)
    return tuple(sorted(found.items()))


def resume(identity: Identity, cwd: str | None) -> list[str] | None:
    """`agy` goes on with a conversation from its database."""
    return ["agy", "--conversation", identity.id]
