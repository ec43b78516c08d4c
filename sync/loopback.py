"""The answer of a login comes back through the browser, to a page that this process serves on 127.0.0.1.

Only the answer that carries the state of this login counts, and only once; whatever else knocks is turned away and
the login goes on waiting.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import html
import queue
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import parse_qs, urlsplit

PATH: Final = "/callback"
IDLE_S: Final = 10
"""A browser opens connections ahead and says nothing on them."""
OUTCOME_S: Final = 30
QUERY_LIMIT: Final = 4_096

STYLE: Final = (
    ":root{color-scheme:light dark}"
    "body{font:17px/1.6 ui-serif,Georgia,serif;max-width:34rem;margin:18vh auto;padding:0 1.5rem}"
    "h1{font-size:1.35rem;font-weight:600;margin:0 0 .5rem}p{margin:0;opacity:.8}"
)
PAGE: Final = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title} · prosa</title>'
    '<meta name="viewport" content="width=device-width"><style>{style}</style></head>'
    "<body><main><h1>{title}</h1><p>{text}</p></main></body></html>"
)
POLICY: Final = (
    "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    f"style-src 'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'"
)

Outcome = Literal["done", "denied", "failed", "foreign", "late"]
PAGES: Final[dict[Outcome, tuple[int, str, str]]] = {
    "done": (200, "This machine is logged in", "You can close this page. prosa goes on in the terminal."),
    "denied": (200, "The login was refused", "This machine got no access. You can close this page."),
    "failed": (502, "The login did not work", "The terminal says why. You can close this page."),
    "foreign": (400, "This belongs to no login here", "prosa waits for the answer to the login it began itself."),
    "late": (410, "This login has been answered", "Each login takes one answer. You can close this page."),
}


class Answer(NamedTuple):
    """What the server sent through the browser: a code, or why there is none."""

    code: str | None
    error: str | None


class Listener:
    """Listens from its making to `close`."""

    def __init__(self, state: str) -> None:
        self._state = state
        self._answers: queue.Queue[Answer] = queue.Queue()
        self._outcome: queue.Queue[Outcome] = queue.Queue()
        self._lock = threading.Lock()
        self._taken = False
        self._shown = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.listener = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    @property
    def redirect_uri(self) -> str:
        return f"http://{self.host}{PATH}"

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def wait(self, timeout_s: float) -> Answer | None:
        """The answer, after which nothing more is listened to; None if none came in time."""
        try:
            until = time.monotonic() + timeout_s
            while (left := until - time.monotonic()) > 0:
                with contextlib.suppress(queue.Empty):  # in short steps: Ctrl-C ends it at once everywhere
                    return self._answers.get(timeout=min(left, 0.5))
            return None
        finally:
            self._stop()

    def show(self, outcome: Outcome) -> None:
        """Tell the browser that is still waiting how it ended."""
        if self._taken:
            self._outcome.put(outcome)
            self._shown.wait(2)

    def close(self) -> None:
        self._stop()
        self.show("failed")

    def _stop(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def received(self, state: str, answer: Answer) -> Outcome:
        """A callback; returns what its page says. Waits for the login's end where it was the right one."""
        if not hmac.compare_digest(state.encode(), self._state.encode()):
            return "foreign"
        with self._lock:
            if self._taken:
                return "late"
            self._taken = True
        self._answers.put(answer)
        if answer.code is None:
            return "denied"
        try:
            return self._outcome.get(timeout=OUTCOME_S)
        except queue.Empty:
            return "failed"

    def was_shown(self) -> None:
        self._shown.set()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = False
    listener: Listener

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away is none; anything else is our bug and is told."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    timeout = IDLE_S
    server: _Server

    def do_GET(self) -> None:
        listener = self.server.listener
        parts = urlsplit(self.path)
        if parts.path != PATH or self.headers.get("Host") != listener.host or len(parts.query) > QUERY_LIMIT:
            self.send_error(404)
            return
        said = parse_qs(parts.query, keep_blank_values=True)
        state, answer = _one(said, "state"), Answer(_one(said, "code"), _one(said, "error"))
        if state is None or (answer.code is None) == (answer.error is None):
            self._page("foreign")
            return
        outcome = listener.received(state, answer)
        try:
            self._page(outcome)
        finally:  # also where the browser has gone away
            if outcome not in ("foreign", "late"):
                listener.was_shown()

    def _page(self, outcome: Outcome) -> None:
        status, title, text = PAGES[outcome]
        body = PAGE.format(title=html.escape(title), text=html.escape(text), style=STYLE).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        return "prosa"

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: the path of a callback holds the code."""


def _one(said: dict[str, list[str]], name: str) -> str | None:
    """A value that stands there once, and is not empty."""
    values = said.get(name, [])
    return values[0] if len(values) == 1 and values[0] else None
