"""Folds one Cursor session, from whichever of its stores the raw was made, into facts.

Cursor has no id that survives a copy and means the same record, so every key holds the session. A raw is one document:
what its end says (the root, the newest title) decides how its beginning reads, so it is parsed when it is whole.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Iterator
from typing import Any

from prosa.events.facts import (
    NOT_COPIED,
    PROVEN,
    Compaction,
    Facts,
    Header,
    Mark,
    Usage,
    fact_key,
)
from prosa.ingest.clock import EARLIEST_US, from_number, parse_iso
from prosa.ingest.cursor import AGENT
from prosa.ingest.cursor.ide import entry_of, time_of
from prosa.ingest.cursor.mirror import read_lines, read_text
from prosa.ingest.cursor.prompts import Entry, title_of
from prosa.ingest.cursor.siblings import NOTHING, Copied, compactions_of
from prosa.ingest.cursor.store import is_hash_of, workspaces
from prosa.ingest.cursor.turns import Reading, Spoken, merged, read_messages, read_old_turns, read_tree
from prosa.ingest.importer import Identity
from prosa.ingest.json_lines import plain
from prosa.ingest.native import json_value, native_id, path_of
from prosa.ingest.protobuf import Message, WireError, leaves
from prosa.ingest.turn import turn_of

MINUTE_US = 60_000_000
STAMPS_MS = (1_500_000_000_000, 2_500_000_000_000)
"""Numbers of this size in a root are times."""
PATHS = 20_000
ROOT_FIELDS = 100
"""Roots have fields up to 22 so far."""
NO_COMPACTIONS = "a transcript mirror does not record them"


def read(identity: Identity, data: bytes) -> tuple[Facts, Header]:
    """The facts of a whole raw."""
    session = _Session(identity, data)
    return session.facts, session.header


class _Session:
    """One parse."""

    def __init__(self, identity: Identity, data: bytes) -> None:
        self._identity = identity
        self.facts = Facts([], [], [], [])
        self.header = Header()
        first, _, rest = data.partition(b"\n")
        head = _object(first)
        match head.get("cursor"):
            case "jsonl/1" | "txt/1":
                self._mirror(head, rest)
                return
        lines = data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        head = _object(lines.pop()) if lines else {}
        match head.get("cursor"):
            case "store/1":
                self._store(head, lines)
            case "ide/1":
                self._ide(head, lines)
            case _:
                self.header = Header(malformed=1, malformed_bytes=len(data))

    # the CLI's store

    def _store(self, head: dict[str, Any], lines: list[bytes]) -> None:
        meta, side = _inner(head, "meta"), _inner(head, "side")
        blobs = dict(_blobs(lines))
        root_id = head.get("root")
        data = blobs.get(root_id, b"") if isinstance(root_id, str) else b""
        created = _first_time(side.get("createdAtMs"), meta.get("createdAt"))
        fields: dict[str, Any] = {
            "title": title_of(side.get("title"), meta.get("name")),
            "parent": native_id(head.get("parent")),
            "forked_from": native_id(head.get("forked_from")),
            "models": tuple(filter(None, [_text(meta.get("lastUsedModel"))])),
        }
        root = plain_root(data)
        if root is None:
            root = Message()
            fields |= {"state": "encrypted", "state_reason": "its root is no plain record"}
        counts = [count for count in _list(head, "copied") if isinstance(count, int)]
        copied = Copied(*counts) if len(counts) == len(NOTHING) else NOTHING
        reading = readings(root, blobs, copied)
        times = _times(root, blobs)
        turns = _timed(reading.turns, root, created)
        if not reading.turns and reading.unreadable and head.get("has_key"):
            fields |= {"state": "encrypted", "state_reason": "its messages are no plain records"}
        elif "state" not in fields and (reason := _lost(head, reading, data)):
            fields |= {"state": "partial", "state_reason": reason}
        for entry in (entry for turn in turns for entry in turn.entries):
            self._entry(entry, fields["forked_from"])
        self._compactions(root, copied.compactions, fields["forked_from"])
        if fields["forked_from"] and created is not None:
            # the copy itself: a fork that added nothing has no other record of its own
            key = fact_key(AGENT, "mark", f"{self._identity.key}#created")
            self.facts.marks.append(Mark(first=created, last=created, key=key))
        start = created
        if start is None:
            start = min((e.at for turn in turns for e in turn.entries if e.at is not None), default=None)
        start = start or from_number(head.get("mtime_ms"))
        last = _first_time(side.get("updatedAtMs")) or max(times, default=None)
        encrypted = fields.get("state") == "encrypted"
        self.header = Header(
            cwd=_cwd(head, meta, side, root, blobs, turns),
            started_at=start,
            last_activity_at=max(filter(None, (start, last)), default=None),
            unknown=reading.unknown,
            compactions_known=not encrypted,
            compactions_reason="its store is encrypted" if encrypted else None,
            **fields,
        )

    def _compactions(self, root: Message, copied: int, source: str | None) -> None:
        for number in range(1, compactions_of(root) + 1):
            name = f"{self._identity.key}#compaction {number}"
            is_copy = source is not None and number <= copied
            compaction = Compaction(
                key=fact_key(AGENT, "compaction", name),
                id=f"{self._identity.id}#{number}",
                copied=PROVEN if is_copy else NOT_COPIED,
                copied_from=source if is_copy else None,
            )
            self.facts.compactions.append(compaction)

    # mirrors

    def _mirror(self, head: dict[str, Any], data: bytes) -> None:
        mirror = read_lines(data) if head.get("cursor") == "jsonl/1" else read_text(data)
        changed = from_number(head.get("mtime_ms"))
        at: int | None = None
        first: int | None = None
        for entry in mirror.entries:
            if entry.role == "user":
                at = entry.at
                first = first or at
            self._entry(entry._replace(at=at), None)
        # a store of the same chat may have fewer prompts, and still knows more about it
        meta, side = _inner(head, "meta"), _inner(head, "side")
        created = _first_time(side.get("createdAtMs"), meta.get("createdAt"))
        updated = _first_time(side.get("updatedAtMs"))
        start = next((at for at in (created, first, changed) if at is not None), None)
        self.header = Header(
            cwd=_cwd(head, meta, side, Message(), {}, []),
            title=title_of(side.get("title"), meta.get("name")),
            models=tuple(filter(None, [_text(meta.get("lastUsedModel"))])),
            parent=native_id(head.get("parent")),
            started_at=start,
            last_activity_at=max(filter(None, (start, updated or changed)), default=None),
            compactions_known=False,
            compactions_reason=NO_COMPACTIONS,
            unknown=mirror.tally.unknown,
            malformed=mirror.tally.malformed,
            malformed_bytes=mirror.tally.malformed_bytes,
        )

    # the IDE

    def _ide(self, head: dict[str, Any], lines: list[bytes]) -> None:
        composer = _inner(head, "composer")
        created = _first_time(composer.get("createdAt"))
        times: list[int] = []
        dated = False
        at = created
        has_usage = False
        for number, line in enumerate(lines):
            bubble = _inner(_object(line), "bubble")
            own = time_of(bubble)
            if own is not None:
                times.append(own)
                at = own
                dated = dated or bool(bubble.get("createdAt"))
            native = native_id(bubble.get("bubbleId")) or str(number)
            for entry in entry_of(bubble):
                self._entry(entry._replace(native=native, at=own), None)
            has_usage |= self._tokens(bubble, native, at)
        # lastUpdatedAt is touched by opening a chat; it serves only where no bubble has a time of its own
        last = (
            max(times, default=None) if dated else max([*times, *_known(composer.get("lastUpdatedAt"))], default=None)
        )
        start = created if created is not None else min(times, default=None)
        config = _inner(composer, "modelConfig")
        self.header = Header(
            cwd=_text(head.get("cwd")),
            title=title_of(composer.get("name")),
            parent=native_id(head.get("parent")),
            models=tuple(filter(None, [_text(config.get("modelName"))])),
            started_at=start,
            last_activity_at=last if last is not None else start,
            has_usage=has_usage,
        )

    def _tokens(self, bubble: dict[str, Any], native: str, at: int | None) -> bool:
        """Newer clients write zeros everywhere: that is not known, not nothing."""
        count = _inner(bubble, "tokenCount")
        spent, made = _count(count.get("inputTokens")), _count(count.get("outputTokens"))
        if not spent and not made:
            return False
        key = fact_key(AGENT, "usage", f"{self._identity.key}#{native}")
        model = _text(_inner(bubble, "modelInfo").get("modelName"))
        self.facts.usage.append(Usage(key=key, at=at, model=model, input=spent, output=made))
        return True

    def _entry(self, entry: Entry, source: str | None) -> None:
        turn = turn_of(
            fact_key(AGENT, entry.kind, f"{self._identity.key}#{entry.native}"),
            entry.kind,
            entry.role,
            entry.text,
            entry.at,
            PROVEN if entry.copied and source else NOT_COPIED,
            source if entry.copied else None,
            tool=entry.tool,
            tool_call_id=entry.call,
            is_error=entry.is_error,
            model=entry.model,
            counted=entry.counted,
        )
        self.facts.turns.append(turn)


def plain_root(data: bytes) -> Message | None:
    """The root as a record; None where the bytes are none, as encrypted ones are, or only by chance."""
    try:
        root = Message(data)
    except WireError:
        return None
    return root if all(number <= ROOT_FIELDS for number in root.fields) else None


def readings(root: Message, blobs: dict[str, bytes], copied: Copied = NOTHING) -> Reading:
    """The conversation from the list that has more of it."""
    messages = read_messages(root, blobs, copied.messages)
    tree = read_tree(root, blobs, copied.tree)
    if is_tree(tree, messages):
        return Reading(merged(tree, messages), tree.unreadable, tree.unknown)
    if any(turn.entries for turn in messages.turns):
        return messages
    old = read_old_turns(root, blobs)
    return old if old.turns else Reading([], messages.unreadable + tree.unreadable, messages.unknown)


def is_tree(tree: Reading, messages: Reading) -> bool:
    """The turn tree serves unless it has fewer user turns; those that nobody typed look typed in the messages."""
    return any(turn.entries for turn in tree.turns) and tree.user_turns >= messages.user_turns


# decoding the raw


def _object(line: bytes) -> dict[str, Any]:
    try:
        said = json_value(line)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _blobs(lines: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    for line in lines:
        said = _object(line)
        name, text, packed = said.get("id"), said.get("text"), said.get("base64")
        if not isinstance(name, str):
            continue
        if isinstance(text, str):
            yield name, text.encode("utf-8", "surrogatepass")
        elif isinstance(packed, str):
            try:
                yield name, b64decode(packed)
            except ValueError:
                continue


def _inner(said: dict[str, Any], name: str) -> dict[str, Any]:
    value = said.get(name)
    return value if isinstance(value, dict) else {}


def _list(said: dict[str, Any], name: str) -> list[Any]:
    value = said.get(name)
    return value if isinstance(value, list) else []


def _text(value: object) -> str | None:
    return plain(value) if isinstance(value, str) and value.strip() else None


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 53 else 0


def _known(*values: object) -> list[int]:
    return [at for value in values if (at := parse_iso(value) or from_number(value)) is not None]


def _first_time(*values: object) -> int | None:
    return next(iter(_known(*values)), None)


# what the container says


def _lost(head: dict[str, Any], reading: Reading, data: bytes) -> str | None:
    """Why a store is only partly here."""
    missing, damaged = len(_list(head, "missing")), len(_list(head, "damaged"))
    if not data:
        return "its newest root is missing"
    reasons = [
        f"{count} blobs {what}"
        for count, what in ((missing, "missing"), (damaged, "changed"), (reading.unreadable, "not understood"))
        if count
    ]
    return ", ".join(reasons) or None


def _times(root: Message, blobs: dict[str, bytes]) -> list[int]:
    """Every time in the records that a root reaches: turn timings, todos."""
    found = []
    for data in [*blobs.values(), *root.blobs(14)]:
        if data[:1] in (b"{", b"["):
            continue
        try:
            numbers = [leaf for leaf in leaves(data) if isinstance(leaf, int)]
        except WireError:
            continue
        found += [number * 1000 for number in numbers if STAMPS_MS[0] <= number < STAMPS_MS[1]]
    return [at for at in found if at >= EARLIEST_US]


def _timed(turns: list[Spoken], root: Message, created: int | None) -> list[Spoken]:
    """Each turn's `<timestamp>`, else its timing; nothing in between is made up.

    `<timestamp>` is the beginning of a minute, so the first one may lie before the chat. A copied record keeps it.
    """
    said = [turn for turn in turns if turn.prompt is not None]
    timings = [from_number(timing.number(2)) for timing in root.messages(14)]
    by_turn = turns if len(turns) == len(timings) else said if len(said) == len(timings) else []
    ended = {id(turn): at for turn, at in zip(by_turn, timings, strict=False)}
    found = []
    for turn in turns:
        stamp = turn.entries[0].at if turn.entries else None
        end = ended.get(id(turn))
        entries = []
        for number, entry in enumerate(turn.entries):
            at = stamp if number == 0 and stamp is not None else end if end is not None else stamp
            if at is not None and created is not None and not entry.copied:
                at = max(at, created)
            entries.append(entry._replace(at=at))
        found.append(Spoken(entries))
    return found


def _cwd(
    head: dict[str, Any],
    meta: dict[str, Any],
    side: dict[str, Any],
    root: Message,
    blobs: dict[str, bytes],
    turns: list[Spoken],
) -> str | None:
    """As recorded, else the path whose md5 names the chat's folder; never a guess."""
    folder = head.get("folder")
    folder = folder if isinstance(folder, str) else ""
    named = side.get("cwd")
    if isinstance(named, str) and (named.startswith("/") or named[1:3] in (":\\", ":/")):
        return plain(named)
    uris = workspaces(root) or [path for uri in _list(head, "uris") if (path := path_of(uri)) is not None]
    if uris:
        return plain(next((path for path in uris if is_hash_of(folder, path)), uris[0]))
    plan = meta.get("currentPlanUri")
    if isinstance(plan, str) and "/.cursor/" in plan:
        path = path_of(plan.split("/.cursor/", 1)[0])
        if path:
            return plain(path)
    said = _text(head.get("folder_cwd"))
    for path in _ancestors([*([said] if said else []), *_paths(blobs, turns)]):
        if is_hash_of(folder, path):
            return plain(path)
    return None


def _paths(blobs: dict[str, bytes], turns: list[Spoken]) -> Iterator[str]:
    """Absolute paths in the records: texts of protobuf blobs, input of tools, and `Workspace Path:`."""
    for turn in turns:
        for entry in turn.entries:
            if entry.kind == "tool_call":
                for line in entry.text.splitlines()[:200]:
                    place = line.find("/")
                    if place >= 0:
                        yield line[place:]
                        yield line[place:].split()[0]
            elif entry.role == "system" and "Workspace Path:" in entry.text:
                yield entry.text.split("Workspace Path:", 1)[1].split("\n", 1)[0].strip()
    for data in blobs.values():
        if data[:1] in (b"{", b"["):
            continue
        try:
            yield from (leaf for leaf in leaves(data) if isinstance(leaf, str) and leaf.startswith("/"))
        except WireError:
            continue


def _ancestors(paths: Iterable[str]) -> Iterator[str]:
    """The paths and all folders above them, each once."""
    seen: set[str] = set()
    for found in paths:
        path = found.strip().rstrip("/")[:4096]
        while path and path not in seen and len(seen) < PATHS:
            seen.add(path)
            yield path
            path = path.rpartition("/")[0]
