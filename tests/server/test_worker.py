"""The worker: what it projects step by step, after kills, for another worker, for what it cannot apply."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cluster import new_database
from pushed import Device, parsed, turns
from store import A, B, C, Store, claude_lines, fork_of, two_machines

from prosa.events import codec
from prosa.events.catalogue import Event, SessionExtended, SessionParsed
from prosa.events.log import Log
from prosa.projections.digest import Digest
from prosa.server import mirror, rebuilding
from prosa.server.app import open_server
from prosa.server.carrying import Displaced, Held, Place, carry
from prosa.server.comparing import digest
from prosa.server.postgres import Cluster
from prosa.server.projecting import Projection
from prosa.server.reading import PgLog
from prosa.server.rebuilding import check, folder_of, rebuild
from prosa.server.settings import Settings
from prosa.server.state import Server
from prosa.server.worker import Worker

pytestmark = pytest.mark.anyio


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    made = Device(tmp_path)
    yield made
    made.log.close()


@contextlib.asynccontextmanager
async def working(server: Server) -> AsyncIterator[Worker]:
    """A worker that works while the block runs."""
    worker = Worker(server)
    await worker.start()
    try:
        yield worker
    finally:
        await worker.stop()


async def projected(worker: Worker, position: int) -> None:
    await asyncio.wait_for(worker.wait_for(position), 20)


async def serving(server: Server) -> Any:
    return await server.pool.fetchrow(
        "SELECT number, schema, worker, position FROM projections WHERE state = 'serving'"
    )


async def ask(server: Server, statement: str) -> list[tuple[Any, ...]]:
    """Rows of the serving projection; {s} is its schema."""
    schema = (await serving(server))["schema"]
    return [tuple(row) for row in await server.pool.fetch(statement.format(s=schema))]


async def ids(server: Server) -> list[str]:
    return [row[0] for row in await ask(server, "SELECT id FROM {s}.sessions ORDER BY id")]


async def found(server: Server, word: str) -> list[str]:
    """Sessions in which a word is found."""
    rows: set[str] = set()
    for table in ("text_prompt", "text_answer", "text_thinking", "text_rest"):
        statement = f"SELECT s.id FROM {{s}}.{table} t JOIN {{s}}.sessions s ON s.sid = t.rowid >> 24"
        rows |= {
            row[0] for row in await ask(server, f"{statement} WHERE {{s}}.lexemes(words, cut) @@ '{word}'::tsquery")
        }
    return sorted(rows)


async def said(server: Server) -> Digest:
    async with server.pool.acquire() as connection:
        return await digest(connection, (await serving(server))["schema"])


async def until(done: Any) -> None:
    """Wait for something to come true."""
    async with asyncio.timeout(20):
        while not await done():
            await asyncio.sleep(0.05)


# the same tables, whatever the way


async def test_an_empty_log_has_a_projection_and_the_first_session_is_in_it(server: Server, device: Device) -> None:
    async with working(server) as worker:
        await until(lambda: serving(server))
        assert await ids(server) == []
        device.session("a", one="hello world")
        await projected(worker, await device.push_all(server))
        assert await ids(server) == ["a"]
        assert await found(server, "hello") == ["a"]


async def test_steps_give_what_a_rebuild_gives(server: Server, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    base = claude_lines(A, 4, text="naïve 漢字")
    async with working(server) as worker:
        device: Device | None = None
        for count, files in ((3, {A: base}), (8, {A: base, B: fork_of(base, A, B)}), (12, {A: base, C: base[:6]})):
            for native, lines in files.items():
                store.write(native, b"".join(lines[:count]))
            store.sync()
            store.write(A, b"".join(base[: count - 1] + claude_lines(A, 1, start=20 + count)))
            store.sync()
            device = device or Device(tmp_path, log=Log(store.home.log))
            await projected(worker, await device.push_all(server, most=3))
        assert device is not None
        assert await check(server) == []
        before = await said(server)
        assert sorted(before.sessions) == [f"claude-code/{native}" for native in (A, B, C)]
        assert await rebuild(server) == []
        assert await said(server) == before
        assert (await serving(server))["number"] == 2
        device.log.close()
    rows = await ask(server, "SELECT id, users, input, title, forked_from FROM {s}.sessions ORDER BY id")
    assert rows == store.rows("SELECT id, users, input, title, forked_from FROM sessions ORDER BY id")


async def test_check_says_what_differs_and_switches_nothing(server: Server, device: Device) -> None:
    device.session("a", one="first")
    device.session("b", one="second")
    async with working(server) as worker:
        await projected(worker, await device.push_all(server))
        row = await serving(server)
        await server.pool.execute(f"DELETE FROM {row['schema']}.text_prompt WHERE words LIKE '% first %'")
        await server.pool.execute(f"UPDATE {row['schema']}.turns SET kind = 5 WHERE id >> 24 = 2")
        assert await check(server) == ["session codex/a: differs", "session codex/b: differs"]
        assert (await serving(server))["number"] == row["number"]
        schemas = await server.pool.fetch("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'p1%'")
        assert [name for (name,) in schemas] == [row["schema"]]
        assert await rebuild(server) == ["session codex/a: differs", "session codex/b: differs"]
        assert await check(server) == []
        device.session("c", one="third")
        await projected(worker, await device.push_all(server))
        assert await ids(server) == ["a", "b", "c"]
        assert await check(server) == []


def without_places(said: Digest) -> dict[str, str]:
    """Sessions as hashes, without where the log has their revisions: that depends on who pushed first."""
    return {
        key: ", ".join(part for part in text.split(", ") if not part.startswith("revisions"))
        for key, text in said.sessions.items()
    }


async def test_any_interleaving_of_two_devices_and_any_batches_give_the_same_sessions(
    cluster: Cluster, template: str, settings: Settings, tmp_path: Path
) -> None:
    stores = two_machines(tmp_path)
    results = []
    for seed in range(6):
        chance = random.Random(seed)
        alone = msgspec.structs.replace(
            settings, db_url=new_database(cluster, template), work_folder=tmp_path / f"work{seed}"
        )
        async with open_server(alone, working=False) as server, working(server) as worker:
            devices = [Device(tmp_path, f"{n:016x}", Log(store.home.log)) for n, store in enumerate(stores)]
            position = 0
            while ready := [device for device in devices if device.waiting()]:
                position = await chance.choice(ready).push(server, chance.choice([1, 2, 5, 50]))
                if chance.random() < 0.5:
                    await projected(worker, position)
            await projected(worker, position)
            assert await check(server) == []
            results.append(without_places(await said(server)))
            for device in devices:
                device.log.close()
    assert len(results[0]) == 3
    assert all(result == results[0] for result in results)


async def test_a_parse_is_projected_when_its_last_part_is_there(server: Server, device: Device, tmp_path: Path) -> None:
    other = Device(tmp_path, "00000000000000bb")
    async with working(server) as worker:
        device.part("long", one="first part")
        await device.push_all(server)
        other.session("a", one="between")
        await projected(worker, await other.push_all(server))
        assert await ids(server) == ["a"]
        device.part("long", two="second part")
        await device.push_all(server)
        other.session("b", one="between too")
        await projected(worker, await other.push_all(server))
        assert await ids(server) == ["a", "b"]
        device.write("session-codex/long", parsed("long", *turns("long", {"three": "the end"}), parts=2))
        await projected(worker, await device.push_all(server))
        assert await ids(server) == ["a", "b", "long"]
        assert await ask(server, "SELECT users FROM {s}.sessions WHERE id = 'long'") == [(3,)]
        assert await found(server, "second") == ["long"]
        assert await check(server) == []
    other.log.close()


# kills and takeovers


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from prosa.server.app import open_server
from prosa.server.settings import Settings
from prosa.server.worker import Worker
DIE = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)
{patch}
async def main():
    url, work, raw = sys.argv[2:]
    settings = Settings(public_url="", db_url=url, s3=None, work_folder=Path(work), raw_folder=Path(raw))
    async with open_server(settings, working=False) as server:
        worker = Worker(server)
        await worker.start()
        await asyncio.wait_for(worker.wait_for(int(sys.argv[1])), 20)
        await worker.stop()
asyncio.run(main())
"""
WITH_A_CARRY = "from prosa.server import carrying; old = carrying._carry_table\n"
FAR_BEHIND = "from prosa.server import rebuilding, worker; worker.FAR, worker.FAR_PART = 0, 1_000; "
POINTS = {
    "while it applies": "from prosa.projections import replay; replay.refresh = DIE",
    "applied, not committed": "from prosa.projections import engine; engine.save_checkpoint = DIE",
    "committed, not carried": "from prosa.server import worker; worker.carry = DIE",
    "while it carries": WITH_A_CARRY + "async def half(c, s, db, table):\n    await old(c, s, db, table)\n"
    "    if table.name == 'turns': DIE()\ncarrying._carry_table = half",
    "carried, not noted": "from prosa.server import carrying; carrying._carried = DIE",
    "while it fills": "from prosa.server import rebuilding; rebuilding.ddl = DIE",
    "filled, not in Postgres": "from prosa.server import rebuilding; rebuilding.fill = DIE",
    "far behind, half made": FAR_BEHIND + "rebuilding.fill = DIE",
    "far behind, not switched": FAR_BEHIND + "rebuilding._switch = DIE",
    "filled, not served": "from prosa.server import rebuilding; rebuilding._compared = DIE",
}


