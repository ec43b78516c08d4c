"""Any interleaving of work, failing pushes, kills, clones, restored logs and a server that lost data.

Whatever happened, the server's copy of an origin is what some log of a device said, gapless and once; nothing of it is
ever overwritten; and after healthy syncs everything that a device holds is there.
"""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
from cluster import new_database
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from pushes import Device, Network, here
from served import Served, a_server
from store import A, B, C, claude_lines

from prosa.cli.pushing import caught_up
from prosa.events import codec
from prosa.events.catalogue import DeviceRenamed
from prosa.events.chain import START, hash_event
from prosa.events.log import Draft, Log, Recorded
from prosa.events.restating import standing
from prosa.events.verify import verify_log
from prosa.server.postgres import Cluster
from prosa.server.state import Server
from prosa.sync import push as pushing
from prosa.sync.push import _Push
from prosa.sync.report import Left

SESSIONS = (A, B, C)
FAULTS = ("before", "after", "twice", "kill before", "kill after")
PARSES = ("session_part", "session_parsed", "session_extended")
PAGE = 3
"""Events of a batch here, so that a push takes many."""
ALL = "SELECT * FROM events JOIN (SELECT number, origin AS name FROM origins) o ON number = origin ORDER BY position"


class Killed(BaseException):
    """The process is gone: nothing of it is written any more."""


