"""Signing in on the server's pages, and what other sites, former owners and forgers get from it."""

from __future__ import annotations

import base64
import hashlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlencode

import httpx
import msgspec
import pytest
import uvicorn
from browser import Browser, Pkce, browsing, fields, query, tags
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from prosa.events.errors import UsageError
from prosa.server import auth, login, login_pages, signing_in, tokens
from prosa.server.app import create_app, open_server
from prosa.server.endpoints import Refused
from prosa.server.limits import ADDRESSES, Limit
from prosa.server.settings import Settings, read_settings
from prosa.server.signing_in import safe_next
from prosa.server.state import Server

pytestmark = pytest.mark.anyio

OWNER = "owner@example.org"


@pytest.fixture
def browser(client: httpx.AsyncClient) -> Browser:
    return Browser(client)


@pytest.fixture
def sign_in_settings(settings: Settings) -> Settings:
    """Of a server in the world: no click lets anybody in."""
    return msgspec.structs.replace(
        settings, dev_login=None, github_id="an-app", github_secret="s3cret", owner_emails=("second@example.org", OWNER)
    )


class GitHub(threading.Thread):
    """GitHub's part of a sign-in, over HTTP on this machine: asks nobody, and checks what it is sent."""

    def __init__(self, emails: list[dict[str, Any]]) -> None:
        super().__init__(daemon=True)
        self.emails, self.codes, self.seen = emails, {}, []  # type: ignore[var-annotated]
        routes = [
            Route("/login/oauth/authorize", self.authorize),
            Route("/login/oauth/access_token", self.token, methods=["POST"]),
            Route("/api/user/emails", self.addresses),
        ]
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="warning"))

    def run(self) -> None:
        self.server.run([self.socket])

    async def authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        code = f"code-{len(self.codes)}"
        self.codes[code] = asked
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}")

    async def token(self, request: Request) -> Response:
        sent = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        asked = self.codes.pop(sent["code"], {})
        made = base64.urlsafe_b64encode(hashlib.sha256(sent["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        expected = (asked.get("client_id"), asked.get("redirect_uri"), asked.get("code_challenge"), "s3cret")
        if expected != (sent["client_id"], sent["redirect_uri"], made, sent["client_secret"]):
            return JSONResponse({"error": "bad_verification_code"})
        return JSONResponse({"access_token": "gho_token", "token_type": "bearer", "scope": asked["scope"]})

    async def addresses(self, request: Request) -> Response:
        assert request.headers["authorization"] == "Bearer gho_token"
        return JSONResponse(self.emails)


@contextmanager
def a_github(*emails: tuple[str, bool]) -> Iterator[GitHub]:
    github = GitHub([{"email": email, "verified": verified, "primary": False} for email, verified in emails])
    github.start()
    while not github.server.started:
        time.sleep(0.01)
    try:
        yield github
    finally:
        github.server.should_exit = True
        github.join(10)
        github.socket.close()


async def through_github(settings: Settings, github: GitHub, target: str = "/login") -> tuple[httpx.Response, Browser]:
    """The answer to the browser that comes back, and the browser; its server is closed again."""
    settings = msgspec.structs.replace(settings, github_url=github.url, github_api_url=f"{github.url}/api")
    async with browsing(settings) as (_, browser):
        page = await browser.open("/login", params={"next": target})
        away = await browser.open(str(tags(page, "a")[0]["href"]))
        async with httpx.AsyncClient() as outside:
            back = await outside.get(away.headers["location"])
        answer = await browser.open(back.headers["location"])
        assert (await browser.open(back.headers["location"])).status_code == 403  # the same address again
        return answer, browser


# GitHub


async def test_an_owner_signs_in_with_github(sign_in_settings: Settings) -> None:
    with a_github(("else@example.org", True), ("Owner@Example.org", True)) as github:
        answer, _ = await through_github(sign_in_settings, github, "/authorize?request=x")
    assert (answer.status_code, answer.headers["location"]) == (303, "/authorize?request=x")
    cookie = next(value for value in answer.headers.get_list("set-cookie") if value.startswith("prosa="))
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Secure" not in cookie
    assert "Max-Age=2592000" in cookie and "Path=/" in cookie


@pytest.mark.parametrize("emails", [[], [(OWNER, False)], [("else@example.org", True)]])
async def test_nobody_else_signs_in_with_github(sign_in_settings: Settings, emails: list[tuple[str, bool]]) -> None:
    with a_github(*emails) as github:
        answer, browser = await through_github(sign_in_settings, github)
    assert answer.status_code == 403
    assert "prosa" not in browser.client.cookies


async def test_a_sign_in_that_began_in_another_browser_is_refused(sign_in_settings: Settings) -> None:
    """Somebody else's code would sign the victim in as somebody else."""
    async with browsing(sign_in_settings) as (_, browser):
        bare = await browser.open("/oauth/github/callback", params={"code": "c", "state": "s"})
        begun = await browser.open("/login/github")
        state = query(begun.headers["location"])["state"]
        other = await browser.open("/oauth/github/callback", params={"code": "c", "state": state[::-1]})
        denied = await browser.open("/oauth/github/callback", params={"error": "access_denied", "state": state})
    assert [answer.status_code for answer in (bare, other, denied)] == [403, 403, 403]


async def test_a_github_that_fails_is_said_to(sign_in_settings: Settings) -> None:
    settings = msgspec.structs.replace(sign_in_settings, github_url="http://127.0.0.1:9")
    async with browsing(settings) as (_, browser):
        begun = await browser.client.get("/login/github")
        state = query(begun.headers["location"])["state"]
        answer = await browser.client.get("/oauth/github/callback", params={"code": "c", "state": state})
    assert answer.status_code == 503 and "GitHub does not answer" in answer.text


# the click of a server that is tried out


async def test_the_click_is_there_on_loopback_only(browser: Browser, server: Server) -> None:
    token = fields(await browser.open("/login"))
    assert (await browser.send("/dev-login", token)).status_code == 303
    transport = httpx.ASGITransport(create_app(server), client=("192.0.2.7", 4000))
    async with httpx.AsyncClient(transport=transport, base_url=server.settings.public_url) as client:
        far = Browser(client)
        page = await far.open("/login")
        assert "dev-login" not in page.text and page.status_code == 200
        assert (await far.send("/dev-login", token)).status_code == 404


async def test_the_click_behind_a_proxy_of_the_same_machine_is_refused(settings: Settings) -> None:
    settings = msgspec.structs.replace(settings, public_url="https://prosa.example")
    async with browsing(settings) as (_, browser):
        assert (await browser.send("/dev-login", {"csrf": "x"})).status_code == 404


def test_a_server_that_others_reach_does_not_start_with_the_click() -> None:
    env = {"PROSA_DB_URL": "postgresql:///x", "PROSA_PANEL_DEV_LOGIN": "dev@localhost", "PROSA_LISTEN": "0.0.0.0:7070"}
    with pytest.raises(UsageError, match="lets everybody in"):
        read_settings(env)


async def test_the_click_signs_only_an_owner_in(settings: Settings) -> None:
    settings = msgspec.structs.replace(settings, dev_login="else@example.org")
    async with browsing(settings) as (_, browser):
        assert (await browser.sign_in()).status_code == 403


# forms


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "", "http://127.0.0.1:7071", "https://127.0.0.1:7070"]
)
async def test_a_form_from_another_site_does_nothing(server: Server, browser: Browser, origin: str) -> None:
    begun = await _begun(browser)
    await browser.sign_in()
    page = await browser.open("/authorize", params={"request": begun})
    answer = await browser.send("/authorize", {**fields(page), "decision": "approve"}, Origin=origin)
    assert answer.status_code == 403
    assert await server.pool.fetchval("SELECT decided_by FROM logins") is None
    assert (await browser.send("/logout", fields(page), Origin=origin)).status_code == 403


async def test_a_form_needs_the_token_of_its_session(server: Server, browser: Browser) -> None:
    begun = await _begun(browser)
    before = fields(await browser.open("/login"))
    for given in ({}, {"csrf": ""}, {"csrf": before["csrf"][::-1]}):
        assert (await browser.send("/dev-login", {**given, "next": "/login"})).status_code == 403
    await browser.sign_in()
    for given in ({}, {"csrf": ""}, {"csrf": before["csrf"]}):
        answer = await browser.send("/authorize", {**given, "request": begun, "decision": "approve"})
        assert answer.status_code == 403
    assert await server.pool.fetchval("SELECT decided_by FROM logins") is None


async def test_letting_a_device_in_needs_an_owner_who_is_signed_in(server: Server, browser: Browser) -> None:
    begun = await _begun(browser)
    page = await browser.open("/authorize", params={"request": begun})
    assert page.headers["location"].startswith("/login?next=%2Fauthorize")
    token = fields(await browser.open("/login"))["csrf"]
    answer = await browser.send("/authorize", {"csrf": token, "request": begun, "decision": "approve"})
    assert answer.status_code == 401


@pytest.mark.parametrize("body", [b"\xff", b"a=1&a=2", b"x" * 20_000, b"&".join([b"a=1"] * 60)])
async def test_a_form_of_any_kind_is_answered(browser: Browser, body: bytes) -> None:
    await browser.sign_in()
    for path in ("/authorize", "/logout", "/dev-login"):
        answer = await browser.client.post(path, content=body, headers={"Origin": browser.origin})
        assert answer.status_code in (403, 413, 422)


async def test_another_name_in_the_host_header_is_refused(browser: Browser) -> None:
    for path in ("/login", "/v1/whoami", "/authorize"):
        assert (await browser.open(path, headers={"Host": "evil.example"})).status_code == 421


@pytest.mark.parametrize(
    ("target", "goes"),
    [
        ("/authorize?request=a", "/authorize?request=a"), ("//evil.example", "/login"), ("/\\evil.example", "/login"),
        ("https://evil.example", "/login"), ("/a\\b", "/login"), ("/\t/evil.example", "/login"), ("", "/login"),
        ("/a b", "/login"), ("/a\n", "/login"), ("javascript:alert(1)", "/login"), ("/%2Fevil", "/%2Fevil"),
        (None, "/login"), ("/é", "/login"),
    ],
)  # fmt: skip
def test_after_signing_in_it_goes_on_within_this_site(target: str | None, goes: str) -> None:
    assert safe_next(target) == goes


async def test_who_is_signed_in_is_sent_on_within_this_site(browser: Browser) -> None:
    assert (await browser.sign_in("//evil.example")).headers["location"] == "/login"
    page = await browser.open("/login", params={"next": "/\\evil.example"})
    assert page.headers["location"] == "/login"


async def test_what_a_device_calls_itself_is_shown_as_text(browser: Browser) -> None:
    begun = await _begun(browser, hostname="<script>alert(1)</script>$csrf", platform='"><img src=x>')
    await browser.sign_in()
    page = await browser.open("/authorize", params={"request": begun})
    assert "&lt;script&gt;alert(1)&lt;/script&gt;$csrf" in page.text
    assert "<script" not in page.text and "<img" not in page.text


async def test_every_page_has_the_headers_that_keep_others_out(browser: Browser) -> None:
    begun = await _begun(browser)
    answers = [await browser.open("/login"), await browser.open("/login/github"), await browser.sign_in()]
    answers += [await browser.open(path) for path in ("/", "/login", f"/authorize?request={begun}", "/authorize")]
    answers.append(await browser.decide(begun))
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"
    assert "style.css" in answers[0].text
    style = await browser.open("/pages/style.css")
    assert style.status_code == 200 and style.headers["content-type"].startswith("text/css")


async def test_the_policy_lets_the_approval_lead_to_the_device_alone(browser: Browser) -> None:
    """Browsers hold the answer to a form against form-action, too."""
    begun = await _begun(browser, redirect_uri="http://127.0.0.1:45678/callback")
    await browser.sign_in()
    page = await browser.open("/authorize", params={"request": begun})
    assert page.headers["content-security-policy"].endswith("form-action 'self' http://127.0.0.1:45678")


# cookies


async def test_a_cookie_that_was_not_signed_here_is_nobodys(settings: Settings, client: httpx.AsyncClient) -> None:
    browser = Browser(client)
    await browser.sign_in()
    good = client.cookies["prosa"]
    form = fields(await browser.open("/login"))
    client.cookies.clear()
    begun = await browser.open("/login")
    other = begun.cookies["prosa_form"]
    wrong = good[:-5] + ("A" if good[-5] != "A" else "B") + good[-4:]  # of the last one two bits say nothing
    for cookie in (wrong, f"x{good}", other, "", "e30.x", good.split(".")[0]):
        page = await browser.open("/v1/whoami", headers={"Cookie": f"prosa={cookie}"})
        assert page.status_code == 401, cookie
    assert (await browser.open("/v1/whoami", headers={"Cookie": f"prosa={good}"})).status_code == 200
    assert form["csrf"]
    async with browsing(msgspec.structs.replace(settings, cookie_key="x" * 43)) as (_, browser):
        assert (await browser.client.get("/v1/whoami", headers={"Cookie": f"prosa={good}"})).status_code == 401


async def test_without_a_key_nobody_is_signed_in(settings: Settings) -> None:
    async with browsing(msgspec.structs.replace(settings, cookie_key="")) as (server, browser):
        page = await browser.client.get("/login")
        assert "PROSA_COOKIE_KEY" in page.text and "set-cookie" not in page.headers
        forged = signing_in._signer(server.settings, "prosa").dumps(
            {"email": OWNER, "csrf": "x", "at_us": server.now_us()}
        )
        assert (await browser.client.get("/v1/whoami", headers={"Cookie": f"prosa={forged}"})).status_code == 401


async def test_a_cookie_lasts_thirty_days(settings: Settings) -> None:
    now = 1_800_000_000_000_000
    async with browsing(settings, clock=lambda: now) as (_, browser):
        await browser.sign_in()
        cookie = {"Cookie": f"prosa={browser.client.cookies['prosa']}"}
        browser.client.cookies.clear()
        now += 30 * 86_400_000_000 - 1
        assert (await browser.client.get("/v1/whoami", headers=cookie)).status_code == 200
        now += 1
        assert (await browser.client.get("/v1/whoami", headers=cookie)).status_code == 401


async def test_over_tls_the_cookie_is_for_tls_and_this_host_alone(sign_in_settings: Settings) -> None:
    settings = msgspec.structs.replace(sign_in_settings, public_url="https://prosa.example")
    async with browsing(settings) as (_, browser):
        answer = await browser.client.get("/login/github")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-prosa_github=") and "Secure" in cookie and "Domain" not in cookie
    assert answer.headers["strict-transport-security"].startswith("max-age=")


async def test_signing_out_takes_the_cookie_away(browser: Browser) -> None:
    await browser.sign_in()
    page = await browser.open("/login")
    assert OWNER in page.text
    answer = await browser.send("/logout", fields(page))
    assert answer.headers["location"] == "/login"
    assert "prosa" not in browser.client.cookies


# tokens


async def test_a_token_is_used_at_most_once_a_minute_in_the_table(settings: Settings) -> None:
    now = 1_800_000_000_000_000
    async with open_server(settings, clock=lambda: now, working=False) as server:
        token, id = await tokens.issue(server, "reports", by="admin", name="a chart")
        seen = []
        for _ in range(4):
            await tokens.find(server, token)
            seen.append(await server.pool.fetchval("SELECT used_at_us FROM tokens WHERE id = $1", id))
            now += 25_000_000
    assert [at - seen[0] for at in seen] == [0, 0, 0, 75_000_000]


async def test_an_owner_gives_and_takes_tokens_for_programs(client: httpx.AsyncClient, server: Server) -> None:
    admin = {"Authorization": f"Bearer {server.settings.admin_token}"}
    asked = {"name": "a chart", "scope": "metadata", "days": 7}
    given = (await client.post("/v1/tokens", json=asked, headers=admin)).json()
    program = {"Authorization": f"Bearer {given['token']}"}
    who = (await client.get("/v1/whoami", headers=program)).json()
    assert (who["scope"], who["device"]) == ("metadata", None)
    listed = (await client.get("/v1/tokens", headers=admin)).json()["tokens"]
    assert [(row["id"], row["name"], row["revoked_at"]) for row in listed] == [(given["id"], "a chart", None)]
    assert given["token"] not in str(listed)
    done = await client.post(f"/v1/tokens/{given['id']}/revoke", headers=admin)
    again = await client.post(f"/v1/tokens/{given['id']}/revoke", headers=admin)
    assert done.status_code == 200 and done.json() == again.json()
    assert (await client.get("/v1/whoami", headers=program)).json()["code"] == "token_revoked"
    for wrong in ({"name": ""}, {"name": "\0"}, {"scope": "device"}, {"scope": "admin"}, {"days": 0}, {"days": 10**9}):
        assert (await client.post("/v1/tokens", json={**asked, **wrong}, headers=admin)).status_code == 422
    for unknown in ("0" * 16, "%00", "x"):
        assert (await client.post(f"/v1/tokens/{unknown}/revoke", headers=admin)).status_code == 404


async def test_without_an_admin_token_there_is_no_admin(settings: Settings) -> None:
    for admin in (None, ""):
        async with browsing(msgspec.structs.replace(settings, admin_token=admin)) as (_, browser):
            for header in ("Bearer ", "Bearer", "Bearer None", ""):
                answer = await browser.client.get("/v1/whoami", headers={"Authorization": header})
                assert answer.status_code == 401


async def test_secrets_are_compared_in_a_time_that_tells_nothing(
    server: Server, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every comparison of something secret goes through hmac.compare_digest."""
    import hmac

    compared: list[tuple[Any, Any]] = []

    def compare(a: Any, b: Any) -> bool:
        compared.append((a, b))
        return hmac_compare(a, b)

    hmac_compare = hmac.compare_digest
    for module in (auth, tokens, login, signing_in, login_pages):
        monkeypatch.setattr(module.hmac, "compare_digest", compare)  # type: ignore[attr-defined]
    token, _ = await tokens.issue(server, "reports", by="admin")
    for shown in (token, token[:-1] + "x", "not the admin's"):
        compared.clear()
        answer = await browser.open("/v1/whoami", headers={"Authorization": f"Bearer {shown}"})
        assert answer.status_code == (200 if shown == token else 401)
        assert len(compared) == (2 if shown.startswith("prosa_") else 1)
    pkce = Pkce()
    request = await _begun(browser, pkce, redirect_uri="http://127.0.0.1:45678/callback")
    await browser.sign_in()
    assert any(isinstance(a, bytes) and len(a) > 40 for a, _ in compared)  # the form's token
    code = query((await browser.decide(request)).headers["location"])["code"]
    compared.clear()
    asked = {"request": request, "code": code, "verifier": pkce.verifier, "redirect_uri": "http://127.0.0.1:1/callback"}
    await browser.client.post("/v1/login/exchange", json=asked)
    assert hashlib.sha256(code.encode()).digest() in [a for a, _ in compared]
    assert pkce.challenge.encode() in [b for _, b in compared]


# the limit


def test_the_limit_forgets_addresses_and_knows_whole_networks() -> None:
    limit = Limit(2)
    assert [limit.count("2001:db8::1", 0), limit.count("2001:db8::2", 0), limit.count("2001:db8::3", 1)] == [0, 0, 60]
    assert limit.count("2001:db8:0:1::1", 1) == 0
    assert limit.count("2001:db8::3", 60_000_000) == 0
    for number in range(ADDRESSES + 10):
        limit.count(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", number * 60_000_000)
    assert len(limit._calls) == ADDRESSES


def test_all_addresses_together_have_a_limit() -> None:
    limit = Limit(1)
    answers = [limit.count(f"10.0.0.{number}", 0) for number in range(21)]
    assert answers == [0] * 20 + [61]


async def test_a_token_of_another_form_is_not_looked_for(server: Server) -> None:
    for token in ("", "prosa_d_", "prosa_d_" + "0" * 16 + "_\0", "x" * 100_000):
        with pytest.raises(Refused, match="not one of this server's"):
            await tokens.find(server, token)


async def _begun(browser: Browser, pkce: Pkce | None = None, **more: Any) -> str:
    asked = msgspec.json.encode((pkce or Pkce()).question(**more))
    return str((await browser.client.post("/v1/login/begin", content=asked)).json()["request"])
