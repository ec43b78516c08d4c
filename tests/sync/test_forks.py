"""Copied, cloned and restored logs: nobody's events are overwritten, nothing is lost, both sides stay whole."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pushed import parsed, turns
from pushes import Device, Devices, assert_whole, events_of, here, there
from served import Served
from store import A, B, C, claude_lines

from prosa.events.catalogue import DeviceMerged, DeviceMergeReverted, DeviceRenamed, SessionExtended, SessionPart
from prosa.events.log import Draft, Log
from prosa.events.restating import fork_and_restate, standing
from prosa.server.state import Server
from prosa.sync.report import Left

D = "dddddddd-1111-4111-8111-dddddddddddd"


def lines(session: str, turns: int) -> bytes:
    return b"".join(claude_lines(session, turns))


def whole(device: Device) -> None:
    """Nothing is left, and a push more changes nothing."""
    assert device.push().summary.left == Left()
    again = device.push()
    assert (again.summary.status, again.items) == ("complete", [])


def server_answers(served: Served) -> dict[str, tuple[object, ...]]:
    """What the server's tables say of each session, once they are at its log's head."""
    head = served.run(lambda s: s.pool.fetchval("SELECT position FROM log_head"))
    worker = served.server.worker
    assert worker is not None
    served.run(lambda _: worker.wait_for(head))
    schema = served.run(lambda s: s.pool.fetchval("SELECT schema FROM projections WHERE state = 'serving'"))
    rows = served.run(
        lambda s: s.pool.fetch(
            f"SELECT id, started, last, first_prompt, users, assistants, tool_calls, tool_results, tool_errors, tools, "
            f'models, input, output, cost, title, forked_from FROM "{schema}".sessions ORDER BY id'
        )
    )
    return {row[0]: tuple(row)[1:] for row in rows}


def assert_same_answers(served: Served, *devices: Device) -> None:
    there = server_answers(served)
    for device in devices:
        for session, row in device.store.sessions().items():
            assert there[session] == row, session
        assert device.store.serving() == device.store.rebuilt()


def test_a_cloned_home_goes_on_under_its_own_origin(devices: Devices, served: Served, tmp_path: Path) -> None:
    first = devices()
    first.store.write(A, lines(A, 3))
    first.sync()
    second = first.clone(tmp_path / "clone")
    first.store.write(B, lines(B, 3))
    second.store.write(C, lines(C, 3))
    assert first.sync().summary.status == second.sync().summary.status == "complete"
    with first.log() as one, second.log() as two:
        assert one.shared.origin != two.shared.origin
    for device in (first, second):
        whole(device)
    assert len(server_answers(served)) == 3
    assert_same_answers(served, first, second)
    assert_whole(served, first, second)


def test_the_clone_of_another_machine_does_not_write_the_first_ones_origin(
    devices: Devices, served: Served, tmp_path: Path
) -> None:
    """What the first machine never sent is said again by the second; both may send it."""
    first = devices()
    first.store.write(A, lines(A, 3))
    first.sync()
    first.store.write(A, lines(A, 5))
    first.store.write(B, lines(B, 2))
    first.store.sync()  # not pushed
    second = first.clone(tmp_path / "clone", "00000000000000bb")
    done = second.sync()
    assert done.summary.status == "complete"
    with first.log() as log:
        assert len(there(served, log.shared.origin)) < len(here(log)[log.shared.origin])
    whole(second)
    assert first.sync().summary.status == "complete"
    assert_same_answers(served, first, second)
    assert_whole(served, first, second)


def test_a_backup_copied_over_the_log_forks_where_the_server_has_more(
    devices: Devices, served: Served, tmp_path: Path
) -> None:
    device = devices()
    device.store.write(A, lines(A, 3))
    device.sync()
    device.backup(tmp_path / "backup.db")
    device.store.write(B, lines(B, 3))
    device.sync()
    with device.log() as log:
        old, before = log.shared.origin, here(log)
    device.restore(tmp_path / "backup.db")
    done = device.push()
    assert [(item.what, item.status) for item in done.items] == [("origin", "forked"), ("events", "sent")]
    assert done.summary.status == "complete"
    [fork] = events_of(device, "log_forked")
    with device.log() as log:
        assert (fork.reason, fork.old_origin, log.void_after()) == ("restored", old.hex(), {})
    assert there(served, old) == before[old]  # nothing of it was lost there
    device.sync()
    whole(device)
    assert set(device.store.sessions()) == {A, B}
    assert_same_answers(served, device)
    assert_whole(served, device)


@pytest.mark.parametrize("unsent", [0, 2])
def test_a_log_that_went_on_from_a_backup_is_said_again_from_where_both_were_equal(
    unsent: int, devices: Devices, served: Served, tmp_path: Path
) -> None:
    """`unsent`: what the backup held before it was sent by the log that it was taken from."""
    device = devices()
    device.store.write(A, lines(A, 3))
    device.store.write(D, lines(D, 2))
    device.sync()
    for n in range(unsent):
        device.store.write(A, lines(A, 4 + n))
        device.store.sync()
    device.backup(tmp_path / "backup.db")
    with device.log() as log:
        equal = log.head_of(log.shared)[0]
    device.store.write(B, lines(B, 3))
    device.store.write(A, lines(A, 8))
    device.sync()
    with device.log() as log:
        old = log.shared.origin
    ours = there(served, old)
    device.restore(tmp_path / "backup.db")
    device.store.write(C, lines(C, 3))
    device.store.write(A, lines(A, 11))
    device.store.sync()  # under the old origin: nobody noticed
    done = device.push()
    assert done.summary.status == "complete"
    [fork] = events_of(device, "log_forked")
    assert (fork.reason, fork.old_position) == ("refused", equal)
    assert there(served, old) == ours
    whole(device)
    assert set(device.store.sessions()) == {A, B, C, D}
    assert_same_answers(served, device)
    assert_whole(served, device)


def test_a_server_that_lost_data_is_sent_it_again(devices: Devices, served: Served) -> None:
    device = devices()
    for session in (A, B, C):
        device.store.write(session, lines(session, 3))
        device.sync()
    with device.log() as log:
        origin = log.shared.origin
    kept = there(served, origin)[:9]
    served.run(lambda s: lose(s, origin, len(kept)))
    done = device.push()
    assert done.summary.status == "complete"
    assert done.summary.sent == 3
    with device.log() as log:
        assert there(served, origin) == here(log)[origin]
    whole(device)


async def lose(server: Server, origin: bytes, kept: int) -> None:
    """As a restore of yesterday's database and an empty store leave it."""
    async with server.pool.acquire() as connection, connection.transaction():
        await connection.execute("RESET ROLE")
        number = await connection.fetchval("SELECT number FROM origins WHERE origin = $1", origin)
        row = await connection.fetchrow(
            "SELECT position, hash FROM events WHERE origin = $1 AND origin_position = $2", number, kept
        )
        assert row is not None
        await connection.execute("DELETE FROM events WHERE position > $1", row["position"])
        await connection.execute("UPDATE log_head SET position = $1", row["position"])
        await connection.execute(
            "UPDATE origins SET position = $2, hash = $3 WHERE number = $1", number, kept, row["hash"]
        )
        await connection.execute("DELETE FROM raws")
        await connection.execute("SET ROLE prosa_app")


