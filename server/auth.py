"""Who asks: by the token of a request, or by the cookie of a browser that is signed in.

A token belongs to a machine: a device's comes with the machine's fingerprint, and one that turns up under another is
refused, unless a merge that holds says that both are one machine.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from starlette.requests import Request

from prosa.events.messages import DEVICE_HEADER
from prosa.server import entries, signing_in, tokens
from prosa.server.endpoints import Caller, Refused
from prosa.server.state import Server

MERGE_SELF: Final = "/v1/devices/merge-self"
LOGOUT: Final = "/v1/logout"
UNBOUND: Final = frozenset({MERGE_SELF, LOGOUT})
"""Asked under any fingerprint: to say that this machine's has changed, and to revoke the token itself."""


async def authenticate(server: Server, request: Request) -> Caller:
    """The caller; scope None where nothing was shown. Raises Refused where what was shown is not taken."""
    header = request.headers.get("authorization")
    if header is None:
        return _by_cookie(server, request)
    scheme, _, token = header.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise Refused("not_logged_in", "Authorization is not `Bearer <token>`.", "Nothing was done.", tokens.AGAIN)
    if _is_admin(server, token):
        return Caller("admin")
    found = await tokens.find(server, token)
    if found.device is None:
        return Caller(found.scope, None, found.id, found.given_by)
    device = await _device(server, request, found.device)
    return Caller(found.scope, device, found.id, found.given_by)


def _is_admin(server: Server, token: str) -> bool:
    """Compared by their hashes, so that not even the length shows in the time it takes."""
    admin = server.settings.admin_token
    return bool(admin) and hmac.compare_digest(_sha256(token), _sha256(admin or ""))


def _sha256(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


async def _device(server: Server, request: Request, issued_to: str) -> str:
    """The fingerprint that asks."""
    asking = request.headers.get(DEVICE_HEADER, "")
    if asking == issued_to:
        return asking
    if request.url.path in UNBOUND:
        return issued_to
    if not asking:
        raise Refused("other_device", f"A device's token comes with the header {DEVICE_HEADER}.", "Nothing was done.")
    merged = await entries.aliases(server.pool, server.owner)
    if merged.canonical(asking) != merged.canonical(issued_to):
        raise Refused(
            "other_device",
            f"This token was issued to device {issued_to}, and {asking[:64]} asks.",
            "Nothing was done.",
            "Run prosa login on this machine",
        )
    return asking


def _by_cookie(server: Server, request: Request) -> Caller:
    owner = signing_in.signed_in(server, request)
    if owner is None:
        return Caller(None)
    if request.method not in signing_in.SAFE_METHODS:
        signing_in.check_form(server, request, request.headers.get(signing_in.CSRF_HEADER), owner.csrf)
    return Caller("admin", owner=owner.email)
