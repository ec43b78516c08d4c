"""Appending what devices push: once in effect, in order, without gaps, and nothing that is not as it was written."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg
import httpx
import msgspec
import pytest
from batches import a_log, add, batches, shared, small
from cluster import new_database

from prosa.events.catalogue import DeviceMerged, DeviceRevoked, LoginApproved, LogLocated, RawPreserved
from prosa.events.chain import START, hash_body, hash_event
from prosa.events.log import Draft, Log
from prosa.events.messages import MSGPACK, Head, Heads, Problem, PushBatch, PushedEvent, Receipt
from prosa.server import app
from prosa.server.endpoints import Caller, Refused
from prosa.server.log import append_own, append_pushed
from prosa.server.postgres import Cluster
from prosa.server.settings import Settings
from prosa.server.state import Server

pytestmark = pytest.mark.anyio

ADA = Caller("device", "00000000000000aa")
BOB = Caller("device", "00000000000000bb")
DeviceMaker = Callable[..., Awaitable[dict[str, str]]]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return a_log(tmp_path / "log.db", 6)


async def stored(server: Server, log: Log) -> list[tuple[object, ...]]:
    """What the server has of a log's shared origin, as the device wrote it."""
    rows = await server.pool.fetch(
        "SELECT e.origin_position, e.id, e.stream, e.stream_version, e.type, e.version, e.at_us, e.body_hash, e.hash, "
        "e.salt, e.body FROM events e JOIN origins o ON o.owner = e.owner AND o.number = e.origin "
        "WHERE o.origin = $1 ORDER BY e.origin_position",
        log.shared.origin,
    )
    return [tuple(row) for row in rows]


async def is_whole(server: Server) -> bool:
    """Positions without gaps, and log_head and the origins' heads at their ends."""
    rows = await server.pool.fetch("SELECT position, origin, origin_position FROM events ORDER BY position")
    head = await server.pool.fetchval("SELECT position FROM log_head")
    ends: dict[int, int] = {}
    for row in rows:
        if row["origin_position"] != ends.get(row["origin"], 0) + 1:
            return False
        ends[row["origin"]] = row["origin_position"]
    heads = {row["number"]: row["position"] for row in await server.pool.fetch("SELECT number, position FROM origins")}
    return [row["position"] for row in rows] == list(range(1, head + 1)) and ends == heads


async def push(server: Server, log: Log, caller: Caller = ADA, size: int = 100, after: int = 0) -> list[Receipt]:
    return [await append_pushed(server, caller, batch) for batch in batches(log, size, after)]


async def refusal(server: Server, caller: Caller, batch: PushBatch) -> str:
    with pytest.raises(Refused) as refused:
        await append_pushed(server, caller, batch)
    return refused.value.problem.code


@pytest.mark.parametrize("size", [1, 6, 7, 8, 14])
async def test_every_page_size_gives_the_same_log(server: Server, log: Log, size: int) -> None:
    receipts = await push(server, log, size=size)
    assert await stored(server, log) == [tuple(event[2:]) for event in shared(log)]
    assert await is_whole(server)
    assert receipts[-1].head == Head(7, shared(log)[-1].hash)
    assert (receipts[0].position_from, receipts[-1].position_to) == (1, 7)


async def test_an_empty_batch_appends_nothing(server: Server, log: Log) -> None:
    origin = log.shared.origin.hex()
    empty = PushBatch(origin, Head(0, bytes(32)), [])
    assert await append_pushed(server, ADA, empty) == Receipt(Head(0, bytes(32)), 0, 0)
    await push(server, log)
    head = Head(7, shared(log)[-1].hash)
    assert await append_pushed(server, ADA, PushBatch(origin, head, [])) == Receipt(head, 0, 0)
    assert await server.pool.fetchval("SELECT count(*) FROM events") == 7


async def test_a_lost_reply_gives_the_same_receipt(server: Server, log: Log) -> None:
    [first] = await push(server, log)
    [again] = await push(server, log)
    assert again == first
    add(log, 3, first=6)
    [longer] = await push(server, log)
    assert (longer.position_from, longer.position_to) == (1, 10)
    assert await stored(server, log) == [tuple(event[2:]) for event in shared(log)]
    [middle, *_] = await push(server, log, size=3, after=2)
    assert (middle.head, middle.position_from, middle.position_to) == (Head(5, shared(log)[4].hash), 3, 5)
    assert await is_whole(server)


async def test_two_processes_of_one_origin_append_it_once(server: Server, log: Log) -> None:
    await asyncio.gather(*(push(server, log, size=size) for size in (1, 2, 3, 100)))
    assert await stored(server, log) == [tuple(event[2:]) for event in shared(log)]
    assert await is_whole(server)


