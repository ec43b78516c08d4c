"""Pushing to a real server: what is sent once, what comes after a failure, what both sides hold in the end."""

from __future__ import annotations

import os

import httpx
import msgspec
import pytest
from pushes import Device, Devices, Network, assert_whole, events_of, here, there
from served import Served
from store import A, B, claude_lines

from prosa.events.catalogue import DeviceRenamed
from prosa.events.log import Draft
from prosa.events.messages import EVENTS_BYTES, EVENTS_LIMIT, PART_BYTES, PushBatch
from prosa.events.raw import RawStore
from prosa.sync.report import Left


def assert_equal_logs(served: Served, device: Device) -> None:
    """Every event that holds here is there, in the same order, and nothing else of these origins."""
    with device.log() as log:
        mine = here(log)
    assert {origin: there(served, origin) for origin in mine} == mine
    assert_whole(served, device)


def some_events(device: Device, count: int) -> None:
    """Small events, so that pages of them can be counted."""
    with device.log() as log:
        for start in range(0, count, 500):
            names = range(start, min(count, start + 500))
            log.append(
                [Draft(f"device-{n:016x}", 0, DeviceRenamed(device=f"{n:016x}", name=f"n{n}", by="me")) for n in names]
            )


def test_a_first_push_sends_raw_and_events_and_a_second_asks_once(devices: Devices, served: Served) -> None:
    device = devices()
    device.store.write(A, b"".join(claude_lines(A, 5)))
    device.store.write(B, b"".join(claude_lines(B, 3)))
    first = device.sync()
    assert (first.summary.status, first.summary.sent, first.summary.confirmed) == ("complete", 2, 2)
    assert_equal_logs(served, device)
    before, device.network = device.store.files(), Network()
    second = device.push()
    assert (second.summary.status, second.summary.events, second.items) == ("complete", 0, [])
    assert device.network.asked == ["GET /v1/heads"]
    assert device.store.files() == before
    assert_whole(served, device)


def test_what_a_session_gained_is_sent_with_its_new_raw(devices: Devices, served: Served) -> None:
    device = devices()
    device.store.write(A, b"".join(claude_lines(A, 5)))
    device.sync()
    device.store.write(A, b"".join(claude_lines(A, 9)))
    again = device.sync()
    assert (again.summary.status, again.summary.sent, again.summary.confirmed) == ("complete", 1, 1)
    assert len({event.raw for event in events_of(device, "push_confirmed")}) == 2
    assert_equal_logs(served, device)


def test_only_the_last_raw_of_a_file_that_grew_is_sent(devices: Devices, served: Served) -> None:
    device = devices()
    for turns in (3, 5, 9):
        device.store.write(A, b"".join(claude_lines(A, turns)))
        device.store.sync()
    done = device.push()
    assert (done.summary.status, done.summary.sent, done.summary.left) == ("complete", 1, Left())
    assert_equal_logs(served, device)


