"""The CLI's chat store: one SQLite file a chat, blobs named by their sha256, and a root that lists what counts.

Old roots are never collected: edited, retracted and forked prompts stay as blobs that the newest root does not reach.
So only what it reaches is read. The meta row carries `blobEncryptionKey`: the fields taken from it are listed here.
"""

from __future__ import annotations

import hashlib
import os
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from prosa.ingest import foreign_db
from prosa.ingest.foreign_db import BrokenError, BusyError
from prosa.ingest.json_lines import plain_value
from prosa.ingest.native import json_value, native_id, path_of
from prosa.ingest.protobuf import Message, WireError

if TYPE_CHECKING:
    import sqlite3

META_FIELDS = (
    "agentId", "latestRootBlobId", "name", "mode", "createdAt", "lastUsedModel", "isRunEverything", "currentPlanUri",
    "resumeBcId",
)  # fmt: skip
SIDE_FIELDS = ("schemaVersion", "createdAtMs", "updatedAtMs", "hasConversation", "title", "cwd", "isSubagent")
BLOBS = 1_000_000
TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name IN ('meta', 'blobs')"
META = "SELECT value FROM meta WHERE key = '0'"
BLOB = "SELECT data FROM blobs WHERE id = ?"


class UnreadableError(ValueError):
    """The meta row is there and cannot be decoded."""


class Blob(NamedTuple):
    id: str
    data: bytes


class Store(NamedTuple):
    """What the newest root of one store reaches."""

    meta: dict[str, Any]
    root: bytes | None
    """None: the blob that the meta row names is not there."""
    blobs: list[Blob]
    """In the order the root lists them: messages, then turns with what they hold, then the rest."""
    missing: list[str]
    damaged: list[str]
    """Ids that are not the hash of their bytes."""
    has_key: bool
    """The client may have encrypted the blobs."""


def lines_of(path: Path, store: Store, proven: dict[str, Any]) -> Iterator[bytes]:
    """The canonical raw of a store: its blobs as they are, then what its container says and its siblings prove."""
    for blob in store.blobs:
        entry: dict[str, str] = {"id": blob.id}
        text = None
        if blob.data[:1] in (b"{", b"["):
            try:
                text = blob.data.decode()
            except UnicodeDecodeError:
                text = None
        if text is None:
            entry["base64"] = b64encode(blob.data).decode()
        else:
            entry["text"] = text
        yield msgspec.json.encode(entry, order="sorted") + b"\n"
    side = side_file(path.parent)
    head: dict[str, Any] = {
        "cursor": "store/1",
        "folder": path.parent.parent.name,
        "meta": store.meta,
        "side": side,
        "root": None if store.root is None else store.meta.get("latestRootBlobId"),
        "missing": store.missing,
        "damaged": store.damaged,
        "has_key": store.has_key,
        **proven,
    }
    if not any(isinstance(value, int) for value in (store.meta.get("createdAt"), side.get("createdAtMs"))):
        head["mtime_ms"] = max(stat.mtime_ns for stat in foreign_db.database_files(path)) // 1_000_000
    yield msgspec.json.encode(head, order="sorted") + b"\n"


def read_store(path: Path) -> Store | None:
    """None for the shell of a chat that never started. Raises UnreadableError, BusyError, BrokenError, OSError."""
    return foreign_db.read(path, _store)


def about(home: Path, native: str) -> dict[str, Any]:
    """What the chat store of a mirrored session says about it, without its records; empty where there is none."""
    try:
        with os.scandir(home / "chats") as entries:
            folders = sorted(entry.name for entry in entries)
    except OSError:
        return {}
    for folder in folders:
        path = home / "chats" / folder / native / "store.db"
        try:
            if path.is_file():
                meta, root = foreign_db.read(path, top)
                uris = root.texts(9)
                return {"folder": folder, "meta": meta, "side": side_file(path.parent), "uris": uris}
        except (UnreadableError, BusyError, BrokenError, OSError):
            continue
    return {}


def side_file(folder: Path) -> dict[str, Any]:
    """The known fields of the chat's meta.json; empty where it is absent or broken."""
    path = folder / "meta.json"
    try:
        said = json_value(path.read_bytes()) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return {}
    return _allowed(said, SIDE_FIELDS)


def _allowed(said: object, fields: tuple[str, ...]) -> dict[str, Any]:
    """Plain values of the known fields; never a nested one, in which anything could stand."""
    if not isinstance(said, dict):
        return {}
    return {
        name: plain_value(said[name])
        for name in fields
        if isinstance(said.get(name), (str, bool, float, int)) and not _too_big(said[name])
    }