async def test_eight_devices_at_once_leave_no_gap(server: Server, tmp_path: Path) -> None:
    logs = [a_log(tmp_path / f"{number}.db", 120) for number in range(8)]
    callers = [Caller("device", f"{number:016x}") for number in range(8)]
    seen: list[int] = []

    async def read_on() -> None:
        while len(seen) < 8 * 121:
            after = seen[-1] if seen else 0
            rows = await server.pool.fetch("SELECT position FROM events WHERE position > $1 ORDER BY position", after)
            seen.extend(row["position"] for row in rows)

    pushes = [push(server, log, caller, size=7) for log, caller in zip(logs, callers, strict=True)]
    await asyncio.wait_for(asyncio.gather(read_on(), *pushes), 60)
    assert seen == list(range(1, 8 * 121 + 1)), "who reads behind a position misses nothing"
    assert await is_whole(server)
    for one in logs:
        assert len(await stored(server, one)) == 121


async def test_another_log_under_the_same_origin_is_refused_and_both_stay(
    server: Server, log: Log, tmp_path: Path
) -> None:
    await push(server, log)
    copy = restored(log, tmp_path / "copy.db")
    add(log, 2, first=100)
    await push(server, log)
    add(copy, 3, first=200)
    before = await stored(server, log)
    for size, after in ((100, 0), (100, 7), (1, 8), (1, 9)):
        batch = next(batches(copy, size, after))
        assert await refusal(server, ADA, batch) == "forked"
    assert await stored(server, log) == before
    assert len(shared(copy)) == 10


def restored(log: Log, path: Path) -> Log:
    """A copy that goes on under the same origin, as where neither machine nor inode tells."""
    copy_of(log, path)
    copy = Log(path)
    copy._located = True
    return copy


def copy_of(log: Log, path: Path) -> None:
    """By another process: who closes a file that SQLite has open gives its locks away."""
    for suffix in ("", "-wal"):
        subprocess.run(["cp", f"{log.path}{suffix}", f"{path}{suffix}"], check=True)


async def test_a_restored_server_takes_again_what_it_lost(cluster: Cluster, settings: Settings, log: Log) -> None:
    async with app.open_server(settings, working=False) as server:
        await push(server, log)
    assert settings.db_url is not None
    name = settings.db_url.partition("@/")[2].partition("?")[0]
    backup = new_database(cluster, name)
    async with app.open_server(settings, working=False) as server:
        add(log, 5, first=6)
        await push(server, log, after=7)
    yesterday = msgspec.structs.replace(settings, db_url=backup)
    async with app.open_server(yesterday, working=False) as server:
        for after in (8, 9, 12):
            assert await refusal(server, ADA, next(batches(log, 2, after))) == "conflict"
        await push(server, log, after=7)
        assert await stored(server, log) == [tuple(event[2:]) for event in shared(log)]
        assert await is_whole(server)


async def test_an_origin_belongs_to_the_device_that_opened_it(server: Server, log: Log) -> None:
    first, second = batches(log, 4)
    await append_pushed(server, ADA, first)
    assert await refusal(server, BOB, second) == "other_device"
    assert await refusal(server, BOB, first) == "other_device"
    stream, event = (
        "device-00000000000000aa",
        DeviceMerged(device="00000000000000aa", into="00000000000000bb", evidence="same machine id", by="ada"),
    )
    log.append([Draft(stream, 0, event)])
    *_, merging = batches(log, 100, 4)
    await append_pushed(server, ADA, merging)
    add(log, 1, first=50)
    *_, last = batches(log, 100, 8)
    assert (await append_pushed(server, BOB, last)).head.position == 9, "the same machine under its new name"


def changed(batch: PushBatch, number: int, **fields: object) -> PushBatch:
    events = list(batch.events)
    events[number] = msgspec.structs.replace(events[number], **fields)
    return msgspec.structs.replace(batch, events=events)


WRONG = {
    "a gap": {"origin_position": 4},
    "another id": {"id": bytes(16)},
    "a short id": {"id": b"1"},
    "another stream": {"stream": "source-x"},
    "NUL in a stream": {"stream": "source-\0"},
    "no stream": {"stream": ""},
    "another version of the stream": {"stream_version": 2},
    "another time": {"at_us": 1},
    "a time out of bounds": {"at_us": 2**80},
    "a version out of bounds": {"version": 2**31},
    "another body hash": {"body_hash": bytes(32)},
    "another hash": {"hash": bytes(32)},
    "another body": {"body": b"\x80"},
    "a damaged body": {"body": b"\x28\xb5\x2f\xfd rubbish"},
    "another salt": {"salt": bytes(16)},
    "a body without salt": {"salt": None},
    "salt without a body": {"body": None},
}


