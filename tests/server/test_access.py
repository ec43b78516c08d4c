"""Who may do what: every endpoint against everybody who may come, by what the endpoint says of itself."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest
from browser import Browser
from starlette.applications import Starlette

from prosa.events.messages import DEVICE_HEADER
from prosa.server import tokens
from prosa.server.app import create_app
from prosa.server.auth import UNBOUND
from prosa.server.endpoints import MAY, Endpoint, Scope
from prosa.server.routes import ENDPOINTS
from prosa.server.signing_in import CSRF_HEADER
from prosa.server.state import Server

pytestmark = pytest.mark.anyio

DEVICE, MERGED, OTHER = "00000000000000aa", "00000000000000bb", "00000000000000cc"
OWNER, GONE = "owner@example.org", "gone@example.org"
FORGED = "an owner's browser that another site uses"
PLACES = {
    "device": "00000000000000ff", "id": "00000000000000ff", "sha256": "0" * 64, "number": "1", "name": "usage",
    "what": "agent", "agent": "codex", "key": "codex/none", "position": "1",
}  # fmt: skip
"""What stands for the parts of a path: things that are not there."""


class Comer(NamedTuple):
    headers: dict[str, str]
    may: Scope | int
    """The scope he has, or the status that he is sent away with."""


async def comers(server: Server, client: httpx.AsyncClient) -> dict[str, Comer]:
    """Everybody, each with a token of his own."""

    async def bearer(
        scope: tokens.TokenScope, device: str | None = None, asking: str | None = None, **more: Any
    ) -> Any:
        token, id = await tokens.issue(server, scope, device=device, **{"by": OWNER, **more})
        named = asking or device
        return {"Authorization": f"Bearer {token}", **({DEVICE_HEADER: named} if named else {})}, id

    revoked, id = await bearer("device", DEVICE)
    await tokens.revoke(server, id, "admin")
    unnamed, _ = await bearer("device", DEVICE)
    del unnamed[DEVICE_HEADER]
    admin = {"Authorization": f"Bearer {server.settings.admin_token}"}
    owner = await _cookie(client)
    return {
        "nobody": Comer({}, 401),
        "a wrong token": Comer({"Authorization": "Bearer prosa_d_" + "0" * 16 + "_" + "x" * 43}, 401),
        "no token": Comer({"Authorization": "Bearer \xff"}, 401),
        "another scheme": Comer({"Authorization": "Basic eDp5"}, 401),
        "a device": Comer((await bearer("device", DEVICE))[0], "device"),
        "under a merged fingerprint": Comer((await bearer("device", DEVICE, MERGED))[0], "device"),
        "under another fingerprint": Comer((await bearer("device", DEVICE, OTHER))[0], 403),
        "under no fingerprint": Comer(unnamed, 403),
        "revoked": Comer(revoked, 401),
        "expired": Comer((await bearer("device", DEVICE, days=0))[0], 401),
        "a program for reports": Comer((await bearer("reports"))[0], "reports"),
        "a program for metadata": Comer((await bearer("metadata"))[0], "metadata"),
        "a program for everything": Comer((await bearer("everything"))[0], "everything"),
        "an expired program": Comer((await bearer("everything", days=0))[0], 401),
        "a program a former owner allowed": Comer((await bearer("everything", by=GONE))[0], 401),
        "the admin": Comer(admin, "admin"),
        "an owner": Comer(owner, "admin"),
        FORGED: Comer({"Cookie": owner["Cookie"]}, "admin"),
        "a former owner": Comer({"Cookie": await _cookie_of(server, client, GONE)}, 401),
    }


async def _cookie(client: httpx.AsyncClient) -> dict[str, str]:
    browser = Browser(client)
    await browser.sign_in()
    page = await browser.open("/login")
    csrf = page.text.split('name="csrf" value="')[1].split('"')[0]
    cookie = f"prosa={client.cookies['prosa']}"
    client.cookies.clear()
    return {"Cookie": cookie, "Origin": browser.origin, CSRF_HEADER: csrf}


async def _cookie_of(server: Server, client: httpx.AsyncClient, email: str) -> str:
    """Of somebody who was an owner when he signed in."""
    now = server.settings
    server.settings = msgspec.structs.replace(now, owner_emails=(email,), dev_login=email)
    cookie = (await _cookie(client))["Cookie"]
    server.settings = now
    return cookie


async def _status(app: Starlette, method: str, path: str, headers: dict[str, str]) -> int:
    """How a request without a body is answered; not waiting for the end, which a stream of events has not."""
    found: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    sent = False

    async def receive() -> dict[str, Any]:
        nonlocal sent
        if sent:
            await asyncio.Event().wait()
        sent = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start" and not found.done():
            found.set_result(message["status"])

    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in {"Host": "127.0.0.1", **headers}.items()]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": raw,
        "client": ("127.0.0.1", 5000), "server": ("127.0.0.1", 7070),
    }  # fmt: skip
    answering = asyncio.ensure_future(app(scope, receive, send))
    done, _ = await asyncio.wait([answering, found], timeout=20, return_when=asyncio.FIRST_COMPLETED)
    assert found.done(), (method, path, done)
    answering.cancel()
    await asyncio.gather(answering, return_exceptions=True)
    return found.result()


def _path(endpoint: Endpoint) -> str:
    path = endpoint.path
    for name, value in PLACES.items():
        for form in (f"{{{name}}}", f"{{{name}:int}}", f"{{{name}:path}}"):
            path = path.replace(form, value)
    assert "{" not in path, f"{endpoint.path} has a part that this test has nothing for"
    return path


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: f"{endpoint.method} {endpoint.path}")
async def test_everybody_is_let_in_as_far_as_the_endpoint_says(
    server: Server, client: httpx.AsyncClient, endpoint: Endpoint
) -> None:
    app = create_app(server)
    everybody = await comers(server, client)
    for fingerprint in (DEVICE, MERGED, OTHER):
        await server.pool.execute("INSERT INTO device_entries (owner, device) VALUES (1, $1)", fingerprint)
    await server.pool.execute(
        "INSERT INTO device_merges VALUES (1, 'm', $1, $2, 'said by owner', 1, false, NULL)", DEVICE, MERGED
    )
    answers = {
        name: await _status(app, endpoint.method, _path(endpoint), comer.headers) for name, comer in everybody.items()
    }
    for name, comer in everybody.items():
        if endpoint.access == "public":
            assert answers[name] not in (401, 403), (name, answers)
        elif isinstance(comer.may, int):
            is_free = endpoint.path in UNBOUND and comer.may == 403
            assert (answers[name] in (200, 422)) if is_free else (answers[name] == comer.may), (name, answers)
        elif endpoint.access not in MAY[comer.may] or (name == FORGED and endpoint.method != "GET"):
            assert answers[name] == 403, (name, answers)
        else:
            assert answers[name] not in (401, 403), (name, answers)
            assert answers[name] != 500, (name, answers)


async def test_every_endpoint_is_behind_something_but_these() -> None:
    assert {endpoint.path for endpoint in ENDPOINTS if endpoint.access == "public"} == {
        "/v1/login/begin",
        "/v1/login/exchange",
        "/v1/openapi.json",
    }
