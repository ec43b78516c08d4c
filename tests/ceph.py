"""A real S3 service for the tests: Ceph's gateway over one monitor and one OSD in memory, all below one folder.

From Debian: `apt-get install --no-install-recommends radosgw ceph-mon ceph-osd` (61 MB). It is up after 13 s and checks
signatures and conditions as a real store does.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prosa.server.settings import S3Settings

PROGRAMS = ("radosgw", "radosgw-admin", "ceph-mon", "ceph-osd", "ceph", "ceph-authtool", "monmaptool")
UP_S = 90
ACCESS, SECRET = "prosaaccess", "prosasecret"
CONFIG = """
[global]
fsid = {fsid}
mon host = v2:127.0.0.1:{mon}/0
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
keyring = {folder}/keyring
run dir = {folder}
log file = {folder}/$name.log
admin socket = {folder}/$name.asok
pid file = {folder}/$name.pid
public network = 127.0.0.0/8
osd pool default size = 1
osd pool default min size = 1
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = 1073741824
mon allow pool size one = true
[mon.a]
mon data = {folder}/mon
[osd.0]
osd data = {folder}/osd
[client.rgw.a]
rgw frontends = beast endpoint=127.0.0.1:{rgw}
"""
KEYS = {
    "mon.": ("mon", "allow *"),
    "client.admin": ("mon", "allow *", "osd", "allow *", "mgr", "allow *"),
    "osd.0": ("mon", "allow profile osd", "osd", "allow *"),
    "client.rgw.a": ("mon", "allow rwx", "osd", "allow rwx"),
}


def is_installed() -> bool:
    return all(shutil.which(name) for name in PROGRAMS)


@contextmanager
def a_gateway() -> Iterator[S3Settings]:
    """Its address and the keys of its one user."""
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="prosa-ceph-") as name:
        try:
            yield _start(Path(name), started)
        finally:
            for process in reversed(started):
                process.terminate()
            for process in reversed(started):
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _start(folder: Path, started: list[subprocess.Popen[bytes]]) -> S3Settings:
    fsid, osd, mon, rgw = str(uuid.uuid4()), str(uuid.uuid4()), _free_port(), _free_port()
    (folder / "ceph.conf").write_text(CONFIG.format(folder=folder, fsid=fsid, mon=mon, rgw=rgw))
    for number, (name, rights) in enumerate(KEYS.items()):
        caps = [word for kind, what in zip(rights[::2], rights[1::2], strict=True) for word in ("--cap", kind, what)]
        _run(folder, "ceph-authtool", *(["-C"] if not number else []), "keyring", "--gen-key", "-n", name, *caps)
    _run(folder, "monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v2:127.0.0.1:{mon}]", "monmap")
    for name in ("mon", "osd"):
        (folder / name).mkdir()
    as_root = ("--setuser", "root", "--setgroup", "root")
    _run(folder, "ceph-mon", "-i", "a", "--mkfs", "--monmap", "monmap")
    started.append(_launch(folder, "ceph-mon", "-i", "a", "-f", *as_root))
    _run(folder, "ceph", "-n", "client.admin", "osd", "new", osd, "0")
    _run(folder, "ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd, *as_root)
    started.append(_launch(folder, "ceph-osd", "-i", "0", "-f", *as_root))
    started.append(_launch(folder, "radosgw", "-n", "client.rgw.a", "-f", *as_root))
    _wait(folder, rgw, started)
    user = ("user", "create", "--uid", "prosa", "--display-name", "prosa", "--access-key", ACCESS, "--secret", SECRET)
    _run(folder, "radosgw-admin", "-n", "client.admin", *user)
    return S3Settings(endpoint=f"http://127.0.0.1:{rgw}", access_key=ACCESS, secret_key=SECRET)


def _run(folder: Path, program: str, *words: str) -> None:
    done = subprocess.run(
        _command(folder, program, words), cwd=folder, capture_output=True, timeout=UP_S, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"{program}: {done.stderr.decode()[-500:]}"


def _launch(folder: Path, program: str, *words: str) -> subprocess.Popen[bytes]:
    with (folder / f"{program}.out").open("wb") as out:
        return subprocess.Popen(
            _command(folder, program, words), cwd=folder, stdout=out, stderr=out, stdin=subprocess.DEVNULL
        )


def _command(folder: Path, program: str, words: tuple[str, ...]) -> list[str]:
    own = program in ("ceph-authtool", "monmaptool")
    return (
        [program, *words] if own else [program, "-c", str(folder / "ceph.conf"), "-k", str(folder / "keyring"), *words]
    )


def _wait(folder: Path, port: int, started: list[subprocess.Popen[bytes]]) -> None:
    until = time.monotonic() + UP_S
    while time.monotonic() < until:
        assert all(process.poll() is None for process in started), (folder / "radosgw.out").read_text()
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("Ceph's gateway does not come up")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
