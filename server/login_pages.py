"""The pages on which an owner signs in and lets a device in. Plain HTML: no script, so nothing to inject into."""

from __future__ import annotations

import hmac
import secrets
from typing import Final
from urllib.parse import urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from prosa.events.catalogue import LoginApproved
from prosa.projections.zones import rfc3339
from prosa.server import github, login, page, signing_in
from prosa.server.endpoints import Refused
from prosa.server.entries import entries
from prosa.server.log import append_own
from prosa.server.page import Html, fill, paragraph
from prosa.server.signing_in import SignedIn, safe_next
from prosa.server.state import Server

GITHUB: Final = "prosa_github"
"""Cookie of a sign-in that is on its way to GitHub and back."""
GITHUB_US: Final = 600_000_000
DECISIONS: Final = frozenset({"approve", "refuse"})


# signing in


async def _login(server: Server, request: Request) -> Response:
    target = request.query_params.get("next")
    owner = signing_in.signed_in(server, request)
    if owner is not None:
        if target is not None:
            return _go(safe_next(target))
        url = server.settings.public_url
        return page.page(server, "Signed in", fill("signed_in", email=owner.email, csrf=owner.csrf, public_url=url))
    return _ways_in(server, request, safe_next(target))


def _ways_in(server: Server, request: Request, target: str) -> Response:
    settings = server.settings
    parts: list[Html] = []
    if not settings.cookie_key:
        parts.append(paragraph("Nobody can sign in to this server yet: PROSA_COOKIE_KEY is not set.", "warning"))
        return page.page(server, "Sign in", *parts)
    if github.is_set_up(settings):
        parts.append(fill("github", href=f"/login/github?{urlencode({'next': target})}"))
    token = signing_in.form_token(server, request)
    if settings.dev_login and signing_in.is_loopback_host(request):
        parts.append(fill("dev_login", csrf=token, next=target, email=settings.dev_login))
    if not parts:
        parts.append(
            paragraph(
                "There is no way to sign in: the server needs PROSA_GITHUB_CLIENT_ID and PROSA_GITHUB_CLIENT_SECRET.",
                "warning",
            )
        )
    response = page.page(server, "Sign in", *parts)
    signing_in.keep_form_token(server, response, token)
    return response


async def _dev_login(server: Server, request: Request) -> Response:
    email = (server.settings.dev_login or "").lower()
    if not email or not server.settings.is_loopback or not signing_in.is_loopback_host(request):
        raise Refused("not_found", "There is no such page.")
    form = await signing_in.read_form(request)
    signing_in.check_form(server, request, form.get("csrf"), signing_in.form_token(server, request))
    return await _enter(server, email, safe_next(form.get("next")))


async def _to_github(server: Server, request: Request) -> Response:
    if not github.is_set_up(server.settings):
        raise Refused("not_found", "There is no such page.")
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
    response = _go(github.sign_in_url(server.settings, state, verifier))
    said = {"state": state, "verifier": verifier, "next": safe_next(request.query_params.get("next"))}
    signing_in.write_cookie(server, response, GITHUB, said, GITHUB_US)
    return response


async def _from_github(server: Server, request: Request) -> Response:
    begun = signing_in.read_cookie(server, request, GITHUB, GITHUB_US)
    state = request.query_params.get("state", "")
    if begun is None or not hmac.compare_digest(state.encode(), begun["state"].encode()):
        raise Refused("forbidden", "This sign-in did not begin in this browser.", "", "Open /login again.")
    code = request.query_params.get("code")
    if not code:
        raise Refused("forbidden", "GitHub did not sign you in.", "", "Open /login again.")
    login.limit(server, request)
    emails = await github.verified_emails(server.settings, code, begun["verifier"])
    owner = next((email for email in server.settings.owner_emails if email in emails), "")
    response = await _enter(server, owner, begun["next"])
    signing_in.drop_cookie(server, response, GITHUB)
    return response


