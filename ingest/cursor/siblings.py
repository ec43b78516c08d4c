"""What the other chat stores of a folder prove about one: whose copy it is, who started it, where it worked.

A sibling is looked at through its meta row, its root and the names of its blobs, and remembered while its files stay as
they are. Only one that can have started a chat is read as a whole.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from prosa.ingest import foreign_db
from prosa.ingest.clock import from_number, parse_iso
from prosa.ingest.cursor.prompts import prompt_of
from prosa.ingest.cursor.store import (
    Store,
    UnreadableError,
    id_of,
    ids,
    is_hash_of,
    read_store,
    side_file,
    top,
    workspaces,
)
from prosa.ingest.foreign_db import BrokenError, BusyError
from prosa.ingest.importer import FileStat
from prosa.ingest.native import json_value, native_id, readable
from prosa.ingest.protobuf import Message, WireError, leaves

if TYPE_CHECKING:
    import sqlite3

COMPACTIONS = 100_000
"""More than this is a field that means something else."""
TASK = 19
"""The field of a step that called a sub-agent."""
AGENT_ID = re.compile(r"agentId\W{1,8}([0-9A-Za-z][0-9A-Za-z_-]{7,63})")
"""In the result of a Task, which is an object, JSON in a string, or prose."""
HOLDS = "SELECT 1 FROM blobs WHERE id = ?"
STARTS = "SELECT substr(id, 1, 8) FROM blobs"
NAMES = "SELECT count(*) FROM blobs WHERE instr(data, ?)"


class Sibling(NamedTuple):
    """A chat of the same folder, as far as another one needs to know it."""

    path: str
    files: tuple[FileStat, ...]
    id: str
    created: int
    starts: frozenset[str]
    """First eight digits of all its blob ids, retracted ones too: a summary leaves its messages behind as such."""
    compactions: int
    children: frozenset[str]
    """Ids of the sub-agents whose states its root holds."""
    cwd: str | None


class Copied(NamedTuple):
    """How many messages, and how many records of the turn tree, stand at the start of an older chat too."""

    messages: int = 0
    tree: int = 0
    compactions: int = 0


NOTHING = Copied()


def proven(path: Path, store: Store) -> dict[str, Any]:
    """What the other chats of its folder say about this one, as its raw has it."""
    store_id = id_of(store.meta, path)
    siblings = _siblings(path)
    side = side_file(path.parent)
    fork, copied = _fork(store, store_id, siblings)
    return {
        "forked_from": fork,
        "copied": [*copied],
        "parent": _parent(store, store_id, siblings, side.get("isSubagent") is True),
        "folder_cwd": next((one.cwd for one in siblings if one.cwd), None),
    }


def compactions_of(root: Message) -> int:
    """How often a chat was summarised: its own count, else the archives of its summaries."""
    count = root.number(17)
    return len(root.blobs(13)) if count is None or count > COMPACTIONS else count


def created_ms(meta: dict[str, Any]) -> int | None:
    """When a chat was begun."""
    created = meta.get("createdAt")
    at = parse_iso(created) or from_number(created)
    return None if at is None else at // 1000


def _fork(store: Store, store_id: str, siblings: list[Sibling]) -> tuple[str | None, Copied]:
    """The older chat that this one was copied from, and how much of its start lies there too.

    A fork is a copy of the store with another agentId. Messages name their request, so a prompt that lies in two
    stores was copied; answers and the client's own messages may be equal by chance. Where all messages lie in both,
    it is a copy in any case.
    """
    created = created_ms(store.meta)
    prompts, proofs, messages, tree = _listed(store)
    if created is None:
        return None, NOTHING
    source, most = None, NOTHING
    for sibling in sorted(siblings, key=lambda one: (one.created, one.id)):
        if sibling.id == store_id or sibling.created >= created:
            continue
        if not any(name[:8] in sibling.starts for name in prompts):
            continue
        held = Copied(_held(Path(sibling.path), messages), _held(Path(sibling.path), tree), sibling.compactions)
        shared = {*messages[: held.messages], *tree[: held.tree]}
        is_copy = shared.intersection(proofs) or (messages and held.messages == len(messages))
        if is_copy and held.messages + held.tree > most.messages + most.tree:
            source, most = sibling.id, held
    return source, most


def _listed(store: Store) -> tuple[list[str], list[str], list[str], list[str]]:
    """Ids of the first prompts, of those that prove a copy, of the messages, and of what the turn tree holds.

    A prompt without tag and request, as old chats have them, may be equal by chance; two are no chance.
    """
    data = {blob.id: blob.data for blob in store.blobs}
    signed: list[str] = []
    bare: list[str] = []
    prompts: list[str] = []
    tree: list[str] = []
    try:
        root = Message(store.root or b"")
    except WireError:
        return [], [], [], []
    messages = ids(root, 1)
    for name in messages:
        said = data.get(name, b"")
        if b'"user"' in said and (text := _user_text(said)) is not None:
            if b"<user_query>" in said or b"requestId" in said:
                signed.append(name)
            elif prompt_of(text).counted:
                bare.append(name)
    for name in ids(root, 8):
        try:
            turn = Message(data.get(name, b"")).message(1)
        except WireError:
            continue
        prompts += ids(turn, 1)[-1:]
        tree += [*ids(turn, 1)[-1:], *ids(turn, 2)]
    first = [*signed[:1], *prompts[:1]]
    return [*first, *bare[:1]], [*first, *bare[1:2]], messages, tree


def _user_text(data: bytes) -> str | None:
    """The text of a user message; None for any other blob."""
    said = _json(data)
    if said.get("role") != "user":
        return None
    content = said.get("content")
    if isinstance(content, str):
        return content
    texts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return "\n".join(text for text in texts if isinstance(text, str))


def _json(data: bytes) -> dict[str, Any]:
    try:
        said = json_value(data)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


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


def _parent(store: Store, store_id: str, siblings: list[Sibling], is_child: bool) -> str | None:
    """The oldest chat of the folder that holds this one's state, or has it as the result of a Task; of a known child
    the only one that names its id."""
    created = created_ms(store.meta)
    holding = [(sibling.created, sibling.id) for sibling in siblings if store_id in sibling.children]
    if not holding:
        holding = [
            (sibling.created, sibling.id)
            for sibling in siblings
            if _spoke_at(sibling, created) and store_id in _started(sibling.path, sibling.files)
        ]
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


def _spoke_at(sibling: Sibling, created: int | None) -> bool:
    """Whether a chat was there at this time and written to later: no other needs to be read as a whole."""
    changed = max(stat.mtime_ns for stat in sibling.files) // 1_000_000
    return created is None or sibling.created <= created <= changed


@lru_cache(maxsize=4096)
def _started(path: str, files: tuple[FileStat, ...]) -> frozenset[str]:
    """What the results of a chat's Task calls name, remembered while its files stay as they are."""
    try:
        store = read_store(Path(path))
    except (UnreadableError, BusyError, BrokenError, OSError):
        return frozenset()
    return frozenset(name for blob in (store.blobs if store else ()) for name in _task_results(blob.data))


