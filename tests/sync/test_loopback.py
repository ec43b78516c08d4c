"""The page on 127.0.0.1 that a login's answer comes back to."""

from __future__ import annotations

import http.client
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from urllib.parse import urlencode

import pytest

from prosa.sync.loopback import Answer, Listener

STATE = "s" * 43


@pytest.fixture
def browser() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.fixture
def listener(browser: ThreadPoolExecutor) -> Iterator[Listener]:
    """Closed before the browser, whose visits would wait for it."""
    made = Listener(STATE)
    yield made
    made.close()


class Page:
    """What a browser got."""

    def __init__(self, status: int, headers: http.client.HTTPMessage, text: str) -> None:
        self.status, self.headers, self.text = status, headers, text


def visit(listener: Listener, path: str, method: str = "GET", host: str | None = None) -> Page:
    asked = http.client.HTTPConnection(listener.host, timeout=5)
    try:
        asked.request(method, path, headers={"Host": host or listener.host})
        answer = asked.getresponse()
        return Page(answer.status, answer.headers, answer.read().decode())
    finally:
        asked.close()


def callback(**said: str) -> str:
    return f"/callback?{urlencode(said)}"


def visiting(browser: ThreadPoolExecutor, listener: Listener, path: str) -> Future[Page]:
    return browser.submit(visit, listener, path)


def test_the_code_arrives_and_the_page_says_how_it_ended(listener: Listener, browser: ThreadPoolExecutor) -> None:
    visited = visiting(browser, listener, callback(code="c0de", state=STATE))
    assert listener.wait(5) == Answer("c0de", None)
    time.sleep(0.1)
    assert not visited.done(), "the page waits for the token"
    listener.show("done")
    page = visited.result(5)
    assert page.status == 200
    assert "This machine is logged in" in page.text
    assert "c0de" not in page.text
    assert page.headers["Cache-Control"] == "no-store"
    assert page.headers["Referrer-Policy"] == "no-referrer"
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert "Python" not in page.headers["Server"]


def test_the_page_does_not_say_logged_in_where_that_failed(listener: Listener, browser: ThreadPoolExecutor) -> None:
    visited = visiting(browser, listener, callback(code="c0de", state=STATE))
    listener.wait(5)
    listener.close()
    assert (visited.result(5).status, "did not work" in visited.result().text) == (502, True)


def test_after_its_answer_nothing_listens(listener: Listener, browser: ThreadPoolExecutor) -> None:
    visiting(browser, listener, callback(code="c0de", state=STATE))
    listener.wait(5)
    with pytest.raises(ConnectionRefusedError):
        visit(listener, callback(code="second", state=STATE))


def test_of_two_answers_at_once_one_counts(listener: Listener, browser: ThreadPoolExecutor) -> None:
    gate = threading.Barrier(4)

    def knock(number: int) -> Page:
        gate.wait(5)
        return visit(listener, callback(code=f"c{number}", state=STATE))

    visits = [browser.submit(knock, number) for number in range(4)]
    time.sleep(0.3)  # all of them are in before anybody waits
    first = listener.wait(5)
    listener.show("done")
    pages = [each.result(5) for each in visits]
    assert sorted(page.status for page in pages) == [200, 410, 410, 410]
    (taken,) = [number for number, page in enumerate(pages) if page.status == 200]
    assert first == Answer(f"c{taken}", None)


def test_a_refusal_arrives(listener: Listener, browser: ThreadPoolExecutor) -> None:
    visited = visiting(browser, listener, callback(error="access_denied", state=STATE))
    assert listener.wait(5) == Answer(None, "access_denied")
    assert "The login was refused" in visited.result(5).text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (callback(code="c", state="another"), 400),
        (callback(code="c", state=""), 400),
        (callback(code="c"), 400),
        (callback(code="", state=STATE), 400),
        (callback(state=STATE), 400),
        (callback(code="c", error="e", state=STATE), 400),
        (f"{callback(code='c', state=STATE)}&code=d", 400),
        (f"{callback(code='c', state=STATE)}&state={STATE}", 400),
        (callback(code="c", state="é"), 400),
        (callback(code="c" * 5_000, state=STATE), 404),
        (f"/callback/?code=c&state={STATE}", 404),
        (f"/other?code=c&state={STATE}", 404),
        ("/", 404),
        ("/favicon.ico", 404),
    ],
)
def test_whatever_else_knocks_is_turned_away_and_the_login_waits_on(
    path: str, status: int, listener: Listener, browser: ThreadPoolExecutor
) -> None:
    assert visit(listener, path).status == status
    visiting(browser, listener, callback(code="right", state=STATE))
    assert listener.wait(5) == Answer("right", None)


@pytest.mark.parametrize("method", ["POST", "HEAD", "PUT", "OPTIONS"])
def test_only_get_is_an_answer(method: str, listener: Listener) -> None:
    assert visit(listener, callback(code="c", state=STATE), method).status == 501
    assert listener.wait(0.2) is None


def test_another_host_is_no_answer(listener: Listener) -> None:
    """A page of somebody else whose name leads to 127.0.0.1."""
    assert visit(listener, callback(code="c", state=STATE), host="evil.example").status == 404
    assert listener.wait(0.2) is None


def test_connections_that_say_nothing_hold_nothing_up(listener: Listener, browser: ThreadPoolExecutor) -> None:
    host, _, port = listener.host.partition(":")
    ahead = [socket.create_connection((host, int(port))) for _ in range(8)]
    visiting(browser, listener, callback(code="c", state=STATE))
    began = time.monotonic()
    assert listener.wait(5) == Answer("c", None)
    listener.show("done")
    assert time.monotonic() - began < 2
    for each in ahead:
        each.close()


def test_a_browser_that_goes_away_leaves_no_traceback(
    listener: Listener, browser: ThreadPoolExecutor, capfd: pytest.CaptureFixture[str]
) -> None:
    host, _, port = listener.host.partition(":")
    with socket.create_connection((host, int(port))) as gone:
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        gone.sendall(f"GET {callback(code='c', state=STATE)} HTTP/1.1\r\nHost: {listener.host}\r\n\r\n".encode())
        assert listener.wait(5) == Answer("c", None)
    listener.show("done")
    assert capfd.readouterr() == ("", "")


def test_it_listens_on_loopback_alone(listener: Listener) -> None:
    port = int(re.fullmatch(r"127\.0\.0\.1:(\d+)", listener.host)[1])  # type: ignore[index]
    assert listener.redirect_uri == f"http://127.0.0.1:{port}/callback"
    with socket.socket() as other:
        other.bind(("127.0.0.2", port))  # would be in use if all addresses were taken


def test_two_logins_have_two_ports(listener: Listener) -> None:
    other = Listener(STATE)
    assert other.host != listener.host
    other.close()
