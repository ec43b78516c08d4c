"""One endpoint as data, and what every endpoint has in common: who may call it, decoding, encoding, errors.

A handler knows nothing of HTTP unless it must: it gets a `Call` and returns a struct, or a Response where it streams.
The list of all endpoints (routes.py) is also what /v1/openapi.json and the table of the access test are made from.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, NamedTuple

import msgspec
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from prosa.events.errors import ProsaError
from prosa.events.messages import MSGPACK, Problem
from prosa.server.state import Server

Access = Literal["public", "reports", "metadata", "everything", "devices", "device", "owner"]
"""The least a caller must be. reports < metadata < everything are reading, and app tokens have one of them. A device
may read everything and do what `device` says; an owner (signed in, or with the admin token) may do all but push as a
device. Both may do what `devices` says: see to the list of them."""
Scope = Literal["reports", "metadata", "everything", "device", "admin"]

MAY: dict[Scope, frozenset[Access]] = {
    "reports": frozenset({"public", "reports"}),
    "metadata": frozenset({"public", "reports", "metadata"}),
    "everything": frozenset({"public", "reports", "metadata", "everything"}),
    "device": frozenset({"public", "reports", "metadata", "everything", "devices", "device"}),
    "admin": frozenset({"public", "reports", "metadata", "everything", "devices", "owner"}),
}
STATUS = {
    "not_logged_in": 401, "token_expired": 401, "token_revoked": 401, "other_device": 403, "forbidden": 403,
    "not_found": 404, "invalid": 422, "conflict": 409, "forked": 409, "too_large": 413, "rate_limited": 429,
    "unavailable": 503,
}  # fmt: skip
BODY_LIMIT = 64 * 1024 * 1024
"""Bytes of a decoded body; uploads of raw are streamed and have their own."""

PUBLIC_BODY_LIMIT = 64 * 1024
"""Of a body that anybody may send."""

LARGEST: Final = 10**18

log = logging.getLogger(__name__)


class Whole(IntegerConvertor):
    """`{…:int}` of a path: of any length, which Python's own conversion refuses above 4,300 digits."""

    def convert(self, value: str) -> int:
        return int(value) if len(value) < 19 else LARGEST


register_url_convertor("int", Whole())


class Refused(ProsaError):
    """A call that is not done; `problem` is its answer."""

    def __init__(self, code: str, what: str, kept: str = "", next_step: str = "", retry_after_s: int | None = None):
        super().__init__(what, kept, next_step)
        self.problem = Problem(code, what, kept, next_step, retry_after_s)


class Caller(NamedTuple):
    """Who asks."""

    scope: Scope | None
    """None: nobody, on a public route."""
    device: str | None = None
    """Fingerprint of the machine that asks: the one the token was issued to, or one that a merge ties to it."""
    token: str | None = None
    """Public id of the token."""
    owner: str = ""
    """E-mail of the owner, for `by`."""

    @property
    def by(self) -> str:
        """For events."""
        return self.device or self.owner or "admin"


class Call(NamedTuple):
    """One request."""

    server: Server
    caller: Caller
    request: Request
    question: Any = None
    """The decoded body, of the endpoint's question type."""

    def parameter(self, name: str, default: str | None = None) -> str | None:
        return self.request.query_params.get(name, default)

    def number(self, name: str, default: int, least: int = 0, most: int = 1_000_000_000) -> int:
        """A whole number of the query string. Refuses what is none or out of bounds."""
        text = self.request.query_params.get(name)
        if text is None or text == "":
            return default
        try:
            found = int(text)
        except ValueError:
            raise Refused("invalid", f"{name} is {text!r}, not a number.") from None
        if not least <= found <= most:
            raise Refused("invalid", f"{name} is {found}, not between {least} and {most}.")
        return found


Handler = Callable[[Call], Awaitable[Any]]


class Endpoint(NamedTuple):
    """Method, path as Starlette reads it, least access, and what is asked and answered."""

    method: str
    path: str
    access: Access
    handler: Handler
    summary: str
    answer: Any = None
    """Type of the answer, for the OpenAPI document; None: the handler makes its own Response."""
    question: Any = None
    """Type of the body; None: there is none, or the handler reads it."""
    parameters: tuple[tuple[str, type, str], ...] = ()
    """Of the query string: name, type, what it is."""


Authenticate = Callable[[Server, Request], Awaitable[Caller]]


def route(server: Server, endpoint: Endpoint, authenticate: Authenticate) -> Route:
    """The endpoint as Starlette takes it."""

    async def answer(request: Request) -> Response:
        try:
            caller = await authenticate(server, request) if endpoint.access != "public" else Caller(None)
            check_access(endpoint, caller)
            question = await _question(endpoint, request)
            result = await endpoint.handler(Call(server, caller, request, question))
        except Refused as refused:
            return problem(request, refused.problem)
        except ProsaError as error:
            code = {2: "invalid", 3: "conflict"}.get(error.exit_code, "unavailable")
            return problem(request, Problem(code, error.what, error.kept, error.next_step))
        return result if isinstance(result, Response) else encoded(request, result)

    return Route(endpoint.path, answer, methods=[endpoint.method], name=f"{endpoint.method} {endpoint.path}")


def check_access(endpoint: Endpoint, caller: Caller) -> None:
    """Raises Refused where the caller is not enough."""
    if endpoint.access == "public":
        return
    if caller.scope is None:
        raise Refused("not_logged_in", "This needs a login.", "Nothing was done.", "Run prosa login")
    if endpoint.access not in MAY[caller.scope]:
        raise Refused("forbidden", f"A token for {caller.scope} may not do this.", "Nothing was done.")


async def _question(endpoint: Endpoint, request: Request) -> Any:
    if endpoint.question is None:
        return None
    body, most = bytearray(), PUBLIC_BODY_LIMIT if endpoint.access == "public" else BODY_LIMIT
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            raise Refused("too_large", f"The body is larger than {most:,} bytes.")
    decode = msgspec.msgpack.decode if _is_msgpack(request.headers.get("content-type")) else msgspec.json.decode
    try:
        return decode(bytes(body), type=endpoint.question)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as bad:
        raise Refused("invalid", f"The body is not what is asked for here: {bad}.") from None


def encoded(request: Request, answer: Any, status: int = 200) -> Response:
    """As JSON, or as msgpack where the caller takes that."""
    if _is_msgpack(request.headers.get("accept")):
        return Response(msgspec.msgpack.encode(answer), status, media_type=MSGPACK)
    return Response(msgspec.json.encode(answer), status, media_type="application/json")


def problem(request: Request, why: Problem) -> Response:
    answer = encoded(request, why, STATUS.get(why.code, 500))
    if why.retry_after_s is not None:
        answer.headers["Retry-After"] = str(why.retry_after_s)
    if answer.status_code == 401:
        answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


def _is_msgpack(header: str | None) -> bool:
    return header is not None and header.split(";")[0].strip() == MSGPACK
