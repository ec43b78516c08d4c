"""Cursor's IDE chats: rows of `globalStorage/state.vscdb`, which can be larger than memory and holds secrets.

A chat is a `composerData:<id>` row and the `bubbleId:<id>:<bubble>` rows it lists; bubbles it does not list were
retracted. Composer rows carry encryption keys, other rows carry tokens: what is taken from a row is listed here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from prosa.events.facts import Role
from prosa.ingest import foreign_db
from prosa.ingest.clock import from_number, parse_iso
from prosa.ingest.cursor.prompts import Entry, prompt_of
from prosa.ingest.foreign_db import BrokenError, BusyError
from prosa.ingest.json_lines import plain, plain_value
from prosa.ingest.native import json_value, native_id, path_of, readable
from prosa.ingest.spool import Database

if TYPE_CHECKING:
    import sqlite3

COMPOSER_FIELDS = (
    "composerId", "name", "createdAt", "lastUpdatedAt", "unifiedMode", "forceMode", "status", "modelConfig",
    "subagentInfo", "subagentComposerIds", "workspaceIdentifier", "fullConversationHeadersOnly", "_v",
)  # fmt: skip
BUBBLE_FIELDS = (
    "bubbleId", "type", "text", "createdAt", "thinking", "toolFormerData", "modelInfo", "tokenCount", "timingInfo",
    "images", "isSimulated", "_v",
)  # fmt: skip
TOOL_FIELDS = (
    "tool",
    "name",
    "status",
    "params",
    "rawArgs",
    "result",
    "error",
    "toolCallId",
    "modelCallId",
    "userDecision",
)
INNER_FIELDS = {
    "modelConfig": ("modelName",),
    "subagentInfo": ("parentComposerId", "subagentType", "toolCallId"),
    "thinking": ("text",),
    "toolFormerData": TOOL_FIELDS,
    "modelInfo": ("modelName",),
    "tokenCount": ("inputTokens", "outputTokens"),
    "timingInfo": ("clientStartTime", "clientRpcSendTime", "clientSettleTime", "clientEndTime"),
}
HAS_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
COMPOSERS = "SELECT key FROM cursorDiskKV WHERE key >= 'composerData:' AND key < 'composerData;' ORDER BY key"
VALUE = "SELECT value FROM cursorDiskKV WHERE key = ?"
HEADERS = "SELECT composerId, workspaceId, isSubagent, value FROM composerHeaders"
NAMING = """
SELECT value FROM cursorDiskKV WHERE key >= 'composerData:' AND key < 'composerData;'
    AND instr(value, ?) AND instr(value, 'subagentComposerIds') ORDER BY key"""
ALL_COMPOSERS = "SELECT value FROM ItemTable WHERE key = 'composer.composerData'"
MISSING: dict[str, Any] = {}


class Places:
    """Which folder a chat belongs to, as the other rows and the workspaces' own databases say."""

    def __init__(self, user: Path) -> None:
        self._user = user
        self._listed: dict[str, str] | None = None

    def of_workspace(self, workspace: object) -> str | None:
        """The folder of a workspace, by the name of its storage."""
        if not isinstance(workspace, str) or not workspace or "/" in workspace or "\0" in workspace:
            return None
        path = self._user / "workspaceStorage" / workspace / "workspace.json"
        try:
            said = json_value(path.read_bytes()) if path.is_file() else None
        except (OSError, ValueError, RecursionError):
            return None
        folder = said.get("folder") if isinstance(said, dict) else None
        return path_of(folder) if isinstance(folder, str) else None

    def of_composer(self, composer: str) -> str | None:
        """The folder of the workspace whose list has this chat (before 3.0)."""
        if self._listed is None:
            self._listed = {}
            for name in self._workspaces():
                for other in self._composers(name):
                    self._listed.setdefault(other, name)
        return self.of_workspace(self._listed.get(composer))

    def _workspaces(self) -> list[str]:
        try:
            with os.scandir(self._user / "workspaceStorage") as entries:
                return sorted(entry.name for entry in entries)
        except OSError:
            return []

    def _composers(self, workspace: str) -> list[str]:
        def look(db: sqlite3.Connection) -> object:
            if db.execute(HAS_TABLE, ("ItemTable",)).fetchone() is None:
                return None
            row = db.execute(ALL_COMPOSERS).fetchone()
            return row[0] if row else None

        path = self._user / "workspaceStorage" / workspace / "state.vscdb"
        try:
            said = _decoded(foreign_db.read(path, look)) if path.is_file() else {}
        except (OSError, BusyError, BrokenError):
            return []
        composers = said.get("allComposers")
        found = [one.get("composerId") for one in _list(composers) if isinstance(one, dict)]
        return [one for one in found if isinstance(one, str)]


