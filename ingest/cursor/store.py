"""The CLI's chat store: one SQLite file a chat, blobs named by their sha256, and a root that lists what counts.

Old roots are never collected: edited, retracted and forked prompts stay as blobs that the newest root does not reach.
So only what it reaches is read. The meta row carries `blobEncryptionKey`: the fields taken from it are listed here.
"""

from __future__ import annotations

import hashlib
import os
from base64 import b64encode
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from prosa.ingest import foreign_db
from prosa.ingest.foreign_db import BrokenError, BusyError
from prosa.ingest.importer import FileStat
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
HEADS = 12
"""Message ids at the start of a root by which a fork is recognised; the first are the system's and shared by all."""
TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name IN ('meta', 'blobs')"
META = "SELECT value FROM meta WHERE key = '0'"
BLOB = "SELECT data FROM blobs WHERE id = ?"
HOLDS = "SELECT 1 FROM blobs WHERE id = ?"
NAMES = "SELECT count(*) FROM blobs WHERE instr(data, ?)"


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


class Sibling(NamedTuple):
    """A chat of the same folder, as far as another one needs to know it."""

    path: str
    id: str
    created: int
    heads: frozenset[str]
    children: frozenset[str]
    """Ids of the sub-agents whose states its root holds."""
    cwd: str | None


