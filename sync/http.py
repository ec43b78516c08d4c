"""Asking the server: `ask` and `read` for single requests, a client that keeps its connections for all that is sent.

Single requests go through http.client, which takes 38 ms to import against 115 of httpx: an unchanged sync makes
one. Both tell the same errors in the same words.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from prosa.events.errors import ProsaError
from prosa.events.home import Home
from prosa.events.messages import DEVICE_HEADER, MSGPACK, Problem
from prosa.sync import auth_file
from prosa.sync.watching import ANSWER_BYTES, TooMuch, Watch, new_socket

if TYPE_CHECKING:
    import http.client
    import socket

    import httpx

CONNECT_S: Final = 5
READ_S: Final = 60
KEEP_S: Final = 3
"""Idle connections are not used again after this long; servers close them after 5."""
PIECE: Final = 256 * 1024
PROXIES: Final = ("https_proxy", "http_proxy", "all_proxy")
KEPT: Final = "Everything is kept here."
LOG_IN: Final = "Log in again: prosa login"

CONTENT: Final = frozenset({200, 206})
WORDS: Final = 4_000
LONGEST_S: Final = 86_400
NOT_UNDERSTOOD: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

T = TypeVar("T")
Parameters = Mapping[str, str | int | list[str] | None]


class Unreachable(ProsaError):
    """No answer of a prosa server came; trying again later is all there is to do."""

    exit_code = 4

    def __init__(self, what: str, kept: str = KEPT, next_step: str = "", retry_after_s: int | None = None) -> None:
        super().__init__(what, kept, next_step)
        self.retry_after_s = retry_after_s


class ServerRefused(ProsaError):
    """The server does not do it, and says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.what, problem.kept, problem.next_step)
        self.problem = problem
        self.exit_code = EXIT_CODES.get(problem.code, 1)


class NotLoggedIn(ServerRefused):
    """This device has no token, or one that is not taken any more."""

    exit_code = 4

    def __init__(self, problem: Problem | None = None) -> None:
        super().__init__(problem or Problem("not_logged_in", "You are not logged in.", KEPT, "Next: prosa login"))


EXIT_CODES: Final = {
    "not_logged_in": 4, "token_expired": 4, "token_revoked": 4, "other_device": 4, "forbidden": 4, "not_found": 2,
    "invalid": 2, "conflict": 3, "forked": 3,
}  # fmt: skip
LOGIN_CODES: Final = frozenset({"not_logged_in", "token_expired", "token_revoked"})
WAIT_CODES: Final = frozenset({"rate_limited", "unavailable"})