def chats(path: Path) -> dict[str, dict[str, Any]]:
    """The chats of a database by id, each with its row of the header table. Raises BusyError, BrokenError, OSError."""

    def look(db: sqlite3.Connection) -> dict[str, dict[str, Any]]:
        if db.execute(HAS_TABLE, ("cursorDiskKV",)).fetchone() is None:
            return {}
        keys = [key.split(":", 1)[1] for (key,) in db.execute(COMPOSERS) if isinstance(key, str)]
        headers = _headers(db)
        return {key: headers.get(key, MISSING) for key in keys if native_id(key)}

    return foreign_db.read(path, look)


def _headers(db: sqlite3.Connection) -> dict[str, dict[str, Any]]:
    columns = {row[1] for row in db.execute("PRAGMA table_info(composerHeaders)")}
    if not {"composerId", "workspaceId", "isSubagent", "value"} <= columns:
        return {}
    return {
        composer: {"workspace": workspace, "sub": sub, "value": _decoded(value)}
        for composer, workspace, sub, value in db.execute(HEADERS)
        if isinstance(composer, str)
    }


def lines_of(db: Database, composer: str, header: dict[str, Any], places: Places) -> Iterator[bytes]:
    """The canonical raw of a chat; nothing for a draft and for a row that cannot be decoded."""
    said = _decoded(_value(db, f"composerData:{composer}"))
    is_empty = True
    for bubble in _listed(db, composer, said):
        is_empty = False
        yield msgspec.json.encode({"bubble": bubble}, order="sorted") + b"\n"
    if is_empty:
        return
    head = {
        "cursor": "ide/1",
        "composer": _allowed(said, COMPOSER_FIELDS),
        "parent": _parent(db, composer, said, header),
        "cwd": _cwd(composer, said, header, places),
    }
    yield msgspec.json.encode(head, order="sorted") + b"\n"


def _parent(db: sqlite3.Connection, composer: str, said: dict[str, Any], header: dict[str, Any]) -> str | None:
    """The chat that names this one among its sub-agents; looked for where the chat itself is known to be one."""
    info = said.get("subagentInfo")
    named = native_id(info.get("parentComposerId")) if isinstance(info, dict) else None
    if named is not None or not (isinstance(info, dict) or header.get("sub") == 1):
        return named
    for (value,) in db.execute(NAMING, (composer,)):
        other = _decoded(value)
        if composer in _list(other.get("subagentComposerIds")) and other.get("composerId") != composer:
            return native_id(other.get("composerId"))
    return None


