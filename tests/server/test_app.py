"""What a server process opens and how its database is made."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import tempfile
from pathlib import Path

import asyncpg
import httpx
import msgspec
import pytest
from cluster import QUICK, new_database

from prosa.events.errors import UpgradeError
from prosa.server.app import create_app, open_server
from prosa.server.door import allowed_hosts
from prosa.server.logs import JsonLines
from prosa.server.migrate import files, migrate
from prosa.server.postgres import Cluster, running
from prosa.server.settings import Settings
from prosa.server.state import Server

PUBLIC = "http://127.0.0.1:7070"
pytestmark = pytest.mark.anyio


async def test_migrations_run_once_however_many_start_at_once(cluster: Cluster) -> None:
    url = new_database(cluster)
    ran = await asyncio.gather(*(migrate(url) for _ in range(4)))
    names = [path.name for _, path in files()]
    assert sorted(len(names) for names in ran) == [0, 0, 0, len(names)]
    assert await migrate(url) == []


async def test_a_database_of_a_newer_server_is_left_alone(database: str) -> None:
    connection = await asyncpg.connect(database)
    await connection.execute("INSERT INTO migrations (number, name) VALUES (9999, '9999_future.sql')")
    await connection.close()
    with pytest.raises(UpgradeError, match="9999"):
        await migrate(database)


async def test_the_server_works_as_prosa_app(server: Server) -> None:
    for _ in range(3):
        async with server.pool.acquire() as connection:
            assert await connection.fetchval("SELECT current_user") == "prosa_app"
    assert len(server.log_id) == 16


# the door


async def test_hosts_that_are_not_ours_are_refused(client: httpx.AsyncClient) -> None:
    for host in ("evil.example", "evil.example:7070", "127.0.0.1.evil.example", "", "[::1", "127.0.0.1@evil.example"):
        answer = await client.get("/v1/openapi.json", headers={"Host": host})
        assert answer.status_code == 421, host
        assert (await client.get("/healthz", headers={"Host": host})).status_code == 200
    for host in ("127.0.0.1:7070", "localhost", "LOCALHOST:1", "[::1]:7070"):
        assert (await client.get("/v1/openapi.json", headers={"Host": host})).status_code == 200, host


def test_allowed_hosts_are_names_without_ports(settings: Settings) -> None:
    changed = msgspec.structs.replace(
        settings, public_url="https://Prosa.example.org:8443", listen="0.0.0.0:7070", allowed_hosts=("server:7070",)
    )
    assert allowed_hosts(changed) == {"prosa.example.org", "server", "127.0.0.1", "localhost", "::1"}


async def test_an_unknown_route_is_no_failure(client: httpx.AsyncClient) -> None:
    for method, path, status in (("GET", "/v1/nothing", 404), ("DELETE", "/v1/heads", 405), ("GET", "/v1/%00", 404)):
        assert (await client.request(method, path)).status_code == status


async def test_nobody_sends_much_without_a_login(client: httpx.AsyncClient) -> None:
    for path, status in (("/v1/login/begin", 413), ("/v1/login/exchange", 413), ("/v1/events", 401)):
        assert (await client.post(path, content=bytes(70_000))).status_code == status


# health, metrics, logs


async def test_ready_says_who_does_not_answer(settings: Settings, tmp_path: Path) -> None:
    async with open_server(settings, working=False) as server:
        first, second = create_app(server), create_app(server)  # an app keeps its answer for some seconds
        async with httpx.AsyncClient(transport=httpx.ASGITransport(first), base_url=PUBLIC) as client:
            ready = await client.get("/readyz")
            assert (ready.status_code, ready.json()) == (200, {"postgres": True, "raw": True})
        settings.raw_folder.rename(tmp_path / "elsewhere")
        server.pool.terminate()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(second), base_url=PUBLIC) as client:
            ready = await client.get("/readyz")
            assert (ready.status_code, ready.json()) == (503, {"postgres": False, "raw": False})
            assert (await client.get("/healthz")).status_code == 200


async def test_a_postgres_that_went_away_is_said_and_comes_back(tmp_path: Path, settings: Settings) -> None:
    """A cluster of its own: it is stopped and started under the server."""
    with tempfile.TemporaryDirectory(prefix="prosa-pg-") as folder:
        Path(folder).chmod(0o755)
        with running(Path(folder) / "pg", QUICK) as own:
            there = msgspec.structs.replace(settings, db_url=own.url())
            async with open_server(there, working=False) as server:
                app = create_app(server)
                async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=PUBLIC) as client:
                    admin = {"Authorization": f"Bearer {settings.admin_token}"}
                    assert (await client.get("/v1/tokens", headers=admin)).status_code == 200
                    own.stop()
                    answer = await client.get("/v1/tokens", headers=admin)
                    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
                    assert answer.headers["retry-after"]
                    assert (await client.get("/readyz")).status_code == 503
                    own.start()
                    assert (await client.get("/v1/tokens", headers=admin)).status_code == 200


async def test_metrics_count_what_was_done(client: httpx.AsyncClient, server: Server) -> None:
    for _ in range(3):
        await client.get("/v1/raw/" + "ab" * 32)
    await client.get("/v1/nothing/secret-name")
    answer = await client.get("/metrics")
    lines = answer.text.splitlines()
    assert 'prosa_requests_total{route="GET /v1/raw/{sha256}",status="401"} 3' in lines
    assert 'prosa_requests_total{route="GET none",status="404"} 1' in lines
    assert 'prosa_request_seconds_bucket{route="GET /v1/raw/{sha256}",le="+Inf"} 3' in lines
    assert "prosa_log_position 0" in lines
    assert "secret-name" not in answer.text
    assert "abab" not in answer.text
    for line in lines:
        assert line.startswith("# TYPE ") or re.fullmatch(r"[a-z_]+(\{.*\})? [0-9.e+-]+", line), line


async def test_a_failure_of_ours_is_named_without_what_it_was_about(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object) -> None:
        raise ValueError("SECRET of a transcript")

    monkeypatch.setattr(server.metrics, "text", fail)
    transport = httpx.ASGITransport(create_app(server), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url=PUBLIC) as client:
        answer = await client.get("/metrics")
    assert (answer.status_code, answer.json()["code"]) == (500, "failed")
    assert "SECRET" not in answer.text


def test_a_log_line_has_the_frames_of_an_error_and_not_its_words() -> None:
    try:
        raise ValueError("SECRET of a transcript")
    except ValueError:
        record = logging.getLogger("prosa").makeRecord(
            "prosa", logging.ERROR, "x.py", 1, "it %s", ("failed",), sys.exc_info(), extra={"count": 3}
        )
    line = JsonLines().format(record)
    said = json.loads(line)
    assert (said["message"], said["level"], said["count"], said["error"]) == ("it failed", "error", 3, "ValueError")
    assert "test_a_log_line" in said["frames"][0]
    assert "SECRET" not in line


async def test_requests_are_logged_by_route(client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "prosa"):
        await client.get(
            "/v1/sessions/claude-code/private-id?project=private", headers={"Authorization": "Bearer hush"}
        )
    [record] = [record for record in caplog.records if record.message == "request"]
    assert (record.route, record.status) == ("/v1/sessions/{agent}/{id:path}", 401)  # type: ignore[attr-defined]
    line = JsonLines().format(record)
    assert "private" not in line
    assert "hush" not in line