# what is said again


def forked(device: Device, good: int) -> None:
    with device.log() as log:
        fork_and_restate(log, "refused", log.shared, good)


def test_what_is_said_again_says_the_same(devices: Devices, tmp_path: Path) -> None:
    """Sessions that were imported in pieces, rewritten and parsed in parts; without a raw file left."""
    device, good = devices(), 0
    for size in (1, 3, 9):
        device.store.write(A, lines(A, size))
        device.store.write(B, b"".join(claude_lines(B, size, text="word " * 40_000)))
        device.store.sync()
        with device.log() as log:
            good = good or log.head_of(log.shared)[0]
    device.store.write(A, lines(A, 2))
    device.store.write(D, lines(D, 2))
    device.store.sync()
    before = device.store.sessions(), device.store.rebuilt()
    shutil.rmtree(device.store.home.raw)
    forked(device, good)
    after = device.store.rebuilt()
    assert [line for line in before[1].differences(after) if line.startswith("session")] == []
    with device.log() as log:
        assert set(log.void_after().values()) == {good}
        said = [event.type for event in log.of_origin(log.shared)]
        assert said[:3] == ["log_opened", "log_forked", "device_identified"]
        assert said.count("session_part") > 2 and "session_extended" not in said
        assert not [e for e in standing(log).read() if e.origin == 1 and e.origin_position > good]
    device.store.sync()
    assert device.store.sessions() == before[0]
    assert device.store.serving() == device.store.rebuilt()