async def _enter(server: Server, email: str, target: str) -> Response:
    """Raises Refused for whom is no owner."""
    if email not in server.settings.owner_emails:
        raise Refused("forbidden", "None of your verified e-mail addresses is that of an owner of this server.")
    response = _go(target)
    signing_in.sign_in(server, response, email)
    await append_own(server, f"login-{server.id}", LoginApproved(by=email))
    return response


async def _logout(server: Server, request: Request) -> Response:
    owner = signing_in.signed_in(server, request)
    if owner is not None:
        form = await signing_in.read_form(request)
        signing_in.check_form(server, request, form.get("csrf"), owner.csrf)
    response = _go("/login")
    signing_in.sign_out(server, response)
    return response


async def _root(server: Server, request: Request) -> Response:
    return _go("/login")


# letting a device in


async def _authorize(server: Server, request: Request) -> Response:
    id = request.query_params.get("request", "")
    owner = signing_in.signed_in(server, request)
    if owner is None:
        here = f"/authorize?{urlencode({'request': id})}"
        return _go(f"/login?{urlencode({'next': here})}")
    asked = await login.find(server, id)
    if asked is None or asked.decided_by is not None:
        raise Refused(
            "not_found",
            "This login is not known, has expired, or was decided before.",
            "No device was let in.",
            "Run prosa login again.",
        )
    response = page.page(server, "Let this device in?", await _question(server, asked, owner))
    if asked.redirect_uri is not None:
        response.headers["Content-Security-Policy"] = f"{page.CONTENT_POLICY} {_origin(asked.redirect_uri)}"
    return response


async def _question(server: Server, asked: login.Login, owner: SignedIn) -> Html:
    entry = (await entries(server.pool, server.owner)).get(asked.device)
    known, warning = "no, it is new", Html()
    if entry is not None:
        known = f"yes, as {entry.name or entry.hostname or asked.device}"
        if entry.revoked_at_us is not None:
            known += f"; revoked at {_minute(entry.revoked_at_us)}"
            warning = paragraph("Its access was taken away. Approving lets it in again.", "warning")
    return fill(
        "authorize",
        hostname=asked.hostname,
        device=asked.device,
        platform=asked.platform,
        known=known,
        expires=_minute(asked.expires_at_us),
        warning=warning,
        csrf=owner.csrf,
        request=asked.id,
        email=owner.email,
    )


async def _decide(server: Server, request: Request) -> Response:
    owner = signing_in.signed_in(server, request)
    if owner is None:
        raise Refused("not_logged_in", "You are not signed in.", "No device was let in.", "Open /login.")
    form = await signing_in.read_form(request)
    signing_in.check_form(server, request, form.get("csrf"), owner.csrf)
    if form.get("decision") not in DECISIONS:
        raise Refused("invalid", "The form does not say what is decided.", "No device was let in.")
    asked, code = await login.decide(
        server, form.get("request", ""), owner.email, approve=form["decision"] == "approve"
    )
    if (way_back := login.way_back(asked, code)) is not None:
        return _go(way_back)
    if not code:
        return page.page(server, "Refused", paragraph("The device was not let in. This page may be closed."))
    expires = _minute(asked.expires_at_us)
    return page.page(server, "Approved", fill("code", hostname=asked.hostname, code=code, expires=expires))


def _go(target: str) -> Response:
    return RedirectResponse(target, status_code=303)


def _origin(uri: str) -> str:
    """As a content policy takes it, where a form's answer may lead: it knows no IPv6 address."""
    parts = urlsplit(uri)
    return "http:" if ":" in (parts.hostname or "") else f"http://{parts.netloc}"


def _minute(us: int) -> str:
    """`2026-11-30 19:45 UTC`."""
    return f"{rfc3339(us)[:16].replace('T', ' ')} UTC"


ROUTES: Final = (
    *page.ROUTES,
    page.route("GET", "/", _root),
    page.route("GET", "/login", _login),
    page.route("POST", "/dev-login", _dev_login),
    page.route("GET", "/login/github", _to_github),
    page.route("GET", github.CALLBACK, _from_github),
    page.route("POST", "/logout", _logout),
    page.route("GET", "/authorize", _authorize),
    page.route("POST", "/authorize", _decide),
)
