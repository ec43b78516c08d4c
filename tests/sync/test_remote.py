"""The questions over a socket: the answers of this machine's index, page by page, in the same words where refused."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec
import pytest
from cluster import new_database
from pushed import parsed, turns
from pushes import Device, Devices
from served import OWNER, Served, a_server
from store import A, B, C, Store, claude_lines

import prosa as package
from prosa.cli.app import run
from prosa.cli.opening import open_local, open_trail
from prosa.events.clock import now_us
from prosa.events.device import identify
from prosa.events.errors import ConflictError, DamageError, UsageError
from prosa.events.log import Draft
from prosa.events.messages import Problem
from prosa.projections import queries as q
from prosa.projections.asking import LogPage, TurnsPage
from prosa.server import reading_api, reading_log, tokens
from prosa.server.postgres import Cluster
from prosa.sync import auth_file, remote
from prosa.sync.http import Connection, NotLoggedIn, ServerRefused
from prosa.sync.remote import RemoteBackend


class Ran(NamedTuple):
    code: int
    out: bytes
    err: str


EVERY = q.Filters()
NEEDLE = "reaper.drain"


def filled(devices: Devices) -> Device:
    """Three sessions, one of them with 80 turns, pushed and projected."""
    made = devices(identify().id)
    made.store.write(A, b"".join(claude_lines(A, 20, text=NEEDLE)))
    made.store.write(B, b"".join(claude_lines(B, 2, text="东京")))
    made.store.write(C, b"".join([*claude_lines(C, 1), *claude_lines(C, 1, start=1, text="nul \0 here")]))
    push(made)
    return made


@pytest.fixture(scope="module")
def device(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    """One for all the tests that change nothing."""
    folder = tmp_path_factory.mktemp("remote")
    with a_server(new_database(cluster), folder / "server", working=True) as served:
        yield filled(Devices(served, folder / "devices"))


@pytest.fixture
def own(devices: Devices) -> Device:
    """One of the test's own."""
    return filled(devices)


def push(device: Device) -> None:
    """Sync and push, and wait until the server's tables have it."""
    assert device.sync().summary.status == "complete"
    projected(device.served)


def projected(served: Served) -> None:
    async def wait(server: Any) -> None:
        head = await server.pool.fetchval("SELECT position FROM log_head")
        await server.worker.wait_for(head)

    served.run(wait)


@contextmanager
def both(device: Device) -> Iterator[tuple[q.Backend, RemoteBackend]]:
    connection = Connection(device.served.url, device.token, device.fingerprint)
    with open_local(device.store.home) as local, closing(connection):
        yield local, RemoteBackend(connection)


@pytest.fixture
def asked(device: Device) -> Iterator[tuple[q.Backend, RemoteBackend]]:
    with both(device) as backends:
        yield backends


def plain(answer: Any) -> Any:
    """As JSON has it; where a page ends is no part of an answer."""
    found = json.loads(msgspec.json.encode(answer))
    if isinstance(found, dict):
        found.pop("next", None)
    return found


def key(session: str) -> str:
    return f"claude-code/{session}"


def test_every_question_has_the_same_answer_here_and_there(asked: tuple[q.Backend, RemoteBackend]) -> None:
    here, there = asked
    for filters in (EVERY, q.Filters(agent="claude-code", project="app"), q.Filters(scope=("path", "/home/dev/app"))):
        for flat in (False, True):
            question = q.Timeline(filters=filters, flat=flat, include_empty=True)
            assert plain(here.timeline(question)) == plain(there.timeline(question))
        for query in (
            NEEDLE,
            '"answer 3"',
            "东京",
            "prompt -answer",
            "outp",
            "before:2026-05-02",
            "nul \0 here",
            "\0",
            "",
        ):
            search = q.Search(query=query, filters=filters, all_hits=True, limit=0, zone="Europe/Madrid")
            assert plain(here.search(search)) == plain(there.search(search)), query
        for name in get_args(q.ReportName):
            report = q.Report(name=name, filters=filters, zone="Europe/Madrid")
            assert here.report(report) == there.report(report), name
    for session in (A, B, C):
        assert plain(here.session(key(session))) == plain(there.session(key(session)))
        assert list(here.turns(key(session))) == list(there.turns(key(session)))
    for text in (A, A[:8], key(B), "claude-code/", "", "nobody", "%", "a/b?c#d", "\0"):
        assert here.find(text) == there.find(text), text
    texts = [A, A[:8], "claude", "", "?", *(f"{n:040}" for n in range(300))]
    assert here.unique(texts) == there.unique(texts) == {A, A[:8]}
    for what in ("agent", "device", "profile", "model", "project"):
        assert here.values(what) == there.values(what)
    local = [{**row, "local_bytes": None} for row in here.storage(EVERY)]
    assert local == [{**row, "local_bytes": None} for row in there.storage(EVERY)]


