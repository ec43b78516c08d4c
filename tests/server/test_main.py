"""The program prosa-server, as its own process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

WARNING = "EVERYBODY ON THIS MACHINE CAN SIGN IN"


@pytest.fixture
def home() -> Iterator[Path]:
    """Below a folder that any user can enter: Postgres does not run as root."""
    with tempfile.TemporaryDirectory(prefix="prosa-home-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "prosa"
        if (elsewhere := Path(folder) / "prosa" / "server" / "postgres" / "elsewhere").is_symlink():
            shutil.rmtree(elsewhere.readlink())


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PROSA_")}
    return {**kept, "PROSA_HOME": str(home), "PROSA_LISTEN": "127.0.0.1:0", **more}


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "prosa.server.main", *words]


def run(home: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = environment(home, **more)
    return subprocess.run(command(*words), env=env, capture_output=True, text=True, timeout=60, check=False)


class Serving:
    """A server that was started and says where it listens."""

    def __init__(self, home: Path, *words: str, **more: str) -> None:
        self.errors = home.parent / "stderr"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command(*words), env=environment(home, **more), stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert self.process.stdout
        self.url = self.process.stdout.readline().split()[-1]

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(30)
        assert self.process.stdout
        self.process.stdout.close()
        return code


Start = Callable[..., Serving]


@pytest.fixture
def serve(home: Path) -> Iterator[Start]:
    """Starts servers, and stops those that still run."""
    started: list[Serving] = []

    def start(*words: str, **more: str) -> Serving:
        started.append(Serving(home, *words, **more))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.stop()


def postgres_of(home: Path) -> list[str]:
    """Command lines of the servers whose data lies there."""
    folder = home / "server" / "postgres"
    where = str((folder / "elsewhere").readlink() if (folder / "elsewhere").is_symlink() else folder)
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        if where in " ".join(words) and "postgres" in words[0]:
            found.append(" ".join(words))
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_dev_brings_everything_and_leaves_nothing_behind(home: Path, serve: Start, number: int) -> None:
    server = serve("--dev")
    ready = httpx.get(f"{server.url}/readyz")
    assert (ready.status_code, ready.json()) == (200, {"postgres": True, "raw": True})
    assert WARNING in server.errors.read_text()
    keys = json.loads((home / "server" / "keys.json").read_text())
    assert (home / "server" / "keys.json").stat().st_mode & 0o777 == 0o600
    admin = {"Authorization": f"Bearer {keys['admin_token']}"}
    assert httpx.get(f"{server.url}/v1/tokens", headers=admin).json() == {"tokens": []}
    id = httpx.get(f"{server.url}/v1/whoami", headers=admin).json()["server"]
    assert postgres_of(home)
    assert server.stop(number) == 0
    assert postgres_of(home) == []
    log = server.errors.read_text()
    assert keys["admin_token"] not in log
    assert "Traceback" not in log
    again = serve("--dev")
    who = httpx.get(f"{again.url}/v1/whoami", headers=admin).json()
    assert who["server"] == id, "the same keys and the same log"


def test_a_stream_does_not_hold_up_the_end(home: Path, serve: Start) -> None:
    server = serve("--dev")
    keys = json.loads((home / "server" / "keys.json").read_text())
    admin = {"Authorization": f"Bearer {keys['admin_token']}"}
    with httpx.stream("GET", f"{server.url}/v1/stream", headers=admin, timeout=30) as answer:
        assert answer.status_code == 200
        next(answer.iter_lines())
        begin = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begin < 10


def test_a_port_that_is_taken_is_named(home: Path, database: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run(home, "serve", PROSA_DB_URL=database, PROSA_LISTEN=f"127.0.0.1:{port}")
    assert done.returncode == 1
    assert f"Port {port} of 127.0.0.1 cannot be listened on" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_not_set_is_named(home: Path) -> None:
    for more, words in (
        ({}, "PROSA_DB_URL is not set."), ({"PROSA_DB_URL": "x", "PROSA_LISTEN": "x"}, "not host:port"),
        ({"PROSA_DB_URL": "x", "PROSA_S3_ENDPOINT": "http://x"}, "PROSA_S3_ACCESS_KEY is not set."),
        ({"PROSA_DB_URL": "x", "PROSA_LISTEN": "0.0.0.0:0", "PROSA_PANEL_DEV_LOGIN": "a@b.c"}, "lets everybody in"),
    ):  # fmt: skip
        done = run(home, **more)
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr


def test_a_database_that_is_not_there_is_said(home: Path) -> None:
    done = run(home, "migrate", PROSA_DB_URL="postgresql://prosa@127.0.0.1:9/prosa")
    assert done.returncode == 1
    assert "Postgres cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr


def test_tokens_are_given_listed_and_revoked(home: Path, serve: Start, database: str) -> None:
    assert "nothing to migrate" in run(home, "migrate", PROSA_DB_URL=database).stdout
    made = run(home, "token", "create", "grafana", "--scope", "metadata", "--days", "7", PROSA_DB_URL=database)
    token = made.stdout.strip()
    assert token.startswith("prosa_a_")
    [row] = json.loads(run(home, "token", "list", PROSA_DB_URL=database).stdout)["tokens"]
    assert (row["name"], row["scope"], row["revoked_at"]) == ("grafana", "metadata", None)
    assert token not in json.dumps(row)
    server = serve("serve", PROSA_DB_URL=database)
    headers = {"Authorization": f"Bearer {token}"}
    assert httpx.get(f"{server.url}/v1/whoami", headers=headers).json()["scope"] == "metadata"
    assert httpx.get(f"{server.url}/v1/heads", headers=headers).status_code == 403
    assert run(home, "token", "revoke", row["id"], PROSA_DB_URL=database).returncode == 0
    assert httpx.get(f"{server.url}/v1/whoami", headers=headers).status_code == 401
    assert run(home, "token", "revoke", "0" * 16, PROSA_DB_URL=database).returncode != 0
    assert server.stop() == 0
    check = run(home, "rebuild", "--check", PROSA_DB_URL=database)
    assert (check.returncode, check.stdout) == (0, "The projections are as the log makes them.\n")
    assert "made anew" in run(home, "rebuild", PROSA_DB_URL=database).stdout


def test_the_servers_role_need_not_own_its_tables(home: Path, serve: Start, database: str) -> None:
    """A login that is a member of prosa_app, beside the one that migrates."""
    import asyncio

    import asyncpg

    async def make() -> None:
        connection = await asyncpg.connect(database)
        await connection.execute("DROP ROLE IF EXISTS prosa_test_login")
        await connection.execute("CREATE ROLE prosa_test_login LOGIN")
        await connection.execute("DELETE FROM migrations WHERE number = 3")
        await connection.execute("DROP INDEX events_around")
        await connection.close()

    asyncio.run(make())
    login = database.replace("postgres@", "prosa_test_login@")
    refused = run(home, "migrate", PROSA_DB_URL=login)
    assert refused.returncode == 1
    assert "PROSA_DB_MIGRATE_URL" in refused.stderr
    done = run(home, "migrate", PROSA_DB_URL=login, PROSA_DB_MIGRATE_URL=database)
    assert done.stdout == "0003_reading.sql\n"
    server = serve("serve", PROSA_DB_URL=login)
    assert httpx.get(f"{server.url}/readyz").status_code == 200
    assert server.stop() == 0
