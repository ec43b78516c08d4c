"""What lies on disk of one Antigravity conversation, put together into its canonical raw.

A conversation has a database, logs that say the same once more, both or neither: then only its encrypted file is left.
Model calls and executors are rows of up to 60 KB with prompts and switches; only the fields that are read are taken.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from prosa.ingest import foreign_db
from prosa.ingest.antigravity.places import TABLES, json_file
from prosa.ingest.antigravity.steps import SERVICE_FIELDS, log_record
from prosa.ingest.json_lines import plain
from prosa.ingest.native import json_value, path_of
from prosa.ingest.protobuf import EMPTY, Message, WireError, packed

if TYPE_CHECKING:
    import sqlite3

STEP_COLUMNS = ("idx", "step_type", "status", "metadata", "error_details", "step_payload")
INVOKED_ROWS = "SELECT step_payload FROM steps WHERE step_type = 127 ORDER BY idx"
INVOKE = b"INVOKE_SUBAGENT"
BLOB = "SELECT data FROM trajectory_metadata_blob WHERE id = 'main'"
GENERATIONS = "SELECT idx, data FROM gen_metadata ORDER BY idx"
EXECUTORS = "SELECT idx, data FROM executor_metadata ORDER BY idx"
CHUNKS = "chunks"
LOG_NAMES = ("transcript_full.jsonl", "transcript.jsonl", "overview.txt")
"""The richest first; chunks of a log stand directly behind it."""
ZERO_CHUNK = 1 << 16
INVOKED = 1000
"""JSON values looked for in the text of one result."""


class Logs(NamedTuple):
    """The best line of each step, over all logs of a conversation."""

    lines: dict[int, str]
    malformed: int
    malformed_bytes: int


class Stored(NamedTuple):
    """The lines of a database: its steps, then its model calls and executors."""

    rows: dict[int, dict[str, Any]]
    others: list[dict[str, Any]]
    blob: bytes | None


# logs


def read_logs(paths: Iterable[Path]) -> Logs:
    """Every step once: a whole copy before a cleared one, the richer log before the poorer, in one log the last."""
    best: dict[int, tuple[tuple[bool, int], str]] = {}
    malformed = malformed_bytes = 0
    for rank, data in enumerate(_texts(paths)):
        lines = data.split(b"\n")
        for number, line in enumerate(lines):
            text = line.decode("utf-8", "replace").lstrip("\ufeff").strip("\r\t \0")
            if not text:
                continue
            said = log_record(text)
            idx = said.get("step_index")
            if not isinstance(idx, int) or isinstance(idx, bool) or not 0 <= idx < 1 << 40:
                if number < len(lines) - 1:
                    malformed, malformed_bytes = malformed + 1, malformed_bytes + len(line)
                continue
            place = (said.get("status") != "CLEARED", -rank)
            if idx not in best or best[idx][0] <= place:
                best[idx] = (place, text)
    return Logs({idx: text for idx, (_, text) in best.items()}, malformed, malformed_bytes)


def _texts(paths: Iterable[Path]) -> Iterator[bytes]:
    """The bytes of each log; chunks are one that was cut at a size, not between lines."""
    for _, pieces in groupby(paths, key=lambda path: path.parent if path.parent.parent.name == CHUNKS else path):
        found = [piece.read_bytes() for piece in pieces]
        yield b"".join(data + b"\n" if _is_record(data.rpartition(b"\n")[2]) else data for data in found)


def _is_record(line: bytes) -> bool:
    try:
        return isinstance(json_value(line), dict)
    except (ValueError, RecursionError):
        return False


def log_files(logs: Path) -> list[Path]:
    """The logs of a conversation, the richest first. Raises OSError where the folder cannot be listed."""
    found: list[Path] = []
    for name in LOG_NAMES:
        if (logs / name).is_file():
            found.append(logs / name)
        chunks = logs / CHUNKS / name.rpartition(".")[0]
        if chunks.is_dir():
            with os.scandir(chunks) as entries:
                found += [Path(entry.path) for entry in sorted(entries, key=lambda e: e.name) if entry.is_file()]
    return found


# database


def read_database(path: Path) -> Stored:
    """Everything of a conversation's database that is read. Raises BusyError, BrokenError, OSError."""
    return foreign_db.read(path, _stored)


def _stored(db: sqlite3.Connection) -> Stored:
    tables = {name for (name,) in db.execute(TABLES)}
    rows: dict[int, dict[str, Any]] = {}
    others: list[dict[str, Any]] = []
    blob: bytes | None = None
    if "steps" in tables:
        here = {row[1] for row in db.execute("PRAGMA table_info(steps)")}
        names = [name if name in here else "NULL" for name in STEP_COLUMNS]
        if "idx" in here:
            for idx, kind, status, metadata, error, payload in db.execute(
                f"SELECT {', '.join(names)} FROM steps ORDER BY idx"
            ):
                if isinstance(idx, int) and 0 <= idx < 1 << 40:
                    row = {"type": _int(kind), "status": _int(status)}
                    packs = {"metadata": _pack(metadata), "error": _pack(error), "payload": _pack(payload)}
                    rows[idx] = row | {name: value for name, value in packs.items() if value}
    if "gen_metadata" in tables and _has(db, "gen_metadata", "idx", "data"):
        others += [_generation(idx, _message(data)) for idx, data in db.execute(GENERATIONS) if isinstance(idx, int)]
    if "executor_metadata" in tables and _has(db, "executor_metadata", "idx", "data"):
        others += [_executor(idx, _message(data)) for idx, data in db.execute(EXECUTORS) if isinstance(idx, int)]
    if "trajectory_metadata_blob" in tables and _has(db, "trajectory_metadata_blob", "id", "data"):
        row = db.execute(BLOB).fetchone()
        blob = _bytes(row[0]) if row else None
    return Stored(rows, others, blob)