class Connection:
    """A server and who asks it. Threads may share one."""

    def __init__(
        self, server: str, token: str | None, device: str, *, server_id: str = "",
        transport: httpx.BaseTransport | None = None,
    ) -> None:  # fmt: skip
        self.server, self.device, self.server_id = server.rstrip("/"), device, server_id
        self._headers = {DEVICE_HEADER: device, "Accept": MSGPACK, "User-Agent": "prosa"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._transport = transport
        self._made: httpx.Client | None = None
        self._making = threading.Lock()
        self._sockets: list[socket.socket] = []
        """Of the client that keeps its connections."""

    @classmethod
    def of(cls, home: Home, *, transport: httpx.BaseTransport | None = None) -> Connection | None:
        """To the server this device is logged in to; None where it is not."""
        auth = auth_file.read(home)
        if auth is None:
            return None
        from prosa.events.device import identify

        return cls(auth.server, auth.token, identify().id, server_id=auth.server_id, transport=transport)

    def close(self) -> None:
        """Give its connections back; what is asked afterwards makes new ones."""
        made, self._made = self._made, None
        if made is not None:
            made.close()

    # one request

    def ask(self, path: str, kind: type[T], parameters: Parameters | None = None) -> T:
        """The answer to one GET."""
        if self._transport is not None or _has_proxy():
            return self.get(path, kind, parameters)
        with self._answer(path, parameters, {}) as (answer, watch):
            body = _whole(iter(lambda: answer.read(PIECE), b""))
            if watch.is_over:
                raise TooMuch
            if answer.length:
                raise OSError("the answer breaks off")
            return self._decoded(answer.status, answer.headers.get("content-type"), body, kind)

    def read(
        self, path: str, parameters: Parameters | None = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[bytes]:
        """The body of one GET, in pieces. Raises Unreachable where it breaks off before its end."""
        if self._transport is not None or _has_proxy():
            yield from self._stream(path, parameters, headers or {})
            return
        with self._answer(path, parameters, headers or {}) as (answer, watch):
            if answer.status not in CONTENT:
                body = _whole(iter(lambda: answer.read(PIECE), b""))
                raise self._failure(answer.status, answer.headers.get("content-type"), body)
            while piece := answer.read(PIECE):
                watch.rest()
                yield piece
                watch.again()
            if answer.length or watch.is_over:
                raise OSError("the answer breaks off")

    @contextmanager
    def _answer(
        self, path: str, parameters: Parameters | None, headers: Mapping[str, str]
    ) -> Iterator[tuple[http.client.HTTPResponse, Watch]]:
        import http.client

        parts = urlsplit(self.server)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        asked = kind(parts.hostname or "", parts.port, timeout=CONNECT_S)
        try:
            asked.connect()
            asked.sock.settimeout(READ_S)
            with Watch([asked.sock]) as watch:
                asked.request("GET", f"{parts.path}{_target(path, parameters)}", headers=self._headers | dict(headers))
                yield asked.getresponse(), watch
        except (OSError, http.client.HTTPException) as bad:
            raise self._unreachable(bad) from None
        finally:
            asked.close()

    # many requests

    def get(self, path: str, kind: type[T], parameters: Parameters | None = None) -> T:
        return self._send("GET", _target(path, parameters), kind)

    def post(self, path: str, question: Any, kind: type[T]) -> T:
        """The answer to a struct, sent as msgpack; None: without a body."""
        body = b"" if question is None else msgspec.msgpack.encode(question)
        return self._send("POST", _target(path, None), kind, body, {"Content-Type": MSGPACK})

    def put(
        self, path: str, content: Iterable[bytes] | bytes, size: int, kind: type[T],
        parameters: Parameters | None = None, headers: Mapping[str, str] | None = None,
    ) -> T:  # fmt: skip
        """The answer to bytes of known size, sent as they come."""
        sent = {"Content-Type": "application/octet-stream", "Content-Length": str(size)} | dict(headers or {})
        return self._send("PUT", _target(path, parameters), kind, content, sent)

    def _send(
        self, method: str, target: str, kind: type[T], content: Iterable[bytes] | bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> T:  # fmt: skip
        import httpx

        url, size = f"{self.server}{target}", int((headers or {}).get("Content-Length", 0))
        asked = self._client().build_request(
            method, url, content=content, headers=headers, extensions={"trace": self._trace}
        )
        try:
            with Watch(self._sockets, size):
                answer = self._client().send(asked, stream=True)
                with contextlib.closing(answer):
                    body = _whole(answer.iter_bytes(PIECE))
        except (httpx.HTTPError, TooMuch) as bad:
            raise self._unreachable(bad) from None
        return self._decoded(answer.status_code, answer.headers.get("content-type"), body, kind)

    def _stream(self, path: str, parameters: Parameters | None, headers: Mapping[str, str]) -> Iterator[bytes]:
        import httpx

        url = f"{self.server}{_target(path, parameters)}"
        try:
            with (
                Watch(self._sockets) as watch,
                self._client().stream("GET", url, headers=headers, extensions={"trace": self._trace}) as answer,
            ):
                if answer.status_code not in CONTENT:
                    body = _whole(answer.iter_bytes(PIECE))
                    raise self._failure(answer.status_code, answer.headers.get("content-type"), body)
                for piece in answer.iter_bytes(PIECE):
                    watch.rest()
                    yield piece
                    watch.again()
        except (httpx.HTTPError, TooMuch) as bad:
            raise self._unreachable(bad) from None

    def _trace(self, name: str, info: dict[str, Any]) -> None:
        if (opened := new_socket(name, info)) is not None:
            self._sockets[:] = [each for each in self._sockets if each.fileno() != -1] + [opened]

    def _client(self) -> httpx.Client:
        with self._making:
            if self._made is None:
                import ssl

                import httpx

                self._made = httpx.Client(
                    headers=self._headers,
                    timeout=httpx.Timeout(READ_S, connect=CONNECT_S),
                    limits=httpx.Limits(keepalive_expiry=KEEP_S),
                    verify=ssl.create_default_context() if self.server.startswith("https:") else False,
                    transport=self._transport,
                )
            return self._made

    # answers

    def _decoded(self, status: int, content_type: str | None, body: bytes, kind: type[T]) -> T:
        if status >= 300:
            raise self._failure(status, content_type, body)
        media = _media(content_type)[:100]
        if media not in (MSGPACK, "application/json"):
            raise self._stranger(status, media)
        decode = msgspec.msgpack.decode if media == MSGPACK else msgspec.json.decode
        try:
            return decode(body, type=kind)
        except NOT_UNDERSTOOD as bad:
            raise ProsaError(
                f"The answer of {self.server} is not understood: {bad}.", KEPT, "Upgrade prosa, or the server."
            ) from None

    def _failure(self, status: int, content_type: str | None, body: bytes) -> ProsaError:
        media = _media(content_type)
        decode = msgspec.msgpack.decode if media == MSGPACK else msgspec.json.decode
        try:
            problem = decode(body, type=Problem)
        except NOT_UNDERSTOOD:
            return self._stranger(status, media)
        problem = _cut(problem)
        if problem.code in WAIT_CODES:
            return Unreachable(problem.what, problem.kept or KEPT, problem.next_step, problem.retry_after_s)
        return NotLoggedIn(problem) if problem.code in LOGIN_CODES else ServerRefused(problem)

    def _stranger(self, status: int, media: str) -> Unreachable:
        said = f"it answered {status} with {media}" if media else f"it answered {status}"
        return Unreachable(f"{self.server} does not answer as a prosa server: {said}.", next_step=LOG_IN)

    def _unreachable(self, why: Exception) -> Unreachable:
        said = str(why) or type(why).__name__
        return Unreachable(f"{self.server} cannot be reached: {said}.", next_step="Try again when it can.")


def _whole(pieces: Iterator[bytes]) -> bytes:
    """An answer that has an end. Raises TooMuch."""
    body = bytearray()
    for piece in pieces:
        body += piece
        if len(body) > ANSWER_BYTES:
            raise TooMuch
    return bytes(body)


def _cut(problem: Problem) -> Problem:
    """As much of it as anybody reads: it is printed, and kept in the log."""
    what, kept, next_step = (text[:WORDS] for text in (problem.what, problem.kept, problem.next_step))
    wait_s = problem.retry_after_s
    return Problem(problem.code, what, kept, next_step, None if wait_s is None else min(max(wait_s, 0), LONGEST_S))


def segment(text: str) -> str:
    """Text of any kind as one segment of a path."""
    return quote(text, safe="")


def _target(path: str, parameters: Parameters | None) -> str:
    query = urlencode({k: v for k, v in (parameters or {}).items() if v is not None}, doseq=True)
    return f"{path}?{query}" if query else path


def _media(content_type: str | None) -> str:
    return (content_type or "").split(";")[0].strip()


def _has_proxy() -> bool:
    """http.client knows no proxies."""
    return any(os.environ.get(name) or os.environ.get(name.upper()) for name in PROXIES)
