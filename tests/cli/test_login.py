"""Logging in and out against a real server: the browser, a code, refusals, replacing, revoking, offline."""

from __future__ import annotations

import contextlib
import http.server
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from cluster import a_cluster, new_database
from served import OWNER, Owner, Served, a_server

from prosa.events.device import identify
from prosa.events.home import Home
from prosa.events.log import Log
from prosa.events.messages import WhoAmI
from prosa.server.postgres import Cluster
from prosa.sync import auth_file
from prosa.sync.auth_file import Auth
from prosa.sync.http import Connection, NotLoggedIn

URL = re.compile(r"http://127\.0\.0\.1:\d+/authorize\?request=[\w-]+")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with a_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def served(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with a_server(new_database(cluster), tmp_path_factory.mktemp("server")) as served:
        yield served


@pytest.fixture
def owner(served: Served) -> Iterator[Owner]:
    with served.owner() as owner:
        yield owner


@pytest.fixture
def here(home: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A machine without a display."""
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    return Home.of()


@pytest.fixture
def opened(here: Home, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a browser: a program that writes down what it is to open."""
    browser, opened = home / "browser", home / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" >"{opened}.new" && mv "{opened}.new" "{opened}"\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(browser))
    return opened


class Prosa:
    """A command in a process of its own."""

    def __init__(self, *words: str, stdin: int = subprocess.DEVNULL) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "prosa", *words],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, typed: str | None = None) -> tuple[int, str]:
        """Exit code, and what it said; nothing of it is data."""
        out, err = self.process.communicate(typed, timeout=60)
        assert out == ""
        assert "Traceback" not in err
        return self.process.returncode, err

    def told(self, pattern: re.Pattern[str]) -> str:
        """What matches in the lines it says until then."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := pattern.search(line):
                return found[0]
        raise AssertionError("it ended without saying so")


@contextlib.contextmanager
def running(*words: str, stdin: int = subprocess.DEVNULL) -> Iterator[Prosa]:
    prosa = Prosa(*words, stdin=stdin)
    try:
        yield prosa
    finally:
        prosa.process.kill()
        prosa.process.communicate()


def eventually(path: Path) -> str:
    for _ in range(600):
        if path.exists():
            return path.read_text().strip()
        time.sleep(0.05)
    raise AssertionError(f"there is no {path}")


def who(auth: Auth) -> WhoAmI:
    return Connection(auth.server, auth.token, identify().id).ask("/v1/whoami", WhoAmI)


def log_in(served: Served, owner: Owner) -> Auth:
    """By a code, and what is written of it."""
    with running("login", "--server", served.url, "--no-browser", stdin=subprocess.PIPE) as prosa:
        code, _ = prosa.end(owner.code(prosa.told(URL)))
    assert code == 0
    auth = auth_file.read(Home.of())
    assert auth is not None
    return auth


def local_events(here: Home) -> list[str]:
    with Log(here.log) as log:
        return [event.type for event in log.read() if event.stream.startswith("login-")]


def test_by_the_browser(served: Served, owner: Owner, here: Home, opened: Path) -> None:
    with running("login", "--server", f"{served.url}/") as prosa:
        answer = owner.decide(eventually(opened), "approve")
        back = answer.headers["location"]
        assert re.match(r"http://127\.0\.0\.1:\d+/callback\?code=", back)
        page = httpx.get(back, trust_env=False)
        code, said = prosa.end()
    assert (code, page.status_code) == (0, 200)
    assert "This machine is logged in" in page.text
    assert f"Logged in to {served.url} as {OWNER}" in said
    auth = auth_file.read(here)
    assert auth is not None
    assert (auth.server, auth.device, auth.owner, auth.server_id) == (
        served.url,
        identify().id,
        OWNER,
        served.server.id,
    )
    assert auth_file.path(here).stat().st_mode & 0o777 == 0o600
    assert who(auth).scope == "device"
    assert not here.log.exists(), "a login alone makes no log"
    with pytest.raises(httpx.ConnectError):
        httpx.get(back, trust_env=False)


def test_what_the_browser_is_shown_and_the_terminal_says_holds_no_secret(
    served: Served, owner: Owner, here: Home, opened: Path
) -> None:
    with running("login", "--server", served.url) as prosa:
        back = owner.decide(eventually(opened), "approve").headers["location"]
        page = httpx.get(back, trust_env=False)
        _, said = prosa.end()
    auth = auth_file.read(here)
    assert auth is not None
    code = re.findall(r"code=([\w-]+)", back)[0]
    for secret in (auth.token, code):
        assert secret not in said + page.text + opened.read_text()


def test_refused_by_the_owner(served: Served, owner: Owner, here: Home, opened: Path) -> None:
    with running("login", "--server", served.url) as prosa:
        page = httpx.get(owner.decide(eventually(opened), "refuse").headers["location"], trust_env=False)
        code, said = prosa.end()
    assert (code, "The login was refused.\nNothing was changed.\n" in said) == (4, True)
    assert "The login was refused" in page.text
    assert auth_file.read(here) is None


def test_an_answer_with_another_state_changes_nothing(served: Served, owner: Owner, here: Home, opened: Path) -> None:
    with running("login", "--server", served.url) as prosa:
        back = owner.decide(eventually(opened), "approve").headers["location"]
        forged = re.sub(r"state=[\w-]+", f"state={'x' * 43}", back)
        assert httpx.get(forged, trust_env=False).status_code == 400
        assert prosa.process.poll() is None
        assert httpx.get(back, trust_env=False).status_code == 200
        assert prosa.end()[0] == 0


def test_a_code_of_another_login_is_no_login(served: Served, owner: Owner, here: Home, opened: Path) -> None:
    with running("login", "--server", served.url) as prosa, running("login", "--server", served.url) as other:
        first = eventually(opened)
        opened.unlink(missing_ok=True)
        shown = {other.told(URL), prosa.told(URL)}
        second = next(url for url in shown if url != first)
        stolen = re.findall(r"code=([\w-]+)", owner.decide(second, "approve").headers["location"])[0]
        back = owner.decide(first, "approve").headers["location"]
        page = httpx.get(re.sub(r"code=[\w-]+", f"code={stolen}", back), trust_env=False)
        assert (page.status_code, "did not work" in page.text) == (502, True)
        ended = [each for each in (prosa, other) if wait_end(each)]
        assert [each.end()[0] for each in ended] == [4]
    assert auth_file.read(here) is None


def wait_end(prosa: Prosa) -> bool:
    try:
        prosa.process.wait(3)
    except subprocess.TimeoutExpired:
        return False
    return True


def test_the_browser_is_not_told_of_a_login_that_could_not_be_kept(
    served: Served, owner: Owner, here: Home, opened: Path
) -> None:
    valid = "SELECT count(*) FROM tokens WHERE revoked_at_us IS NULL"
    before = served.run(lambda server: server.pool.fetchval(valid))
    with running("login", "--server", served.url) as prosa:
        back = owner.decide(eventually(opened), "approve").headers["location"]
        (here.config / "auth.json.new").mkdir(parents=True)  # in the way of the file
        page = httpx.get(back, trust_env=False)
        assert prosa.end()[0] == 1
    assert (page.status_code, "did not work" in page.text) == (502, True)
    assert auth_file.read(here) is None
    assert served.run(lambda server: server.pool.fetchval(valid)) == before, "nobody has that token"


def test_a_machine_without_a_display_asks_for_the_code(served: Served, owner: Owner, here: Home) -> None:
    with running("login", "--server", served.url, stdin=subprocess.PIPE) as prosa:
        code, said = prosa.end(f"  {owner.code(prosa.told(URL))}\n")
    assert (code, "Logged in to" in said) == (0, True)


@pytest.mark.parametrize("typed", ["", "\n", "wrong\n", "x" * 5_000])
def test_a_wrong_code_in_a_pipe_is_refused_at_once(typed: str, served: Served, here: Home) -> None:
    with running("login", "--server", served.url, "--code", stdin=subprocess.PIPE) as prosa:
        code, said = prosa.end(typed)
    assert (code, auth_file.read(here)) == (4, None)
    assert "Nothing was" in said


def test_at_a_terminal_a_mistyped_code_is_asked_for_again(served: Served, owner: Owner, here: Home) -> None:
    screen, inside = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "prosa", "login", "--server", served.url, "--no-browser"],
        stdin=inside, stdout=inside, stderr=inside, close_fds=True, start_new_session=True,
    )  # fmt: skip
    os.close(inside)
    try:
        url = URL.findall(read_until(screen, "Code: "))[0]
        os.write(screen, b"mistyped\n")
        assert "not known, expired" in read_until(screen, "Code: ")
        os.write(screen, f"{owner.code(url)}\n".encode())
        assert "Logged in to" in read_until(screen, "Next: prosa sync")
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(screen)
    assert auth_file.read(here) is not None


def read_until(screen: int, text: str) -> str:
    said = b""
    while text.encode() not in said:
        said += os.read(screen, 1024)
    return said.decode()


def test_ctrl_c_leaves_no_login_and_no_listener(served: Served, here: Home, opened: Path) -> None:
    with running("login", "--server", served.url) as prosa:
        prosa.told(re.compile("Waiting for the answer"))
        prosa.process.send_signal(signal.SIGINT)
        code, said = prosa.end()
    assert (code, said) == (130, "")
    assert auth_file.read(here) is None


def test_logging_in_again_revokes_the_earlier_token(served: Served, owner: Owner, here: Home) -> None:
    with Log(here.log, create=True):
        pass
    first, second = log_in(served, owner), log_in(served, owner)
    assert first.token != second.token
    with pytest.raises(NotLoggedIn, match="revoked"):
        who(first)
    assert who(second).device == identify().id
    assert local_events(here) == ["login_completed", "login_completed"]
    for file in here.data.iterdir():
        assert second.token.encode() not in file.read_bytes()


def test_the_server_of_the_last_login_is_the_default(served: Served, owner: Owner, here: Home) -> None:
    log_in(served, owner)
    with running("login", stdin=subprocess.PIPE) as prosa:
        code, _ = prosa.end(owner.code(prosa.told(URL)))
    assert code == 0


def test_a_damaged_login_is_replaced(served: Served, owner: Owner, here: Home) -> None:
    here.config.mkdir(mode=0o700, parents=True)
    auth_file.path(here).write_text("{")
    assert who(log_in(served, owner)).owner == OWNER


def test_logging_out_revokes_the_token(served: Served, owner: Owner, here: Home) -> None:
    with Log(here.log, create=True):
        pass
    auth = log_in(served, owner)
    code, said = Prosa("logout").end()
    assert (code, f"Logged out of {served.url}" in said) == (0, True)
    assert auth_file.read(here) is None
    with pytest.raises(NotLoggedIn, match="revoked"):
        who(auth)
    assert local_events(here) == ["login_completed", "logout_completed"]
    assert Prosa("logout").end() == (0, "You are not logged in.\n")


def test_logging_out_with_a_token_that_is_void_already(served: Served, owner: Owner, here: Home) -> None:
    auth = log_in(served, owner)
    httpx.post(
        f"{served.url}/v1/logout", trust_env=False,
        headers={"Authorization": f"Bearer {auth.token}", "Prosa-Device": auth.device},
    ).raise_for_status()  # fmt: skip
    assert Prosa("logout").end()[0] == 0
    assert auth_file.read(here) is None


def test_logging_out_offline_forgets_and_says_what_is_left(served: Served, owner: Owner, here: Home) -> None:
    auth = log_in(served, owner)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    auth_file.write(here, Auth(server=f"http://127.0.0.1:{port}", token=auth.token, device=auth.device, server_id=""))
    code, said = Prosa("logout").end()
    assert (code, auth_file.read(here)) == (4, None)
    assert "still takes the token" in said and f"prosa devices revoke {auth.device}" in said
    assert auth.token not in said


def test_without_any_server_it_says_which_option_is_missing(here: Home) -> None:
    code, said = Prosa("login").end()
    assert (code, said.startswith("Which server?")) == (2, True)


def test_a_server_that_is_away(here: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    code, said = Prosa("login", "--server", f"127.0.0.1:{port}").end()
    assert (code, f"http://127.0.0.1:{port} cannot be reached" in said) == (4, True)


class Stranger(http.server.BaseHTTPRequestHandler):
    """Answers every GET with the same bytes."""

    answer = b"<html>Welcome to nginx</html>"
    kind = "text/html"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", self.kind)
        self.send_header("Content-Length", str(len(self.answer)))
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("text/html", b"<html>Welcome to nginx</html>"),
        ("application/json", b"{}"),
        ("application/json", b"not json"),
        ("application/json", b'{"info": {"title": "Petstore", "version": "1"}}'),
    ],
)
def test_a_server_that_is_none_of_ours(kind: str, answer: bytes, here: Home) -> None:
    handler = type("Other", (Stranger,), {"kind": kind, "answer": answer})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        code, said = Prosa("login", "--server", f"127.0.0.1:{other.server_port}").end()
        other.shutdown()
        thread.join()
    assert (code, f"What answers at http://127.0.0.1:{other.server_port} is no prosa server." in said) == (2, True)
