"""How the command line reaches a server, and in what words it says that it does not."""

from __future__ import annotations

import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pushes import Devices
from store import Store

from prosa.events.errors import ProsaError
from prosa.events.messages import Heads, MissingAnswer, MissingQuestion, WhoAmI
from prosa.sync import auth_file
from prosa.sync.http import Connection, NotLoggedIn, ServerRefused, Unreachable


@contextmanager
def answering(reply: bytes) -> Iterator[str]:
    """A socket that answers every connection with these bytes, whatever it is asked."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            while True:
                try:
                    one, _ = listening.accept()
                except OSError:
                    return
                with one:
                    one.recv(65536)
                    one.sendall(reply)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def reply(status: str, kind: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def by_both(url: str) -> Iterator[BaseException]:
    """What a single request and one of the client end with."""
    connection = Connection(url, "t", "d")
    for ask in (connection.ask, connection.get):
        try:
            ask("/v1/heads", Heads)
        except ProsaError as error:
            yield error
        else:
            pytest.fail("it was answered")
    connection.close()


def test_a_server_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    for error in by_both(url):
        assert isinstance(error, Unreachable) and error.exit_code == 4
        assert str(error).startswith(f"{url} cannot be reached: ")
        assert "Everything is kept here." in str(error)


@pytest.mark.parametrize(
    "answer",
    [
        reply("200 OK", "text/html", b"<p>Log in to the hotel's network</p>"),
        reply("302 Found", "text/html", b""),
        reply("502 Bad Gateway", "text/html", b"<h1>502</h1>"),
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"",
    ],
)
def test_something_else_than_a_prosa_server(answer: bytes) -> None:
    with answering(answer) as url:
        for error in by_both(url):
            assert isinstance(error, Unreachable), error


def test_an_answer_of_another_version_asks_for_an_upgrade() -> None:
    with answering(reply("200 OK", "application/json", b'{"server": 1}')) as url:
        for error in by_both(url):
            assert not isinstance(error, Unreachable)
            assert "Upgrade prosa, or the server." in str(error)


@pytest.mark.parametrize(
    ("status", "code", "kind", "exit_code"),
    [
        ("401 Unauthorized", "token_expired", NotLoggedIn, 4),
        ("403 Forbidden", "other_device", ServerRefused, 4),
        ("409 Conflict", "forked", ServerRefused, 3),
        ("404 Not Found", "not_found", ServerRefused, 2),
        ("413 Too Large", "too_large", ServerRefused, 1),
        ("429 Too Many", "rate_limited", Unreachable, 4),
        ("503 Unavailable", "unavailable", Unreachable, 4),
    ],
)
def test_a_problem_is_an_error_with_its_words(status: str, code: str, kind: type[Exception], exit_code: int) -> None:
    body = f'{{"code": "{code}", "what": "What happened.", "kept": "", "next_step": "Do this."}}'.encode()
    with answering(reply(status, "application/json", body)) as url:
        for error in by_both(url):
            assert type(error) is kind
            assert (error.exit_code, error.what, error.next_step) == (exit_code, "What happened.", "Do this.")  # type: ignore[attr-defined]


def test_both_ways_to_ask_give_the_same(devices: Devices) -> None:
    device = devices()
    device.sync()
    connection = Connection(device.served.url, device.token, device.fingerprint)
    assert connection.ask("/v1/whoami", WhoAmI) == connection.get("/v1/whoami", WhoAmI)
    assert connection.post("/v1/raw/missing", MissingQuestion([]), MissingAnswer) == MissingAnswer([])
    connection.close()
    other = Connection(device.served.url, device.token, "00000000000000bb")
    with pytest.raises(ServerRefused) as refused:
        other.ask("/v1/whoami", WhoAmI)
    assert refused.value.problem.code == "other_device"
    nobody = Connection(device.served.url, None, device.fingerprint)
    with pytest.raises(NotLoggedIn):
        nobody.ask("/v1/whoami", WhoAmI)


def test_a_body_that_breaks_off_is_no_body() -> None:
    whole = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 100\r\n\r\n" + b"x" * 40
    with answering(whole) as url, pytest.raises(Unreachable):
        list(Connection(url, "t", "d").read("/v1/raw/x"))


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(reply("200 OK", "application/json", b'{"server": "aa", "position": 3, "origins": {}}')) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        connection = Connection("http://prosa.example", "t", "d")
        assert connection.ask("/v1/heads", Heads).position == 3
        connection.close()


def test_the_login_is_private_and_whole(store: Store) -> None:
    auth = auth_file.Auth(server="https://prosa.example", token="secret", device="d", server_id="00", owner="me")
    auth_file.write(store.home, auth)
    path = auth_file.path(store.home)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert auth_file.read(store.home) == auth
    path.write_text("{")
    with pytest.raises(ProsaError, match="prosa login"):
        auth_file.read(store.home)
    assert auth_file.remove(store.home) and not auth_file.remove(store.home)
    assert auth_file.read(store.home) is None