@pytest.mark.parametrize("page", [1, 2, 3, 4])
def test_pages_of_every_size_make_the_same_list(
    page: int, asked: tuple[q.Backend, RemoteBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three sessions: pages of 1, n − 1, n and n + 1."""
    here, there = asked
    monkeypatch.setattr(remote, "PAGE", page)
    for limit in (0, 1, 2, 3, 4):
        question = q.Timeline(filters=EVERY, limit=limit)
        assert plain(here.timeline(question)) == plain(there.timeline(question))
        for all_hits in (False, True):
            search = q.Search(query="prompt", filters=EVERY, limit=limit, all_hits=all_hits)
            assert plain(here.search(search)) == plain(there.search(search))


@pytest.mark.parametrize("limit", [1, 79, 80, 81])
def test_turns_come_in_pages_of_every_size(
    limit: int, asked: tuple[q.Backend, RemoteBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = asked
    expected = list(here.turns(key(A)))
    assert len(expected) == 80
    monkeypatch.setattr(remote, "PAGE", limit)
    assert list(there.turns(key(A))) == expected
    assert list(there.turns(key(A), 77)) == expected[77:]
    assert list(there.turns(key(A), 5, 3)) == expected[5:8]
    assert list(there.turns(key(A), 80)) == []


def test_a_page_of_turns_ends_by_its_bytes_too(
    asked: tuple[q.Backend, RemoteBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = asked
    monkeypatch.setattr(reading_api, "PAGE_BYTES", 1)
    assert list(there.turns(key(B))) == list(here.turns(key(B)))


def test_turns_go_on_behind_the_last_one_when_the_session_changed_in_between(
    own: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "PAGE", 10)
    with both(own) as (here, there):
        before = list(here.turns(key(A)))
        turns = there.turns(key(A))
        first = list(islice(turns, 10))
        own.store.write(A, b"".join(claude_lines(A, 22, text=NEEDLE)))
        push(own)
        assert first + list(turns) == list(here.turns(key(A)))
        assert len(before) == 80
        gone = f"3-{'ab' * 8}"
        with pytest.raises(ConflictError, match="read anew"):
            there._ask(f"/v1/sessions/{key(A)}/turns", TurnsPage, {"after": gone})
        moved = f"3-{before[50].key}"
        page = there._ask(f"/v1/sessions/{key(A)}/turns", TurnsPage, {"after": moved, "limit": 1})
        assert [turn.ordinal for turn in page.turns] == [51]


def test_a_session_that_is_erased_in_between_ends_in_words(own: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    from prosa.cli.opening import plan_erasure, run_erasure

    monkeypatch.setattr(remote, "PAGE", 10)
    with both(own) as (_, there):
        turns = there.turns(key(A))
        assert len(list(islice(turns, 10))) == 10
        run_erasure(own.store.home, plan_erasure(own.store.home, key(A)))
        own.push()
        projected(own.served)
        with pytest.raises((UsageError, ConflictError), match=r"There is no session|was read anew"):
            list(turns)
        assert plain(there.search(q.Search(query=NEEDLE, filters=EVERY)))["found"] == []


@pytest.mark.parametrize(
    "question",
    [
        lambda backend: backend.timeline(q.Timeline(filters=q.Filters(agent="nope"))),
        lambda backend: backend.timeline(q.Timeline(filters=q.Filters(device="nope"))),
        lambda backend: backend.timeline(q.Timeline(filters=q.Filters(agent=""))),
        lambda backend: backend.timeline(q.Timeline(filters=q.Filters(model="a\0b"))),
        lambda backend: backend.timeline(q.Timeline(filters=q.Filters(kind="nope"))),
        lambda backend: backend.search(q.Search(query="x tool:nope", filters=EVERY)),
        lambda backend: backend.report(q.Report(name="usage", filters=EVERY, zone="Mars/Base")),
        lambda backend: backend.session("claude-code/nope"),
        lambda backend: backend.session("claude-code/a\0b"),
        lambda backend: list(backend.turns("claude-code/nope")),
    ],
)
def test_what_is_refused_is_refused_in_the_same_words(question: Any, asked: tuple[q.Backend, RemoteBackend]) -> None:
    said = []
    for backend in asked:
        with pytest.raises(UsageError) as raised:
            question(backend)
        said.append((str(raised.value), raised.value.exit_code))
    assert said[0] == said[1]


def test_the_trail_is_that_of_the_servers_log(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PAGE", 3)
    monkeypatch.setattr(reading_log, "FETCHED", 2)

    def ours(events: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
        mine = {origin.origin.hex() for origin in device.log().origins if origin.scope == "shared"}
        return [{**event, "position": 0} for event in events if event["origin"] in mine]

    with both(device) as (_, there), open_trail(device.store.home) as trail:
        everything = list(there.events())
        assert [event["position"] for event in everything] == list(range(1, len(everything) + 1))
        assert ours(there.events()) == ours(trail.events())
        assert list(there.events(limit=4)) == everything[-4:]
        assert list(there.events(limit=len(everything) + 1)) == everything
        assert list(there.events(since_us=now_us())) == []
        parsed = [event for event in everything if event["type"] in ("session_parsed", "raw_preserved")]
        assert list(there.events(["session_parsed", "raw_preserved"])) == parsed != []
        assert list(there.events(["session_parsed", "raw_preserved"], limit=2)) == parsed[-2:]
        assert there.event(2).event == everything[1]
        with pytest.raises(UsageError, match="There is no event 999"):
            there.event(999)
        for name in ("nope", "a\0b"):
            with pytest.raises(UsageError, match="There is no event type"):
                list(there.events([name]))
        session = there.session(key(B))
        told = ours(there.history(session))
        assert told == ours(trail.history(session))
        assert {"raw_preserved", "session_parsed", "source_detected"} <= {event["type"] for event in told}


def test_a_page_of_the_log_ends_by_its_bytes_too(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_log, "PAGE_BYTES", 1)
    with both(device) as (_, there):
        first = there._ask("/v1/log", LogPage, {"after": 0})
        assert len(first.events) == 1
        assert first.next == 1
        assert [event["position"] for event in there.events()] == list(range(1, first.head + 1))


def test_raw_is_streamed_whole_and_in_ranges(device: Device) -> None:
    data = b"".join(claude_lines(A, 20, text=NEEDLE))
    with both(device) as (_, there):
        session = there.session(key(A))
        assert session.raw is not None
        assert b"".join(there.raw(session)) == data
        connection = Connection(device.served.url, device.token, device.fingerprint)
        for asked, expected in (
            ("bytes=0-0", data[:1]),
            ("bytes=10-19", data[10:20]),
            ("bytes=-7", data[-7:]),
            (f"bytes={len(data) - 1}-", data[-1:]),
            ("bytes=5-999999999", data[5:]),
        ):
            pieces = connection.read(f"/v1/sessions/{key(A)}/raw", headers={"Range": asked})
            assert b"".join(pieces) == expected, asked


def test_bytes_that_are_not_the_named_ones_are_an_error_at_their_end(own: Device) -> None:
    with both(own) as (_, there):
        session = there.session(key(A))
        assert session.raw is not None
        for path in (own.served.server.settings.raw_folder / "raw").rglob(f"{session.raw.sha256}.zst"):
            import zstandard

            path.write_bytes(zstandard.compress(b"x" * session.raw.size))
        with pytest.raises(DamageError, match="other bytes"):
            list(there.raw(session))
        for path in (own.served.server.settings.raw_folder / "raw").rglob(f"{session.raw.sha256}.zst"):
            path.unlink()
        with pytest.raises(ConflictError, match="does not hold"):
            list(there.raw(session))


def test_a_large_session_is_streamed_in_bounded_memory(devices: Devices) -> None:
    device = devices()
    lines = claude_lines(A, 600, text="word " * 2_000)
    data = b"".join(lines)
    assert len(data) > 12_000_000
    device.store.write(A, data)
    push(device)
    with both(device) as (here, there):
        assert sum(1 for _ in there.turns(key(A))) == 2_400
        assert all(mine == theirs for mine, theirs in zip(here.turns(key(A)), there.turns(key(A)), strict=True))
        session = there.session(key(A))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        digest, largest = sha256(), 0
        for piece in there.raw(session):
            digest.update(piece)
            largest = max(largest, len(piece))
        assert digest.digest() == sha256(data).digest()
        assert largest <= 1 << 20
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


def test_two_hundred_readers_at_once_get_the_same_answer(
    asked: tuple[q.Backend, RemoteBackend], device: Device
) -> None:
    here, there = asked
    question = q.Search(query=NEEDLE, filters=EVERY)
    expected = plain(here.search(question))
    with ThreadPoolExecutor(200) as readers:
        answers = list(readers.map(lambda _: plain(there.search(question)), range(200)))
    assert all(answer == expected for answer in answers)


def test_a_session_whose_id_ends_like_a_route_is_found(devices: Devices) -> None:
    device = devices()
    device.store.write(A, b"".join(claude_lines(A, 1)))
    device.store.sync()
    natives = ("app/turns", "app/raw")
    with device.log() as log:
        for native in natives:
            log.append(
                [Draft(f"session-codex/{native}", 0, parsed(native, *turns(native, {"a": f"words of {native}"})))]
            )
    push(device)
    with both(device) as (here, there):
        listed = here.timeline(q.Timeline(filters=EVERY)).sessions
        assert {session.id for session in listed} == {A, *natives}
        for session in listed:
            assert there.session(session.key) == session
            assert list(there.turns(session.key)) == list(here.turns(session.key))


@pytest.mark.parametrize(
    ("scope", "seen"), [("reports", {"report"}), ("metadata", {"report", "timeline", "find", "storage", "log"})]
)
def test_a_token_reads_as_far_as_it_may(scope: Any, seen: set[str], device: Device) -> None:
    token = device.served.run(lambda server: tokens.issue(server, scope, name="x", by=OWNER))[0]
    there = RemoteBackend(Connection(device.served.url, token, device.fingerprint))
    questions = {
        "report": lambda: there.report(q.Report(name="usage", filters=EVERY)),
        "timeline": lambda: there.timeline(q.Timeline(filters=EVERY)),
        "find": lambda: there.find(A),
        "storage": lambda: there.storage(EVERY),
        "log": lambda: list(there.events()),
        "search": lambda: there.search(q.Search(query="x", filters=EVERY)),
        "turns": lambda: list(there.turns(key(A))),
        "raw": lambda: list(Connection(device.served.url, token, "").read(f"/v1/sessions/{key(A)}/raw")),
    }
    for name, question in questions.items():
        if name in seen:
            question()
        else:
            with pytest.raises(ServerRefused, match="may not do this") as refused:
                question()
            assert refused.value.exit_code == 4
    if "timeline" in seen:
        for session in [*there.timeline(q.Timeline(filters=EVERY)).sessions, there.session(key(A))]:
            assert (session.title, session.first_prompt) == (None, None)
            assert session.turns.user


def test_a_parameter_that_nobody_knows_is_refused(device: Device) -> None:
    connection = Connection(device.served.url, device.token, device.fingerprint)
    for path in ("/v1/sessions", "/v1/search", "/v1/reports/usage", "/v1/storage", "/v1/log", "/v1/log/1"):
        with pytest.raises(ServerRefused, match="'agnet'") as refused:
            connection.ask(path, Problem, {"agnet": "codex"})
        assert refused.value.problem.code == "invalid"


def test_without_a_login_nothing_is_asked(tmp_path: Path) -> None:
    from prosa.cli.opening import open_backend

    with pytest.raises(NotLoggedIn) as raised, open_backend(Store(tmp_path).home, remote=True):
        pass
    assert raised.value.exit_code == 4
    assert str(raised.value).splitlines()[-1] == "Next: prosa login"


# the command line


@pytest.fixture
def here(device: Device, monkeypatch: pytest.MonkeyPatch) -> Device:
    """The device as this process's own, logged in."""
    for name, value in device.store.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.chdir(device.store.root)
    this = identify().id
    token = device.served.run(lambda server: tokens.issue(server, "device", device=this, by=OWNER))[0]
    login = auth_file.Auth(server=device.served.url, token=token, device=this, server_id=device.served.server.id)
    auth_file.write(device.store.home, login)
    projected(device.served)
    return device


@pytest.fixture
def prosa(here: Device, capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Ran]:
    """Runs one command line; stdout is a pipe."""

    def call(*args: str) -> Ran:
        capfdbinary.readouterr()
        code = run(list(args))
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return Ran(code, out, err.decode())

    return call


@pytest.mark.parametrize(
    "words",
    [
        "--last 52w", "--last 52w --json", "--last 52w --flat --limit 2 --json", "--all --since 2000-01-01 --json",
        f"search {NEEDLE} --json", "search prompt --all-hits --limit 3", "search nowhere", "search x --agent nope",
        "analytics usage --last 52w --json", "analytics days --last 52w", "analytics heatmap --json",
        f"show {A} --json", f"show {A}", f"show {B[:8]} --raw", "show nobody", "show claude-code/",
        "--last 52w --device nope", "--project nope",
    ],
)  # fmt: skip
def test_the_command_line_prints_the_same_with_remote(words: str, prosa: Callable[..., Ran]) -> None:
    local, remote_ = prosa(*words.split()), prosa(*words.split(), "--remote")
    assert remote_ == local
    assert local.out or local.err


def test_the_terminal_shows_the_same_with_remote(prosa: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    from prosa.cli import output
    from prosa.cli import terminal as screen

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("PAGER", "cat")
    for module in (screen, output):
        monkeypatch.setattr(module, "is_terminal", lambda stream=None: stream is None or stream is sys.stdout)
    for words in ("--last 52w", f"show {A}", "search prompt", "analytics days --last 52w"):
        assert prosa(*words.split(), "--remote") == prosa(*words.split())


def test_the_servers_log_and_storage_are_its_own(prosa: Callable[..., Ran]) -> None:
    last = json.loads(prosa("log", "--json", "--limit", "1", "--remote").out)
    assert json.loads(prosa("log", "show", str(last["position"]), "--json", "--remote").out) == last
    types = [
        [json.loads(line)["type"] for line in prosa("why", A, "--json", *words).out.splitlines()]
        for words in ((), ("--remote",))
    ]
    assert [name for name in types[0] if name != "push_confirmed"] == types[1] != []
    local = [json.loads(line) for line in prosa("storage", "--json").out.splitlines()]
    there = [json.loads(line) for line in prosa("storage", "--json", "--remote").out.splitlines()]
    assert [row for row in local if row["by"] in ("agent", "project", "age")] == there != []


def test_a_pruned_raw_comes_from_the_server(here: Device, prosa: Callable[..., Ran]) -> None:
    """The last one: it prunes."""
    data = b"".join(claude_lines(A, 20, text=NEEDLE))
    assert prosa("prune", "--older-than", "30d").code == 0
    session = json.loads(prosa("show", A, "--json").out)["session"]
    assert session["raw"]["state"] == "pruned"
    assert prosa("sync").code == 0
    projected(here.served)
    assert json.loads(prosa("show", A, "--json", "--remote").out)["session"]["raw"]["state"] == "pruned"
    for words in (("show", A), ("show", A, "--raw"), ("show", A, "--remote")):
        assert prosa(*words) == (0, data, "")

    login = auth_file.read(here.store.home)
    assert login is not None
    auth_file.remove(here.store.home)
    out = prosa("show", A)
    assert (out.code, out.out) == (4, b"")
    lines = out.err.splitlines()
    assert lines[0] == f"The raw copy of {key(A)} was pruned from this machine, and the server's copy needs a login."
    assert lines[1:] == ["Its turns are still here, and the server confirmed its own copy first.", "Next: prosa login"]
    auth_file.write(here.store.home, msgspec.structs.replace(login, server="http://127.0.0.1:9"))
    out = prosa("show", A, "--raw")
    assert (out.code, out.out) == (4, b"")
    assert out.err.startswith(f"The raw copy of {key(A)} was pruned from this machine; http://127.0.0.1:9 cannot be")
    assert len(out.err.splitlines()) == 3
    assert prosa("show", A, "--json").code == 0


def test_a_server_that_is_away_is_said_in_three_lines(here: Device, prosa: Callable[..., Ran]) -> None:
    login = auth_file.read(here.store.home)
    assert login is not None
    auth_file.write(here.store.home, msgspec.structs.replace(login, server="http://127.0.0.1:9"))
    for words in ("--last 52w", "search x", f"show {A}", "analytics usage", "storage", "log", f"why {A}"):
        ran = prosa(*words.split(), "--remote")
        assert (ran.code, ran.out, len(ran.err.splitlines())) == (4, b"", 3), words
    auth_file.write(here.store.home, msgspec.structs.replace(login, token="prosa_d_" + "0" * 16 + "_" + "x" * 43))
    ran = prosa("--remote")
    assert (ran.code, ran.err.splitlines()[-1]) == (4, "Run prosa login")


def test_a_server_whose_tables_are_behind_is_said(here: Device, prosa: Callable[..., Ran]) -> None:
    async def stall(server: Any) -> None:
        await server.pool.execute("UPDATE projections SET position = position - 3 WHERE state = 'serving'")

    here.served.run(stall)
    ran = prosa("--last", "52w", "--remote")
    assert (ran.code, ran.err) == (0, "The server's tables are 3 events behind its log: it is at work on them.\n")
    assert len(ran.out.splitlines()) == 3


def test_a_local_question_loads_nothing_of_the_network(here: Device) -> None:
    program = (
        "import sys; from prosa.cli.app import run; run(['--last', '52w', '--json']);"
        "print(*(name for name in sys.modules if name in ('http.client', 'httpx', 'ssl') or 'prosa.sync' in name))"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(package.__file__).parents[1])}
    ran = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == ""
