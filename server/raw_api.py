"""The endpoints of raw: which the server lacks, uploads whole and in parts, and its bytes as the agent wrote them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from prosa.events.messages import (
    MISSING_LIMIT,
    SIZE_HEADER,
    MissingAnswer,
    MissingQuestion,
    RawJoin,
    RawPart,
    RawParts,
    RawStored,
)
from prosa.server import uploads
from prosa.server.endpoints import Call, Endpoint, Refused
from prosa.server.frames import plain_range
from prosa.server.raws import raw_name
from prosa.server.state import Server

DIGEST: Final = re.compile(r"[0-9a-f]{64}")
RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
LARGEST: Final = 1 << 36
"""Bytes of an original. Whoever says more has the server decode for an hour."""


class Part(NamedTuple):
    """Bytes `start` to before `end` of an original."""

    start: int
    end: int


async def missing(call: Call) -> MissingAnswer:
    question: MissingQuestion = call.question
    if len(question.raws) > MISSING_LIMIT:
        raise Refused("too_large", f"{len(question.raws):,} raws are more than {MISSING_LIMIT:,}.")
    return MissingAnswer(await uploads.missing(call.server, [_digest(raw.sha256) for raw in question.raws]))


async def put(call: Call) -> RawStored:
    return await uploads.keep(call.server, _asked(call), _size(call.request), call.request.stream())


async def put_part(call: Call) -> RawPart:
    number = call.request.path_params["number"]
    if not 1 <= number <= uploads.PARTS:
        raise Refused("invalid", f"Parts are numbered 1 to {uploads.PARTS:,}, not {number}.")
    part = _digest(call.parameter("sha256") or "")
    return await uploads.keep_part(call.server, _asked(call), number, part, call.request.stream())


async def parts(call: Call) -> RawParts:
    return await uploads.parts(call.server, _asked(call))


async def join(call: Call) -> RawStored:
    question: RawJoin = call.question
    if not 0 <= question.size <= LARGEST:
        raise Refused("invalid", f"size is {question.size}, not between 0 and {LARGEST:,}.")
    return await uploads.join(call.server, _asked(call), question.size, [_digest(part) for part in question.parts])


async def get(call: Call) -> Response:
    return await raw_response(call.server, call.request, _asked(call))


async def raw_response(server: Server, request: Request, sha256: str) -> Response:
    """A raw's original bytes, or the part of them that Range names. Raises Refused(not_found)."""
    row = await server.pool.fetchrow(uploads.ROW, server.owner, sha256)
    name = raw_name(sha256)
    if row is None or await server.raws.size(name) is None:
        raise Refused("not_found", f"The server does not hold raw {sha256}.")
    size, headers = row["size"], {"Accept-Ranges": "bytes", "ETag": f'"{sha256}"', "Cache-Control": "private"}
    part, status = _part(request, sha256, size), 200
    if part is None:
        return Response(status_code=416, headers={**headers, "Content-Range": f"bytes */{size}"})
    if part.end - part.start < size:
        status, headers["Content-Range"] = 206, f"bytes {part.start}-{part.end - 1}/{size}"
    headers["Content-Length"] = str(part.end - part.start)
    media = "application/octet-stream"
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers, media_type=media)
    pieces = plain_range(server.raws.read(name), part.start, part.end)
    return StreamingResponse(pieces, status, headers, media)


def _part(request: Request, sha256: str, size: int) -> Part | None:
    """What Range asks for; None: that is not in it. Several ranges, or another state, are answered by the whole."""
    found = RANGE.fullmatch(request.headers.get("range", ""))
    if not found or found[0] == "bytes=-" or request.headers.get("if-range", f'"{sha256}"') != f'"{sha256}"':
        return Part(0, size)
    if not found[1]:
        start, end = max(0, size - int(found[2])), size
    else:
        start, end = int(found[1]), min(int(found[2]) + 1, size) if found[2] else size
        if found[2] and int(found[2]) < start:
            return Part(0, size)
    return Part(start, end) if start < end else None


def _asked(call: Call) -> str:
    return _digest(call.request.path_params["sha256"])


def _digest(text: str) -> str:
    if not DIGEST.fullmatch(text):
        raise Refused("invalid", f"{text[:80]!r} is no sha256: that is 64 hex digits in lower case.")
    return text


def _size(request: Request) -> int:
    text = request.headers.get(SIZE_HEADER, "")
    if not (text.isascii() and text.isdigit() and len(text) < 20) or int(text) > LARGEST:
        raise Refused("invalid", f"{SIZE_HEADER} is {text[:40]!r}, not the bytes of the original.")
    return int(text)


ENDPOINTS: Final = (
    Endpoint(
        "POST", "/v1/raw/missing", "device", missing, "Which of these the server does not hold", MissingAnswer,
        MissingQuestion,
    ),
    Endpoint("GET", "/v1/raw/{sha256}", "everything", get, "The original bytes, or a range of them"),
    Endpoint(
        "PUT", "/v1/raw/{sha256}", "device", put, f"Keep a raw: zstd frames; {SIZE_HEADER} has the original's size",
        RawStored,
    ),
    Endpoint("GET", "/v1/raw/{sha256}/parts", "device", parts, "The parts of an upload that are there", RawParts),
    Endpoint(
        "PUT", "/v1/raw/{sha256}/parts/{number:int}", "device", put_part, "One part of an upload", RawPart,
        parameters=(("sha256", str, "Of the part's bytes."),),
    ),
    Endpoint("POST", "/v1/raw/{sha256}/join", "device", join, "Keep the raw that these parts make", RawStored, RawJoin),
)  # fmt: skip
