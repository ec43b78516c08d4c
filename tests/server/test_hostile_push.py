"""Events that no prosa writes: a push takes or refuses them, and then every question is answered all the same."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, get_args

import httpx
import msgspec
import pytest
import zstandard
from pushed import START, Device, parsed, turns

from prosa.events import codec
from prosa.projections.queries import ReportName
from prosa.server.endpoints import Endpoint
from prosa.server.rebuilding import check
from prosa.server.routes import ENDPOINTS
from prosa.server.state import Server
from prosa.server.worker import Worker

pytestmark = pytest.mark.anyio

DeviceMaker = Callable[..., Awaitable[dict[str, str]]]
DEEP = b"\x81\xa1x" + b"\x91" * 100_000 + b"\xc0"
NO_TEXT = b"\x81\xa7session\xa2\xff\xfe"
ERASURE = {"origin": "00" * 16, "origin_position": 1, "subject": "session-codex/good", "reason": "requested", "by": "x"}
SOURCE = {"agent": "codex", "profile": "p", "path": "/x", "size": 1, "sha256": "s"}


def session(native: str, **more: Any) -> dict[str, Any]:
    turn = {"key": 1, "kind": "message", "role": "user", "at": START, "text": f"hello {native}"}
    said = {"session": f"codex/{native}", "agent": "codex", "id": native, "revision": 0, "parser": "codex/1"}
    return said | {"raw": "0" * 64, "header": {}, "turns": [turn]} | more


def at(us: int) -> list[dict[str, Any]]:
    return [{"key": 2, "kind": "message", "role": "user", "at": us, "text": "hello"}]


LONG = os.urandom(4_000).hex()
STRANGE: list[tuple[str, str, Any]] = [
    ("device-x", "device_identified", {"device": LONG, "hostname": "h", "machine": "", "platform": "p"}),
    ("device-x", "device_identified", DEEP),
    ("device-x", "device_identified", NO_TEXT),
    ("device-x", "device_merged", {"device": LONG, "into": "b" * 9_000, "evidence": "e", "by": "b"}),
    ("device-x", "device_merge_reverted", {"merge": LONG, "by": "b"}),
    ("device-x", "device_renamed", {"device": LONG, "name": "n", "by": "b"}),
    ("event-x", "body_erased", b"\xc0"),
    ("event-x", "body_erased", DEEP),
    ("event-x", "body_erased", NO_TEXT),
    ("event-x", "body_erased", ERASURE | {"origin": 5, "origin_position": "x", "subject": 7}),
    ("event-x", "body_erased", ERASURE | {"origin_position": 2**64 - 1}),
    ("event-x", "body_erased", ERASURE | {"origin_position": -1}),
    ("sources", "source_detected", SOURCE | {"sessions": 5}),
    ("sources", "source_detected", SOURCE | {"more": msgspec.msgpack.Ext(5, b"x"), "nan": float("nan")}),
    ("sources", "source_detected", b"\x81\xa1x\x81\x91\x01\x02"),
    ("sources", "source_detected", b"\x81\xa1x\x82\x01\x02\xa1a\x03"),
    ("sources", "project_identified", {"path": [1, {"a": [2]}], "remote": 5}),
    ("sources", "source_detected", DEEP),
    ("sources", "source_detected", b""),
    ("session-codex/late", "session_parsed", session("late", turns=at(2**62))),
    ("session-codex/early", "session_parsed", session("early", turns=at(-(2**62)))),
    ("session-codex/y9999", "session_parsed", session("y9999", turns=at(253_402_300_799_000_000))),
    ("session-codex/header", "session_parsed", session("header", header={"started_at": 2**63 - 1})),
    ("session-codex/u64", "session_parsed", session("u64", header={"started_at": 2**64 - 1})),
    ("session-codex/mark", "session_parsed", session("mark", marks=[{"first": 2**62, "last": -(2**62)}])),
    ("session-codex/used", "session_parsed", session("used", usage=[{"key": 3, "at": 2**62, "input": -5}])),
    ("session-codex/key", "session_parsed", session("key", turns=[at(START)[0] | {"key": 2**64 - 1}])),
    ("session-codex/deep", "session_parsed", DEEP),
    ("session-codex/text", "session_parsed", NO_TEXT),
    ("session-codex/liar", "session_parsed", session("victim")),
    ("sources", "session_parsed", session("other")),
    ("session-", "session_parsed", session("", session="", agent="")),
    ("session-noslash", "session_parsed", session("x", session="noslash")),
    ("session-codex/a b", "session_parsed", session("n", session="codex/a b", id="\0\x1b[31m")),
    ("session-codex/good", "raw_preserved", {"session": "codex/good", "sha256": "0" * 64, "size": -5, "stored": 2**63}),
]


def paths(keys: list[str]) -> list[str]:
    """Every GET that answers, with what its path asks for."""
    found = ["/v1/log?before=1000000", "/v1/sessions?flat=true&include_empty=true", "/v1/search?query=hello"]
    for endpoint in ENDPOINTS:
        if endpoint.method == "GET" and endpoint.path not in ("/v1/stream", "/v1/heads"):
            found += _filled(endpoint, keys)
    return found


def _filled(endpoint: Endpoint, keys: list[str]) -> list[str]:
    if "{agent}/{id" in endpoint.path:
        return [re.sub(r"\{agent\}/\{id:path\}", key, endpoint.path) for key in keys]
    if "{name}" in endpoint.path:
        return [endpoint.path.replace("{name}", name) for name in get_args(ReportName)]
    values = {"{sha256}": "0" * 64, "{what}": "agent", "{position:int}": "3"}
    for name, value in values.items():
        endpoint = endpoint._replace(path=endpoint.path.replace(name, value))
    return [endpoint.path]


async def test_whatever_a_device_pushes_every_question_is_answered(
    client: httpx.AsyncClient, server: Server, a_device: DeviceMaker, tmp_path: Path
) -> None:
    liar, good = Device(tmp_path), Device(tmp_path, "00000000000000bb")
    worker = Worker(server)
    await worker.start()
    try:
        for stream, kind, body in STRANGE:
            await liar.push_strange(server, stream, kind, 1, body if isinstance(body, bytes) else codec_of(body))
        good.write("session-codex/good", parsed("good", *turns("good", {"one": "hello there"})))
        good.write("session-codex/victim", parsed("victim", *turns("victim", {"one": "mine"})))
        await asyncio.wait_for(worker.wait_for(await good.push_all(server)), 20)
        headers = await a_device("00000000000000bb")
        answer = await client.get("/v1/sessions?limit=1000&flat=true&include_empty=true", headers=headers)
        keys = [found["key"] for found in answer.json()["sessions"]]
        assert {"codex/good", "codex/victim", "codex/late"} <= set(keys)
        for path in paths([key for key in keys if "/" in key]):
            answer = await client.get(path, headers=headers)
            assert answer.status_code < 500 or answer.json()["code"] == "unavailable", (path, answer.text)
        first = await client.get("/v1/sessions/codex/victim", headers=headers)
        assert first.json()["first_prompt"] == "mine", "a parse in another session's stream is nobody's"
    finally:
        await worker.stop()
    assert await check(server) == []
    good.log.close()
    liar.log.close()


def codec_of(body: dict[str, Any]) -> bytes:
    return msgspec.msgpack.encode(body)


async def test_an_erasure_of_a_raw_that_no_row_can_name_clears_the_body(server: Server, tmp_path: Path) -> None:
    device = Device(tmp_path)
    raw = codec_of({"session": "codex/a", "sha256": "\0", "size": 1, "stored": 1})
    await device.push_strange(server, "session-codex/a", "raw_preserved", 1, raw)
    event = device.strange[-1]
    said = ERASURE | {"origin": device.origin.hex(), "origin_position": event.origin_position}
    await device.push_strange(server, f"event-{event.id.hex()}", "body_erased", 1, codec_of(said))
    assert await server.pool.fetchval("SELECT body IS NULL FROM events WHERE id = $1", event.id) is True
    device.log.close()


@pytest.mark.parametrize("path", ["/v1/log/" + "9" * 5_000, f"/v1/raw/{'0' * 64}/parts/{'9' * 5_000}"])
async def test_a_number_of_any_length_in_a_path_is_no_failure(
    client: httpx.AsyncClient, a_device: DeviceMaker, path: str
) -> None:
    answer = await client.get(path, headers=await a_device())
    assert answer.status_code in (404, 405, 422)


async def test_a_size_of_any_length_is_no_failure(client: httpx.AsyncClient, a_device: DeviceMaker) -> None:
    headers = {**await a_device(), "Prosa-Size": "0" * 20 + "9" * 5_000}
    answer = await client.put(f"/v1/raw/{'0' * 64}", headers=headers, content=b"x")
    assert answer.status_code == 422


async def test_small_bodies_that_are_large_inside_are_checked_in_a_thread(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take a second each to decode and hash; the loop answers everybody meanwhile."""
    from prosa.server import batches

    where: list[bool] = []
    check_batch = batches.check

    def watched(batch: Any) -> bytes:
        where.append(threading.current_thread() is threading.main_thread())
        return check_batch(batch)

    monkeypatch.setattr(batches, "check", watched)
    device = Device(tmp_path)
    device.session("a", one="hello")
    await device.push_all(server)
    plain = b"\x81\xa1x\xc6\x00\x40\x00\x00" + bytes(4 * 1024 * 1024)
    stored = zstandard.ZstdCompressor().compress(plain)
    assert len(stored) < 1_000
    assert codec.plain_size(stored) == len(plain)
    await device.push_strange(server, "x", "session_dreamed", 1, plain, stored)
    assert where == [True, False]
    device.log.close()