@pytest.mark.parametrize("what", WRONG)
async def test_what_is_not_as_it_was_written_is_refused_whole(server: Server, log: Log, what: str) -> None:
    [batch] = batches(log, 100)
    assert await refusal(server, ADA, changed(batch, 2, **WRONG[what])) == "invalid"
    assert await server.pool.fetchval("SELECT count(*) FROM events") == 0
    assert await server.pool.fetchval("SELECT count(*) FROM origins") == 0


async def test_a_flipped_bit_anywhere_in_a_body_is_found(server: Server, log: Log) -> None:
    [batch] = batches(log, 100)
    body = batch.events[3].body
    assert body is not None
    for place in range(len(body)):
        flipped = bytearray(body)
        flipped[place] ^= 1
        assert await refusal(server, ADA, changed(batch, 3, body=bytes(flipped))) == "invalid"


async def test_limits_of_a_batch(server: Server, tmp_path: Path) -> None:
    log = a_log(tmp_path / "long.db", 501)
    assert await refusal(server, ADA, next(batches(log, 501))) == "too_large"
    assert (await append_pushed(server, ADA, next(batches(log, 500)))).position_to == 500


def hand_made(log: Log, kind: str, body: bytes, version: int = 1, stream: str = "x-1") -> PushBatch:
    """A batch with one event of any type behind the log's end."""
    last = shared(log)[-1]
    salt, id = bytes(range(16)), bytes(16)
    digest = hash_body(salt, body)
    place = last.origin_position + 1
    hash = hash_event(log.shared.origin, place, id, stream, 1, kind, version, 7, last.hash, digest)
    event = PushedEvent(place, id, stream, 1, kind, version, 7, digest, hash, salt, body)
    return PushBatch(log.shared.origin.hex(), Head(last.origin_position, last.hash), [event])


@pytest.mark.parametrize(("kind", "version"), [("session_dreamt", 1), ("session_parsed", 99)])
async def test_types_and_versions_of_a_newer_prosa_are_stored(
    server: Server, log: Log, kind: str, version: int
) -> None:
    await push(server, log)
    batch = hand_made(log, kind, msgspec.msgpack.encode({"of": "sheep"}), version)
    assert (await append_pushed(server, ADA, batch)).position_to == 8


@pytest.mark.parametrize("kind", [LogLocated, LoginApproved, DeviceRevoked])
async def test_what_no_device_pushes_is_refused(server: Server, log: Log, kind: type[LogLocated]) -> None:
    await push(server, log)
    assert await refusal(server, ADA, hand_made(log, kind.TYPE, b"\x80")) == "invalid"


async def test_a_stream_goes_on_where_it_ended(server: Server, log: Log) -> None:
    await push(server, log)
    stream, _ = small(0)
    assert await refusal(server, ADA, hand_made(log, "source_vanished", b"\x80", stream=stream)) == "invalid"


async def test_the_servers_own_events_are_a_chain_of_their_own(server: Server, log: Log) -> None:
    await append_own(server, "login-x", LoginApproved(by="ada@example.org"))
    await push(server, log)
    second = await append_own(server, "login-x", LoginApproved(by="ada@example.org", device="00000000000000aa"))
    assert (second.position, second.origin_position, second.stream_version) == (10, 3, 2)
    assert second.event() == LoginApproved(by="ada@example.org", device="00000000000000aa")
    rows = await server.pool.fetch(
        "SELECT o.origin, e.origin_position, e.id, e.stream, e.stream_version, e.type, e.version, e.at_us, "
        "e.body_hash, e.hash FROM events e JOIN origins o ON o.number = e.origin WHERE o.device IS NULL "
        "ORDER BY e.position"
    )
    before = START
    for row in rows:
        assert hash_event(*row[:8], before, row["body_hash"]) == row["hash"]
        before = row["hash"]
    assert [row["type"] for row in rows] == ["log_opened", "login_approved", "login_approved"]
    assert await is_whole(server)
    fake = PushBatch(rows[0]["origin"].hex(), Head(3, before), [])
    assert await refusal(server, ADA, fake) == "other_device"


# erasing


async def bodies(server: Server) -> dict[str, bool]:
    """Stream → whether its first event has a body."""
    rows = await server.pool.fetch("SELECT stream, body FROM events WHERE stream_version = 1 ORDER BY position DESC")
    return {row["stream"]: row["body"] is not None for row in rows}


async def test_an_erasure_clears_the_body_here_too(server: Server, log: Log) -> None:
    await push(server, log)
    target = shared(log)[3]
    log.erase([target], "requested", "ada")
    [receipt] = await push(server, log, after=7)
    [again] = await push(server, log, after=7)
    assert receipt.erased == 1
    assert again == receipt
    assert (await bodies(server))[target.stream] is False
    assert sum(not has for has in (await bodies(server)).values()) == 1
    assert await server.pool.fetchval("SELECT count(*) FROM events WHERE (salt IS NULL) <> (body IS NULL)") == 0


