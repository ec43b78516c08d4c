"""The server's log read as a device reads its own: the same events, whatever the pages."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pushed import Device

from prosa.events.log import Recorded
from prosa.server import reading
from prosa.server.reading import LogUnreadable, PgLog
from prosa.server.state import Server

pytestmark = pytest.mark.anyio


def bare(recorded: Recorded) -> tuple[object, ...]:
    """Without the names that are the log's own."""
    return recorded[2:]


@pytest.mark.parametrize("events", [1, 3, 4, 500])
@pytest.mark.parametrize("size", [0, 1_000, 4_000_000])
@pytest.mark.parametrize("ahead", [False, True])
async def test_pages_of_any_size_give_every_event_once(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: int, size: int, ahead: bool
) -> None:
    device = Device(tmp_path)
    for n in range(4):
        device.session("a", **{f"t{n}": f"{n} " * 400})
        device.session(f"s{n}", one="hello")
    head = await device.push_all(server)
    monkeypatch.setattr(reading, "BATCH_EVENTS", events)
    monkeypatch.setattr(reading, "HEADERS_READ", events)
    monkeypatch.setattr(reading, "BATCH_BYTES", size)
    monkeypatch.setattr(reading, "NEAR_BYTES", size)
    log = PgLog(server.pool, asyncio.get_running_loop(), server.owner, ahead=ahead)
    mine = [bare(recorded) for recorded in device.log.read() if recorded.origin == device.log.shared.number]
    of_a = [bare(recorded) for recorded in device.log.stream("session-codex/a")]

    def read() -> None:
        found = list(log.read())
        assert [recorded.position for recorded in found] == list(range(1, head + 1))
        assert [bare(recorded) for recorded in found] == mine
        assert [bare(recorded)[:-2] for recorded in log.read(2, bodies=False)] == [event[:-2] for event in mine[2:]]
        assert all(recorded.stored is None for recorded in log.read(bodies=False))
        assert [bare(recorded) for recorded in log.stream("session-codex/a")] == of_a
        log.expect({"session-codex/a": 0, "session-codex/s1": 3})
        headers = list(log.stream("session-codex/a", bodies=False))
        assert [bare(recorded)[:-2] for recorded in headers] == [event[:-2] for event in of_a]
        assert [log.at(header.position) for header in headers] == [found[header.position - 1] for header in headers]
        assert [log.header_at(header.position) for header in headers] == headers
        assert log.head() == (head, found[-1].hash)
        assert log.at(head + 1) is None

    await asyncio.to_thread(read)
    device.log.close()


async def test_a_log_that_ends_somewhere_has_nothing_behind_it(server: Server, tmp_path: Path) -> None:
    device = Device(tmp_path)
    device.session("a", one="hello")
    until = await device.push_all(server)
    device.session("a", two="more")
    await device.push_all(server)
    log = PgLog(server.pool, asyncio.get_running_loop(), server.owner, until=until)

    def read() -> None:
        assert [recorded.position for recorded in log.read()] == list(range(1, until + 1))
        log.expect({"session-codex/a": 0})
        assert len(list(log.stream("session-codex/a", bodies=False))) == 1
        assert log.head()[0] == until
        assert log.at(until + 1) is log.header_at(until + 1) is None

    await asyncio.to_thread(read)
    log.stop()
    with pytest.raises(LogUnreadable):
        await asyncio.to_thread(log.head)
    device.log.close()
