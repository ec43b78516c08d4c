"""Logging a device in, as it goes and in every way it must not go."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx
import msgspec
import pytest
from browser import Browser, Pkce, browsing, many_connections, query, shown_code

from prosa.events.messages import LoginBegun, LoginDone
from prosa.server.login import LOGIN_US
from prosa.server.settings import Settings
from prosa.server.state import Server

pytestmark = pytest.mark.anyio

DEVICE = "00000000000000aa"
BACK = "http://127.0.0.1:45678/callback"


@pytest.fixture
def browser(client: httpx.AsyncClient) -> Browser:
    return Browser(client)


async def begin(client: httpx.AsyncClient, pkce: Pkce, **more: Any) -> LoginBegun:
    answer = await client.post("/v1/login/begin", content=msgspec.json.encode(pkce.question(**more)))
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=LoginBegun)


async def exchange(client: httpx.AsyncClient, request: str, code: str, pkce: Pkce, back: str | None) -> httpx.Response:
    asked = {"request": request, "code": code, "verifier": pkce.verifier, "redirect_uri": back}
    return await client.post("/v1/login/exchange", json=asked)


async def approved(browser: Browser, pkce: Pkce, **more: Any) -> tuple[str, str]:
    """Request and code of a login that the owner has approved."""
    begun = await begin(browser.client, pkce, redirect_uri=BACK, **more)
    await browser.sign_in()
    answer = await browser.decide(begun.request)
    assert answer.status_code == 303, answer.text
    return begun.request, query(answer.headers["location"])["code"]


async def events(server: Server, kind: str) -> list[str]:
    rows = await server.pool.fetch("SELECT stream FROM events WHERE type = $1 ORDER BY position", kind)
    return [row["stream"] for row in rows]


async def count(server: Server, table: str) -> int:
    return int(await server.pool.fetchval(f"SELECT count(*) FROM {table}"))


# as it goes


async def test_an_approved_device_gets_a_token_that_works(server: Server, browser: Browser) -> None:
    pkce = Pkce()
    begun = await begin(browser.client, pkce, redirect_uri=BACK)
    assert begun.authorize_url.endswith(f"/authorize?request={begun.request}")
    sent_to_login = await browser.open(begun.authorize_url)
    assert sent_to_login.status_code == 303
    page = await browser.open(sent_to_login.headers["location"])
    assert "Sign in as owner@example.org" in page.text
    here = await browser.sign_in(query(sent_to_login.headers["location"])["next"])
    assert here.headers["location"] == f"/authorize?request={begun.request}"
    page = await browser.open(here.headers["location"])
    assert all(shown in page.text for shown in ("studio", DEVICE, "linux/x86_64", "it is new", "UTC"))

    answer = await browser.decide(begun.request)
    back = answer.headers["location"]
    assert back.startswith(f"{BACK}?") and query(back)["state"] == pkce.state
    done = await exchange(browser.client, begun.request, query(back)["code"], pkce, BACK)
    assert done.status_code == 200, done.text
    given = msgspec.json.decode(done.content, type=LoginDone)
    assert (given.device, given.owner, given.server) == (DEVICE, "owner@example.org", server.id)
    assert given.expires_at_us > server.now_us() + 364 * 86_400_000_000

    browser.client.cookies.clear()
    headers = {"Authorization": f"Bearer {given.token}", "Prosa-Device": DEVICE}
    who = (await browser.client.get("/v1/whoami", headers=headers)).json()
    assert (who["scope"], who["device"], who["owner"]) == ("device", DEVICE, "owner@example.org")
    assert await events(server, "login_approved") == [f"login-{server.id}"] * 2  # the owner on the pages, the device
    assert len(await events(server, "token_issued")) == 1


async def test_a_machine_without_a_browser_gets_a_code_to_paste(browser: Browser) -> None:
    pkce = Pkce()
    begun = await begin(browser.client, pkce)
    await browser.sign_in()
    page = await browser.decide(begun.request)
    assert page.status_code == 200
    done = await exchange(browser.client, begun.request, shown_code(page), pkce, None)
    assert done.status_code == 200


async def test_what_the_server_keeps_of_codes_and_tokens_is_their_hash(server: Server, browser: Browser) -> None:
    pkce = Pkce()
    request, code = await approved(browser, pkce)
    token = (await exchange(browser.client, request, code, pkce, BACK)).json()["token"]
    tables = ("tokens", "logins", "events", "device_entries")
    kept = "".join([str(await server.pool.fetch(f"SELECT * FROM {table}")) for table in tables])
    assert DEVICE in kept
    assert not [secret for secret in (token, token.split("_")[-1], code, pkce.verifier) if secret in kept]


async def test_logging_out_revokes_the_token(server: Server, client: httpx.AsyncClient, a_device: Any) -> None:
    headers = await a_device(DEVICE)
    assert (await client.post("/v1/logout", headers=headers)).status_code == 200
    refused = await client.get("/v1/whoami", headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (401, "token_revoked")
    assert len(await events(server, "token_revoked")) == 1


async def test_a_login_that_is_refused_says_so_and_gives_no_code(server: Server, browser: Browser) -> None:
    pkce = Pkce()
    begun = await begin(browser.client, pkce, redirect_uri=BACK)
    await browser.sign_in()
    answer = await browser.decide(begun.request, "refuse")
    assert query(answer.headers["location"]) == {"error": "access_denied", "state": pkce.state}
    assert (await browser.decide(begun.request)).status_code == 403  # there is no form any more to take a token from
    assert await events(server, "login_approved") == [f"login-{server.id}"]
    assert await count(server, "tokens") == 0


# as it must not go


async def test_a_code_is_taken_once(server: Server, browser: Browser) -> None:
    pkce = Pkce()
    request, code = await approved(browser, pkce)
    assert (await exchange(browser.client, request, code, pkce, BACK)).status_code == 200
    again = await exchange(browser.client, request, code, pkce, BACK)
    assert (again.status_code, again.json()["code"]) == (403, "forbidden")
    assert await count(server, "tokens") == 1


async def test_of_many_who_bring_one_code_at_once_one_gets_a_token(server: Server, browser: Browser) -> None:
    pkce = Pkce()
    request, code = await approved(browser, pkce)
    await many_connections(server)
    answers = await asyncio.gather(*(exchange(browser.client, request, code, pkce, BACK) for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [200] + [403] * 7
    assert await count(server, "tokens") == 1


@pytest.mark.parametrize("wrong", ["verifier", "redirect", "no redirect", "other port"])
async def test_a_code_that_another_brings_is_used_up(server: Server, browser: Browser, wrong: str) -> None:
    pkce = Pkce()
    request, code = await approved(browser, pkce)
    other = {"redirect": "http://localhost:45678/callback", "no redirect": None, "other port": BACK.replace("4", "5")}
    answer = await exchange(
        browser.client, request, code, Pkce() if wrong == "verifier" else pkce, other.get(wrong, BACK)
    )
    assert answer.status_code == 403
    assert (await exchange(browser.client, request, code, pkce, BACK)).status_code == 403
    assert await count(server, "tokens") == 0


async def test_every_refusal_of_an_exchange_has_the_same_words(browser: Browser) -> None:
    pkce = Pkce()
    request, code = await approved(browser, pkce)
    unapproved = (await begin(browser.client, Pkce(), redirect_uri=BACK)).request
    answers = [
        await exchange(browser.client, request, "x" * 43, pkce, BACK),
        await exchange(browser.client, "y" * 43, code, pkce, BACK),
        await exchange(browser.client, "\0", code, pkce, BACK),
        await exchange(browser.client, unapproved, "", pkce, BACK),
        await exchange(browser.client, request, code, Pkce(), BACK),
    ]
    assert {(answer.status_code, answer.text) for answer in answers} == {(403, answers[0].text)}


async def test_a_login_expires_after_a_quarter_of_an_hour(settings: Settings) -> None:
    now = 1_800_000_000_000_000
    async with browsing(settings, clock=lambda: now) as (server, browser):
        pkce = Pkce()
        request, code = await approved(browser, pkce)
        waiting = await begin(browser.client, Pkce(), redirect_uri=BACK)
        now += LOGIN_US
        assert (await exchange(browser.client, request, code, pkce, BACK)).status_code == 403
        assert (await browser.open("/authorize", params={"request": waiting.request})).status_code == 404
        await begin(browser.client, Pkce(), redirect_uri=BACK)
        assert await count(server, "logins") == 1  # what expired is gone


@pytest.mark.parametrize(
    "back",
    [
        "https://127.0.0.1:4567/callback", "http://evil.example:4567/callback", "http://127.0.0.1:4567/other",
        "http://127.0.0.1/callback", "http://127.0.0.1:4567/callback?x=1", "http://127.0.0.1:4567/callback#x",
        "http://user@127.0.0.1:4567/callback", "http://127.0.0.1:4567@evil.example/callback",
        "http://127.0.0.1.evil.example:4567/callback", "http://127.0.0.1:99999/callback", "http://127.1:4567/callback",
        "http://127.0.0.1:4567/callback\n", "javascript:alert(1)", "http://[::2]:4567/callback", "",
    ],
)  # fmt: skip
async def test_the_answer_goes_to_the_same_machine_only(client: httpx.AsyncClient, back: str) -> None:
    asked = msgspec.json.encode(Pkce().question(redirect_uri=back))
    answer = await client.post("/v1/login/begin", content=asked)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


@pytest.mark.parametrize("back", ["http://localhost:1/callback", "http://[::1]:65535/callback"])
async def test_every_name_of_the_same_machine_will_do(browser: Browser, back: str) -> None:
    begun = await begin(browser.client, Pkce(), redirect_uri=back)
    await browser.sign_in()
    assert (await browser.decide(begun.request)).headers["location"].startswith(f"{back}?code=")


@pytest.mark.parametrize(
    "wrong",
    [
        {"device": "studio"}, {"device": "00000000000000AA"}, {"machine": "x"}, {"hostname": ""},
        {"hostname": "a\nb"}, {"hostname": "\0"}, {"hostname": "h" * 256}, {"platform": "\x1b[31m"},
    ],
)  # fmt: skip
async def test_what_a_device_says_of_itself_has_a_form(client: httpx.AsyncClient, wrong: dict[str, str]) -> None:
    answer = await client.post("/v1/login/begin", content=msgspec.json.encode(Pkce().question(**wrong)))
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


async def test_a_verifier_in_the_place_of_the_state_or_the_challenge_is_no_login(client: httpx.AsyncClient) -> None:
    """Plain PKCE is not spoken: the challenge is a hash, and the state has a value of its own."""
    pkce = Pkce()
    asked = msgspec.structs.asdict(pkce.question(redirect_uri=BACK)) | {"challenge": pkce.verifier}
    assert (await client.post("/v1/login/begin", json=asked)).status_code == 422
    asked = msgspec.structs.asdict(pkce.question(redirect_uri=BACK)) | {"state": "short"}
    assert (await client.post("/v1/login/begin", json=asked)).status_code == 422


async def test_who_is_no_owner_any_more_lets_nobody_in(settings: Settings) -> None:
    pkce = Pkce()
    async with browsing(settings) as (_, browser):
        request, code = await approved(browser, pkce)
    settings = msgspec.structs.replace(settings, owner_emails=("new@example.org",))
    async with browsing(settings) as (_, browser):
        assert (await exchange(browser.client, request, code, pkce, BACK)).status_code == 403


async def test_who_tries_too_often_is_told_to_wait(settings: Settings) -> None:
    now = 1_800_000_000_000_000
    async with browsing(settings, clock=lambda: now) as (_, browser):
        answers = [await exchange(browser.client, "r" * 43, "c" * 43, Pkce(), None) for _ in range(61)]
        assert [answer.status_code for answer in answers] == [403] * 60 + [429]
        assert answers[-1].headers["retry-after"] == "61"
        now += 61_000_000
        assert (await exchange(browser.client, "r" * 43, "c" * 43, Pkce(), None)).status_code == 403


async def test_no_secret_is_in_the_log(
    browser: Browser, server: Server, caplog: pytest.LogCaptureFixture, a_device: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    pkce = Pkce()
    request, code = await approved(browser, pkce)
    cookie = browser.client.cookies["prosa"]
    token = (await exchange(browser.client, request, code, pkce, BACK)).json()["token"]
    await browser.open("/v1/whoami", headers={"Authorization": f"Bearer {token}", "Prosa-Device": "0" * 16})
    await browser.open("/v1/whoami", headers={"Authorization": f"Bearer {token}", "Prosa-Device": DEVICE})
    ours = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    written = "\n".join(f"{record.getMessage()} {vars(record)}" for record in ours)
    assert len(ours) > 3
    secrets = (token, code, pkce.verifier, pkce.state, cookie, server.settings.admin_token or "-")
    assert not [secret for secret in secrets if secret in written]
