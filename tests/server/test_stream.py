"""Server-sent events: what a client is told, how it is dropped, and that no slot leaks."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import uvicorn

from prosa.events.catalogue import LoginApproved
from prosa.server import stream, wakeups
from prosa.server.app import create_app
from prosa.server.log import append_own
from prosa.server.serving import Program
from prosa.server.state import Server

pytestmark = pytest.mark.anyio
DeviceMaker = Callable[..., Awaitable[dict[str, str]]]


class Listening:
    """The app behind a socket."""

    def __init__(self, program: Program, port: int) -> None:
        self.program, self.port = program, port

    async def ask(self, headers: dict[str, str]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        lines = ["GET /v1/stream HTTP/1.1", f"Host: 127.0.0.1:{self.port}", *(f"{k}: {v}" for k, v in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        await writer.drain()
        return reader, writer


@pytest.fixture
async def listening(server: Server) -> AsyncIterator[Listening]:
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    config = uvicorn.Config(
        create_app(server), http="h11", ws="none", lifespan="off", log_config=None, timeout_graceful_shutdown=5
    )
    program = Program(config, server)
    running = asyncio.create_task(program.serve(sockets=[listener]))
    while not program.started:
        await asyncio.sleep(0.01)
    yield Listening(program, listener.getsockname()[1])
    server.hub.close()
    program.should_exit = True
    await running
    listener.close()


async def until(reader: asyncio.StreamReader, text: str, within_s: float = 10) -> str:
    """What arrives up to a text."""
    got = ""
    async with asyncio.timeout(within_s):
        while text not in got:
            piece = await reader.read(4096)
            assert piece, f"the stream ended after {got!r}"
            got += piece.decode()
    return got


async def append(server: Server, times: int = 1) -> int:
    for _ in range(times):
        last = await append_own(server, "login-x", LoginApproved(by="ada@example.org"))
    return last.position


async def test_a_client_is_told_how_far_the_log_is(listening: Listening, server: Server, a_device: DeviceMaker) -> None:
    headers = await a_device()
    reader, writer = await listening.ask(headers)
    start = await until(reader, "event: open")
    assert "text/event-stream" in start
    assert "x-accel-buffering: no" in start.lower()
    position = await append(server)
    await until(reader, f"id: {position}\nevent: log\ndata: {position}\n\n", within_s=3)
    writer.close()


async def test_many_events_are_told_once_a_second(listening: Listening, server: Server, a_device: DeviceMaker) -> None:
    reader, writer = await listening.ask(await a_device())
    await until(reader, "event: open")
    begin = time.monotonic()
    position = 0
    while time.monotonic() - begin < 2.5:
        position = await append(server, 5)
        await asyncio.sleep(0.02)
    got = await until(reader, f"event: log\ndata: {position}\n\n")
    assert 2 <= got.count("event: log") <= 5
    writer.close()


async def test_a_client_that_comes_back_is_told_what_it_missed(
    listening: Listening, server: Server, a_device: DeviceMaker
) -> None:
    headers = await a_device()
    position = await append(server)
    reader, writer = await listening.ask({**headers, "Last-Event-ID": str(position - 1)})
    await until(reader, f"event: log\ndata: {position}\n\n", within_s=3)
    writer.close()
    for wrong in ("x", "-1", "9" * 30):
        reader, writer = await listening.ask({**headers, "Last-Event-ID": wrong})
        assert " 422 " in await until(reader, "\r\n")
        writer.close()


async def test_a_quiet_stream_is_kept_alive(
    listening: Listening, a_device: DeviceMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stream.HEARTBEAT_S <= 15
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.05)
    reader, writer = await listening.ask(await a_device())
    await until(reader, ": still here\n\n", within_s=3)
    writer.close()


async def test_two_hundred_resets_leave_no_slot(listening: Listening, server: Server, a_device: DeviceMaker) -> None:
    """Some before the answer began, some in the middle of it."""
    headers = await a_device()
    for number in range(200):
        reader, writer = await listening.ask(headers)
        if number % 2:
            await until(reader, "event: open")
        linger = struct.pack("ii", 1, 0)  # close sends RST
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
    async with asyncio.timeout(20):
        while len(server.hub):
            await append(server)
            await asyncio.sleep(0.1)
    reader, writer = await listening.ask(headers)
    await until(reader, "event: open")
    assert len(server.hub) == 1
    writer.close()


async def test_a_body_that_never_started_gives_its_slot_back(server: Server) -> None:
    client = wakeups.Client(0)
    answer = stream.Stream(server.hub, client)

    async def send(_: object) -> None:
        raise OSError("gone")

    async def receive() -> dict[str, str]:
        await asyncio.sleep(60)
        return {}

    with contextlib.suppress(BaseException):
        await answer({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)  # type: ignore[arg-type]
    assert len(server.hub) == 0


async def test_a_client_that_takes_nothing_is_dropped(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "STUCK_S", 0.05)
    answer = stream.Stream(server.hub, wakeups.Client(0))

    async def wait(*_: object) -> dict[str, str]:
        await asyncio.sleep(60)
        return {}

    async with asyncio.timeout(5):
        await answer({"type": "http", "asgi": {"spec_version": "2.3"}}, wait, wait)  # type: ignore[arg-type]
    assert len(server.hub) == 0


async def test_too_many_are_refused(
    listening: Listening, a_device: DeviceMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "CLIENTS", 1)
    headers = await a_device()
    reader, first = await listening.ask(headers)
    await until(reader, "event: open")
    reader, second = await listening.ask(headers)
    got = await until(reader, "\r\n\r\n")
    assert " 503 " in got
    assert "retry-after" in got.lower()
    first.close()
    second.close()


async def test_a_server_that_stops_waits_for_no_stream(listening: Listening, a_device: DeviceMaker) -> None:
    reader, writer = await listening.ask(await a_device())
    await until(reader, "event: open")
    begin = time.monotonic()
    listening.program.handle_exit(signal.SIGURG, None)  # uvicorn raises it again; nobody minds this one
    async with asyncio.timeout(4):
        while await reader.read(4096):
            pass
    assert time.monotonic() - begin < 4
    writer.close()
