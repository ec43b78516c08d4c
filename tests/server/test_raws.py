"""Keeping raw: in a folder and in an S3 store, whole and in parts, nothing that is not what its name says."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from hashlib import sha256
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import httpx
import msgspec
import pytest
import zstandard
from moto.server import ThreadedMotoServer

from prosa.events.errors import ProsaError
from prosa.events.messages import PART_BYTES, MissingAnswer, RawJoin, RawParts, RawStored
from prosa.events.raw import RawStore
from prosa.server import collecting, uploads
from prosa.server.app import open_raws, open_server
from prosa.server.frames import check_frames
from prosa.server.raws import FolderRaws, Raws, StoreAway, raw_name
from prosa.server.settings import S3Settings, Settings
from prosa.server.state import Server

pytestmark = pytest.mark.anyio
DeviceMaker = Callable[..., Awaitable[dict[str, str]]]


class Raw(NamedTuple):
    plain: bytes
    stored: bytes

    @property
    def name(self) -> str:
        return sha256(self.plain).hexdigest()

    @property
    def size(self) -> dict[str, str]:
        return {"Prosa-Size": str(len(self.plain))}


def raw(plain: bytes, *cuts: int) -> Raw:
    """As a device stores it; every cut begins another frame."""
    edges = [0, *cuts, len(plain)]
    compressor = zstandard.ZstdCompressor(write_content_size=False)
    frames = [compressor.compress(plain[start:end]) for start, end in pairwise(edges)]
    return Raw(plain, b"".join(frames))


SMALL = raw(b'{"type":"user"}\n' * 1000, 100, 5000)


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Settings]:
    moto = ThreadedMotoServer(port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    yield S3Settings(endpoint=f"http://{host}:{port}", access_key="access", secret_key="secret")
    moto.stop()


BOTH = pytest.mark.parametrize("where", ["folder", "s3"], indirect=True)


@pytest.fixture
def where(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    """Settings of a server that keeps raw in a folder, or in S3."""
    if getattr(request, "param", "folder") == "folder":
        return settings
    s3: S3Settings = request.getfixturevalue("s3")
    bucket = f"b{time.time_ns()}"
    return msgspec.structs.replace(settings, s3=msgspec.structs.replace(s3, bucket=bucket))


@pytest.fixture
async def server(where: Settings) -> AsyncIterator[Server]:
    async with open_server(where, working=False) as server:
        yield server


# the stores


async def content(raws: Raws, name: str) -> bytes:
    return b"".join([piece async for piece in raws.read(name)])


@BOTH
async def test_an_object_is_put_once_and_read_as_it_was(where: Settings) -> None:
    raws = await open_raws(where)
    data = os.urandom(3_000_000)
    assert await raws.size("raw/ab/x.zst") is None
    await raws.put("raw/ab/x.zst", BytesIO(data), len(data))
    await raws.put("raw/ab/x.zst", BytesIO(b"another"), 7)
    assert await raws.size("raw/ab/x.zst") == 3_000_000
    assert await content(raws, "raw/ab/x.zst") == data
    assert raws.uri("raw/ab/x.zst").endswith("/raw/ab/x.zst")
    await raws.remove("raw/ab/x.zst")
    await raws.remove("raw/ab/x.zst")
    assert await raws.size("raw/ab/x.zst") is None
    with pytest.raises(FileNotFoundError):
        await content(raws, "raw/ab/x.zst")
    await raws.check()
    await raws.close()


@BOTH
async def test_twenty_uploads_of_one_object_at_once_keep_one(where: Settings) -> None:
    raws = await open_raws(where)
    contents = [bytes([number]) * 1000 for number in range(20)]
    await asyncio.gather(*(raws.put("raw/cd/y.zst", BytesIO(data), 1000) for data in contents))
    assert await content(raws, "raw/cd/y.zst") in contents
    await raws.close()


def test_files_of_the_folder_are_private(tmp_path: Path) -> None:
    raws = FolderRaws(tmp_path / "raw")
    asyncio.run(raws.put("raw/ab/x.zst", BytesIO(b"data"), 4))
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "raw").rglob("*")}
    assert modes == {0o600, 0o700}
    assert len([path for path in (tmp_path / "raw").rglob("*") if path.is_file()]) == 1, "nothing half written"


async def test_a_store_that_is_away_says_so(s3: S3Settings) -> None:
    nowhere = msgspec.structs.replace(s3, endpoint="http://127.0.0.1:9")
    from prosa.server.raws_s3 import open_s3

    with pytest.raises(ProsaError, match="prosa-raw cannot be used"):
        await open_s3(nowhere)
    there = await open_s3(s3)
    there._bucket = "gone-since"
    with pytest.raises(StoreAway):
        await there.check()
    await there.close()


# uploads


async def put(client: httpx.AsyncClient, headers: dict[str, str], what: Raw, name: str | None = None) -> httpx.Response:
    path = f"/v1/raw/{name or what.name}"
    return await client.put(path, headers={**what.size, **headers}, content=what.stored)


@BOTH
async def test_a_raw_is_kept_and_served_as_the_agent_wrote_it(
    client: httpx.AsyncClient, server: Server, a_device: DeviceMaker
) -> None:
    headers = await a_device()
    question = {"raws": [[SMALL.name, len(SMALL.plain)], ["00" * 32, 1]]}
    answer = await client.post("/v1/raw/missing", headers=headers, json=question)
    assert msgspec.json.decode(answer.content, type=MissingAnswer).missing == [SMALL.name, "00" * 32]
    first = await put(client, headers, SMALL)
    assert first.status_code == 200
    said = msgspec.json.decode(first.content, type=RawStored)
    assert (said.sha256, said.size, said.stored) == (SMALL.name, len(SMALL.plain), len(SMALL.stored))
    assert (await put(client, headers, SMALL)).content == first.content
    answer = await client.post("/v1/raw/missing", headers=headers, json=question)
    assert msgspec.json.decode(answer.content, type=MissingAnswer).missing == ["00" * 32]
    got = await client.get(f"/v1/raw/{SMALL.name}", headers=headers)
    assert got.content == SMALL.plain
    assert got.headers["content-length"] == str(len(SMALL.plain))
    assert await content(server.raws, raw_name(SMALL.name)) == SMALL.stored
    assert not list(server.settings.work_folder.iterdir())


async def test_the_raw_of_a_device_is_taken_as_it_lies(
    client: httpx.AsyncClient, a_device: DeviceMaker, tmp_path: Path
) -> None:
    """Small and large files, and one that was continued in place."""
    store, headers = RawStore(tmp_path / "device"), await a_device()
    plain = b"".join(b'{"n":%d,"x":"%s"}\n' % (n, os.urandom(20).hex().encode()) for n in range(60_000))
    writer = store.writer(len(plain))
    writer.write(plain)
    old = store.keep(writer)
    longer = plain + plain[:100_000]
    grown = store.extend(old, [plain[:100_000]], sha256(longer).hexdigest(), len(longer))
    assert grown
    for kept, original in ((old, plain), (grown, longer)):
        data = store.path(kept.sha256).read_bytes()[: kept.stored]
        assert (await put(client, headers, Raw(original, data))).status_code == 200
        assert (await client.get(f"/v1/raw/{kept.sha256}", headers=headers)).content == original


RANGES = [
    ("bytes=0-0", 206, slice(0, 1)), ("bytes=0-", 200, slice(0, None)), ("bytes=5-99", 206, slice(5, 100)),
    ("bytes=15990-", 206, slice(15990, None)), ("bytes=15999-20000", 206, slice(15999, None)),
    ("bytes=-1", 206, slice(-1, None)), ("bytes=-99999", 200, slice(0, None)), ("bytes=16000-", 416, slice(0, 0)),
    ("bytes=-0", 416, slice(0, 0)), ("bytes=9-5", 200, slice(0, None)), ("bytes=-", 200, slice(0, None)),
    ("lines=0-1", 200, slice(0, None)), ("bytes=0-1,5-6", 200, slice(0, None)),
]  # fmt: skip


async def test_ranges_are_of_the_original(client: httpx.AsyncClient, a_device: DeviceMaker) -> None:
    headers = await a_device()
    await put(client, headers, SMALL)
    for asked, status, part in RANGES:
        await check_range(client, headers, asked, status, part)


async def check_range(client: httpx.AsyncClient, headers: dict[str, str], asked: str, status: int, part: slice) -> None:
    got = await client.get(f"/v1/raw/{SMALL.name}", headers={**headers, "Range": asked})
    wanted = SMALL.plain[part]
    assert (got.status_code, got.content) == (status, wanted), asked
    if status == 206:
        start = part.indices(len(SMALL.plain))[0]
        assert got.headers["content-range"] == f"bytes {start}-{start + len(wanted) - 1}/{len(SMALL.plain)}"
    head = await client.head(f"/v1/raw/{SMALL.name}", headers={**headers, "Range": asked})
    assert (head.status_code, head.content) == (status, b"")


WRONG = {
    "another hash": (raw(b"one"), raw(b"two").name, None, "hash"),
    "too short": (raw(b"one"), None, "4", "has 3 bytes"),
    "too long": (raw(b"three"), None, "4", "longer"),
    "no zstd": (Raw(b"one", b"one"), None, None, "decoded"),
    "a cut frame": (Raw(SMALL.plain, SMALL.stored[:-40]), None, None, "bytes, not"),
    "rubbish behind": (Raw(SMALL.plain, SMALL.stored + b"rubbish!"), None, None, "decoded"),
    "empty": (Raw(b"one", b""), None, None, "0 bytes"),
}


async def test_what_is_not_what_its_name_says_is_not_kept(
    client: httpx.AsyncClient, server: Server, a_device: DeviceMaker
) -> None:
    device = await a_device()
    for what, (sent, name, size, words) in WRONG.items():
        answer = await put(client, device | ({"Prosa-Size": size} if size else {}), sent, name)
        assert answer.status_code == 422, what
        assert words in answer.json()["what"], what
        assert await server.raws.size(raw_name(name or sent.name)) is None
    assert await server.pool.fetchval("SELECT count(*) FROM raws") == 0


async def test_the_size_must_be_told(client: httpx.AsyncClient, a_device: DeviceMaker) -> None:
    headers = await a_device()
    for size in ("", "-1", "1e3", "x", str(1 << 50), "9" * 5000, "\xb2"):
        told = [*headers.items(), ("Prosa-Size", size.encode("latin-1"))]
        assert (await client.put(f"/v1/raw/{SMALL.name}", headers=told, content=b"")).status_code == 422


NAMES = ["x", "ab", "A" * 64, "..%2F..%2Fetc%2Fpasswd", "%2e%2e", "0" * 63, "0" * 65, "0" * 63 + "%00", "é" * 64]


async def test_names_are_hashes(client: httpx.AsyncClient, server: Server, a_device: DeviceMaker) -> None:
    headers = await a_device() | SMALL.size
    for name in NAMES:
        for method, path in (("PUT", f"/v1/raw/{name}"), ("GET", f"/v1/raw/{name}"), ("GET", f"/v1/raw/{name}/parts")):
            answer = await client.request(method, path, headers=headers, content=SMALL.stored)
            assert answer.status_code in (404, 422), path
    assert await server.pool.fetchval("SELECT count(*) FROM raws") == 0


def test_a_bomb_is_not_decoded_whole() -> None:
    """8 GB of zeros in 260 KB, said to be a small transcript."""
    piece = zstandard.ZstdCompressor(level=19, write_content_size=False).compress(bytes(256 << 20))
    with BytesIO(piece * 32) as bomb:
        start = time.monotonic()
        with pytest.raises(ProsaError, match=r"longer than the 1,000 bytes"):
            check_frames(bomb, "00" * 32, 1000)
        assert time.monotonic() - start < 2


def test_a_frame_that_wants_much_memory_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=28, compression_level=3)
    compress = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = compress.compress(os.urandom(1000)) + compress.flush()
    with BytesIO(data) as file, pytest.raises(ProsaError, match="too much memory"):
        check_frames(file, "00" * 32, 1000)


# parts


def parts_of(what: Raw, size: int) -> list[bytes]:
    return [what.stored[start : start + size] for start in range(0, len(what.stored), size)]


async def put_part(
    client: httpx.AsyncClient, headers: dict[str, str], what: Raw, number: int, part: bytes
) -> httpx.Response:
    path = f"/v1/raw/{what.name}/parts/{number}"
    return await client.put(path, headers=headers, params={"sha256": sha256(part).hexdigest()}, content=part)


async def join(client: httpx.AsyncClient, headers: dict[str, str], what: Raw, parts: list[bytes]) -> httpx.Response:
    asked = RawJoin(len(what.plain), [sha256(part).hexdigest() for part in parts])
    return await client.post(f"/v1/raw/{what.name}/join", headers=headers, content=msgspec.json.encode(asked))


@BOTH
async def test_parts_are_kept_listed_and_joined(
    client: httpx.AsyncClient, server: Server, a_device: DeviceMaker
) -> None:
    headers = await a_device()
    parts = parts_of(SMALL, 30)
    assert len(parts) > 2
    for number in (2, 1):
        assert (await put_part(client, headers, SMALL, number, parts[number - 1])).status_code == 200
    listed = await client.get(f"/v1/raw/{SMALL.name}/parts", headers=headers)
    found = msgspec.json.decode(listed.content, type=RawParts).parts
    assert [(part.number, part.sha256) for part in found] == [
        (number, sha256(parts[number - 1]).hexdigest()) for number in (1, 2)
    ]
    assert (await join(client, headers, SMALL, parts)).status_code == 409
    for number, part in enumerate(parts, 1):
        assert (await put_part(client, headers, SMALL, number, part)).status_code == 200
    joined = await join(client, headers, SMALL, parts)
    assert joined.status_code == 200
    assert (await join(client, headers, SMALL, parts)).content == joined.content, "the reply was lost"
    assert (await client.get(f"/v1/raw/{SMALL.name}", headers=headers)).content == SMALL.plain
    listed = await client.get(f"/v1/raw/{SMALL.name}/parts", headers=headers)
    assert msgspec.json.decode(listed.content, type=RawParts).parts == []
    assert await server.raws.size(f"parts/{SMALL.name}/00001-{sha256(parts[0]).hexdigest()}") is None


async def test_parts_that_do_not_make_the_raw_are_dropped(
    client: httpx.AsyncClient, server: Server, a_device: DeviceMaker
) -> None:
    headers = await a_device()
    wrong = [*parts_of(SMALL, 30)[:-1], b"rubbish"]
    for number, part in enumerate(wrong, 1):
        await put_part(client, headers, SMALL, number, part)
    assert (await join(client, headers, SMALL, wrong)).status_code == 422
    assert await server.pool.fetchval("SELECT count(*) FROM raw_parts") == 0
    assert await server.pool.fetchval("SELECT count(*) FROM raws") == 0


@BOTH
async def test_another_part_of_a_number_takes_its_place(
    client: httpx.AsyncClient, server: Server, a_device: DeviceMaker
) -> None:
    headers = await a_device()
    await put_part(client, headers, SMALL, 1, b"first")
    await put_part(client, headers, SMALL, 1, b"second")
    assert await server.raws.size(f"parts/{SMALL.name}/00001-{sha256(b'first').hexdigest()}") is None
    assert await server.raws.size(f"parts/{SMALL.name}/00001-{sha256(b'second').hexdigest()}") == 6


async def test_a_part_is_what_it_is_said_to_be(
    client: httpx.AsyncClient, server: Server, a_device: DeviceMaker
) -> None:
    headers = await a_device()
    path = f"/v1/raw/{SMALL.name}/parts/1"
    for params, body, status in (
        ({"sha256": "00" * 32}, b"x", 422), ({"sha256": sha256(b"").hexdigest()}, b"", 422), ({}, b"x", 422),
        ({"sha256": "00" * 32}, bytes(PART_BYTES + 1), 413),
    ):  # fmt: skip
        assert (await client.put(path, headers=headers, params=params, content=body)).status_code == status
    for number in ("0", "10001", "99999999999999999999"):
        answer = await client.put(path[:-1] + number, headers=headers, params={"sha256": "00" * 32}, content=b"x")
        assert answer.status_code == 422
    assert await server.pool.fetchval("SELECT count(*) FROM raw_parts") == 0


async def test_a_body_above_the_limit_is_refused_before_it_is_there(
    client: httpx.AsyncClient, server: Server, a_device: DeviceMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "UPLOAD_BYTES", 1000)
    sent = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += 500
            yield bytes(500)

    answer = await client.put(f"/v1/raw/{SMALL.name}", headers={**await a_device(), **SMALL.size}, content=body())
    assert answer.status_code == 413
    assert not list(server.settings.work_folder.iterdir())


@BOTH
async def test_an_object_without_a_row_is_found_again(
    client: httpx.AsyncClient, server: Server, a_device: DeviceMaker
) -> None:
    """What a crash between the two leaves; it may have been compressed otherwise."""
    other = raw(SMALL.plain)
    await server.raws.put(raw_name(SMALL.name), BytesIO(other.stored), len(other.stored))
    answer = await put(client, await a_device(), SMALL)
    assert msgspec.json.decode(answer.content, type=RawStored).stored == len(other.stored)
    assert await server.pool.fetchval("SELECT stored FROM raws") == len(other.stored)


# collecting


async def projected(server: Server, **tables: str) -> None:
    """A serving projection that is where the log is, with the tables the collector reads."""
    pool = server.pool
    await pool.execute("INSERT INTO projections VALUES (1, 1, 1, 'p1_1', 'w', 0, '', '', 'serving')")
    await pool.execute("CREATE SCHEMA p1_1")
    columns = {
        "revisions": "sid bigint, raw text", "prunes": "session text, raw text", "erased": "session text",
        "raws": "sha256 text, session text, extends text",
    }  # fmt: skip
    for table, described in columns.items():
        await pool.execute(f"CREATE TABLE p1_1.{table} ({described})")
        if table in tables:
            await pool.execute(f"INSERT INTO p1_1.{table} VALUES {tables[table]}")


async def days_pass(server: Server, days: int) -> None:
    await server.pool.execute("UPDATE raws SET unused_since = unused_since - $1::interval", timedelta(days=days))
    await server.pool.execute("UPDATE raw_parts SET stored_at = stored_at - $1::interval", timedelta(days=days))


async def kept(server: Server, *raws: Raw) -> list[bool]:
    """Whether each has both its object and its row; one without the other fails."""
    found = []
    for each in raws:
        row = await server.pool.fetchval("SELECT count(*) FROM raws WHERE sha256 = $1", each.name)
        there = await server.raws.size(raw_name(each.name)) is not None
        assert bool(row) == there
        found.append(there)
    return found


@BOTH
async def test_raw_that_nothing_needs_goes_after_seven_days(
    client: httpx.AsyncClient, server: Server, a_device: DeviceMaker
) -> None:
    headers = await a_device()
    await server.pool.execute("UPDATE log_head SET position = 0")
    last, outgrown, pruned, pruned_outgrown, unknown = raws = [raw(f"raw {n}".encode()) for n in range(5)]
    for each in raws:
        await put(client, headers, each)
    await projected(
        server,
        revisions=f"(1, '{last.name}')",
        prunes=f"('s2', '{pruned.name}'), ('s1', '{pruned_outgrown.name}')",
        raws=f"('{last.name}', 's1', '{outgrown.name}'), ('{outgrown.name}', 's1', '{pruned_outgrown.name}'), "
        f"('{pruned.name}', 's2', NULL)",
    )
    assert await collecting.collect(server) == (0, 0)
    await days_pass(server, 6)
    assert await collecting.collect(server) == (0, 0)
    await client.post("/v1/raw/missing", headers=headers, json={"raws": [[unknown.name, 1]]})
    await days_pass(server, 2)
    assert await collecting.collect(server) == (2, 0)
    assert await kept(server, *raws) == [True, False, True, False, True]
    await days_pass(server, 8)
    assert await collecting.collect(server) == (1, 0)
    assert await kept(server, *raws) == [True, False, True, False, False]
    assert (await put(client, headers, unknown)).status_code == 200
    assert await kept(server, unknown) == [True]


async def test_nothing_is_collected_while_the_projections_are_behind(
    client: httpx.AsyncClient, server: Server, a_device: DeviceMaker
) -> None:
    await put(client, await a_device(), SMALL)
    await server.pool.execute("UPDATE raws SET unused_since = now() - interval '1 year'")
    assert await collecting.collect(server) == (0, 0), "there is no projection"
    await projected(server)
    await server.pool.execute("UPDATE projections SET position = 0")
    await server.pool.execute("UPDATE log_head SET position = 5")
    assert await collecting.collect(server) == (0, 0)
    await server.pool.execute("UPDATE projections SET position = 5")
    assert await collecting.collect(server) == (1, 0)


async def test_erased_raw_goes_at_once_unless_another_session_names_it(
    client: httpx.AsyncClient, server: Server, a_device: DeviceMaker
) -> None:
    headers = await a_device()
    await server.pool.execute("UPDATE log_head SET position = 0")
    alone, common = raw(b"alone"), raw(b"common")
    for each in (alone, common):
        await put(client, headers, each)
    await projected(
        server,
        revisions=f"(1, '{alone.name}'), (1, '{common.name}')",
        erased="('s1')",
        raws=f"('{alone.name}', 's1', NULL), ('{common.name}', 's1', NULL), ('{common.name}', 's2', NULL)",
    )
    await server.pool.execute("UPDATE raws SET unused_since = '-infinity'")
    assert await collecting.collect(server) == (1, 0)
    assert await kept(server, alone, common) == [False, True]
    assert await server.pool.fetchval("SELECT unused_since FROM raws") is None


@BOTH
async def test_an_upload_that_meets_the_collector_is_kept(
    client: httpx.AsyncClient, server: Server, a_device: DeviceMaker
) -> None:
    headers = await a_device()
    await server.pool.execute("UPDATE log_head SET position = 0")
    await projected(server)
    for _ in range(10):
        await put(client, headers, SMALL)
        await server.pool.execute("UPDATE raws SET unused_since = now() - interval '1 year'")
        again = uploads.keep(server, SMALL.name, len(SMALL.plain), pieces(SMALL.stored))
        _, answer = await asyncio.gather(collecting.collect(server), again)
        assert answer.sha256 == SMALL.name
        assert await kept(server, SMALL) == [True]


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data


@BOTH
async def test_uploads_nobody_finished_are_dropped_after_seven_days(
    client: httpx.AsyncClient, server: Server, a_device: DeviceMaker
) -> None:
    headers = await a_device()
    await put_part(client, headers, SMALL, 1, b"first")
    await put_part(client, headers, SMALL, 2, b"second")
    await days_pass(server, 6)
    assert await collecting.collect(server) == (0, 0)
    await days_pass(server, 2)
    assert await collecting.collect(server) == (0, 2)
    assert await server.raws.size(f"parts/{SMALL.name}/00001-{sha256(b'first').hexdigest()}") is None
