"""What the server says it holds: the manifest, and whether local copies may go."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import httpx
import msgspec
import pytest
import zstandard
from pushed import Device, parsed, turns

from prosa.events.catalogue import RawPreserved
from prosa.events.messages import ConfirmAnswer, Confirmed, Manifest, ManifestEntry
from prosa.server.app import open_server
from prosa.server.raws import raw_name
from prosa.server.settings import Settings
from prosa.server.state import Server
from prosa.server.worker import Worker

pytestmark = pytest.mark.anyio
DeviceMaker = Callable[..., Awaitable[dict[str, str]]]


@pytest.fixture
async def server(settings: Settings) -> AsyncIterator[Server]:
    """With its worker."""
    async with open_server(settings) as server:
        yield server


def name_of(plain: bytes) -> str:
    return sha256(plain).hexdigest()


async def hold(server: Server, plain: bytes) -> None:
    """Object and row of a raw."""
    stored = zstandard.compress(plain)
    await server.raws.put(raw_name(name_of(plain)), BytesIO(stored), len(stored))
    await server.pool.execute(
        "INSERT INTO raws (owner, sha256, size, stored) VALUES (1, $1, $2, $3)", name_of(plain), len(plain), len(stored)
    )


def preserve(device: Device, native: str, plain: bytes, *, parse: bool = True) -> None:
    """A session whose raw is kept, and read unless not `parse`."""
    stream = f"session-codex/{native}"
    device.write(
        stream, RawPreserved(session=f"codex/{native}", sha256=name_of(plain), size=len(plain), stored=len(plain))
    )
    if parse:
        device.write(stream, parsed(native, *turns(native, {"a": "hello"}), raw=name_of(plain)))


async def push(server: Server, device: Device) -> None:
    await device.push(server)
    assert server.worker is not None
    await server.worker.wait_for(await server.pool.fetchval("SELECT position FROM log_head"))


async def manifest(client: httpx.AsyncClient, headers: dict[str, str], limit: int) -> list[ManifestEntry]:
    """All pages."""
    found: list[ManifestEntry] = []
    after: dict[str, str] = {}
    for pages in itertools.count(1):
        answer = await client.get("/v1/manifest", headers=headers, params={"limit": str(limit), **after})
        page = msgspec.json.decode(answer.content, type=Manifest)
        assert len(page.entries) <= limit
        found += page.entries
        if page.next is None:
            assert pages == max(1, -(-len(found) // limit))
            return found
        after = {"after": page.next}
    raise AssertionError


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 6, 100])
async def test_the_manifest_has_every_raw_that_is_held_in_pages(
    client: httpx.AsyncClient, server: Server, a_device: DeviceMaker, tmp_path: Path, limit: int
) -> None:
    device, headers = Device(tmp_path), await a_device()
    assert await manifest(client, headers, limit) == []
    for number in range(6):
        preserve(device, f"s{number // 2}", f"raw {number % 4}".encode())
        if number % 4 != 3:
            await server.pool.execute("DELETE FROM raws WHERE sha256 = $1", name_of(f"raw {number % 4}".encode()))
            await hold(server, f"raw {number % 4}".encode())
    await push(server, device)
    found = [(entry.session, entry.sha256) for entry in await manifest(client, headers, limit)]
    wanted = {("s0", 0), ("s0", 1), ("s1", 2), ("s2", 0), ("s2", 1)}
    assert found == sorted((f"codex/{name}", name_of(f"raw {number}".encode())) for name, number in wanted)


async def confirm(
    client: httpx.AsyncClient, headers: dict[str, str], copies: list[tuple[str, bytes]]
) -> list[Confirmed]:
    asked = {"copies": [(f"codex/{native}", name_of(plain)) for native, plain in copies]}
    answer = await client.post("/v1/prune/confirm", headers=headers, json=asked)
    assert answer.status_code == 200
    return msgspec.json.decode(answer.content, type=ConfirmAnswer).copies


async def test_a_copy_is_confirmed_by_the_object_and_the_projection(
    client: httpx.AsyncClient, server: Server, a_device: DeviceMaker, tmp_path: Path
) -> None:
    device, headers = Device(tmp_path), await a_device()
    for native, parse in (("good", True), ("unread", False), ("absent", True), ("cut", True), ("gone", True)):
        preserve(device, native, native.encode(), parse=parse)
        if native != "absent":
            await hold(server, native.encode())
    await push(server, device)
    await server.raws.remove(raw_name(name_of(b"gone")))
    await server.pool.execute("UPDATE raws SET stored = stored + 1 WHERE sha256 = $1", name_of(b"cut"))
    natives = ("good", "unread", "absent", "cut", "gone")
    copies = [(native, native.encode()) for native in natives]
    said = await confirm(client, headers, [*copies, ("good", b"cut"), ("nobody", b"good"), ("x\0", b"y")])
    assert [(each.held, each.projected) for each in said] == [
        (True, True), (True, False), (False, True), (False, True), (False, True), (False, False), (True, False),
        (False, False),
    ]  # fmt: skip
    assert said[0].size == 4
    assert said[0].uri.endswith(raw_name(name_of(b"good")))
    question = {"raws": [[name_of(b"gone"), 4]]}
    missing = await client.post("/v1/raw/missing", headers=headers, json=question)
    assert missing.json() == {"missing": [name_of(b"gone")]}, "what the store lost is asked for again"


async def test_nothing_is_projected_while_the_session_has_news(
    client: httpx.AsyncClient, server: Server, a_device: DeviceMaker, tmp_path: Path
) -> None:
    device, headers = Device(tmp_path), await a_device()
    preserve(device, "s", b"raw")
    await hold(server, b"raw")
    await push(server, device)
    assert (await confirm(client, headers, [("s", b"raw")]))[0].projected
    assert server.worker is not None
    await server.worker.stop()
    device.write("session-codex/s", parsed("s", *turns("s", {"a": "again"}), raw=name_of(b"raw")))
    await device.push(server)
    assert not (await confirm(client, headers, [("s", b"raw")]))[0].projected
    server.worker = Worker(server)
    await server.worker.start()
    await push(server, device)
    assert (await confirm(client, headers, [("s", b"raw")]))[0].projected
    await server.pool.execute(
        "INSERT INTO parked (owner, stream, position, reason) VALUES (1, 'session-codex/s', 1, '')"
    )
    assert not (await confirm(client, headers, [("s", b"raw")]))[0].projected


async def test_more_than_a_thousand_copies_are_too_many(client: httpx.AsyncClient, a_device: DeviceMaker) -> None:
    headers = await a_device()
    for path, body in (("/v1/prune/confirm", {"copies": [("s", "x")] * 1001}),
                       ("/v1/raw/missing", {"raws": [["ab" * 32, 1]] * 1001})):  # fmt: skip
        assert (await client.post(path, headers=headers, json=body)).status_code == 413


async def test_a_copy_that_is_confirmed_is_kept_until_the_prune_can_say_so(
    client: httpx.AsyncClient, server: Server, a_device: DeviceMaker, tmp_path: Path
) -> None:
    """Else the collector takes it between the answer and the event, and both sides have lost it."""
    device, headers = Device(tmp_path), await a_device()
    preserve(device, "old", b"old")
    await hold(server, b"old")
    await push(server, device)
    long_ago = "UPDATE raws SET unused_since = now() - interval '8 days' WHERE sha256 = $1"
    await server.pool.execute(long_ago, name_of(b"old"))
    assert (await confirm(client, headers, [("old", b"old")]))[0].held
    assert await server.pool.fetchval("SELECT unused_since FROM raws WHERE sha256 = $1", name_of(b"old")) is None
