"""`prosa setup`: asked at a terminal, told by options elsewhere; a step that fails does not stop the others."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import a_cluster, new_database
from served import Served, a_server

from prosa.events.home import Home
from prosa.sync import auth_file
from prosa.sync.schedule import PASSED_ON

FAKES = Path(__file__).parents[1] / "sync"
URL = re.compile(r"http://127\.0\.0\.1:\d+/authorize\?request=[\w-]+")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with a_cluster() as cluster, a_server(new_database(cluster), tmp_path_factory.mktemp("server")) as served:
        yield served


@pytest.fixture
def here(home: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A machine without a display, whose systemctl records what it is told."""
    tools, fake = home / "tools", home / "fake"
    tools.mkdir()
    fake.mkdir()
    for name in ("systemctl", "loginctl"):
        shutil.copy(FAKES / "fake_systemctl.sh", tools / name)
        (tools / name).chmod(0o755)
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY", *(name for name in PASSED_ON if "PROSA" not in name)):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE", str(fake))
    return Home.of()


def setup(*words: str, typed: str = "") -> tuple[int, str]:
    """Exit code and what was said, without a terminal."""
    done = subprocess.run(
        [sys.executable, "-m", "prosa", "setup", *words], input=typed, capture_output=True, text=True, timeout=60
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


class Screen:
    """A command at a terminal."""

    def __init__(self, *words: str) -> None:
        self._screen, inside = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "prosa", *words], stdin=inside, stdout=inside, stderr=inside, close_fds=True,
            start_new_session=True,
        )  # fmt: skip
        os.close(inside)

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._screen)

    def until(self, text: str) -> str:
        said = b""
        while text.encode() not in said:
            said += os.read(self._screen, 1024)
        return said.decode()

    def type(self, line: str) -> None:
        os.write(self._screen, f"{line}\n".encode())


def installed(here: Home, home: Path) -> list[Path]:
    return list((home / ".config" / "systemd" / "user").glob("prosa-sync*.timer"))


def test_without_a_terminal_nothing_is_asked_and_no_server_is_used(here: Home, home: Path) -> None:
    code, said = setup()
    assert code == 0
    assert [line for line in said.splitlines() if re.match(r"\d/\d ", line)] == ["1/2 Sync", "2/2 Schedule"]
    assert here.log.exists()
    assert len(installed(here, home)) == 1
    assert "OnCalendar=*-*-* *:00/15:00" in installed(here, home)[0].read_text()
    assert auth_file.read(here) is None


def test_every_step_can_be_left_out(here: Home, home: Path) -> None:
    code, said = setup("--no-login", "--no-schedule")
    assert (code, "1/1 Sync" in said) == (0, True)
    assert installed(here, home) == []


def test_a_step_that_fails_does_not_stop_the_others(here: Home, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NO_BUS", "1")
    code, said = setup("--server", "http://127.0.0.1:9", "--every", "1h")
    assert code == 4, "that of the first that failed"
    assert "http://127.0.0.1:9 cannot be reached" in said
    assert "With cron: 0 * * * *" in said
    assert "Done, but for: Login, Schedule." in said
    assert here.log.exists()


@pytest.mark.parametrize(
    "words",
    [("--every", "7m"), ("--server", "http://prosa.example.org"), ("--server", "x y"), ("--server", "x", "--no-login")],
)
def test_what_cannot_be_is_refused_before_anything_is_done(words: tuple[str, ...], here: Home, home: Path) -> None:
    assert setup(*words)[0] == 2
    assert not here.log.exists()
    assert installed(here, home) == []


def test_told_by_options_with_a_code_from_a_pipe(served: Served, here: Home) -> None:
    words = ["setup", "--server", served.url, "--no-browser", "--no-schedule", "--yes"]
    with subprocess.Popen(
        [sys.executable, "-m", "prosa", *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process, served.owner() as owner:  # fmt: skip
        assert process.stderr is not None
        url = next(found[0] for line in process.stderr if (found := URL.search(line)))
        _, said = process.communicate(f"{owner.code(url)}\n", timeout=60)
    assert (process.returncode, f"Logged in to {served.url}" in said) == (0, True)
    assert auth_file.read(here) is not None
    code, said = setup("--no-schedule")
    assert (code, "is logged in to" in said) == (0, True), "a login that is taken is not made again"
    assert served.run(lambda server: server.pool.fetchval("SELECT count(*) FROM origins WHERE device IS NOT NULL")) == 1


def test_at_a_terminal_each_step_is_asked(served: Served, here: Home, home: Path) -> None:
    with Screen("setup") as screen, served.owner() as owner:
        screen.until("Address of your server [none]: ")
        screen.type("not an address")
        assert "no address of a server" in screen.until("Address of your server [none]: ")
        screen.type(served.url)
        url = URL.findall(screen.until("Code: "))[0]
        screen.type(owner.code(url))
        screen.until("Sync every 15 minutes in the background? [Y/n] ")
        screen.type("n")
        said = screen.until("prosa --remote --all")
        assert "Later: prosa schedule install" in said
        assert screen.process.wait(30) == 0
    assert auth_file.read(here) is not None
    assert installed(here, home) == []


def test_at_a_terminal_enter_takes_what_is_offered(here: Home, home: Path) -> None:
    with Screen("setup") as screen:
        screen.until("Address of your server [none]: ")
        screen.type("")
        screen.until("[Y/n] ")
        screen.type("")
        screen.until("prosa doctor")
        assert screen.process.wait(30) == 0
    assert len(installed(here, home)) == 1
