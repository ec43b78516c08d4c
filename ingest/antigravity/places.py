"""What the files around an Antigravity conversation say about it: its title, its parent, the folder it works in.

The index and the desktop list know titles; the folder stands in five places, and none has it for every conversation.
"""

from __future__ import annotations

import os
import re
from base64 import b64decode
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from prosa.ingest import foreign_db
from prosa.ingest.foreign_db import BrokenError, BusyError
from prosa.ingest.json_lines import plain
from prosa.ingest.native import json_value, path_of
from prosa.ingest.protobuf import EMPTY, Message

if TYPE_CHECKING:
    import sqlite3

TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"
SUMMARY_COLUMNS = ("conversation_id", "title", "workspace_uris", "parent_conversation_id")
SIDEBAR_KEY = "antigravityUnifiedStateSync.trajectorySummaries"
SIDEBAR = "SELECT value FROM ItemTable WHERE key = ?"
SAME_PROMPT_US = 60_000_000
CREATED = re.compile(rb"Created conversation ([0-9a-fA-F-]{32,36})")
PROJECT = re.compile(rb"Conversation using project ID: ([0-9A-Za-z_-]{1,80})")


class Summary(NamedTuple):
    """A row of the index beside the conversations."""

    title: str | None
    cwd: str | None
    parent: str | None


def summaries(path: Path) -> dict[str, Summary]:
    """The index of conversations, by id. Raises BusyError, BrokenError, OSError."""

    def look(db: sqlite3.Connection) -> dict[str, Summary]:
        here = {row[1] for row in db.execute("PRAGMA table_info(conversation_summaries)")}
        if "conversation_id" not in here:
            return {}
        names = [name if name in here else "NULL" for name in SUMMARY_COLUMNS]
        rows = db.execute(f"SELECT {', '.join(names)} FROM conversation_summaries")
        return {
            native: Summary(_text(title), _first_uri(uris), _text(parent))
            for native, title, uris, parent in rows
            if isinstance(native, str)
        }

    return foreign_db.read(path, look)


def _text(value: object) -> str | None:
    return plain(value).strip() or None if isinstance(value, str) else None


def _first_uri(value: object) -> str | None:
    try:
        uris = json_value(value) if isinstance(value, str) else []
    except (ValueError, RecursionError):
        return None
    return path_of(uris[0]) if isinstance(uris, list) and uris and isinstance(uris[0], str) else None


def sidebar(path: Path) -> dict[str, dict[str, Any]]:
    """Title, folder and times of the desktop app's list, by conversation; empty where it cannot be read."""

    def look(db: sqlite3.Connection) -> object:
        if ("ItemTable",) not in db.execute(TABLES).fetchall():
            return None
        row = db.execute(SIDEBAR, (SIDEBAR_KEY,)).fetchone()
        return row[0] if row else None

    try:
        value = foreign_db.read(path, look)
        index = Message(b64decode(value if isinstance(value, str | bytes) else b""))
    except (OSError, BusyError, BrokenError, ValueError):
        return {}
    found: dict[str, dict[str, Any]] = {}
    for entry in index.messages(1):
        native, data = entry.text(1), entry.message(2).blobs(1)
        try:
            row = Message(b64decode(data[-1])) if data else EMPTY
        except ValueError:
            continue
        if native:
            found[native] = _sidebar_row(row)
    return found


def _sidebar_row(row: Message) -> dict[str, Any]:
    """Fields 3, 7 and 10 are times; which is which differs between readers, so only the first and last of all count."""
    times = [
        seconds * 1000 + min(message.number(2) or 0, 999_999_999) // 1_000_000
        for message in (row.message(3), row.message(7), row.message(10))
        if (seconds := message.number(1)) and seconds < 1 << 40
    ]
    uri = row.message(9).text(1)
    return {"title": row.text(1), "cwd": path_of(uri) if uri else None, "times_ms": times}


class Prompts(NamedTuple):
    """history.jsonl: what was typed, and in which folder."""

    by_id: dict[str, str]
    loose: list[tuple[str, int, str]]
    """Text, time and folder of rows that name no conversation: the first prompt of each."""


def history(path: Path) -> Prompts:
    by_id: dict[str, str] = {}
    loose: list[tuple[str, int, str]] = []
    try:
        lines = path.read_bytes().split(b"\n") if path.is_file() else []
    except OSError:
        lines = []
    for line in lines:
        try:
            said = json_value(line) if line.strip() else None
        except (ValueError, RecursionError):
            continue
        if not isinstance(said, dict) or not isinstance(said.get("workspace"), str):
            continue
        cwd = path_of(said["workspace"])
        native, text, at = said.get("conversationId"), said.get("display"), said.get("timestamp")
        if cwd is None:
            continue
        if isinstance(native, str) and native:
            by_id.setdefault(native, plain(cwd))
        elif isinstance(text, str) and isinstance(at, int | float) and 0 <= at < 1 << 53:
            loose.append((" ".join(plain(text).split()), int(at) * 1000, plain(cwd)))
    return Prompts(by_id, loose)


def place_in_history(prompts: Prompts, native: str, prompt: str | None, at: int | None) -> str | None:
    """The folder a conversation was begun in, as its prompts say it."""
    if native in prompts.by_id:
        return prompts.by_id[native]
    if not prompt or at is None:
        return None
    text = " ".join(prompt.split())
    near = {cwd for said, when, cwd in prompts.loose if said == text and abs(when - at) <= SAME_PROMPT_US}
    return next(iter(near)) if len(near) == 1 else None


def place_in_logs(instance: Path, native: str) -> str | None:
    """The folder of the project that the client's own log names for a conversation it created."""
    try:
        with os.scandir(instance / "log") as entries:
            logs = {one.path: one.stat() for one in entries if one.name.startswith("cli-") and one.is_file()}
    except OSError:
        return None
    for path, stat in sorted(logs.items(), reverse=True, key=lambda one: one[0]):
        project = _created_in(path, stat.st_size, stat.st_mtime_ns).get(native)
        if project is not None:
            return _project_folder(instance.parent / "config" / "projects" / f"{project}.json")
    return None


@lru_cache(maxsize=4096)
def _created_in(path: str, size: int, mtime_ns: int) -> dict[str, str]:
    """Conversations that a log created, with their project; remembered while the file stays as it is."""
    found: dict[str, str] = {}
    project: bytes | None = None
    try:
        with Path(path).open("rb") as file:
            for line in file:
                if named := PROJECT.search(line):
                    project = named[1]
                elif project is not None and (created := CREATED.search(line)):
                    found.setdefault(created[1].decode(), project.decode())
    except OSError:
        return {}
    return found


def _project_folder(path: Path) -> str | None:
    said = json_file(path)
    resources = said.get("projectResources")
    listed = resources.get("resources") if isinstance(resources, dict) else None
    for resource in listed if isinstance(listed, list) else ():
        for value in resource.values() if isinstance(resource, dict) else ():
            uri = value.get("folderUri") if isinstance(value, dict) else None
            if isinstance(uri, str) and (folder := path_of(uri)):
                return plain(folder)
    return None


def json_file(path: Path) -> dict[str, Any]:
    try:
        said = json_value(path.read_bytes()) if path.is_file() else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