async def test_a_body_erased_before_it_was_pushed_has_none_here(server: Server, log: Log) -> None:
    target = shared(log)[3]
    log.erase([target], "requested", "ada")
    await push(server, log, size=2)
    assert (await bodies(server))[target.stream] is False
    assert await stored(server, log) == [tuple(event[2:]) for event in shared(log)]


async def test_an_erasure_by_another_origin_holds_for_what_comes_later(
    server: Server, log: Log, tmp_path: Path
) -> None:
    """A cloned home erases what the original pushes only afterwards."""
    copy_of(log, tmp_path / "copy.db")
    original = batches(log, 100)
    clone = Log(tmp_path / "copy.db", machine="another")
    target = [event for event in clone.read() if event.stream == small(3)[0]]
    clone.erase(target, "requested", "ada")
    await push(server, clone, BOB)
    for batch in original:
        await append_pushed(server, ADA, batch)
    assert (await bodies(server))[target[0].stream] is False


async def test_erasing_a_session_dooms_its_raw(server: Server, log: Log) -> None:
    event = RawPreserved(session="claude-code/s1", sha256="ab" * 32, size=10, stored=5)
    log.append([Draft("session-claude-code/s1", 0, event)])
    await server.pool.execute("INSERT INTO raws VALUES (1, $1, 10, 5)", "ab" * 32)
    await push(server, log)
    doomed = "SELECT count(*) FROM raws WHERE unused_since = '-infinity'"
    assert await server.pool.fetchval(doomed) == 0
    log.erase([shared(log)[-1]], "requested", "ada")
    await push(server, log)
    assert await server.pool.fetchval(doomed) == 1


# privileges


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE events SET body = NULL",
        "UPDATE events SET at_us = 0",
        "DELETE FROM events",
        "TRUNCATE events CASCADE",
        "DELETE FROM origins",
        "DELETE FROM log_head",
        "UPDATE owners SET log_id = ''",
        "ALTER TABLE events ADD COLUMN x int",
        "DROP TABLE events CASCADE",
        "CREATE TABLE public.x (n int)",
        "DELETE FROM migrations",
        "ALTER TABLE events DISABLE TRIGGER ALL",
    ],
)
async def test_the_servers_role_may_not(server: Server, log: Log, sql: str) -> None:
    await push(server, log)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await server.pool.execute(sql)
    assert await stored(server, log) == [tuple(event[2:]) for event in shared(log)]


async def test_no_body_is_cleared_without_the_event_that_says_so(server: Server, log: Log) -> None:
    await push(server, log)
    with pytest.raises(asyncpg.RaiseError, match="append-only"):
        await server.pool.fetchval("SELECT erase_body(1, 3)")
    assert await server.pool.fetchval("SELECT erase_body(1, 99)") is False
    assert all((await bodies(server)).values())


# over HTTP


async def test_push_over_http(client: httpx.AsyncClient, a_device: DeviceMaker, log: Log) -> None:
    headers = await a_device() | {"Content-Type": MSGPACK, "Accept": MSGPACK}
    empty = msgspec.msgpack.decode((await client.get("/v1/heads", headers=headers)).content, type=Heads)
    assert empty.origins == {}
    for batch in batches(log, 4):
        answer = await client.post("/v1/events", headers=headers, content=msgspec.msgpack.encode(batch))
        assert answer.status_code == 200
        receipt = msgspec.msgpack.decode(answer.content, type=Receipt)
    heads = msgspec.msgpack.decode((await client.get("/v1/heads", headers=headers)).content, type=Heads)
    assert heads.origins == {log.shared.origin.hex(): receipt.head}
    assert heads.position == receipt.position_to
    other = await a_device("00000000000000bb") | {"Accept": MSGPACK}
    mine = msgspec.msgpack.decode((await client.get("/v1/heads", headers=other)).content, type=Heads)
    assert mine.origins == {}
    asked = {"origin": log.shared.origin.hex()}
    named = msgspec.msgpack.decode((await client.get("/v1/heads", headers=other, params=asked)).content, type=Heads)
    assert named.origins == heads.origins
    batch = msgspec.json.encode(next(batches(log, 100)))
    answer = await client.post("/v1/events", headers=other | {"Accept": "application/json"}, content=batch)
    assert answer.status_code == 403
    assert msgspec.json.decode(answer.content, type=Problem).code == "other_device"


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff\xfe", b'{"origin": 1}', b"[" * 5000])
async def test_what_is_no_batch_is_named(client: httpx.AsyncClient, a_device: DeviceMaker, body: bytes) -> None:
    answer = await client.post("/v1/events", headers=await a_device(), content=body)
    assert answer.status_code == 422
    assert "body" in answer.json()["what"]
