"""Tokens: a device's, from its login, and those for programs that read. Shown once; the server keeps their sha256.

`prosa_d_` or `prosa_a_`, then a public id by which a token is listed and revoked, then 256 random bits.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Final, Literal, NamedTuple

import msgspec

from prosa.events.catalogue import TokenIssued, TokenRevoked
from prosa.events.messages import Done
from prosa.projections.zones import rfc3339
from prosa.server.endpoints import Call, Endpoint, Refused
from prosa.server.log import LOCK_HEAD, append_own_in
from prosa.server.state import Connection, Server

TokenScope = Literal["device", "reports", "metadata", "everything"]

FORM: Final = re.compile(r"prosa_[da]_([0-9a-f]{16})_[A-Za-z0-9_-]{43}")
ID: Final = re.compile(r"[0-9a-f]{16}")
DAY_US: Final = 86_400_000_000
APP_DAYS: Final = 90
MOST_DAYS: Final = 3_650
USED_EVERY_US: Final = 60_000_000

INSERT: Final = """
INSERT INTO tokens (owner, id, sha256, scope, device, name, given_by, issued_at_us, expires_at_us)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"""
FIND: Final = """
SELECT sha256, scope, device, given_by, expires_at_us, revoked_at_us, used_at_us FROM tokens
WHERE owner = $1 AND id = $2"""
MARK_USED: Final = """
UPDATE tokens SET used_at_us = $3 WHERE owner = $1 AND id = $2 AND (used_at_us IS NULL OR used_at_us < $4)"""
REVOKE: Final = "UPDATE tokens SET revoked_at_us = $3 WHERE owner = $1 AND id = $2"
REVOKED_AT: Final = "SELECT revoked_at_us FROM tokens WHERE owner = $1 AND id = $2"
REVOKED_BY: Final = """
SELECT id, position FROM events WHERE owner = $1 AND stream = $2 AND type = 'token_revoked'
ORDER BY position DESC LIMIT 1"""
LIST: Final = """
SELECT id, scope, device, name, given_by, issued_at_us, expires_at_us, revoked_at_us, used_at_us FROM tokens
WHERE owner = $1 ORDER BY issued_at_us DESC, id"""


class TokenQuestion(msgspec.Struct, frozen=True):
    """POST /v1/tokens: one for a program that reads."""

    name: str
    scope: Literal["reports", "metadata", "everything"]
    days: int = APP_DAYS


class TokenGiven(msgspec.Struct, frozen=True):
    token: str
    """Shown once."""
    id: str
    expires_at: str


class TokenRow(msgspec.Struct, frozen=True):
    id: str
    scope: TokenScope
    device: str | None
    name: str | None
    given_by: str
    issued_at: str
    expires_at: str
    revoked_at: str | None
    used_at: str | None
    """To a minute."""


class Tokens(msgspec.Struct, frozen=True):
    """GET /v1/tokens: all that were ever given, the newest first."""

    tokens: list[TokenRow]


class Found(NamedTuple):
    """A token that is taken now."""

    id: str
    scope: TokenScope
    device: str | None
    given_by: str
    expires_at_us: int


async def issue(
    server: Server,
    scope: TokenScope,
    *,
    device: str | None = None,
    name: str | None = None,
    by: str,
    days: int | None = None,
    connection: Connection | None = None,
) -> tuple[str, str]:
    """A new token and its public id. `by` is the e-mail of the owner who allows it, or `admin`."""
    if connection is None:
        async with server.pool.acquire() as own, own.transaction():
            return await issue(server, scope, device=device, name=name, by=by, days=days, connection=own)
    id = secrets.token_hex(8)
    token = f"prosa_{'d' if scope == 'device' else 'a'}_{id}_{secrets.token_urlsafe(32)}"
    now = server.now_us()
    days = days if days is not None else server.settings.token_days if scope == "device" else APP_DAYS
    expires = now + days * DAY_US
    event = TokenIssued(token=id, scope=scope, device=device, name=name, expires_at_us=expires, by=by)
    await append_own_in(connection, server, f"token-{id}", event)
    await connection.execute(INSERT, server.owner, id, _sha256(token), scope, device, name, by, now, expires)
    return token, id


async def find(server: Server, token: str) -> Found:
    """Raises Refused where there is none like it, or it is no longer taken."""
    form = FORM.fullmatch(token)
    row = await server.pool.fetchrow(FIND, server.owner, form[1]) if form else None
    if form is None or row is None or not hmac.compare_digest(row["sha256"], _sha256(token)):
        raise Refused("not_logged_in", "This token is not one of this server's.", "Nothing was done.", AGAIN)
    if row["revoked_at_us"] is not None or _is_orphaned(server, row["given_by"]):
        raise Refused("token_revoked", "This token was revoked.", "Nothing was done.", AGAIN)
    now = server.now_us()
    if row["expires_at_us"] <= now:
        when = rfc3339(row["expires_at_us"])
        raise Refused("token_expired", f"This token expired at {when}.", "Nothing was done.", AGAIN)
    if row["used_at_us"] is None or row["used_at_us"] < now - USED_EVERY_US:
        await server.pool.execute(MARK_USED, server.owner, form[1], now, now - USED_EVERY_US)
    return Found(form[1], row["scope"], row["device"], row["given_by"], row["expires_at_us"])


AGAIN: Final = "Run prosa login"


def _is_orphaned(server: Server, given_by: str) -> bool:
    """Whether the one who allowed it is no owner any more."""
    return "@" in given_by and given_by not in server.settings.owner_emails


def _sha256(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


async def revoke(server: Server, id: str, by: str) -> Done:
    """Raises Refused where there is no such token. One that is revoked already is left as it is."""
    stream = f"token-{id}"
    async with server.pool.acquire() as connection, connection.transaction():
        await connection.execute(LOCK_HEAD, server.owner)  # always before rows of other tables: no deadlock
        row = await connection.fetchrow(REVOKED_AT, server.owner, id) if ID.fullmatch(id) else None
        if row is None:
            raise Refused("not_found", f"There is no token {id[:64]!r}.")
        if row["revoked_at_us"] is not None and (said := await connection.fetchrow(REVOKED_BY, server.owner, stream)):
            return Done(said["id"].hex(), said["position"])
        event = await append_own_in(connection, server, stream, TokenRevoked(token=id, by=by))
        await connection.execute(REVOKE, server.owner, id, server.now_us())
    return Done(event.id.hex(), event.position)


async def listed(server: Server) -> Tokens:
    rows = await server.pool.fetch(LIST, server.owner)
    return Tokens([TokenRow(*row[:5], *(None if at is None else rfc3339(at) for at in row[5:])) for row in rows])


# endpoints


async def _list(call: Call) -> Tokens:
    return await listed(call.server)


async def _create(call: Call) -> TokenGiven:
    question: TokenQuestion = call.question
    name = question.name.strip()
    if not 1 <= len(name) <= 100 or not name.isprintable():
        raise Refused("invalid", "The name of a token is 1 to 100 printable characters.")
    if not 1 <= question.days <= MOST_DAYS:
        raise Refused("invalid", f"days is {question.days}, not between 1 and {MOST_DAYS:,}.")
    by = call.caller.by
    token, id = await issue(call.server, question.scope, name=name, by=by, days=question.days)
    found = await find(call.server, token)
    return TokenGiven(token, id, rfc3339(found.expires_at_us))


async def _revoke(call: Call) -> Done:
    return await revoke(call.server, call.request.path_params["id"], call.caller.by)


ENDPOINTS: Final = (
    Endpoint("GET", "/v1/tokens", "owner", _list, "Every token that was given", Tokens),
    Endpoint(
        "POST", "/v1/tokens", "owner", _create, "A token for a program that reads", TokenGiven, question=TokenQuestion
    ),
    Endpoint("POST", "/v1/tokens/{id}/revoke", "owner", _revoke, "A token is no longer taken", Done),
)
