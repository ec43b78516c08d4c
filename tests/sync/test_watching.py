"""Servers that send without end, too slowly, or what cannot be: every question ends, in words, and nothing is lost."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest
from store import A, Store, claude_lines

from prosa.cli.pushing import caught_up
from prosa.events.errors import ProsaError
from prosa.events.messages import MSGPACK, Head, Heads, MissingAnswer, Problem
from prosa.sync import watching
from prosa.sync.http import Connection, ServerRefused, Unreachable
from prosa.sync.push import push
from prosa.sync.report import PushItem, PushSummary

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/msgpack\r\n"
Answer = Callable[[socket.socket, bytes], None]


@contextmanager
def a_server(answer: Answer) -> Iterator[Connection]:
    """Answers each request by writing to its socket, then hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    asked, _ = listening.accept()
                    threading.Thread(target=one, args=(asked,), daemon=True).start()

        def one(asked: socket.socket) -> None:
            with asked, suppress(OSError):
                head = asked.recv(65_536)
                answer(asked, head)

        threading.Thread(target=serve, daemon=True).start()
        connection = Connection(f"http://127.0.0.1:{listening.getsockname()[1]}", None, "00000000000000aa")
        try:
            yield connection
        finally:
            connection.close()
            listening.shutdown(socket.SHUT_RDWR)


def body(said: object, status: bytes = b"200 OK", kind: bytes = MSGPACK.encode()) -> bytes:
    packed = said if isinstance(said, bytes) else msgspec.msgpack.encode(said)
    head = b"HTTP/1.1 %s\r\nContent-Type: %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    return head % (status, kind, len(packed)) + packed


def endless(asked: socket.socket, _: bytes) -> None:
    asked.sendall(OK + b"\r\n")
    while True:
        asked.sendall(b"\xc0" * 65_536)


def slow(asked: socket.socket, _: bytes) -> None:
    asked.sendall(OK + b"Content-Length: 1000000\r\n\r\n")
    while True:
        asked.sendall(b"\xc0")
        time.sleep(0.05)


def slow_headers(asked: socket.socket, _: bytes) -> None:
    asked.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        asked.sendall(b"x")
        time.sleep(0.05)


def always_later(asked: socket.socket, _: bytes) -> None:
    while True:
        asked.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)


@pytest.mark.parametrize("answer", [endless, slow, slow_headers, always_later])
@pytest.mark.parametrize("way", ["ask", "get", "put"])
def test_an_answer_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch, answer: Answer, way: str) -> None:
    monkeypatch.setattr(watching, "ANSWER_S", 0.5)
    with a_server(answer) as connection:
        began = time.monotonic()
        with pytest.raises(Unreachable):
            if way == "put":
                connection.put("/v1/raw/x", b"x", 1, Heads)
            else:
                getattr(connection, way)("/v1/heads", Heads)
        assert time.monotonic() - began < 5


def test_who_reads_slowly_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "ANSWER_S", 0.5)
    size = 1_000_000
    with a_server(lambda asked, _: asked.sendall(body(bytes(size)))) as connection:
        found = 0
        for piece in connection.read("/v1/raw/x"):
            found += len(piece)
            time.sleep(0.6)
        assert found == size


@pytest.mark.parametrize("status", [b"302 Found", b"204 No Content"])
def test_a_redirect_is_no_raw(status: bytes) -> None:
    with a_server(lambda asked, _: asked.sendall(body(b"elsewhere", status))) as connection, pytest.raises(Unreachable):
        list(connection.read("/v1/raw/x"))


def test_lists_in_lists_are_not_understood() -> None:
    deep = b'{"server":' + b"[" * 100_000
    with (
        a_server(lambda asked, _: asked.sendall(body(deep, kind=b"application/json"))) as connection,
        pytest.raises(ProsaError, match="not understood"),
    ):
        connection.ask("/v1/heads", Heads)


def test_of_a_problem_as_much_is_taken_as_anybody_reads() -> None:
    long = Problem("invalid", "a" * 1_000_000, "b" * 1_000_000, retry_after_s=10**15)
    with (
        a_server(lambda asked, _: asked.sendall(body(long, b"422 No"))) as connection,
        pytest.raises(ServerRefused) as refused,
    ):
        connection.ask("/v1/heads", Heads)
    assert len(str(refused.value)) < 10_000
    assert refused.value.problem.retry_after_s == 86_400


# a push


def pushed(store: Store, connection: Connection) -> tuple[list[PushItem], PushSummary]:
    with store.log() as log:
        *items, summary = push(store.home, log, connection, lambda: caught_up(store.home, log), lambda *_: None)
    assert isinstance(summary, PushSummary)
    return [item for item in items if isinstance(item, PushItem)], summary


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path)
    made.write(A, b"".join(claude_lines(A, 2)))
    made.sync()
    return made


def says(server: str, head: Head) -> Answer:
    """A server that says the same of every origin."""

    def answer(asked: socket.socket, request: bytes) -> None:
        target = request.split(b" ")[1].decode()
        if not target.startswith("/v1/heads"):
            asked.sendall(body(MissingAnswer([])))
            return
        names = target.partition("?")[2].replace("origin=", "").replace("%40", "@").split("&")
        asked.sendall(body(Heads(server, 5, dict.fromkeys(names, head))))

    return answer


@pytest.mark.parametrize(
    ("server", "head"),
    [
        ("ab" * 16, Head(-(2**62), b"\1" * 32)),
        ("ab" * 16, Head(2**64 - 1, b"\1" * 32)),
        ("ab" * 16, Head(5, b"")),
        ("x" * 100_000, Head(0, bytes(32))),
        ("\x1b[2J", Head(0, bytes(32))),
    ],
)
def test_heads_that_cannot_be_change_nothing(store: Store, server: str, head: Head) -> None:
    before = len(store.events())
    with a_server(says(server, head)) as connection:
        items, summary = pushed(store, connection)
    assert (items, summary.status, summary.refused) == ([], "partial", 1)
    assert len(store.events()) - before <= 1, "where the log lies"


def test_a_server_that_has_more_of_every_origin_costs_one_fork_a_push(store: Store) -> None:
    with a_server(says("ab" * 16, Head(10**6, b"\1" * 32))) as connection:
        items, summary = pushed(store, connection)
    assert [item.status for item in items] == ["forked"]
    assert (summary.status, summary.refused) == ("partial", 1)
    assert "opened a moment ago" in (summary.reason or "")