def killed(settings: Settings, position: int, point: str) -> int:
    script = KILLED.replace("{patch}", POINTS[point])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    arguments = [str(position), str(settings.db_url), str(settings.work_folder), str(settings.raw_folder)]
    done = subprocess.run([sys.executable, "-c", script, *arguments], env=env, capture_output=True, check=False)
    assert done.returncode in (-9, 0), done.stderr.decode()
    return done.returncode


@pytest.mark.parametrize("point", POINTS)
async def test_a_kill_at_any_step_changes_nothing(
    server: Server, settings: Settings, tmp_path: Path, point: str
) -> None:
    store = Store(tmp_path / "store")
    lines = claude_lines(A, 4)
    store.write(A, b"".join(lines[:6]))
    store.sync()
    device = Device(tmp_path, log=Log(store.home.log))
    position = await device.push_all(server)
    is_first = "fill" in point
    if not is_first:
        async with working(server) as worker:
            await projected(worker, position)
    store.write(A, b"".join(lines))
    store.write(B, b"".join(fork_of(lines, A, B) + claude_lines(B, 1, start=9)))
    store.sync()
    position = await device.push_all(server)
    number = None if is_first else (await serving(server))["number"]
    assert await asyncio.to_thread(killed, settings, position, point) == -9
    device.log.close()
    device = Device(tmp_path, log=Log(store.home.log))
    async with working(server) as worker:
        await projected(worker, position)
        assert await check(server) == []
        row = await serving(server)
        assert number in (None, row["number"])  # the working file went on
    rows = await ask(server, "SELECT id, users, input, forked_from FROM {s}.sessions ORDER BY id")
    assert rows == store.rows("SELECT id, users, input, forked_from FROM sessions ORDER BY id")
    assert await server.pool.fetchval("SELECT count(*) FROM projections") == 1
    assert {path.name.partition(".")[0] for path in folder_of(server).iterdir()} == {row["worker"]}
    device.log.close()


