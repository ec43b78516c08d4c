"""kill -9 at any moment of `prosa sync`, and a server whose database is a copy from before."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from cluster import new_database
from msgspec import to_builtins
from pushes import assert_whole, events_of, here, there
from served import OWNER, Served, a_server
from store import A, B, C, Store, claude_lines

from prosa.events.device import identify
from prosa.events.messages import PART_BYTES
from prosa.server import tokens
from prosa.server.postgres import Cluster
from prosa.sync import auth_file

TIMES = 12


def log_in(store: Store, served: Served) -> None:
    here = identify().id
    token, _ = served.run(lambda s: tokens.issue(s, "device", device=here, by=OWNER))
    auth_file.write(store.home, auth_file.Auth(server=served.url, token=token, device=here, server_id=served.server.id))


def start(store: Store) -> subprocess.Popen[bytes]:
    with (store.root / "output").open("wb") as output:
        words = [sys.executable, "-m", "prosa", "sync"]
        return subprocess.Popen(words, env=os.environ | store.env, stdout=output, stderr=output)


def run(store: Store) -> None:
    done = start(store)
    assert done.wait(120) == 0, (store.root / "output").read_text()


def written(store: Store) -> dict[str, tuple[int, int]]:
    return {name: stat for name, stat in store.files().items() if "/locks/" not in name}


def test_a_sync_that_is_killed_again_and_again_ends_like_one_that_was_not(store: Store, served: Served) -> None:
    random.seed(4)
    log_in(store, served)
    began = time.monotonic()
    run(store)
    usual = time.monotonic() - began
    for number in range(TIMES):
        noise = random.randbytes(30_000).hex() if number % 4 else random.randbytes(PART_BYTES // 2).hex()
        for session in (A, B, C):
            store.write(session, b"".join(claude_lines(session, number + 1, text=noise[:60_000])))
        store.write(C, b"".join(claude_lines(C, number + 1, text=noise)))
        running = start(store)
        time.sleep(random.uniform(0.2, 1.5) * usual)
        running.send_signal(signal.SIGKILL)
        running.wait()
    run(store)
    with store.log() as log:
        assert {origin: there(served, origin) for origin in here(log)} == here(log)
        assert log.forks() == []
    confirmed = {event.raw for event in events_of(store, "push_confirmed")}
    assert {raw for (raw,) in store.rows("SELECT raw FROM revisions")} <= confirmed
    assert_whole(served, store)
    before = written(store)
    run(store)
    assert written(store) == before
    assert store.serving() == store.rebuilt()


def test_a_server_that_is_its_own_backup_gets_what_came_after(store: Store, cluster: Cluster, tmp_path: Path) -> None:
    """Its database is copied while it is down; the copy is started later, with the raw of then."""
    day_one = new_database(cluster)
    name = day_one.partition("@/")[2].partition("?")[0]
    with a_server(day_one, tmp_path / "server") as served:
        log_in(store, served)
        auth = auth_file.read(store.home)
        assert auth is not None
        store.write(A, b"".join(claude_lines(A, 3)))
        run(store)
    yesterday = new_database(cluster, name)
    subprocess.run(["cp", "-a", tmp_path / "server", tmp_path / "yesterday"], check=True)
    with a_server(day_one, tmp_path / "server") as served:
        auth_file.write(store.home, auth_file.Auth(**{**to_builtins(auth), "server": served.url}))
        store.write(A, b"".join(claude_lines(A, 6)))
        store.write(B, b"".join(claude_lines(B, 2)))
        run(store)
        with store.log() as log:
            assert {origin: there(served, origin) for origin in here(log)} == here(log)
    with a_server(yesterday, tmp_path / "yesterday") as served:
        auth_file.write(store.home, auth_file.Auth(**{**to_builtins(auth), "server": served.url}))
        with store.log() as log:
            assert len(there(served, log.shared.origin)) < log.head_of(log.shared)[0]
        run(store)
        with store.log() as log:
            assert {origin: there(served, origin) for origin in here(log)} == here(log)
            assert log.forks() == []
        held = served.run(lambda s: s.pool.fetch("SELECT sha256 FROM raws"))
        assert {raw for (raw,) in store.rows("SELECT raw FROM revisions")} <= {row[0] for row in held}
