"""A page of the server: a template filled with text, never with markup that came from outside, and its headers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from prosa.server.endpoints import STATUS, Refused
from prosa.server.state import Server

FOLDER: Final = Path(__file__).with_name("pages")
STYLE: Final = "/pages/style.css"
CONTENT_POLICY: Final = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'; "
    "form-action 'self'"
)
HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # no-referrer would make browsers send `Origin: null` with our own forms
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
TWO_YEARS_S: Final = 2 * 365 * 86_400

Handler = Callable[[Server, Request], Awaitable[Response]]


class Html(str):
    """Text that is markup already, made by `fill`."""


def fill(name: str, **values: str) -> Html:
    """A template of the folder; every value is escaped that is not Html."""
    safe = {key: value if isinstance(value, Html) else escape(value) for key, value in values.items()}
    return Html(_template(name).substitute(safe))


@cache
def _template(name: str) -> Template:
    return Template((FOLDER / f"{name}.html").read_text(encoding="utf-8"))


def page(server: Server, title: str, *parts: Html, status: int = 200) -> HTMLResponse:
    where = urlsplit(server.settings.public_url).netloc
    return HTMLResponse(fill("page", title=title, where=where, main=Html("".join(parts))), status)


def paragraph(text: str, kind: str = "") -> Html:
    return Html(f'<p class="{escape(kind)}">{escape(text)}</p>\n' if kind else f"<p>{escape(text)}</p>\n")


def route(method: str, path: str, handler: Handler) -> Route:
    """A page; the app's state has the server. What is refused is a page, too."""

    async def answer(request: Request) -> Response:
        server: Server = request.app.state.server
        try:
            response = await handler(server, request)
        except Refused as refused:
            response = _refusal(server, refused)
        return _with_headers(server, response)

    return Route(path, answer, methods=[method], name=f"{method} {path}")


def _refusal(server: Server, refused: Refused) -> Response:
    why = refused.problem
    parts = [paragraph(text) for text in (why.what, why.kept, why.next_step) if text]
    response = page(server, "That did not work", *parts, status=STATUS.get(why.code, 500))
    if why.retry_after_s is not None:
        response.headers["Retry-After"] = str(why.retry_after_s)
    return response


def _with_headers(server: Server, response: Response) -> Response:
    response.headers.update(HEADERS)
    response.headers.setdefault("Content-Security-Policy", CONTENT_POLICY)
    response.headers.setdefault("Cache-Control", "no-store")
    if server.settings.public_url.startswith("https:"):
        response.headers["Strict-Transport-Security"] = f"max-age={TWO_YEARS_S}"
    return response


async def _style(server: Server, request: Request) -> Response:
    content = (FOLDER / "style.css").read_text(encoding="utf-8")
    return Response(content, media_type="text/css", headers={"Cache-Control": "public, max-age=3600"})


ROUTES: Final = (route("GET", STYLE, _style),)