async def test_a_second_worker_waits_and_takes_the_working_file_over(
    server: Server, settings: Settings, device: Device
) -> None:
    async with open_server(settings, working=False) as other, contextlib.AsyncExitStack() as stack:
        async with working(server) as first:
            device.session("a", one="hello")
            await projected(first, await device.push_all(server))
            row = await serving(server)
            second = await stack.enter_async_context(working(other))
            await asyncio.sleep(0.3)
            assert second.position == 0
        device.session("b", one="hello")
        position = await device.push_all(other)
        await until(lambda: reached(second, position))
        assert (await serving(other))["worker"] == row["worker"]
        assert await ids(other) == ["a", "b"]
        assert await check(other) == []


async def reached(worker: Worker, position: int) -> bool:
    return worker.position >= position


@pytest.mark.parametrize("what", ["deleted", "older", "damaged", "cut", "of another machine"])
async def test_a_working_file_that_does_not_fit_is_made_anew(
    server: Server, settings: Settings, device: Device, what: str
) -> None:
    device.session("a", one="hello")
    async with working(server) as worker:
        await projected(worker, await device.push_all(server))
    row = await serving(server)
    path = folder_of(server) / f"{row['worker']}.db"
    old = path.read_bytes()
    device.session("b", one="hello")
    async with working(server) as worker:
        await projected(worker, position := await device.push_all(server))
    before = await said(server)
    if what == "deleted":
        path.unlink()
    elif what in ("damaged", "cut"):
        path.write_bytes(bytes(8_192) if what == "damaged" else path.read_bytes()[:20_000])
    elif what == "older":
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        path.write_bytes(old)
    else:
        settings = msgspec.structs.replace(settings, work_folder=settings.work_folder / "elsewhere")
    async with open_server(settings, working=False) as again, working(again) as worker:
        await until(lambda: is_another(again, row["number"]))
        await projected(worker, position)
        assert await said(again) == before
        device.session("c", one="hello")
        await projected(worker, await device.push_all(again))
        assert await ids(again) == ["a", "b", "c"]


