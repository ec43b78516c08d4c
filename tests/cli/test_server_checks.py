"""What doctor says of the login and of the server, which is a real one."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import httpx
import pytest
from cluster import a_cluster, new_database
from msgspec.structs import replace
from served import Served, a_server

from prosa.cli.checks import Check
from prosa.cli.server_checks import SOON_US, check_auth, check_clock, check_login, check_server
from prosa.events.clock import now_us
from prosa.events.device import identify
from prosa.events.home import Home
from prosa.server import tokens
from prosa.server.postgres import Cluster
from prosa.server.state import Server
from prosa.sync import auth_file
from prosa.sync.auth_file import Auth

HERE = identify()
DAY_US = 86_400_000_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with a_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def served(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with a_server(new_database(cluster), tmp_path_factory.mktemp("server")) as served:
        yield served


def an_auth(served: Served, device: str = HERE.id) -> Auth:
    """Of a device that the owner let in."""

    async def issue(server: Server) -> str:
        return (await tokens.issue(server, "device", device=device, by="owner@example.org"))[0]

    return Auth(
        server=served.url, token=served.run(issue), device=device, server_id=served.server.id,
        owner="owner@example.org", expires_at_us=now_us() + 365 * DAY_US,
    )  # fmt: skip


def only(found: Iterator[Check]) -> Check:
    (check,) = found
    return check


def test_without_a_login_nothing_is_wrong(home: Path) -> None:
    found = only(check_login(Home.of()))
    assert (found.section, found.verdict, "prosa login" in found.next_step) == ("login", "ok", True)


def test_a_login_that_holds_and_a_server_that_answers(served: Served, home: Path) -> None:
    auth_file.write(Home.of(), an_auth(served))
    login, server = check_login(Home.of())
    assert (login.verdict, server.verdict) == ("ok", "ok")
    assert "as owner@example.org" in login.text and "good for 364 d 23 h" in login.text
    assert server.text.startswith(f"{served.url} answers, prosa ")


def test_a_damaged_login_is_a_failure(home: Path) -> None:
    Home.of().config.mkdir(parents=True)
    auth_file.path(Home.of()).write_text('{"server": 1}')
    found = only(check_login(Home.of()))
    assert (found.verdict, found.next_step) == ("fail", "prosa login")


def test_a_revoked_token_is_a_failure(served: Served) -> None:
    auth = an_auth(served)
    headers = {"Authorization": f"Bearer {auth.token}", "Prosa-Device": auth.device}
    httpx.post(f"{served.url}/v1/logout", headers=headers, trust_env=False).raise_for_status()
    found = only(check_server(auth, HERE))
    assert (found.verdict, found.next_step) == ("fail", "prosa login")
    assert "revoked" in found.text and auth.token not in found.text


def test_a_token_of_another_machine_is_told_on_both_sides(served: Served) -> None:
    auth = an_auth(served, "00000000000000aa")
    assert only(check_server(auth, HERE)).verdict == "fail"
    found = check_auth(auth, HERE, now_us())
    assert (found.verdict, "made by device 00000000" in found.text) == ("warn", True)


@pytest.mark.parametrize(
    ("left_us", "expected", "said"),
    [
        (-3 * DAY_US, "fail", "it ended 3 d ago"),
        (0, "fail", "it ended 0 s ago"),
        (SOON_US - 1, "warn", "it ends in 13 d 23 h"),
        (SOON_US, "ok", "good for 14 d"),
    ],
)
def test_the_end_of_a_login_is_told_in_time(left_us: int, expected: str, said: str) -> None:
    auth = Auth(server="https://x", token="t", device=HERE.id, server_id="", expires_at_us=1_000 * DAY_US + left_us)
    found = check_auth(auth, HERE, 1_000 * DAY_US)
    assert (found.verdict, said in found.text) == (expected, True), found.text


def test_a_server_that_is_away_is_a_warning(served: Served) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    found = only(check_server(replace(an_auth(served), server=f"http://127.0.0.1:{port}"), HERE))
    assert (found.verdict, "cannot be reached" in found.text) == ("warn", True)


def test_a_server_that_was_set_up_anew_is_told(served: Served) -> None:
    found = only(check_server(replace(an_auth(served), server_id="00" * 16), HERE))
    assert (found.verdict, "set up anew" in found.text) == ("warn", True)


def test_a_server_that_is_not_ready_is_a_failure(cluster: Cluster, tmp_path: Path) -> None:
    with a_server(new_database(cluster), tmp_path) as served:
        shutil.rmtree(tmp_path / "raw")
        found = only(check_server(an_auth(served), HERE))
    assert (found.verdict, "it is not ready" in found.text) == ("fail", True)


@pytest.mark.parametrize(
    ("ahead_s", "said"),
    [
        (-3_600, "1 h ahead of the server's"),
        (3_600, "behind the server's"),
        (-400, "6 min ahead"),
        (280, ""),
        (-280, ""),
    ],
)
def test_a_clock_that_is_far_off_is_told(ahead_s: int, said: str) -> None:
    found = check_clock(formatdate(time.time() + ahead_s, usegmt=True))
    assert (found.text if found else "").find(said) >= 0
    assert (found is not None) == bool(said)


@pytest.mark.parametrize("date", [None, "", "yesterday", "Mon, 99 Foo 2026 00:00:00 GMT"])
def test_a_server_without_a_date_says_nothing_of_clocks(date: str | None) -> None:
    assert check_clock(date) is None