def _task_results(data: bytes) -> Iterator[str]:
    """Ids in the result of a Task: a message of the tool, or a step of the turn tree."""
    if data[:1] == b"{":
        content = _json(data).get("content") if b"agentId" in data else None
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and (part.get("type"), part.get("toolName")) == ("tool-result", "Task"):
                yield from AGENT_ID.findall(readable(part))
        return
    try:
        for result in Message(data).message(2).message(TASK).blobs(2):
            yield from (leaf for leaf in leaves(result) if isinstance(leaf, str) and len(leaf) <= 64)
    except WireError:
        return


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

    def look(db: sqlite3.Connection) -> tuple[dict[str, Any], Message, frozenset[str]]:
        meta, root = top(db)
        return meta, root, frozenset(start for (start,) in db.execute(STARTS)) if meta else frozenset()

    place = Path(path)
    try:
        meta, root, starts = foreign_db.read(place, look)
    except (BusyError, BrokenError, OSError, ValueError):
        return None
    cwd = next((one for one in (side_file(place.parent).get("cwd"), *workspaces(root)) if _is_of(one, place)), None)
    children = frozenset(native for state in root.messages(16) if (native := native_id(state.text(1))))
    return Sibling(path, files, id_of(meta, place), created_ms(meta) or 0, starts, compactions_of(root), children, cwd)


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


def _is_of(cwd: object, path: Path) -> bool:
    return isinstance(cwd, str) and cwd.startswith("/") and is_hash_of(path.parent.parent.name, cwd)