async def test_a_server_that_stops_while_it_fills_waits_for_nothing_and_leaves_nothing(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prosa.server import mirror

    device = Device(tmp_path)
    for n in range(30):
        device.session(f"s{n}", **{f"t{m}": f"word{m} " * 50 for m in range(20)})
    await device.push_all(server)
    monkeypatch.setattr(mirror, "PIECE_ROWS", 5)
    for seconds in (0.05, 0.2, 0.4, 0.8):
        worker = Worker(server)
        await worker.start()
        await asyncio.sleep(seconds)
        async with asyncio.timeout(5):
            await worker.stop()
    async with working(server) as worker:
        await projected(worker, device.head.position)
        assert await check(server) == []
    assert await server.pool.fetchval("SELECT count(*) FROM projections") == 1
    device.log.close()


async def is_another(server: Server, number: int) -> bool:
    return bool((await serving(server))["number"] != number)


async def test_only_a_file_that_is_named_by_the_projection_is_carried(server: Server, device: Device) -> None:
    device.session("a", one="hello")
    await device.push_all(server)
    await rebuild(server)
    row = await serving(server)
    old = Projection(folder_of(server), Place(server.owner, row["number"], row["worker"]))
    device.session("b", one="hello")
    await device.push_all(server)
    async with server.pool.acquire() as connection, server.pool.acquire() as another:
        reader = PgLog(connection, asyncio.get_running_loop(), server.owner)
        await asyncio.to_thread(old.step, reader)
        async with another.transaction():
            await another.execute("SELECT 1 FROM projections FOR UPDATE")
            with pytest.raises(Held):
                await carry(connection, old.db, old.place)
        await rebuild(server)
        with pytest.raises(Displaced):
            await carry(connection, old.db, old.place)
    old.close()
    assert await server.pool.fetchval(f"SELECT count(*) FROM {row['schema']}.sessions") == 1


async def test_a_rebuild_while_the_worker_works_takes_its_place(server: Server, device: Device) -> None:
    device.session("a", one="hello")
    async with working(server) as worker:
        await projected(worker, await device.push_all(server))
        await rebuild(server)
        device.session("b", one="hello")
        await projected(worker, await device.push_all(server))
        assert (await serving(server))["number"] == 2
        assert await ids(server) == ["a", "b"]
        assert await check(server) == []


async def test_a_rebuild_takes_the_place_of_tables_that_were_harmed(server: Server, device: Device) -> None:
    device.session("a", one="hello")
    async with working(server) as worker:
        await projected(worker, await device.push_all(server))
    schema = (await serving(server))["schema"]
    await server.pool.execute(f"DROP TABLE {schema}.turns")
    (said_of_it,) = await check(server)
    assert "cannot be read" in said_of_it
    assert (await serving(server))["number"] == 1
    assert await rebuild(server) == [said_of_it]
    assert await ids(server) == ["a"]
    assert await check(server) == []


async def test_a_worker_far_behind_makes_all_anew_once_while_what_serves_answers_and_more_comes(
    server: Server, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill, seen = mirror.fill, list[list[str]]()

    async def slow(connection: Any, schema: str, db: Any) -> int:
        seen.append(await ids(server))
        device.session("meanwhile", one="hello")
        await device.push_all(server)
        return await fill(connection, schema, db)

    async with working(server) as first:
        device.session("a", one="hello")
        await projected(first, await device.push_all(server))
    for n in range(20):
        device.session(f"b{n:02}", one="hello")
    await device.push_all(server)
    monkeypatch.setattr("prosa.server.rebuilding.fill", slow)
    monkeypatch.setattr("prosa.server.worker.FAR", 10)
    async with working(server) as worker:
        await projected(worker, device.head.position)
        await until(lambda: reached(worker, device.head.position))
        assert seen == [["a"]]
        assert (await serving(server))["number"] == 2
        assert await ids(server) == ["a", *(f"b{n:02}" for n in range(20)), "meanwhile"]
        monkeypatch.setattr("prosa.server.rebuilding.fill", fill)
        assert await check(server) == []


async def test_a_worker_far_behind_goes_on_where_a_rebuild_is_at_work(
    server: Server, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with working(server) as first:
        device.session("a", one="hello")
        await projected(first, await device.push_all(server))
    monkeypatch.setattr("prosa.server.worker.FAR", 0)
    device.session("b", one="hello")
    position = await device.push_all(server)
    async with server.pool.acquire() as connection, working(server) as worker:
        await connection.execute("SELECT pg_advisory_lock($1, $2)", rebuilding.LOCK, server.owner)
        await projected(worker, position)
        assert await ids(server) == ["a", "b"]
        assert (await serving(server))["number"] == 1
        await connection.execute("SELECT pg_advisory_unlock($1, $2)", rebuilding.LOCK, server.owner)


# what cannot be applied


class SessionDreamed(Event, frozen=True, kw_only=True):
    TYPE = "session_dreamed"
    what: str


async def test_an_event_of_a_newer_prosa_is_passed_over_until_it_is_known(
    server: Server, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.session("a", one="hello")
    await device.push_all(server)
    body = codec.encode(SessionDreamed(what="sheep"))
    position = await device.push_strange(server, "session-codex/a", "session_dreamed", 1, body)
    other = Device(Path(device.log.path).parent, "00000000000000bb")
    other.session("b", one="hello")
    async with working(server) as worker:
        await projected(worker, await other.push_all(server))
        assert await ids(server) == ["a", "b"]
        parked = await server.pool.fetch("SELECT stream, position, reason FROM parked")
        assert [(row["stream"], row["position"]) for row in parked] == [("session-codex/a", position)]
        assert "session_dreamed version 1" in parked[0]["reason"]
        other.session("c", one="hello")
        await projected(worker, await other.push_all(server))
        number = (await serving(server))["number"]
    monkeypatch.setitem(codec.BY_TYPE, "session_dreamed", SessionDreamed)
    async with working(server):
        await until(lambda: is_another(server, number))
        assert await server.pool.fetchval("SELECT count(*) FROM parked") == 0
    other.log.close()


@pytest.mark.parametrize("steps", [True, False], ids=["in a step", "while it fills"])
async def test_a_session_that_cannot_be_applied_is_parked_alone(server: Server, device: Device, steps: bool) -> None:
    other = Device(Path(device.log.path).parent, "00000000000000bb")
    device.session("bad", one="before")
    device.session("a", one="hello")
    await device.push_all(server)
    async with contextlib.AsyncExitStack() as stack:
        if steps:
            worker = await stack.enter_async_context(working(server))
            await until(lambda: serving(server))
        body = msgspec.msgpack.encode({"session": "codex/bad", "turns": "none"})
        position = await device.push_strange(server, "session-codex/bad", SessionParsed.TYPE, 1, body)
        described = msgspec.msgpack.encode({"session": 7})
        noted = await device.push_strange(server, "session-codex/x", "session_described", 1, described)
        other.session("b", one="hello")
        last = await other.push_all(server)
        if not steps:
            worker = await stack.enter_async_context(working(server))
        await projected(worker, last)
        assert set(await ids(server)) >= {"a", "b"}
        rows = await server.pool.fetch("SELECT stream, position FROM parked ORDER BY position")
        if steps:
            assert [tuple(row) for row in rows] == [("session-codex/bad", position), ("session-codex/x", noted)]
            assert await found(server, "before") == ["bad"]  # as it was
        else:
            assert {row["stream"] for row in rows} == {"session-codex/bad", "session-codex/x"}
        other.session("bad", one="other copy")
        other.session("c", one="hello")
        await projected(worker, await other.push_all(server))
        assert "c" in await ids(server)
    other.log.close()


async def test_a_session_that_was_parked_for_a_fault_is_tried_again_with_its_next_event(
    server: Server, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prosa.projections import replay, sessions

    refresh = sessions.refresh

    def fails(db: Any, sid: int, turn_text: Any) -> None:
        (native,) = db.execute("SELECT id FROM sessions WHERE sid = ?", (sid,)).fetchone()
        if native == "bad":
            raise ValueError("words of a transcript")
        refresh(db, sid, turn_text)

    async with working(server) as worker:
        await until(lambda: serving(server))
        monkeypatch.setattr(replay, "refresh", fails)
        device.session("bad", one="hello")
        device.session("a", one="hello")
        await projected(worker, await device.push_all(server))
        assert await ids(server) == ["a"]
        reasons = [row["reason"] for row in await server.pool.fetch("SELECT reason FROM parked")]
        assert len(reasons) == 1
        assert reasons[0].startswith("ValueError at test_worker.py:")
        monkeypatch.setattr(replay, "refresh", refresh)
        more = parsed("bad", *turns("bad", {"two": "more"}), kind=SessionExtended)
        device.write("session-codex/bad", more)
        await projected(worker, await device.push_all(server))
        assert await ids(server) == ["a", "bad"]
        assert await server.pool.fetchval("SELECT count(*) FROM parked") == 0
        assert await ask(server, "SELECT users FROM {s}.sessions WHERE id = 'bad'") == [(2,)]
        assert await check(server) == []


async def test_an_erased_session_loses_its_words_at_once_and_is_gone_after_the_rebuild(
    server: Server, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.session("secret", one="the password", two="is swordfish")
    device.session("a", one="hello")
    async with working(server) as worker:
        await projected(worker, await device.push_all(server))
        assert await found(server, "swordfish") == ["secret"]
        with monkeypatch.context() as patch:
            patch.setattr(Worker, "_make_anew", lambda *_: None)
            device.log.erase(list(device.log.stream("session-codex/secret")), "requested", "user")
            await projected(worker, await device.push_all(server))
            assert await found(server, "swordfish") == await found(server, "password") == []
            columns = "title, first_prompt, position('title of' in encode(header, 'escape'))"
            rows = await ask(server, f"SELECT {columns} FROM {{s}}.sessions WHERE id = 'secret'")
            assert rows == [(None, None, 0)]
        number = (await serving(server))["number"]
        await until(lambda: is_another(server, number))
        assert await ids(server) == ["a"]
        assert await found(server, "hello") == ["a"]
        assert await check(server) == []


async def test_what_served_is_dropped_a_while_later(server: Server, device: Device) -> None:
    from prosa.server.rebuilding import tidy

    device.session("a", one="hello")
    async with working(server) as worker:
        await projected(worker, await device.push_all(server))
        old = await serving(server)
        await rebuild(server)
        async with server.pool.acquire() as connection:
            await tidy(server, connection)
            assert await connection.fetchval(f"SELECT count(*) FROM {old['schema']}.sessions") == 1
            await connection.execute("UPDATE projections SET changed_at = now() - interval '1 day'")
            await tidy(server, connection)
            assert await connection.fetchval("SELECT to_regnamespace($1)", old["schema"]) is None
        assert [row["number"] for row in await server.pool.fetch("SELECT number FROM projections")] == [2]
        names = {path.name.partition(".")[0] for path in folder_of(server).iterdir()}
        assert names == {(await serving(server))["worker"]}