def lines_of(path: Path, store: Store) -> Iterator[bytes]:
    """The canonical raw of a store: its blobs as they are, then what its container says."""
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
    store_id = id_of(store.meta, path)
    siblings = _siblings(path)
    side = side_file(path.parent)
    fork, copied = _fork(store, store_id, siblings)
    head: dict[str, Any] = {
        "cursor": "store/1",
        "folder": path.parent.parent.name,
        "meta": store.meta,
        "side": side,
        "root": None if store.root is None else store.meta.get("latestRootBlobId"),
        "missing": store.missing,
        "damaged": store.damaged,
        "has_key": store.has_key,
        "forked_from": fork,
        "copied": [*copied],
        "parent": _parent(store_id, siblings, side.get("isSubagent") is True),
        "folder_cwd": next((one.cwd for one in siblings if one.cwd), None),
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
                meta, _ = foreign_db.read(path, _meta)
                return {"folder": folder, "meta": meta, "side": side_file(path.parent)}
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


# what other chats of the same folder prove


class Copied(NamedTuple):
    """How many messages, and how many records of the turn tree, stand at the start of an older chat too."""

    messages: int = 0
    tree: int = 0


NOTHING = Copied()


def _fork(store: Store, store_id: str, siblings: list[Sibling]) -> tuple[str | None, Copied]:
    """The older chat that this one was copied from, and how much of its start lies there too.

    A fork is a copy of the store with another agentId. Messages name their request, so a prompt that lies in two
    stores was copied; answers and the client's own messages may be equal by chance.
    """
    created = store.meta.get("createdAt")
    prompts, messages, tree = _listed(store)
    if not prompts or not isinstance(created, int):
        return None, NOTHING
    source, most = None, NOTHING
    for sibling in sorted(siblings, key=lambda one: (one.created, one.id)):
        if sibling.id == store_id or sibling.created >= created or prompts[0] not in sibling.heads:
            continue
        held = Copied(_held(Path(sibling.path), messages), _held(Path(sibling.path), tree))
        if sum(held) > sum(most) and prompts[0] in (*messages[: held.messages], *tree[: held.tree]):
            source, most = sibling.id, held
    return source, most


def _listed(store: Store) -> tuple[list[str], list[str], list[str]]:
    """Ids of the prompts, of the messages, and of what the turn tree holds, in the order of the root."""
    data = {blob.id: blob.data for blob in store.blobs}
    prompts: list[str] = []
    tree: list[str] = []
    try:
        root = Message(store.root or b"")
    except WireError:
        return [], [], []
    messages = ids(root, 1)
    for name in messages:
        said = data.get(name, b"")
        if b'"user"' in said[:64] and (b"<user_query>" in said or b"requestId" in said):
            prompts.append(name)
    for name in ids(root, 8):
        try:
            turn = Message(data.get(name, b"")).message(1)
        except WireError:
            continue
        prompts += ids(turn, 1)[-1:]
        tree += [*ids(turn, 1)[-1:], *ids(turn, 2)]
    return prompts, messages, tree


def _held(path: Path, names: list[str]) -> int:
    """How many ids at the start of the list another store has too."""

    def count(db: sqlite3.Connection) -> int:
        for number, name in enumerate(names):
            if db.execute(HOLDS, (name,)).fetchone() is None:
                return number
        return len(names)

    try:
        return foreign_db.read(path, count)
    except (BusyError, BrokenError, OSError):
        return 0


def _parent(store_id: str, siblings: list[Sibling], is_child: bool) -> str | None:
    """The oldest chat of the folder that holds this one's state; of a known child the only one that names its id."""
    holding = [(sibling.created, sibling.id) for sibling in siblings if store_id in sibling.children]
    if holding:
        return min(holding)[1]

    def named(db: sqlite3.Connection) -> int:
        return int(db.execute(NAMES, (store_id.encode(),)).fetchone()[0])

    found: set[str] = set()
    for sibling in siblings if is_child else ():
        try:
            if sibling.id != store_id and foreign_db.read(Path(sibling.path), named):
                found.add(sibling.id)
        except (BusyError, BrokenError, OSError):
            continue
    return found.pop() if len(found) == 1 else None


def _siblings(path: Path) -> list[Sibling]:
    """The other readable stores of the folder."""
    found = []
    try:
        with os.scandir(path.parent.parent) as entries:
            names = sorted(entry.name for entry in entries)
    except OSError:
        return []
    for name in names:
        other = path.parent.parent / name / "store.db"
        if name == path.parent.name:
            continue
        try:
            sibling = _sibling(str(other), foreign_db.database_files(other)) if other.is_file() else None
        except OSError:
            continue
        if sibling is not None:
            found.append(sibling)
    return found


@lru_cache(maxsize=4096)
def _sibling(path: str, files: tuple[FileStat, ...]) -> Sibling | None:
    """What is remembered of a store while its files stay as they are; None where it cannot be read."""

    def look(db: sqlite3.Connection) -> tuple[dict[str, Any], Message]:
        meta, _ = _meta(db)
        root_id = meta.get("latestRootBlobId")
        row = db.execute(BLOB, (root_id,)).fetchone() if isinstance(root_id, str) else None
        return meta, Message(row[0] if row is not None and isinstance(row[0], bytes) else b"")

    place = Path(path)
    try:
        meta, root = foreign_db.read(place, look)
    except (BusyError, BrokenError, OSError, ValueError):
        return None
    created = meta.get("createdAt")
    heads = set(ids(root, 1)[:HEADS])
    if turns := ids(root, 8):
        heads.update(_first_prompt(place, turns[0]))
    cwd = next((one for one in (side_file(place.parent).get("cwd"), *workspaces(root)) if _is_of(one, place)), None)
    children = frozenset(native for state in root.messages(16) if (native := native_id(state.text(1))))
    begun = created if isinstance(created, int) else 0
    return Sibling(path, id_of(meta, place), begun, frozenset(heads), children, cwd)


def folder_path(chat: Path) -> str | None:
    """The working folder that a chat states and that its folder's name proves."""
    cwd = side_file(chat).get("cwd")
    if _is_of(cwd, chat / "store.db"):
        return str(cwd)
    path = chat / "store.db"
    try:
        sibling = _sibling(str(path), foreign_db.database_files(path)) if path.is_file() else None
    except OSError:
        return None
    return sibling.cwd if sibling is not None else None


def _first_prompt(path: Path, turn: str) -> list[str]:
    def look(db: sqlite3.Connection) -> list[str]:
        row = db.execute(BLOB, (turn,)).fetchone()
        return ids(Message(row[0] if row is not None and isinstance(row[0], bytes) else b"").message(1), 1)

    try:
        return foreign_db.read(path, look)
    except (BusyError, BrokenError, OSError, ValueError):
        return []


def _is_of(cwd: object, path: Path) -> bool:
    return isinstance(cwd, str) and cwd.startswith("/") and is_hash_of(path.parent.parent.name, cwd)


def is_hash_of(folder: str, cwd: str) -> bool:
    """Whether a chat folder is named after this path."""
    return hashlib.md5(cwd.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest() == folder


def workspaces(root: Message) -> list[str]:
    """Absolute paths of the workspace URIs in a root."""
    return [path for uri in root.texts(9) if (path := path_of(uri)) is not None]


def id_of(meta: dict[str, Any], path: Path) -> str:
    """The chat's own id, else the name of its folder."""
    return native_id(meta.get("agentId")) or path.parent.name
