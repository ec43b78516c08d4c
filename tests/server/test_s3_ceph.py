"""Raw in a store that checks signatures and conditions: Ceph's gateway, where it is installed (or CEPH=1 is set)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from hashlib import sha256
from io import BytesIO

import httpx
import msgspec
import pytest
import zstandard
from ceph import a_gateway, is_installed

from prosa.events.errors import ProsaError
from prosa.server import tokens, uploads
from prosa.server.app import create_app, open_server
from prosa.server.raws import raw_name
from prosa.server.raws_s3 import open_s3
from prosa.server.settings import S3Settings, Settings

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.ceph,
    pytest.mark.skipif(not is_installed() and not os.environ.get("CEPH"), reason="Ceph is not installed"),
]


@pytest.fixture(scope="module")
def gateway() -> Iterator[S3Settings]:
    with a_gateway() as settings:
        yield settings


async def test_an_object_is_put_once_and_read_as_it_was(gateway: S3Settings) -> None:
    raws = await open_s3(gateway)
    data = os.urandom(20_000_000)
    assert await raws.size("raw/ab/x.zst") is None
    await raws.put("raw/ab/x.zst", BytesIO(data), len(data))
    await raws.put("raw/ab/x.zst", BytesIO(b"another"), 7)
    assert raws._is_conditional, "it answers If-None-Match"
    assert await raws.size("raw/ab/x.zst") == len(data)
    assert b"".join([piece async for piece in raws.read("raw/ab/x.zst")]) == data
    await raws.remove("raw/ab/x.zst")
    assert await raws.size("raw/ab/x.zst") is None
    with pytest.raises(FileNotFoundError):
        [piece async for piece in raws.read("raw/ab/x.zst")]
    await raws.close()


async def test_twenty_uploads_of_one_object_at_once_keep_one(gateway: S3Settings) -> None:
    raws = await open_s3(gateway)
    contents = [bytes([number]) * 100_000 for number in range(20)]
    await asyncio.gather(*(raws.put("raw/cd/y.zst", BytesIO(data), len(data)) for data in contents))
    kept = b"".join([piece async for piece in raws.read("raw/cd/y.zst")])
    assert kept in contents
    await raws.close()


async def test_a_wrong_key_is_said_before_anything_starts(gateway: S3Settings) -> None:
    for changed in ({"secret_key": "wrong"}, {"access_key": "nobody"}):
        with pytest.raises(ProsaError, match="cannot be used"):
            await open_s3(msgspec.structs.replace(gateway, **changed))


async def test_a_raw_goes_in_by_parts_and_out_by_ranges(gateway: S3Settings, settings: Settings) -> None:
    plain = b"".join(b'{"n":%d,"x":"%s"}\n' % (n, os.urandom(40).hex().encode()) for n in range(200_000))
    stored, name = zstandard.ZstdCompressor(write_content_size=False).compress(plain), sha256(plain).hexdigest()
    size = 3_000_000
    parts = [stored[start : start + size] for start in range(0, len(stored), size)]
    there = msgspec.structs.replace(settings, s3=gateway)
    async with open_server(there, working=False) as server:
        token, _ = await tokens.issue(server, "device", device="00000000000000aa", by="admin")
        headers = {"Authorization": f"Bearer {token}", "Prosa-Device": "00000000000000aa"}
        transport = httpx.ASGITransport(create_app(server))
        async with httpx.AsyncClient(transport=transport, base_url=settings.public_url, headers=headers) as client:
            for number, part in enumerate(parts, 1):
                asked = {"sha256": sha256(part).hexdigest()}
                answer = await client.put(f"/v1/raw/{name}/parts/{number}", params=asked, content=part)
                assert answer.status_code == 200
            question = {"size": len(plain), "parts": [sha256(part).hexdigest() for part in parts]}
            for _ in range(2):
                joined = await client.post(f"/v1/raw/{name}/join", json=question)
                assert joined.json()["uri"] == f"s3://prosa-raw/{raw_name(name)}"
            whole = await client.get(f"/v1/raw/{name}")
            assert sha256(whole.content).hexdigest() == name
            part = await client.get(f"/v1/raw/{name}", headers={"Range": "bytes=9000000-9000099"})
            assert (part.status_code, part.content) == (206, plain[9_000_000:9_000_100])
            assert (await client.get("/readyz")).json() == {"postgres": True, "raw": True}
        assert (await uploads.parts(server, name)).parts == []
        assert await server.raws.size(raw_name(name)) == len(stored)