def _listed(db: sqlite3.Connection, composer: str, said: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The bubbles of a chat in its own order; rows of 2024 have them inside."""
    for bubble in _list(said.get("conversation")):
        if isinstance(bubble, dict):
            yield _allowed(bubble, BUBBLE_FIELDS)
    seen: set[str] = set()
    for header in _list(said.get("fullConversationHeadersOnly")):
        name = header.get("bubbleId") if isinstance(header, dict) else None
        if not isinstance(name, str) or name in seen:
            continue
        seen.add(name)
        bubble = _decoded(_value(db, f"bubbleId:{composer}:{name}"))
        if bubble:
            yield _allowed({"type": header.get("type"), **bubble, "bubbleId": name}, BUBBLE_FIELDS)


def _value(db: sqlite3.Connection, key: str) -> object:
    row = db.execute(VALUE, (key.encode("utf-8", "replace").decode(),)).fetchone()
    return row[0] if row else None


def _decoded(value: object) -> dict[str, Any]:
    if isinstance(value, str | bytes) and value:
        try:
            said = json_value(value)
        except (ValueError, RecursionError):
            return {}
        if isinstance(said, dict):
            return said
    return {}


def _allowed(said: dict[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    """The known fields of a row, inside the known ones too."""
    found: dict[str, Any] = {}
    for name in fields:
        value = said.get(name)
        match name:
            case "fullConversationHeadersOnly":
                value = [one.get("bubbleId") for one in _list(value) if isinstance(one, dict)]
            case "subagentComposerIds":
                value = [one for one in _list(value) if isinstance(one, str)]
            case "workspaceIdentifier":
                value = _uri(value)
            case "images":
                value = len(_list(value))
            case _ if name in INNER_FIELDS:
                value = _allowed(value, INNER_FIELDS[name]) if isinstance(value, dict) else None
            case _ if fields is not TOOL_FIELDS and isinstance(value, dict | list):
                value = None
        if value:
            found[name] = _sound(plain_value(value))
    return found


def _sound(value: Any) -> Any:
    """Without numbers that no JSON reader takes."""
    if isinstance(value, dict):
        return {name: _sound(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_sound(inner) for inner in value]
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return float(value) if abs(value) < 1 << 1000 else None
    return value


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _uri(identifier: object) -> str | None:
    uri = identifier.get("uri") if isinstance(identifier, dict) else None
    path = uri.get("fsPath") or uri.get("path") if isinstance(uri, dict) else uri
    return path if isinstance(path, str) and path else None


def _cwd(composer: str, said: dict[str, Any], header: dict[str, Any], places: Places) -> str | None:
    named = _uri(said.get("workspaceIdentifier")) or _uri(header.get("value", {}).get("workspaceIdentifier"))
    if named:
        return plain(named)
    found = places.of_workspace(header.get("workspace"))
    return found or places.of_composer(composer)


# reading the raw


def entry_of(bubble: dict[str, Any]) -> list[Entry]:
    """What a bubble says: a prompt, a thought, a text or a tool."""
    native = native_id(bubble.get("bubbleId")) or ""
    at = time_of(bubble)
    model = _inner_text(bubble, "modelInfo", "modelName")
    text = bubble.get("text")
    text = text if isinstance(text, str) and text.strip() else ""
    if bubble.get("type") == 1:
        if not text:
            images = bubble.get("images")
            text = "[image]" if isinstance(images, int) and images > 0 else ""
        if not text:
            return []
        prompt = prompt_of(text)
        counted = prompt.counted and bubble.get("isSimulated") is not True
        role: Role = "user" if prompt.counted else "system"
        return [Entry("message", role, prompt.text, native, counted=counted, at=at)]
    entries: list[Entry] = []
    thought = _inner_text(bubble, "thinking", "text")
    if thought and thought.strip():
        entries.append(Entry("thinking", "assistant", thought, native, at=at, model=model))
    if text:
        entries.append(Entry("message", "assistant", text, native, at=at, model=model))
    tool = bubble.get("toolFormerData")
    if isinstance(tool, dict):
        entries += _tool(tool, native, at, model)
    return entries


def _tool(tool: dict[str, Any], native: str, at: int | None, model: str | None) -> list[Entry]:
    name, call = tool.get("name"), tool.get("toolCallId")
    name = name if isinstance(name, str) and name else None
    call = call if isinstance(call, str) and call else None
    if name is None and call is None and not tool.get("result"):
        return []
    failed = tool.get("status") == "error"
    result = [tool[field] for field in ("result", "error") if tool.get(field) not in (None, "")]
    asked = _value_text(tool.get("params")) or _value_text(tool.get("rawArgs"))
    answered = bool(result)
    entries = [Entry("tool_call", "assistant", asked, native, name, call, failed and not answered, True, at, model)]
    if answered:
        text = "\n".join(filter(None, map(_value_text, result)))
        entries.append(Entry("tool_result", "tool", text, native, name, call, failed, True, at))
    return entries


def _value_text(value: object) -> str:
    """JSON inside a string, as most of these fields are, or the string itself."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            value = json_value(value)
        except (ValueError, RecursionError):
            return value if isinstance(value, str) else ""
    return readable(value)


def _inner_text(bubble: dict[str, Any], outer: str, name: str) -> str | None:
    inner = bubble.get(outer)
    value = inner.get(name) if isinstance(inner, dict) else None
    return value if isinstance(value, str) and value else None


def time_of(bubble: dict[str, Any]) -> int | None:
    """When a bubble was made; old ones only know when the answer ended."""
    created = bubble.get("createdAt")
    at = parse_iso(created) or from_number(created)
    if at is None and isinstance(timing := bubble.get("timingInfo"), dict):
        at = from_number(timing.get("clientEndTime"))
    return at
