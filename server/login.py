"""Logging a device in: OAuth's way for programs (PKCE), approved on the server's pages by an owner who is signed in.

begin → the owner approves → the device gets a code by way of its browser (or the owner's clipboard) → exchange. A code
is good once and only for who began: it needs the verifier, which never leaves the device before.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request

from prosa import __version__
from prosa.events.catalogue import LoginApproved
from prosa.events.messages import Done, LoginBegun, LoginDone, LoginExchange, LoginQuestion, WhoAmI
from prosa.server import tokens
from prosa.server.auth import LOGOUT
from prosa.server.endpoints import Call, Endpoint, Refused
from prosa.server.entries import PUT_ENTRY, aliases
from prosa.server.log import append_own_in
from prosa.server.state import Connection, Server

LOGIN_US: Final = 15 * 60 * 1_000_000
PENDING: Final = 1_000
"""Logins that may wait at a time."""
ID: Final = re.compile(r"[A-Za-z0-9_-]{43}")
FINGERPRINT: Final = re.compile(r"[0-9a-f]{16}")
MACHINE: Final = re.compile(r"([0-9a-f]{16})?")
CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
VERIFIER: Final = re.compile(r"[A-Za-z0-9._~-]{43,128}")
STATE: Final = re.compile(r"[A-Za-z0-9._~-]{16,128}")
REDIRECT: Final = re.compile(r"http://(127\.0\.0\.1|\[::1\]|localhost):([1-9][0-9]{0,4})/callback")

REMOVE_EXPIRED: Final = "DELETE FROM logins WHERE owner = $1 AND expires_at_us <= $2"
COUNT: Final = "SELECT count(*) FROM logins WHERE owner = $1 AND used_at_us IS NULL"
INSERT: Final = """
INSERT INTO logins (
    owner, id, device, hostname, machine, platform, challenge, state, redirect_uri, begun_at_us, expires_at_us
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"""
FIND: Final = """
SELECT id, device, hostname, machine, platform, challenge, state, redirect_uri, expires_at_us, decided_by, code_sha256,
       used_at_us
FROM logins WHERE owner = $1 AND id = $2"""
DECIDE: Final = "UPDATE logins SET decided_by = $3, code_sha256 = $4 WHERE owner = $1 AND id = $2"
USE: Final = "UPDATE logins SET used_at_us = $3 WHERE owner = $1 AND id = $2"
LET_IN: Final = "UPDATE device_entries SET revoked_at_us = NULL WHERE owner = $1 AND device = ANY($2)"
EXPIRES_AT: Final = "SELECT expires_at_us FROM tokens WHERE owner = $1 AND id = $2"


class Login(NamedTuple):
    """A login that has begun and has not expired."""

    id: str
    device: str
    hostname: str
    machine: str
    platform: str
    challenge: str
    state: str
    redirect_uri: str | None
    expires_at_us: int
    decided_by: str | None
    code_sha256: bytes | None
    used_at_us: int | None


# the device's calls


async def _begin(call: Call) -> LoginBegun:
    server, question = call.server, call.question
    limit(server, call.request)
    _check(question)
    id, now = secrets.token_urlsafe(32), server.now_us()
    expires = now + LOGIN_US
    await server.pool.execute(REMOVE_EXPIRED, server.owner, now)
    if await server.pool.fetchval(COUNT, server.owner) >= PENDING:
        raise Refused("rate_limited", f"{PENDING:,} logins are waiting.", "Nothing was done.", retry_after_s=60)
    await server.pool.execute(
        INSERT, server.owner, id, question.device, question.hostname, question.machine, question.platform,
        question.challenge, question.state, question.redirect_uri, now, expires,
    )  # fmt: skip
    return LoginBegun(id, f"{server.settings.public_url}/authorize?request={id}", expires)


def limit(server: Server, request: Request) -> None:
    """Count a call that anybody may make. Raises Refused where they are too many."""
    host = request.client.host if request.client else ""
    if wait_s := server.login_limit.count(host, server.now_us()):
        raise Refused(
            "rate_limited",
            "Too many logins were tried within a minute.",
            "Nothing was done.",
            f"Try again in {wait_s} s.",
            retry_after_s=wait_s,
        )


def _check(question: LoginQuestion) -> None:
    forms = (
        ("device", FINGERPRINT, question.device),
        ("machine", MACHINE, question.machine),
        ("challenge", CHALLENGE, question.challenge),
        ("state", STATE, question.state),
    )
    for name, form, value in forms:
        if not form.fullmatch(value):
            raise Refused("invalid", f"{name} has not the form that is asked for: {form.pattern}")
    for name, value, most in (("hostname", question.hostname, 255), ("platform", question.platform, 64)):
        if not 1 <= len(value) <= most or not value.isprintable():
            raise Refused("invalid", f"{name} is not 1 to {most} printable characters.")
    if question.redirect_uri is not None and not is_own_machine(question.redirect_uri):
        raise Refused("invalid", "redirect_uri is not http://127.0.0.1:<port>/callback.")


def is_own_machine(uri: str) -> bool:
    """Whether an address leads to a program on the machine of the browser, and nowhere else."""
    form = REDIRECT.fullmatch(uri)
    return form is not None and int(form[2]) < 65_536


async def _exchange(call: Call) -> LoginDone:
    """Every refusal has the same words: who guesses learns nothing."""
    server, question = call.server, call.question
    limit(server, call.request)
    now = server.now_us()
    refused = Refused(
        "forbidden",
        "This login is not known, expired, not approved, or its code was used.",
        "Nothing was done.",
        "Run prosa login again.",
    )
    async with server.pool.acquire() as connection, connection.transaction():
        login = await _locked(connection, server, question.request)
        if login is None or not _is_code(login, question.code):
            raise refused
        if login.used_at_us is not None:
            raise refused
        await connection.execute(USE, server.owner, login.id, now)
    if not _is_who_began(login, question) or login.decided_by not in server.settings.owner_emails:
        raise refused  # and the code is used up
    token, id = await tokens.issue(server, "device", device=login.device, name=login.hostname, by=login.decided_by)
    expires = await server.pool.fetchval(EXPIRES_AT, server.owner, id)
    return LoginDone(token, login.device, login.decided_by, expires, server.id)


def _is_code(login: Login, code: str) -> bool:
    expected = login.code_sha256
    return expected is not None and hmac.compare_digest(_sha256(code), expected)


def _is_who_began(login: Login, question: LoginExchange) -> bool:
    """Whether the verifier fits the challenge, and the code came back the way that was stated."""
    made = base64.urlsafe_b64encode(_sha256(question.verifier)).rstrip(b"=")
    same_verifier = hmac.compare_digest(made, login.challenge.encode())
    given, stated = question.redirect_uri or "", login.redirect_uri or ""
    same_way = hmac.compare_digest(given.encode(), stated.encode()) and (not stated or is_own_machine(stated))
    return same_verifier and same_way and VERIFIER.fullmatch(question.verifier) is not None


def _sha256(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


async def _logout(call: Call) -> Done:
    assert call.caller.token is not None
    return await tokens.revoke(call.server, call.caller.token, call.caller.by)


async def _whoami(call: Call) -> WhoAmI:
    server, caller = call.server, call.caller
    assert caller.scope is not None
    expires = None if caller.token is None else await server.pool.fetchval(EXPIRES_AT, server.owner, caller.token)
    return WhoAmI(caller.owner or caller.by, caller.scope, caller.device, expires, server.id, __version__)


# the owner's decision


async def find(server: Server, id: str) -> Login | None:
    """A login that still waits; None: there is none, or it has expired."""
    return _unexpired(server, await server.pool.fetchrow(FIND, server.owner, id) if ID.fullmatch(id) else None)


async def _locked(connection: Connection, server: Server, id: str) -> Login | None:
    row = await connection.fetchrow(f"{FIND} FOR UPDATE", server.owner, id) if ID.fullmatch(id) else None
    return _unexpired(server, row)


def _unexpired(server: Server, row: Any) -> Login | None:
    return Login(*row) if row is not None and row["expires_at_us"] > server.now_us() else None


async def decide(server: Server, id: str, email: str, *, approve: bool) -> tuple[Login, str]:
    """Let a device in, or not. Returns its login and the code, which is empty where it is refused; the owner's
    browser takes it to the device. Raises Refused where the login is gone or was decided before."""
    code = secrets.token_urlsafe(32) if approve else ""
    async with server.pool.acquire() as connection, connection.transaction():
        login = await _locked(connection, server, id)
        if login is None or login.decided_by is not None:
            raise Refused(
                "not_found",
                "This login is not known, has expired, or was decided before.",
                "Nothing was done.",
                "Run prosa login again.",
            )
        await connection.execute(DECIDE, server.owner, id, email, _sha256(code) if approve else None)
        if approve:
            await _let_in(connection, server, login, email)
    return login, code


async def _let_in(connection: Connection, server: Server, login: Login, email: str) -> None:
    event = LoginApproved(device=login.device, hostname=login.hostname, by=email)
    await append_own_in(connection, server, f"login-{server.id}", event)
    await connection.execute(PUT_ENTRY, server.owner, login.device, login.hostname, login.machine, login.platform)
    same = (await aliases(connection, server.owner)).members(login.device)
    await connection.execute(LET_IN, server.owner, same)


def way_back(login: Login, code: str) -> str | None:
    """Where the browser goes with the decision; None: there is a code to paste, or nothing to say."""
    if login.redirect_uri is None:
        return None
    said = {"code": code} if code else {"error": "access_denied"}
    return f"{login.redirect_uri}?{urlencode({**said, 'state': login.state})}"


ENDPOINTS: Final = (
    Endpoint(
        "POST", "/v1/login/begin", "public", _begin, "Begin to log a device in", LoginBegun, question=LoginQuestion
    ),
    Endpoint(
        "POST", "/v1/login/exchange", "public", _exchange, "A token for an approved login", LoginDone,
        question=LoginExchange,
    ),
    Endpoint("POST", LOGOUT, "device", _logout, "Revoke the token that asks", Done),
    Endpoint("GET", "/v1/whoami", "reports", _whoami, "Who asks", WhoAmI),
)  # fmt: skip
