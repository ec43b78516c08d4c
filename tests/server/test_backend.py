"""Asking Postgres: no projection yet, one that is dropped meanwhile, many at once, one state, and what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pushed import Device

from prosa.projections.queries import Filters, Report, Search, Timeline
from prosa.projections.tables import value
from prosa.server import tables
from prosa.server.backend import ServerBackend, ask
from prosa.server.endpoints import Refused
from prosa.server.rebuilding import rebuild
from prosa.server.state import Server
from prosa.server.worker import Worker

pytestmark = pytest.mark.anyio

EVERY = Timeline(filters=Filters())


async def filled(server: Server, tmp_path: Path, sessions: int = 3) -> Worker:
    """A worker that has projected some sessions. Stop it."""
    device = Device(tmp_path)
    for number in range(sessions):
        device.session(f"s{number}", one=f"prompt {number} common")
    worker = Worker(server)
    await worker.start()
    await worker.wait_for(await device.push_all(server))
    return worker


async def test_before_there_is_a_projection_a_question_is_refused(server: Server) -> None:
    with pytest.raises(Refused) as refused:
        await ask(server, lambda backend: backend.timeline(EVERY))
    assert refused.value.problem.code == "unavailable"
    assert refused.value.problem.retry_after_s


async def test_a_question_is_asked_again_where_its_projection_is_dropped(server: Server, tmp_path: Path) -> None:
    worker = await filled(server, tmp_path)
    await worker.stop()
    (old,) = await server.pool.fetchrow("SELECT schema FROM projections WHERE state = 'serving'")
    await rebuild(server)
    (new,) = await server.pool.fetchrow("SELECT schema FROM projections WHERE state = 'serving'")
    assert old != new
    loop = asyncio.get_running_loop()
    asked: list[int] = []

    def question(backend: ServerBackend) -> int:
        asked.append(len(asked))
        if len(asked) == 1:
            dropping = server.pool.execute(f"DROP SCHEMA {new} CASCADE")
            asyncio.run_coroutine_threadsafe(dropping, loop).result(10)
            serving = server.pool.execute("UPDATE projections SET schema = $1 WHERE state = 'serving'", old)
            asyncio.run_coroutine_threadsafe(serving, loop).result(10)
        return backend.timeline(EVERY).total

    assert await ask(server, question) == 3
    assert asked == [0, 1]


async def test_an_answer_is_of_one_state(server: Server, tmp_path: Path) -> None:
    worker = await filled(server, tmp_path)
    loop = asyncio.get_running_loop()
    count = "SELECT count(*) FROM sessions"

    def question(backend: ServerBackend) -> tuple[int, int, int]:
        reading = backend._tables
        with reading.one_state():
            before = value(reading, count)
            schema = value(reading, "SELECT current_schema()")
            asyncio.run_coroutine_threadsafe(server.pool.execute(f"DELETE FROM {schema}.sessions"), loop).result(10)
            inside = value(reading, count)
        with reading.one_state():
            return before, inside, value(reading, count)

    assert await ask(server, question) == (3, 3, 0)
    await worker.stop()


async def test_nothing_can_be_written_while_asking(server: Server, tmp_path: Path) -> None:
    worker = await filled(server, tmp_path)

    def question(backend: ServerBackend) -> None:
        with backend._tables.one_state():
            backend._tables.execute("DELETE FROM sessions")

    with pytest.raises(Exception, match="read-only transaction"):
        await ask(server, question)
    assert (await ask(server, lambda backend: backend.timeline(EVERY))).total == 3
    await worker.stop()


async def test_a_question_that_takes_too_long_is_ended(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await filled(server, tmp_path)
    monkeypatch.setattr(tables, "TIMEOUT_S", 1)

    def question(backend: ServerBackend) -> None:
        with backend._tables.one_state():
            backend._tables.execute("SELECT pg_sleep(30)")

    with pytest.raises(Refused) as refused:
        await ask(server, question)
    assert refused.value.problem.code == "unavailable"
    await worker.stop()


async def test_two_hundred_questions_at_once_are_all_answered(server: Server, tmp_path: Path) -> None:
    worker = await filled(server, tmp_path, 20)

    def questions(number: int) -> Any:
        if number % 3 == 0:
            return lambda backend: len(backend.search(Search(query="common", filters=Filters(), limit=0)).found)
        if number % 3 == 1:
            return lambda backend: backend.report(Report(name="sessions", filters=Filters()))[0]["sessions"]
        return lambda backend: backend.timeline(EVERY).total

    answers = await asyncio.gather(*(ask(server, questions(number)) for number in range(200)))
    assert answers == [20] * 200
    await worker.stop()


async def test_a_cancelled_question_leaves_its_connection_fit_for_the_next(server: Server, tmp_path: Path) -> None:
    worker = await filled(server, tmp_path)
    for _ in range(30):
        task = asyncio.create_task(ask(server, lambda backend: backend.timeline(EVERY).total))
        await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert await ask(server, lambda backend: backend.timeline(EVERY).total) == 3
    assert server.pool.get_size() - server.pool.get_idle_size() <= 3  # the worker's own
    await worker.stop()