def test_what_a_later_parse_took_back_is_not_said_again(devices: Devices) -> None:
    device = devices()
    device.store.sync()
    one, two, three, four = turns("s", {name: f"text {name}" for name in ("one", "two", "three", "four")})
    with device.log() as log:
        good = log.head_of(log.shared)[0]
        stream, more = "session-codex/s", {"kind": SessionExtended}
        said = [
            SessionPart(turns=(one, two)),
            parsed("s", three, parts=1),
            parsed("s", gone=(two.key, three.key), **more),
            parsed("s", three, four, gone=(four.key,), **more),
        ]
        log.append([Draft(stream, n, event) for n, event in enumerate(said)])
        device.store.sync()
        before = device.store.rebuilt()
        assert device.store.rows("SELECT users FROM sessions") == [(3,)]
        fork_and_restate(log, "refused", log.shared, good)
        again: list[Any] = [event.event() for event in log.of_origin(log.shared) if event.stream == stream]
        assert [turn.key for event in again for turn in event.turns] == [one.key, three.key, four.key]
        assert again[-1].parts == len(again) - 1
    device.store.sync()
    assert device.store.serving().sessions == before.sessions


def test_ids_that_events_name_are_those_of_what_was_said_again(devices: Devices) -> None:
    device = devices()
    device.store.sync()
    with device.log() as log:
        good = log.head_of(log.shared)[0]
        stream = "device-00000000000000cc"
        merged = DeviceMerged(device="00000000000000cc", into="00000000000000dd", evidence="one machine", by="me")
        [first] = log.append([Draft(stream, 0, merged)])
        log.append(
            [
                Draft(stream, 1, DeviceMergeReverted(merge=first.id.hex(), by="me")),
                Draft(stream, 2, DeviceRenamed(device="00000000000000cc", name="old", by="me")),
            ]
        )
        fork_and_restate(log, "refused", log.shared, good)
        again = [event for event in log.of_origin(log.shared) if event.stream == stream]
        assert [event.type for event in again] == ["device_merged", "device_merge_reverted", "device_renamed"]
        assert again[1].event() == DeviceMergeReverted(merge=again[0].id.hex(), by="me")
        assert again[0].at_us == first.at_us
    device.store.sync()
    assert device.store.rows("SELECT id, reverted FROM merges") == [(again[0].id.hex(), 1)]


def test_a_fork_that_is_cut_off_is_no_fork(devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    device = devices()
    device.store.write(A, lines(A, 3))
    device.store.sync()
    with device.log() as log:
        before = log.origins, log.head()
        count = 0
        insert = Log._insert

        def break_off(self: Log, *arguments: object) -> object:
            nonlocal count
            count += 1
            if count > 4:
                raise KeyboardInterrupt
            return insert(self, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(Log, "_insert", break_off)
        with pytest.raises(KeyboardInterrupt):
            fork_and_restate(log, "refused", log.shared, 2)
        assert (log.origins, log.head()) == before


def test_an_erased_session_is_not_said_again(devices: Devices) -> None:
    from prosa.events.erasing import execute, plan_session
    from prosa.events.raw import RawStore

    device = devices()
    device.store.write(A, lines(A, 3))
    device.store.write(B, lines(B, 3))
    device.store.sync()
    with device.log() as log:
        raw = RawStore(device.store.home.raw)
        execute(log, raw, plan_session(log, raw, f"claude-code/{A}"), "me")
        fork_and_restate(log, "refused", log.shared, 0)
        said = [event.stream for event in log.of_origin(log.shared) if event.type == "session_parsed"]
        assert said == [f"session-claude-code/{B}"]
        assert not [event for event in log.of_origin(log.shared) if event.type == "body_erased"]