@pytest.mark.parametrize("more", [0, 1, EVENTS_LIMIT - 1, EVENTS_LIMIT, EVENTS_LIMIT + 1, 2 * EVENTS_LIMIT])
def test_pages_of_every_size(more: int, devices: Devices, served: Served) -> None:
    device = devices()
    device.sync()
    some_events(device, more)
    device.network = Network()
    done = device.push()
    assert (done.summary.status, done.summary.events) == ("complete", more)
    assert device.network.asked.count("POST /v1/events") == -(-more // EVENTS_LIMIT)
    assert_equal_logs(served, device)


def test_a_batch_ends_at_its_bytes_and_a_larger_event_goes_alone(devices: Devices, served: Served) -> None:
    device = devices()
    device.sync()
    sizes = [1, EVENTS_BYTES * 2 // 5, EVENTS_BYTES * 2 // 5, 1, EVENTS_BYTES + 500_000, 1]
    with device.log() as log:
        for n, size in enumerate(sizes):
            name = os.urandom(size).hex()  # compressed to half of it
            log.append([Draft(f"device-{n}", 0, DeviceRenamed(device=f"{n}", name=name, by="me"))])
    sent: list[int] = []

    def count(request: httpx.Request) -> str:
        if request.url.path == "/v1/events":
            sent.append(len(msgspec.msgpack.decode(request.content, type=PushBatch).events))
        return "ok"

    device.network = Network(count)
    assert device.push().summary.status == "complete"
    assert sent == [4, 1, 1]
    assert_equal_logs(served, device)


# failures


def nth(number: int, what: str) -> Network:
    """The n-th request of a push goes wrong, and so does all after it."""
    seen = iter(range(1, 1_000_000))
    return Network(lambda _: what if next(seen) >= number else "ok")


@pytest.mark.parametrize("what", ["before", "after"])
def test_a_push_that_breaks_off_anywhere_is_finished_by_the_next(what: str, devices: Devices, served: Served) -> None:
    """With a request that never arrives, and with one whose reply is lost."""
    device = devices()
    turns = 1
    for number in range(1, 12):
        for session in (A, B):
            device.store.write(session, b"".join(claude_lines(session, turns)))
        turns += 1
        device.store.sync()
        device.network = nth(number, what)
        broken = device.push()
        if broken.summary.status == "complete":
            break
        assert broken.summary.status == "offline" and broken.summary.reason
        assert broken.summary.left != Left() or what == "after" or number > 4
        device.network = Network()
        healed = device.push()
        assert (healed.summary.status, healed.summary.left) == ("complete", Left())
        assert_equal_logs(served, device)
        with device.log() as log:
            confirmed = {event.raw for event in events_of(device, "push_confirmed")}
            assert {event.raw for event in events_of(device, "session_parsed")} <= confirmed
            assert log.head_of(log.shared)[0] == len(there(served, log.shared.origin))
    else:
        pytest.fail("a push of two sessions took more than 11 requests")


def test_requests_that_arrive_twice_change_nothing(devices: Devices, served: Served) -> None:
    device = devices()
    device.store.write(A, b"".join(claude_lines(A, 5)))
    device.network = Network(lambda _: "twice")
    assert device.sync().summary.status == "complete"
    assert_equal_logs(served, device)


def test_without_a_server_everything_is_counted_and_kept(devices: Devices, served: Served) -> None:
    device = devices()
    device.store.write(A, b"".join(claude_lines(A, 5)))
    device.network = Network(lambda _: "before")
    done = device.sync()
    assert done.summary.status == "offline"
    assert done.summary.left.raws == 1 and done.summary.left.events > 3
    device.network = Network()
    assert device.push().summary.left == Left()


def test_a_token_that_is_not_taken_is_said_like_a_server_that_is_away(devices: Devices) -> None:
    device = devices()
    device.store.write(A, b"".join(claude_lines(A, 5)))
    device.token += "x"
    done = device.sync()
    assert (done.summary.status, done.summary.left.raws) == ("offline", 1)
    assert "prosa login" in (done.summary.next_step or "")


# raw


def incompressible(session: str, size: int) -> bytes:
    """A transcript whose compressed copy is about this large."""
    return b"".join(claude_lines(session, 4)) + b"".join(
        b'{"type":"x","n":"' + os.urandom(4096).hex().encode() + b'"}\n' for _ in range(size // 4096)
    )


def test_a_large_raw_goes_in_parts_and_is_resumed(devices: Devices, served: Served) -> None:
    device = devices()
    device.store.write(A, incompressible(A, 2 * PART_BYTES + 100_000))
    device.store.sync()
    parts = 0

    def third_part(request: httpx.Request) -> str:
        nonlocal parts
        parts += "/parts/" in request.url.path
        return "before" if parts > 2 else "ok"

    device.network = Network(third_part)
    assert device.push().summary.status == "offline"
    device.network = Network()
    done = device.push()
    assert (done.summary.status, done.summary.sent) == ("complete", 1)
    assert sum("/parts/" in path for path in device.network.asked) == 1
    assert_equal_logs(served, device)


@pytest.mark.parametrize("size", [10_000, PART_BYTES + 500_000])
def test_raw_whose_file_holds_more_than_it_is_compressed_anew(size: int, devices: Devices, served: Served) -> None:
    """The log's `stored` can be the end of a longer raw in the same file: those bytes are not this raw."""
    device = devices()
    device.store.write(A, incompressible(A, size))
    device.store.sync()
    store = RawStore(device.store.home.raw)
    [(digest, stored)] = store.files()
    with store.path(digest).open("ab") as file:
        file.write(store.path(digest).read_bytes()[:stored])
    for row in device.store.rows("SELECT sha256 FROM raws"):
        assert row == (digest,)
    grown = 2 * stored
    from contextlib import closing

    from prosa.projections.index import open_index

    with closing(open_index(device.store.home.index)) as db:
        db.execute("UPDATE raws SET stored = ?", (grown,))
    done = device.push()
    assert (done.summary.status, done.summary.sent, done.summary.refused) == ("complete", 1, 0)
    assert not list(device.store.home.raw.glob("*tmp*"))


def test_damaged_raw_is_parked_and_said_once_and_holds_nothing_up(devices: Devices, served: Served) -> None:
    device = devices()
    device.store.write(A, b"".join(claude_lines(A, 5)))
    device.store.write(B, b"".join(claude_lines(B, 5)))
    device.store.sync()
    store = RawStore(device.store.home.raw)
    path = store.path(next(event.raw for event in events_of(device, "session_parsed") if A in event.session))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2))
    done = device.push()
    assert (done.summary.status, done.summary.sent, done.summary.refused) == ("partial", 1, 1)
    assert done.summary.left == Left(raws=1)
    assert [item.status for item in done.items if item.what == "raw" and item.reason] == ["refused"]
    assert device.push().summary.refused == 1
    assert len(list(events_of(device, "push_refused"))) == 1
    assert_equal_logs(served, device)
    path.write_bytes(whole)
    assert device.push().summary.status == "complete"


def test_raw_that_the_server_has_already_is_confirmed_by_it_and_not_sent(devices: Devices, served: Served) -> None:
    first, second = devices(), devices("00000000000000bb")
    for device in (first, second):
        device.store.write(A, b"".join(claude_lines(A, 5)))
    first.sync()
    done = second.sync()
    assert (done.summary.status, done.summary.sent, done.summary.confirmed) == ("complete", 0, 1)
    assert not any(path.startswith("PUT") for path in second.network.asked)


def test_confirmations_that_were_lost_come_from_the_manifest(devices: Devices, served: Served) -> None:
    device = devices()
    device.store.write(A, b"".join(claude_lines(A, 5)))
    device.store.sync()
    device.backup(device.store.root / "before.db")
    device.push()
    device.restore(device.store.root / "before.db")
    (device.store.home.index / "current").unlink()
    from prosa.cli.pushing import caught_up

    with device.log() as log:
        caught_up(device.store.home, log)
    device.network = Network()
    done = device.push()
    assert (done.summary.status, done.summary.sent, done.summary.confirmed) == ("complete", 0, 1)
    assert "GET /v1/manifest" in device.network.asked