def _too_big(value: object) -> bool:
    """A number that JSON readers refuse."""
    if isinstance(value, float):
        return value != value or abs(value) > 1e300
    return isinstance(value, int) and not -(1 << 63) <= value < 1 << 63


def _store(db: sqlite3.Connection) -> Store | None:
    meta, has_key = _meta(db)
    root_id = meta.get("latestRootBlobId")
    if not isinstance(root_id, str) or not root_id:
        return None
    walk = _Walk(db)
    root = walk.add(root_id)
    if root is not None:
        walk.root(root)
    return Store(meta, root, walk.blobs, walk.missing, walk.damaged, has_key)


def _meta(db: sqlite3.Connection) -> tuple[dict[str, Any], bool]:
    """The allowed fields of the meta row, and whether it holds an encryption key."""
    if len(db.execute(TABLES).fetchall()) < 2:
        return {}, False
    row = db.execute(META).fetchone()
    if row is None or row[0] in (None, "", b""):
        return {}, False
    value = row[0]
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str):
        raise UnreadableError("its meta row is no text")
    text: str | bytes = value.strip()
    if not value.lstrip().startswith("{"):
        try:
            text = bytes.fromhex(value.strip())
        except ValueError:
            raise UnreadableError("its meta row is neither JSON nor hex of JSON") from None
    try:
        said = json_value(text)
    except (ValueError, RecursionError):
        raise UnreadableError("its meta row is no JSON") from None
    if not isinstance(said, dict):
        raise UnreadableError("its meta row is no JSON object")
    return _allowed(said, META_FIELDS), bool(said.get("blobEncryptionKey"))


def top(db: sqlite3.Connection) -> tuple[dict[str, Any], Message]:
    """The meta row, and the root it names; an empty one where that is missing or no plain record."""
    meta, _ = _meta(db)
    root_id = meta.get("latestRootBlobId")
    row = db.execute(BLOB, (root_id,)).fetchone() if isinstance(root_id, str) else None
    try:
        return meta, Message(row[0] if row is not None and isinstance(row[0], bytes) else b"")
    except WireError:
        return meta, Message()


class _Walk:
    """Follows a root through the blobs, each once."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._seen: set[str] = set()
        self.blobs: list[Blob] = []
        self.missing: list[str] = []
        self.damaged: list[str] = []

    def add(self, name: str) -> bytes | None:
        """Read a blob and keep it; None where it is not there, or was read before."""
        if name in self._seen or len(self._seen) >= BLOBS:
            return None
        self._seen.add(name)
        row = self._db.execute(BLOB, (name,)).fetchone()
        data = row[0] if row is not None else None
        if isinstance(data, str):
            data = data.encode("utf-8", "surrogatepass")
        if not isinstance(data, bytes):
            self.missing.append(name)
            return None
        if hashlib.sha256(data).hexdigest() != name:
            self.damaged.append(name)
        self.blobs.append(Blob(name, data))
        return data

    def root(self, data: bytes) -> None:
        try:
            root = Message(data)
        except WireError:
            return
        for name in (*ids(root, 1), *ids(root, 2)):
            self.add(name)
        for name in ids(root, 8):
            turn = self._message(name)
            said, shell = turn.message(1), turn.message(2)
            for inner in (*ids(said, 1), *ids(said, 2), *ids(shell, 1), *ids(shell, 2)):
                self.add(inner)
        for field in (3, 6, 7, 11, 13):
            for name in ids(root, field):
                self.add(name)

    def _message(self, name: str) -> Message:
        data = self.add(name)
        try:
            return Message(data or b"")
        except WireError:
            return Message()


def ids(message: Message, field: int) -> list[str]:
    """Blob ids in a field: 32 bytes each."""
    return [value.hex() for value in message.blobs(field) if len(value) == 32]


def is_hash_of(folder: str, cwd: str) -> bool:
    """Whether a chat folder is named after this path."""
    return hashlib.md5(cwd.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest() == folder


def workspaces(root: Message) -> list[str]:
    """Absolute paths of the workspace URIs in a root."""
    return [path for uri in root.texts(9) if (path := path_of(uri)) is not None]


def id_of(meta: dict[str, Any], path: Path) -> str:
    """The chat's own id, else the name of its folder."""
    return native_id(meta.get("agentId")) or path.parent.name
