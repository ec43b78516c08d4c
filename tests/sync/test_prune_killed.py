"""A prune that is killed at any step: never a byte lost, never an event that is not true, and the next run goes on."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
import zstandard
from prunes import here, log_in, push, run, whole
from served import Served
from store import Store, claude_lines

from prosa.events.raw import RawStore
from prosa.server.raws import raw_name

TIMES = 20
FORKER = """
import os, signal, sys
from pathlib import Path
import httpx
from prosa.events.home import Home
from prosa.events.log import Log
from prosa.events import log, raw
from prosa.projections import digest
from prosa.sync import prune
from prosa.sync.http import Connection
from prunes import OLD

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def before(place, name, hit):
    real, left = getattr(place, name), [hit]
    def step(*given, **more):
        left[0] -= 1
        return real(*given, **more) if left[0] else die()
    setattr(place, name, step)

def after(place, name, hit):
    real, left = getattr(place, name), [hit]
    def step(*given, **more):
        done = real(*given, **more)
        left[0] -= 1
        return done if left[0] else die()
    setattr(place, name, step)

def half(place, name, hit):
    real, left = getattr(place, name), [hit]
    def step(*given, **more):
        left[0] -= 1
        for number, piece in enumerate(real(*given, **more)):
            yield piece if left[0] else die()
    setattr(place, name, step)

STEPS = {
    "plan not written": lambda hit: before(prune.Prune, "_say_plan", 1),
    "plan written": lambda hit: after(prune.Prune, "_say_plan", 1),
    "before the server is asked": lambda hit: before(Connection, "post", 1),
    "after it answered": lambda hit: after(Connection, "post", 1),
    "while the bytes are hashed": lambda hit: half(raw.RawStore, "read", hit),
    "before the event": lambda hit: before(Log, "append", hit + 1),
    "event written, not committed": lambda hit: after(Log, "_insert", hit + 1),
    "event committed": lambda hit: after(Log, "append", hit + 1),
    "before the file is unlinked": lambda hit: before(raw.RawStore, "remove", hit),
    "unlinked, folder not synced": lambda hit: before(raw, "sync_folder", hit),
    "folder synced": lambda hit: after(raw.RawStore, "remove", hit),
}
home = Home.of({"HOME": "/", "PROSA_HOME": sys.argv[1], "PROSA_CONFIG_HOME": sys.argv[2]})
for line in sys.stdin:
    hit, _, step = line.strip().partition(" ")
    child = os.fork()
    if child == 0:
        STEPS[step](int(hit))
        for _ in prune.prune(home, OLD, {}):
            pass
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
"""
STEPS = [line.split('"')[1] for line in FORKER.splitlines() if line.startswith('    "')]


@pytest.fixture
def forker(store: Store) -> Iterator[subprocess.Popen[str]]:
    """Runs a prune a line, which kills itself at the named step."""
    folders = [str(Path(__file__).parents[1]), *sys.path]
    with subprocess.Popen(
        [sys.executable, "-c", FORKER, str(store.home.data), str(store.home.config)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
    ) as process:  # fmt: skip
        yield process
        process.kill()


def test_a_kill_at_any_step_loses_nothing_and_says_nothing_untrue(
    store: Store, served: Served, forker: subprocess.Popen[str]
) -> None:
    draw = random.Random(4)
    sessions = [f"{n:08x}-1111-4111-8111-111111111111" for n in range(3 * TIMES * len(STEPS) // 2)]
    for session in sessions:
        store.write(session, b"".join(claude_lines(session, 1, text=session)))
    store.sync()
    log_in(store, served)
    push(store, served)
    before, raws = store.sessions(), set(here(store))
    assert len(raws) == len(sessions)
    assert forker.stdin is not None
    assert forker.stdout is not None
    for step in STEPS:
        for _ in range(TIMES):
            forker.stdin.write(f"{draw.randint(1, 2)} {step}\n")
            assert int(forker.stdout.readline()) == 9, step  # SIGKILL
            left = set(here(store))
            said = {event.event().raw for event in store.events("session_pruned")}
            assert raws - left <= said, f"{step}: a file is gone without its event"
            assert len(left & said) <= 1, f"{step}: more than one file outlived its event"
    _, summary = run(store)
    assert summary.failed == summary.skipped == 0
    assert here(store) == []
    assert store.sessions() == before
    whole(store)
    said = [event.event() for event in store.events("session_pruned")]
    assert sorted(event.raw for event in said) == sorted(raws), "each copy is said to be pruned once"
    plans = {event.id.hex() for event in store.events("prune_planned")}
    for event in said:
        there = (served.server.settings.raw_folder / raw_name(event.raw)).read_bytes()
        plain = zstandard.ZstdDecompressor().decompressobj().decompress(there)
        assert (sha256(plain).hexdigest(), len(plain)) == (event.raw, event.size)
        assert event.plan in plans


def test_a_file_that_outlived_its_event_is_removed_by_the_next_sync(
    store: Store, served: Served, forker: subprocess.Popen[str]
) -> None:
    session = "00000000-1111-4111-8111-111111111111"
    store.write(session, b"".join(claude_lines(session, 1)))
    store.sync()
    log_in(store, served)
    push(store, served)
    assert forker.stdin is not None
    assert forker.stdout is not None
    forker.stdin.write("1 before the file is unlinked\n")
    assert int(forker.stdout.readline()) == 9
    assert len(here(store)) == len(store.events("session_pruned")) == 1
    store.sync()
    assert here(store) == []
    assert not RawStore(store.home.raw).sweep()
    whole(store)
