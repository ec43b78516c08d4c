"""A browser for the tests of the server's pages: it keeps cookies, sends Origin with forms, and follows no redirect."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

from prosa.events.clock import now_us
from prosa.events.messages import LoginQuestion
from prosa.server.app import create_app, open_server
from prosa.server.settings import Settings
from prosa.server.state import Clock, Server


class Browser:
    def __init__(self, client: httpx.AsyncClient) -> None:
        """The client's app or server, with cookies of its own."""
        self.client = client
        self.origin = str(client.base_url).rstrip("/")

    async def open(self, url: str, **more: Any) -> httpx.Response:
        return await self.client.get(url, **more)

    async def send(self, url: str, fields: dict[str, str], **headers: str) -> httpx.Response:
        return await self.client.post(url, data=fields, headers={"Origin": self.origin, **headers})

    async def sign_in(self, target: str = "/login") -> httpx.Response:
        """By the button of a server that is tried out."""
        page = await self.open("/login", params={"next": target})
        return await self.send("/dev-login", fields(page))

    async def decide(self, request: str, decision: str = "approve") -> httpx.Response:
        page = await self.open("/authorize", params={"request": request})
        return await self.send("/authorize", {**fields(page), "decision": decision})


@asynccontextmanager
async def browsing(
    settings: Settings, *, clock: Clock = now_us, address: str = "127.0.0.1"
) -> AsyncIterator[tuple[Server, Browser]]:
    """A server with these settings, and a browser at an address."""
    async with open_server(settings, clock=clock, working=False) as server:
        transport = httpx.ASGITransport(create_app(server), client=(address, 4000))
        async with httpx.AsyncClient(transport=transport, base_url=settings.public_url) as client:
            yield server, Browser(client)


async def many_connections(server: Server) -> None:
    """Open what the pool has room for, so that calls that are made at once also meet."""
    await asyncio.gather(*(server.pool.execute("SELECT pg_sleep(0.2)") for _ in range(12)))


def fields(page: httpx.Response) -> dict[str, str]:
    """Hidden fields of the page's form."""
    return {row["name"]: row.get("value") or "" for row in tags(page, "input")}


def tags(page: httpx.Response, name: str) -> list[dict[str, str | None]]:
    """Attributes of every such element."""
    found: list[dict[str, str | None]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag == name:
                found.append(dict(attrs))

    Reader().feed(page.text)
    return found


def shown_code(page: httpx.Response) -> str:
    """The code that is to be pasted."""
    return unescape(page.text.split('<p class="code"><code>')[1].split("</code>")[0])


def query(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


class Pkce:
    """What a device that logs in makes up."""

    def __init__(self) -> None:
        self.verifier = secrets.token_urlsafe(48)
        self.state = secrets.token_urlsafe(24)
        digest = hashlib.sha256(self.verifier.encode()).digest()
        self.challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def question(self, device: str = "00000000000000aa", **more: Any) -> LoginQuestion:
        told = {"hostname": "studio", "machine": "0000000000000001", "platform": "linux/x86_64", **more}
        return LoginQuestion(device=device, challenge=self.challenge, state=self.state, **told)
