"""Devices that sync and push to a real server over a socket, with a network that can fail; what both logs hold."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from served import OWNER, Served
from store import Store

from prosa.cli.pushing import caught_up
from prosa.events.log import Log
from prosa.events.verify import verify_log
from prosa.server import tokens
from prosa.sync.http import Connection
from prosa.sync.push import push
from prosa.sync.report import PushItem, PushSummary

Fault = Callable[[httpx.Request], str]
"""What the network does to a request: `ok`, `before` (it never arrives), `after` (its reply is lost), `twice`."""


class Network(httpx.BaseTransport):
    """Real sockets; `fault` decides what becomes of each request. `asked` counts them by method and path."""

    def __init__(self, fault: Fault = lambda _: "ok") -> None:
        self._real = httpx.HTTPTransport()
        self.fault = fault
        self.asked: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(f"{request.method} {request.url.path}")
        request.read()
        what = self.fault(request)
        if what == "before":
            raise httpx.ConnectError("the network is down")
        answer = self._real.handle_request(request)
        if what == "after":
            answer.read()
            answer.close()
            raise httpx.ReadError("the reply was lost")
        if what == "twice":
            answer.read()
            answer.close()
            return self._real.handle_request(request)
        return answer

    def close(self) -> None:
        self._real.close()


class Pushed(NamedTuple):
    items: list[PushItem]
    summary: PushSummary


class Device:
    """A home with a store that pushes as this fingerprint."""

    def __init__(self, served: Served, root: Path, fingerprint: str) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.served, self.store, self.fingerprint = served, Store(root), fingerprint
        self.network = Network()
        self.token = served.run(lambda s: tokens.issue(s, "device", device=fingerprint, by=OWNER))[0]

    def connection(self) -> Connection:
        return Connection(self.served.url, self.token, self.fingerprint, transport=self.network)

    def log(self) -> Log:
        return self.store.log()

    def push(self) -> Pushed:
        home = self.store.home
        with self.log() as log:
            connection = self.connection()
            try:
                found = list(push(home, log, connection, lambda: caught_up(home, log), lambda *_: None))
            finally:
                connection.close()
        *items, summary = found
        assert isinstance(summary, PushSummary)
        return Pushed([item for item in items if isinstance(item, PushItem)], summary)

    def sync(self) -> Pushed:
        self.store.sync()
        return self.push()

    def clone(self, root: Path, fingerprint: str | None = None) -> Device:
        """A copy of everything of prosa's and of the agents'."""
        shutil.copytree(self.store.root, root, symlinks=True)
        return Device(self.served, root, fingerprint or self.fingerprint)

    def backup(self, to: Path) -> None:
        with self.log() as log:
            log.checkpoint()
        shutil.copyfile(self.store.home.log, to)

    def restore(self, source: Path) -> None:
        """As `cp backup log.db` does: the same inode, so only the server can notice."""
        for suffix in ("-wal", "-shm"):
            self.store.home.log.with_name(f"log.db{suffix}").unlink(missing_ok=True)
        self.store.home.log.write_bytes(source.read_bytes())


class Devices:
    """Makes them."""

    def __init__(self, served: Served, root: Path) -> None:
        self.served, self.root = served, root
        self._made = 0

    def __call__(self, fingerprint: str = "00000000000000aa") -> Device:
        self._made += 1
        return Device(self.served, self.root / f"device{self._made}", fingerprint)


EVENTS_THERE = """
SELECT e.origin_position, e.hash, e.body IS NULL FROM events e JOIN origins o USING (owner)
WHERE o.number = e.origin AND o.origin = $1 ORDER BY e.origin_position"""


def there(served: Served, origin: bytes) -> list[tuple[int, bytes]]:
    """Position and hash of an origin's events in the server's log."""
    rows = served.run(lambda s: s.pool.fetch(EVENTS_THERE, origin))
    return [(row[0], bytes(row[1])) for row in rows]


def here(log: Log) -> dict[bytes, list[tuple[int, bytes]]]:
    """The same of every shared origin of a device's log."""
    return {
        origin.origin: [(event.origin_position, event.hash) for event in log.of_origin(origin, bodies=False)]
        for origin in log.origins
        if origin.scope == "shared"
    }


def assert_whole(served: Served, *devices: Device | Store) -> None:
    """Both sides' chains verify; the server's positions have no gap."""
    for device in devices:
        with device.log() as log:
            assert list(verify_log(log)) == []
    positions = [row[0] for row in served.run(lambda s: s.pool.fetch("SELECT position FROM events ORDER BY 1"))]
    assert positions == list(range(1, len(positions) + 1))


def events_of(device: Device | Store, kind: str) -> Iterator[Any]:
    with device.log() as log:
        for event in log.read():
            if event.type == kind:
                yield event.event()