class PushMachine(RuleBasedStateMachine):
    served: ClassVar[Served]
    fingerprints: ClassVar[Iterator[int]] = itertools.count(1)

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.devices: list[Device] = []
        self.backups: list[tuple[Device, Path]] = []
        self.said: dict[bytes, set[tuple[int, bytes]]] = defaultdict(set)
        """Every event that was ever in a device's log."""
        self.seen: dict[bytes, list[tuple[int, bytes]]] = {}
        self.old: list[bytes] = []
        """Batches that were sent."""
        self.names = itertools.count()

    # the world

    @initialize()
    def a_device(self) -> None:
        self.devices.append(Device(self.served, self.root / "0", f"{next(self.fingerprints):016x}"))
        self.devices[0].store.sync()

    @rule(at=st.integers(0, 2), session=st.sampled_from(SESSIONS), turns=st.integers(1, 6))
    def work(self, at: int, session: str, turns: int) -> None:
        store = self.device(at).store
        store.write(session, b"".join(claude_lines(session, turns)))
        store.sync()

    @rule(at=st.integers(0, 2), count=st.sampled_from([0, 1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE]))
    def small_events(self, at: int, count: int) -> None:
        with self.device(at).log() as log:
            for _ in range(count):
                name = f"n{next(self.names)}"
                log.append([Draft(f"device-{name}", 0, DeviceRenamed(device=name, name=name, by="me"))])

    @precondition(lambda self: len(self.devices) < 3)
    @rule(at=st.integers(0, 2), same_machine=st.booleans())
    def clone(self, at: int, same_machine: bool) -> None:
        device = self.device(at)
        name = None if same_machine else f"{next(self.fingerprints):016x}"
        self.devices.append(device.clone(self.root / str(len(self.devices)), name))

    @rule(at=st.integers(0, 2))
    def back_up(self, at: int) -> None:
        device, to = self.device(at), self.root / f"backup{len(self.backups)}"
        device.backup(to)
        self.backups.append((device, to))

    @precondition(lambda self: self.backups)
    @rule(which=st.integers(0, 5))
    def restore(self, which: int) -> None:
        """Copied over the log, so that only the server can notice."""
        device, source = self.backups[which % len(self.backups)]
        device.restore(source)

    @rule(at=st.integers(0, 2), before=st.integers(0, 2), there=st.integers(1, 4), after=st.integers(1, 6))
    def go_two_ways(self, at: int, before: int, there: int, after: int) -> None:
        """What was pushed after a backup is unknown to the log that goes on from it."""
        device, to = self.device(at), self.root / "two ways"
        self.small_events(at, before)
        device.backup(to)
        self.small_events(at, there)
        self.push(at)
        device.restore(to)
        self.small_events(at, after)

    @rule(share=st.floats(0.3, 1), raw=st.booleans())
    def server_lost_data(self, share: float, raw: bool) -> None:
        origins = list(self.said)
        self.served.run(lambda server: lose(server, origins, share, raw=raw))
        self.seen = {}

    # pushes

    @rule(at=st.integers(0, 2))
    def push(self, at: int) -> None:
        self.pushed(self.device(at), Network())

    @rule(at=st.integers(0, 2), nth=st.integers(1, 9), fault=st.sampled_from(FAULTS), goes_on=st.booleans())
    def failing_push(self, at: int, nth: int, fault: str, goes_on: bool) -> None:
        """The n-th request goes wrong, or that and all after it."""
        asked = itertools.count(1)

        def decide(_: httpx.Request) -> str:
            number = next(asked)
            return fault if number == nth or (goes_on and number > nth) else "ok"

        self.pushed(self.device(at), Network(decide))

    @rule(at=st.integers(0, 2))
    def two_processes_push_at_once(self, at: int) -> None:
        """Without the lock between them."""
        device = self.device(at)
        failed: list[BaseException] = []

        def once() -> None:
            home = device.store.home
            connection = device.connection()
            try:
                with device.log() as log:
                    list(_Push(home, log, connection, lambda: caught_up(home, log), lambda *_: None).run(None))
            except BaseException as error:
                failed.append(error)
            finally:
                connection.close()

        device.network = Network()
        both = [threading.Thread(target=once) for _ in range(2)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        device.network.close()
        # the receipts of both go into the same streams: the slower one is told so, and the next push says them
        assert all("is at version" in str(error) for error in failed), failed
        self.look()

    @precondition(lambda self: self.old)
    @rule(which=st.integers(0, 30), at=st.integers(0, 2))
    def an_old_batch_arrives_late(self, which: int, at: int) -> None:
        device = self.device(at)
        headers = {
            "Authorization": f"Bearer {device.token}", "Prosa-Device": device.fingerprint,
            "Content-Type": "application/msgpack",
        }  # fmt: skip
        with httpx.Client(trust_env=False) as client:
            body = self.old[which % len(self.old)]
            answer = client.post(f"{self.served.url}/v1/events", content=body, headers=headers)
        assert answer.status_code in (200, 403, 409), answer.text
        self.look()

    # in between

    def device(self, at: int) -> Device:
        return self.devices[at % len(self.devices)]

    def pushed(self, device: Device, network: Network) -> Any:
        self.note()
        decide = network.fault
        dead = False
        home = device.store.home
        with device.log() as log:

            def fault(request: httpx.Request) -> str:
                nonlocal dead
                if request.url.path == "/v1/events":
                    self.old.append(request.content)
                what = decide(request)
                if what.startswith("kill"):
                    dead = True
                    log.append = log.fork = lambda *_, **__: die()  # type: ignore[method-assign, assignment]
                return what

            network.fault = fault
            device.network = network
            connection = device.connection()
            found: list[Any] = []
            try:
                found = list(pushing.push(home, log, connection, lambda: caught_up(home, log), lambda *_: None))
            except Killed:
                assert dead
            finally:
                connection.close()
        self.look()
        return found[-1] if found else None

    def note(self) -> None:
        for device in self.devices:
            with device.log() as log:
                for origin, events in here(log).items():
                    self.said[origin].update(events)

    def look(self) -> None:
        """The server has nothing that was not said, without gaps, and nothing else than it had before."""
        self.note()
        for origin, said in self.said.items():
            events = self.served.run(lambda server, name=origin: held(server, name))  # type: ignore[misc]
            assert [position for position, _ in events] == list(range(1, len(events) + 1))
            assert set(events) <= said
            assert events[: len(self.seen.get(origin, []))] == self.seen.get(origin, [])
            self.seen[origin] = events

    def teardown(self) -> None:
        try:
            if self.devices:
                self.heal()
        finally:
            shutil.rmtree(self.root, ignore_errors=True)

    def heal(self) -> None:
        for _ in range(2):
            for device in self.devices:
                device.store.sync()
                summary = self.pushed(device, Network())
        for device in self.devices:
            summary = self.pushed(device, Network())
            assert (summary.status, summary.left, summary.refused) == ("complete", Left(), 0)
        rows = self.served.run(lambda server: server.pool.fetch(ALL))
        assert [row["position"] for row in rows] == list(range(1, len(rows) + 1))
        mine = [row for row in rows if bytes(row["name"]) in self.said]
        check_chains(mine)
        facts = facts_of(row_event(row) for row in mine)
        for device in self.devices:
            with device.log() as log:
                assert list(verify_log(log)) == []
                for stream, keys in facts_of(standing(log).read()).items():
                    assert keys <= facts[stream], stream
            device.store.sync()
            assert device.store.serving() == device.store.rebuilt()


def die() -> None:
    raise Killed


async def held(server: Server, origin: bytes) -> list[tuple[int, bytes]]:
    rows = await server.pool.fetch(
        "SELECT origin_position, e.hash FROM events e JOIN origins o ON o.number = e.origin "
        "WHERE o.origin = $1 ORDER BY origin_position",
        origin,
    )
    return [(row[0], bytes(row[1])) for row in rows]


async def lose(server: Server, origins: list[bytes], share: float, *, raw: bool) -> None:
    """As a restored backup of the database leaves it: the log ends earlier; `raw`: so does the store."""
    async with server.pool.acquire() as connection, connection.transaction():
        await connection.execute("RESET ROLE")
        first = await connection.fetchval(
            "SELECT min(e.position) FROM events e JOIN origins o ON o.number = e.origin WHERE o.origin = ANY($1)",
            origins,
        )
        last = await connection.fetchval("SELECT position FROM log_head")
        if first is not None:
            head = int(first - 1 + (last - first + 1) * share)
            await connection.execute("DELETE FROM events WHERE position > $1", head)
            await connection.execute("UPDATE log_head SET position = $1", head)
            await connection.execute(
                "UPDATE origins o SET (position, hash) = (SELECT coalesce(max(e.origin_position), 0), "
                "coalesce((array_agg(e.hash ORDER BY e.origin_position DESC))[1], decode(repeat('00', 32), 'hex')) "
                "FROM events e WHERE e.origin = o.number) WHERE o.origin = ANY($1)",
                origins,
            )
        if raw:
            await connection.execute("DELETE FROM raws")
        await connection.execute("SET ROLE prosa_app")


def row_event(row: Any) -> Recorded:
    names = [name for name in Recorded._fields if name != "stored"]
    return Recorded(**{name: row[name] for name in names}, stored=row["body"])


def check_chains(rows: list[Any]) -> None:
    before: dict[bytes, bytes] = {}
    for row in rows:
        name = bytes(row["name"])
        digest = hash_event(
            name, row["origin_position"], row["id"], row["stream"], row["stream_version"], row["type"], row["version"],
            row["at_us"], before.get(name, START), row["body_hash"],
        )  # fmt: skip
        assert digest == row["hash"]
        before[name] = digest


def facts_of(events: Any) -> dict[str, set[tuple[str, int | None]]]:
    """What every session's stream says, whoever says it."""
    found: dict[str, set[tuple[str, int | None]]] = defaultdict(set)
    for event in events:
        if event.type in PARSES and event.stored is not None:
            said: Any = codec.decode(event.type, event.version, codec.unpack(event.stored))
            for kind in ("turns", "usage", "compactions"):
                found[event.stream].update((kind, fact.key) for fact in getattr(said, kind))
        elif event.type == "device_renamed":
            found[event.stream].add(("renamed", None))
    return found


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a killed process closes no socket
def test_any_interleaving(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushing, "EVENTS_LIMIT", PAGE)
    examples = int(os.environ.get("PROSA_PUSH_EXAMPLES", "25"))
    with a_server(new_database(cluster), tmp_path / "server") as served:
        PushMachine.served = served
        run_state_machine_as_test(
            PushMachine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=16,
                deadline=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )
    gc.collect()


def test_the_machine_can_see_a_lost_event(tmp_path: Path) -> None:
    """Its eyes: a chain with a hole is not taken for whole."""
    with Log(tmp_path / "log.db", create=True) as log:
        rows: list[Any] = [event._asdict() | {"name": log.shared.origin} for event in log.of_origin(log.shared)]
    assert len(rows) == 1
    rows[0]["stream"] = "log-other"
    with pytest.raises(AssertionError):
        check_chains(rows)