def _has(db: sqlite3.Connection, table: str, *columns: str) -> bool:
    return set(columns) <= {row[1] for row in db.execute(f"PRAGMA table_info({table})")}


def _generation(idx: int, row: Message) -> dict[str, Any]:
    """One model call: its tokens, its time, the model and the steps it made."""
    call = row.message(1)
    return {
        "gen": idx,
        "usage": _pack(call.blobs(4)[-1]) if call.blobs(4) else None,
        "time": _pack(call.message(9).blobs(4)[-1]) if call.message(9).blobs(4) else None,
        "alias": call.text(19),
        "label": call.text(21),
        "steps": [place for place in packed(row.fields.get(2, []))[:10_000] if place < 1 << 40],
    }


def _executor(idx: int, row: Message) -> dict[str, Any]:
    last = row.number(3) or 0
    return {
        "executor": idx,
        "last": last if last < 1 << 40 else None,
        "model": row.message(10).message(1).text(28),
    }


def _message(data: object) -> Message:
    try:
        return Message(_bytes(data) or b"")
    except WireError:
        return EMPTY


def _bytes(value: object) -> bytes | None:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return value if isinstance(value, bytes) else None


def _pack(value: object) -> str | None:
    data = _bytes(value)
    return b64encode(data).decode() if data else None


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and abs(value) < 1 << 53 else None


# canonical raw


def lines_of(stored: Stored, logs: Logs, head: dict[str, Any]) -> Iterator[bytes]:
    """Steps in their order, each with what the database and the logs have of it; then the rest."""
    for idx in sorted({*stored.rows, *logs.lines}):
        said: dict[str, Any] = {"idx": idx}
        if idx in stored.rows:
            said["row"] = stored.rows[idx]
        if idx in logs.lines:
            said["log"] = plain(logs.lines[idx])
        yield _line(said)
    for said in stored.others:
        yield _line({name: value for name, value in said.items() if value is not None})
    head = {
        "antigravity": "steps/1",
        "blob": _pack(stored.blob),
        "malformed": logs.malformed,
        "malformed_bytes": logs.malformed_bytes,
        **head,
    }
    yield _line({name: value for name, value in head.items() if value})


def _line(said: dict[str, Any]) -> bytes:
    return msgspec.json.encode(said, order="sorted") + b"\n"


def encrypted_line(path: Path, artifacts: list[dict[str, Any]], sidebar: dict[str, Any], cwd: str | None) -> bytes:
    """All that can be said of an encrypted conversation without its key."""
    stat = path.stat()
    head: dict[str, Any] = {
        "antigravity": "pb/1",
        "size": stat.st_size,
        "mtime_ms": stat.st_mtime_ns // 1_000_000,
        "artifacts": artifacts,
        "sidebar": sidebar,
        "cwd": cwd,
    }
    return _line({name: value for name, value in head.items() if value})


def is_blank(path: Path) -> bool:
    """Whether a file holds nothing but zeros: it was made and never written."""
    with path.open("rb", buffering=0) as file:
        while data := file.read(ZERO_CHUNK):
            if data.strip(b"\0"):
                return False
    return True


def artifacts_of(brain: Path) -> list[dict[str, Any]]:
    """Kind, summary and time of the documents that a conversation made."""
    found = []
    try:
        with os.scandir(brain) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(".metadata.json"))
    except OSError:
        return []
    for name in names:
        said = json_file(brain / name)
        fields = ("artifactType", "summary", "updatedAt")
        kept = {field: plain(said[field]) for field in fields if isinstance(said.get(field), str)}
        if kept:
            found.append({"name": plain(name.removesuffix(".metadata.json")), **kept})
    return found


# sub-agents


def children_in_logs(paths: Iterable[Path]) -> dict[str, str | None]:
    """Ids and folders in the results of invoke_subagent."""
    found: dict[str, str | None] = {}
    for data in _texts(paths):
        for line in data.split(b"\n") if INVOKE in data else ():
            if INVOKE not in line:
                continue
            said = log_record(line.decode("utf-8", "replace"))
            content = said.get("content")
            if said.get("type") == INVOKE.decode() and isinstance(content, str):
                found |= _invoked(content)
    return found


def _invoked(content: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    decoder = json.JSONDecoder(strict=False)
    place = content.find("{")
    tries = 0
    while place >= 0 and tries < INVOKED:
        tries += 1
        try:
            said, end = decoder.raw_decode(content, place)
        except (ValueError, RecursionError):
            end = place + 1
            said = None
        if isinstance(said, dict) and isinstance(said.get("conversationId"), str):
            uris = said.get("workspaceUris")
            uri = uris[0] if isinstance(uris, list) and uris and isinstance(uris[0], str) else None
            found[said["conversationId"]] = path_of(uri) if uri else None
        place = content.find("{", end)
    return found


def children_in_database(path: Path) -> dict[str, str | None]:
    """The same from a database: field 10 of the body. Raises BusyError, BrokenError, OSError."""

    def look(db: sqlite3.Connection) -> list[Message]:
        if not _has(db, "steps", "step_type", "step_payload"):
            return []
        return [_message(payload) for (payload,) in db.execute(INVOKED_ROWS)]

    found: dict[str, str | None] = {}
    for payload in foreign_db.read(path, look):
        for number in payload.fields:
            if number in SERVICE_FIELDS:
                continue
            for result in payload.message(number).messages(10):
                native, uri = result.text(1), result.text(3)
                if native:
                    found[native] = path_of(uri) if uri else None
    return found
