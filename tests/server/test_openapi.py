"""/v1/openapi.json: it describes what is served, and nothing that fits it makes the server fail."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
import schemathesis
import uvicorn
from cluster import new_database
from hypothesis import HealthCheck, settings
from openapi_spec_validator import validate
from schemathesis.checks import not_a_server_error

from prosa.events.messages import MSGPACK
from prosa.server import tokens
from prosa.server.app import create_app, open_server
from prosa.server.openapi import document
from prosa.server.postgres import Cluster
from prosa.server.routes import ENDPOINTS
from prosa.server.settings import Settings

ADMIN = "prosa_admin_" + "a" * 43
DEVICE = "00000000000000aa"
ENDLESS = "/v1/stream"


class Live(NamedTuple):
    url: str
    device: dict[str, str]
    admin: dict[str, str]


@pytest.fixture(scope="module")
def live(cluster: Cluster, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A whole server, with its worker, in a thread; and the headers of those who may ask it."""
    folder, listener = tmp_path_factory.mktemp("live"), socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    ready, stop = threading.Event(), threading.Event()
    token: list[str] = []

    async def serve(settings: Settings) -> None:
        async with open_server(settings) as server:
            token.append((await tokens.issue(server, "device", device=DEVICE, by="admin"))[0])
            assert server.worker is not None
            await server.worker.wait_for(2)
            config = uvicorn.Config(create_app(server), http="h11", ws="none", lifespan="off", log_config=None)
            program = uvicorn.Server(config)
            running = asyncio.create_task(program._serve([listener]))
            ready.set()
            while not stop.is_set():
                await asyncio.sleep(0.05)
            program.should_exit = True
            await running

    thread = threading.Thread(target=lambda: asyncio.run(serve(of(folder, new_database(cluster, template), url))))
    thread.start()
    assert ready.wait(60)
    device = {"Authorization": f"Bearer {token[0]}", "Prosa-Device": DEVICE}
    yield Live(url, device, {"Authorization": f"Bearer {ADMIN}"})
    stop.set()
    thread.join(30)
    listener.close()


def of(folder: Path, database: str, url: str) -> Settings:
    return Settings(
        public_url=url, db_url=database, s3=None, raw_folder=folder / "raw", work_folder=folder / "work",
        owner_emails=("owner@example.org",), cookie_key="k" * 43, admin_token=ADMIN,
    )  # fmt: skip


@schemathesis.serializer(MSGPACK)
def packed(_: schemathesis.SerializationContext, value: object) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except (OverflowError, UnicodeEncodeError):  # JSON has more numbers
        return msgspec.json.encode(repr(value))


api = schemathesis.openapi.from_dict(document(ENDPOINTS))


@api.exclude(path=[ENDLESS, "/v1/logout"]).parametrize()
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_nothing_that_fits_the_document_makes_the_server_fail(case: schemathesis.Case, live: Live) -> None:
    access = case.operation.definition.raw["x-access"]
    headers = {"public": {}, "owner": live.admin}.get(access, live.device)
    case.call_and_validate(base_url=live.url, headers=headers, checks=[not_a_server_error], timeout=20)


def test_the_document_is_valid_and_has_every_endpoint() -> None:
    made = document(ENDPOINTS)
    validate(made)
    found = {(method.upper(), path) for path, methods in made["paths"].items() for method in methods}
    assert len(found) == len(ENDPOINTS)
    assert ("PUT", "/v1/raw/{sha256}/parts/{number}") in found
    assert made["components"]["schemas"]["Problem"]["properties"]["code"]["type"] == "string"
    assert {item["x-access"] for methods in made["paths"].values() for item in methods.values()} > {"public", "device"}
