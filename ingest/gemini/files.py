"""Files of Gemini chats as pieces of a raw: which session a file is of, and its bytes as lines.

The lines of a .jsonl are passed on byte for byte. A .json document is rewritten whole by its client; here it becomes
one line, so a raw of any generation is read by the same fold.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from prosa.ingest.chunks import file_chunks, line_chunks
from prosa.ingest.decoding import Decoder
from prosa.ingest.gemini import AGENT
from prosa.ingest.gemini.prompts import is_prompt
from prosa.ingest.importer import Report, Trouble
from prosa.ingest.json_lines import REFUSED, plain_value, values

LONG = 1 << 20
BARE = re.compile(rb'(?m)^\s*\{\s*"(?:id|timestamp|type)"\s*:')
"""A message of its own: what a stub, which a resume leaves, has not."""


class Chat(NamedTuple):
    """A chat file, and what it says of its session."""

    path: str
    session: str
    project_hash: str | None
    kind: str | None

    @property
    def is_document(self) -> bool:
        return self.path.endswith(".json")


class Head(msgspec.Struct, rename="camel"):
    session_id: str | None = None
    project_hash: str | None = None
    kind: str | None = None
    set: Head | None = msgspec.field(name="$set", default=None)


class Row(msgspec.Struct, rename="camel"):
    session_id: str = ""
    type: str = ""
    message: str = ""


_heads = Decoder(Head)
_row_of = msgspec.json.Decoder(Row).decode


def chat_of(path: str, report: Report) -> Chat | None:
    """What a file says of its session. None for an empty file and one without a header; damage is reported."""
    try:
        heads = _document_heads(path) if path.endswith(".json") else _line_heads(path)
        session = project = kind = None
        for head in heads:
            session, project, kind = session or head.session_id, project or head.project_hash, kind or head.kind
            if session and project:
                return Chat(path, session, project, kind)
    except OSError as bad:
        report(Trouble(AGENT, path, f"cannot be read: {bad.strerror or bad}"))
        return None
    except ValueError as bad:
        report(Trouble(AGENT, path, f"damaged: {bad}"))
        return None
    return None


def _line_heads(path: str) -> Iterator[Head]:
    """The lines that may name the session, mostly the first alone. Raises ValueError where none is JSON.

    One torn line alone is a client at its first writing.
    """
    bad = good = False
    with Path(path).open("rb") as file:
        for line in file:
            bad = bad or (bool(line.strip(b" \t\r\n")) and (line.endswith(b"\n") or not line.startswith(b"{")))
            if good and b'"sessionId"' not in line and b'"projectHash"' not in line:
                continue
            for head in _heads(line)[0]:
                good = True
                yield head
                if head.set is not None:
                    yield head.set
    if bad and not good:
        raise ValueError("no line of it is a JSON object")


def _document_heads(path: str) -> Iterator[Head]:
    line = document_line(path)
    if line:
        yield from _heads(line)[0]


def document_line(path: str) -> bytes:
    """A document as one line, b"" where it is empty or no object. Raises ValueError where it is damaged."""
    data = Path(path).read_bytes()
    if not data.strip(b" \t\r\n"):
        return b""
    try:
        line = msgspec.json.format(data, indent=-1)
        line.decode()
    except REFUSED:
        try:
            found, lost = values(data)
        except RecursionError:
            raise ValueError("it is nested too deep") from None
        if lost or len(found) != 1:
            raise ValueError("it is no whole JSON document") from None
        line = json.dumps(found[0], ensure_ascii=False, separators=(",", ":")).encode()
    return line if line.startswith(b"{") else b""


def pieces(first: bytes, chats: Iterable[Chat]) -> Iterator[bytes]:
    """The raw of a session. Files that grow come last, so that a longer raw continues the shorter one."""
    yield first
    ordered = sorted(chats, key=lambda chat: (Path(chat.path).name, chat.path))
    if len(ordered) > 1:
        ordered.sort(key=lambda chat: (not chat.is_document, not _is_stub(chat)))
    for number, chat in enumerate(ordered, 1):
        last = b"\n"
        for piece in _document_pieces(chat.path) if chat.is_document else file_chunks(chat.path):
            last = piece[-1:]
            yield piece
        if number < len(ordered) and last != b"\n":
            yield b"\n"


def _document_pieces(path: str) -> Iterator[bytes]:
    try:
        line = document_line(path) + b"\n"
    except ValueError as bad:
        raise OSError(f"rewritten while it was read: {bad}") from None
    yield from line_chunks([line])


def _is_stub(chat: Chat) -> bool:
    """A file that a resume began and never used: no message stands in it by itself."""
    if chat.is_document:
        return False
    tail = b""
    for piece in file_chunks(chat.path):
        if BARE.search(tail + piece):
            return False
        tail = piece[piece.rfind(b"\n") + 1 :][-LONG:]
    return True


def prompt_rows(path: str, report: Report) -> dict[str, bytes]:
    """logs.json as lines, by session: those of sessions with a prompt at least."""
    try:
        data = Path(path).read_bytes()
        if not data.strip(b" \t\r\n"):
            return {}
        rows = [bytes(row) for row in msgspec.json.decode(data, type=list[msgspec.Raw])]
    except OSError as bad:
        report(Trouble(AGENT, path, f"cannot be read: {bad.strerror}"))
        return {}
    except REFUSED:
        saved = _damaged_rows(data)
        if saved is None:
            report(Trouble(AGENT, path, "not a prompt log: no JSON array"))
            return {}
        rows = saved
    lines: dict[str, list[bytes]] = {}
    prompted: set[str] = set()
    for row in rows:
        try:
            read = _row_of(row)
            line = msgspec.json.format(row, indent=-1)
        except REFUSED:
            continue
        if read.session_id:
            lines.setdefault(read.session_id, []).append(line)
            if read.type == "user" and is_prompt(read.message):
                prompted.add(read.session_id)
    return {session: b"\n".join(lines[session]) + b"\n" for session in lines if session in prompted}


def _damaged_rows(data: bytes) -> list[bytes] | None:
    """Rows of a log with a BOM, bad UTF-8 or lone surrogates; None where it is no array."""
    try:
        found = json.loads(data.decode("utf-8", "replace").lstrip("\ufeff").replace("\0", ""), strict=False)
        rows = plain_value(found)
    except (ValueError, RecursionError):
        return None
    return [json.dumps(row, ensure_ascii=False).encode() for row in rows] if isinstance(rows, list) else None
