"""Who is signed in to the server's pages: a signed cookie, and what keeps another site from using it.

The cookie is a statement by the server (this e-mail signed in at that time), not a right: whether the e-mail is an
owner's is asked again at every request.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

import itsdangerous
from starlette.requests import Request
from starlette.responses import Response

from prosa.server.door import LOOPBACK, hostname
from prosa.server.endpoints import Refused
from prosa.server.settings import Settings
from prosa.server.state import Server

SIGNED_IN: Final = "prosa"
FORM: Final = "prosa_form"
"""Cookie of somebody who is not signed in yet: it holds the CSRF token of the forms he sees."""
COOKIE_US: Final = 30 * 86_400_000_000
FORM_US: Final = 3_600_000_000
CSRF: Final = "csrf"
"""Field of every form; scripts of our own pages send CSRF_HEADER."""
CSRF_HEADER: Final = "Prosa-Csrf"
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
FORM_BYTES: Final = 16_384
NEXT: Final = re.compile(r"/(?![/\\])[!-\[\]-~]*")
"""A path of this site: visible ASCII, no backslash (browsers read it as a slash), no second slash."""


class SignedIn(NamedTuple):
    email: str
    csrf: str


def sign_in(server: Server, response: Response, email: str) -> None:
    """Set the cookie; a new CSRF token goes with it."""
    write_cookie(server, response, SIGNED_IN, {"email": email, "csrf": secrets.token_urlsafe(32)}, COOKIE_US)
    drop_cookie(server, response, FORM)


def sign_out(server: Server, response: Response) -> None:
    drop_cookie(server, response, SIGNED_IN)


def signed_in(server: Server, request: Request) -> SignedIn | None:
    """The owner who asks; None: nobody, or somebody who is no owner (any more)."""
    told = read_cookie(server, request, SIGNED_IN, COOKIE_US)
    if told is None or told["email"] not in server.settings.owner_emails:
        return None
    return SignedIn(told["email"], told["csrf"])


def form_token(server: Server, request: Request) -> str:
    """CSRF token for the forms of somebody who is not signed in: his cookie's, else a new one to be kept."""
    told = read_cookie(server, request, FORM, FORM_US)
    return secrets.token_urlsafe(32) if told is None else str(told["csrf"])


def keep_form_token(server: Server, response: Response, token: str) -> None:
    write_cookie(server, response, FORM, {"csrf": token}, FORM_US)


def check_form(server: Server, request: Request, given: str | None, expected: str) -> None:
    """Raises Refused unless a POST comes from a page of ours."""
    if not is_own_origin(server.settings, request):
        raise Refused("forbidden", "This form was sent from another site.", "Nothing was done.")
    if not given or not hmac.compare_digest(given.encode(), expected.encode()):
        raise Refused(
            "forbidden", "This form is not from a page of this session.", "Nothing was done.", "Open the page again."
        )


def is_own_origin(settings: Settings, request: Request) -> bool:
    """Whether the Origin header names this server. Browsers send it with every POST."""
    origin = request.headers.get("origin", "")
    if hmac.compare_digest(origin.encode(), _origin(settings.public_url).encode()):
        return True
    host = request.headers.get("host", "")
    return hostname(host) in LOOPBACK and origin == f"http://{host}"


async def read_form(request: Request) -> dict[str, str]:
    """Fields of a form that a browser sent, each once."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > FORM_BYTES:
            raise Refused("too_large", f"The form is larger than {FORM_BYTES:,} bytes.")
    try:
        fields = parse_qs(body.decode("ascii"), keep_blank_values=True, max_num_fields=50)
    except (UnicodeDecodeError, ValueError):
        raise Refused("invalid", "The form cannot be read.") from None
    return {name: values[0] for name, values in fields.items() if len(values) == 1}


def safe_next(target: str | None, default: str = "/login") -> str:
    """Where to go on after signing in: a path of this server, else the default."""
    return target if target is not None and NEXT.fullmatch(target) else default


def is_loopback_host(request: Request) -> bool:
    """Whether both ends of the connection are this machine, by address and by the name that was asked for."""
    client = request.client.host if request.client else ""
    return client in LOOPBACK and hostname(request.headers.get("host", "")) in LOOPBACK


# cookies


def is_secure(settings: Settings) -> bool:
    """Cookies go over TLS only, but for a server that is reached on this machine alone."""
    public = urlsplit(settings.public_url)
    return public.scheme == "https" or (public.hostname or "") not in LOOPBACK


def cookie_name(settings: Settings, name: str) -> str:
    """With TLS under a name that no other host of the domain can set."""
    return f"__Host-{name}" if is_secure(settings) else name


def read_cookie(server: Server, request: Request, name: str, age_us: int) -> dict[str, Any] | None:
    """What the server said in a cookie; None: there is none, it is too old, or somebody else made it."""
    text = request.cookies.get(cookie_name(server.settings, name))
    if not text or not server.settings.cookie_key:
        return None
    try:
        told: dict[str, Any] = _signer(server.settings, name).loads(text)
    except itsdangerous.BadData:
        return None
    return told if 0 <= server.now_us() - told["at_us"] < age_us else None


def write_cookie(server: Server, response: Response, name: str, said: dict[str, Any], age_us: int) -> None:
    """Raises Refused where the server has no key to sign it with."""
    settings = server.settings
    if not settings.cookie_key:
        raise Refused("unavailable", "This server has no cookie key.", "Nobody can sign in.", "Set PROSA_COOKIE_KEY")
    response.set_cookie(
        cookie_name(settings, name),
        str(_signer(settings, name).dumps({**said, "at_us": server.now_us()})),
        max_age=age_us // 1_000_000,
        path="/",
        secure=is_secure(settings),
        httponly=True,
        samesite="lax",
    )


def drop_cookie(server: Server, response: Response, name: str) -> None:
    settings = server.settings
    response.delete_cookie(
        cookie_name(settings, name), path="/", secure=is_secure(settings), httponly=True, samesite="lax"
    )


def _signer(settings: Settings, name: str) -> itsdangerous.URLSafeSerializer:
    """Each cookie's name is its salt: one can never pass for another."""
    how = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
    return itsdangerous.URLSafeSerializer(settings.cookie_key, salt=f"prosa {name}", signer_kwargs=how)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