async def test_a_session_of_many_turns_that_is_stated_again_is_carried_at_once(server: Server, tmp_path: Path) -> None:
    """Its rows are looked up by index, whatever Postgres believes of tables that were empty a moment ago."""
    one, other = Device(tmp_path), Device(tmp_path, "00000000000000bb")
    said = turns("many", {str(n): f"word{n}" for n in range(30_000)})
    worker = Worker(server)
    await worker.start()
    try:
        for device in (one, other):
            device.write("session-codex/many", parsed("many", *said))
            await asyncio.wait_for(worker.wait_for(await device.push_all(server)), 12)
    finally:
        await worker.stop()
        one.log.close()
        other.log.close()


async def test_a_page_of_the_log_ends_by_what_bodies_are_and_not_by_what_they_were_packed_to(
    client: httpx.AsyncClient, server: Server, a_device: DeviceMaker, tmp_path: Path
) -> None:
    device = Device(tmp_path)
    plain = b"\x81\xa1x\xc6\x00\x40\x00\x00" + bytes(4 * 1024 * 1024)
    stored = zstandard.ZstdCompressor().compress(plain)
    for _ in range(8):
        await device.push_strange(server, "x", "session_dreamed", 1, plain, stored)
    answer = await client.get("/v1/log?limit=1000", headers=await a_device())
    assert len(answer.content) < 10_000, "a field of 4 MB is nothing to be said"
    assert 1 <= len(answer.json()["events"]) < 8
    assert answer.json()["next"] is not None
    device.log.close()
