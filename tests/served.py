"""A real server on a port of 127.0.0.1, in a thread of this process, and an owner who uses its pages as a browser."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
import uvicorn
from msgspec.structs import replace

from prosa.server.app import create_app, open_server
from prosa.server.settings import Settings
from prosa.server.state import Server

OWNER = "owner@example.org"
FIELD = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)">')
CODE = re.compile(r'<p class="code"><code>([^<]+)</code>')

T = TypeVar("T")


class Served:
    """What a test has of the server that runs beside it."""

    def __init__(self, url: str, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self.url, self.server, self._loop = url, server, loop

    def run(self, work: Callable[[Server], Awaitable[T]]) -> T:
        """Something of the server's own, in its loop."""

        async def there() -> T:
            return await work(self.server)

        return asyncio.run_coroutine_threadsafe(there(), self._loop).result(30)

    @contextmanager
    def owner(self) -> Iterator[Owner]:
        with httpx.Client(base_url=self.url, follow_redirects=False, timeout=30, trust_env=False) as browser:
            yield Owner(browser)


class Owner:
    """A browser, signed in by the page for this machine alone."""

    def __init__(self, browser: httpx.Client) -> None:
        self.browser = browser
        fields = dict(FIELD.findall(browser.get("/login").text))
        assert self._post("/dev-login", fields).status_code == 303

    def decide(self, authorize_url: str, decision: str) -> httpx.Response:
        """Press a button of the page that an authorize URL leads to; what the server answers."""
        page = self.browser.get(authorize_url)
        assert page.status_code == 200, page.text
        return self._post("/authorize", dict(FIELD.findall(page.text)) | {"decision": decision})

    def code(self, authorize_url: str) -> str:
        """Approve a login without a way back, and copy the code."""
        (code,) = CODE.findall(self.decide(authorize_url, "approve").text)
        return str(code)

    def _post(self, path: str, fields: dict[str, str]) -> httpx.Response:
        parts = urlsplit(str(self.browser.base_url))
        return self.browser.post(path, data=fields, headers={"Origin": f"{parts.scheme}://{parts.netloc}"})


@contextmanager
def a_server(database: str, folder: Path, *, working: bool = False, **changes: Any) -> Iterator[Served]:
    """Until the block ends. `database` may be empty: the server makes its tables."""
    # the protocol is named: asyncio sets TCP_NODELAY only where it is, and without it each answer takes 40 ms
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        settings = Settings(
            public_url=url, db_url=database, s3=None, raw_folder=folder / "raw", work_folder=folder / "work",
            owner_emails=(OWNER,), dev_login=OWNER, cookie_key="k" * 43,
        )  # fmt: skip
        ready: Future[Served] = Future()
        ended = threading.Event()

        async def serve() -> None:
            try:
                async with open_server(replace(settings, **changes), working=working) as server:
                    config = uvicorn.Config(create_app(server), log_config=None, lifespan="off")
                    process = uvicorn.Server(config)
                    task = asyncio.create_task(process.serve([listening]))
                    ready.set_result(Served(url, server, asyncio.get_running_loop()))
                    while not ended.is_set() and not task.done():
                        await asyncio.sleep(0.02)
                    process.should_exit = True
                    await task
            except BaseException as error:
                if ready.done():
                    raise
                ready.set_exception(error)

        thread = threading.Thread(target=asyncio.run, args=(serve(),))
        thread.start()
        try:
            yield ready.result(60)
        finally:
            ended.set()
            thread.join(30)
