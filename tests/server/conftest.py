"""A real server for the tests: a Postgres a run, a migrated database a test, a folder for raw, the ASGI app.

Async tests: `pytestmark = pytest.mark.anyio`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cluster import a_cluster, new_database

from prosa.server.app import create_app, open_server
from prosa.server.migrate import migrate
from prosa.server.postgres import Cluster
from prosa.server.settings import Settings
from prosa.server.state import Server

PUBLIC_URL = "http://127.0.0.1:7070"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with a_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def template(cluster: Cluster) -> str:
    """Name of a migrated database that nobody is connected to."""
    url = new_database(cluster)
    asyncio.run(migrate(url))
    return url.partition("@/")[2].partition("?")[0]


@pytest.fixture
def database(cluster: Cluster, template: str) -> str:
    """URL of a migrated database of this test's own."""
    return new_database(cluster, template)


@pytest.fixture
def settings(database: str, tmp_path: Path) -> Settings:
    return Settings(
        public_url=PUBLIC_URL,
        db_url=database,
        s3=None,
        raw_folder=tmp_path / "server-raw",
        work_folder=tmp_path / "server-work",
        owner_emails=("owner@example.org",),
        dev_login="owner@example.org",
        cookie_key="k" * 43,
        admin_token="prosa_admin_" + "a" * 43,
    )


@pytest.fixture
async def server(settings: Settings) -> AsyncIterator[Server]:
    async with open_server(settings, working=False) as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app(server))
    async with httpx.AsyncClient(transport=transport, base_url=PUBLIC_URL) as client:
        yield client


DeviceMaker = Callable[..., Awaitable[dict[str, str]]]


@pytest.fixture
def a_device(server: Server) -> DeviceMaker:
    """Makes headers of a logged-in device: `await a_device("00aa…")`; another token each time."""

    async def make(device: str = "00000000000000aa", **more: Any) -> dict[str, str]:
        from prosa.server import tokens

        token, _ = await tokens.issue(server, "device", device=device, by="owner@example.org", **more)
        return {"Authorization": f"Bearer {token}", "Prosa-Device": device}

    return make
