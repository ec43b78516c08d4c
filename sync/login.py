"""Logging in and out: PKCE (RFC 7636, S256), the answer through a page on loopback or as a code that is pasted.

Verifier and state are drawn independently: the state goes through the browser, the verifier never does.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from prosa.events.catalogue import Event, LoginCompleted, LogoutCompleted
from prosa.events.device import Device
from prosa.events.errors import ProsaError, UsageError
from prosa.events.home import Home
from prosa.events.messages import Done, LoginBegun, LoginDone, LoginExchange, LoginQuestion
from prosa.sync import auth_file
from prosa.sync.auth_file import Auth
from prosa.sync.http import Connection, NotLoggedIn, ServerRefused, Unreachable

if TYPE_CHECKING:
    from prosa.sync.loopback import Listener

WAIT_S: Final = 15 * 60
"""As long as the server keeps a login that was begun."""


class LoginFailed(ProsaError):
    """No login came of it; an earlier one still holds."""

    exit_code = 4


class ApiInfo(msgspec.Struct):
    title: str = ""
    version: str = ""


class Api(msgspec.Struct):
    """As much of /v1/openapi.json as tells whose it is."""

    info: ApiInfo


class Login:
    """One login that was begun and waits for the owner."""

    def __init__(
        self, connection: Connection, begun: LoginBegun, verifier: str, listener: Listener | None, device: Device
    ) -> None:
        self._connection, self._begun, self._verifier, self._listener = connection, begun, verifier, listener
        self._device = device
        self.authorize_url = begun.authorize_url

    def wait(self, timeout_s: float = WAIT_S) -> Auth:
        """Until the browser brings the answer. Raises LoginFailed where it is no, or none comes."""
        assert self._listener is not None
        answer = self._listener.wait(timeout_s)
        if answer is None:
            raise LoginFailed("No answer came within 15 minutes.", "Nothing was changed.", "Try again: prosa login")
        if answer.code is None:
            self._listener.show("denied")
            why = "" if answer.error == "access_denied" else f": {answer.error}"
            raise LoginFailed(f"The login was refused{why}.", "Nothing was changed.")
        return self.finish(answer.code)

    def done(self) -> None:
        """The login is kept: the browser that waits is told so. It is told of a failure where this is not said."""
        if self._listener:
            self._listener.show("done")

    def finish(self, code: str) -> Auth:
        """Exchange the code for a token. A code is taken once."""
        uri = self._listener.redirect_uri if self._listener else None
        question = LoginExchange(request=self._begun.request, code=code, verifier=self._verifier, redirect_uri=uri)
        try:
            done = self._connection.post("/v1/login/exchange", question, LoginDone)
        except ServerRefused as refused:
            problem = refused.problem
            raise LoginFailed(problem.what, problem.kept, problem.next_step or "Try again: prosa login") from None
        return Auth(
            server=self._connection.server, token=done.token, device=self._device.id, server_id=done.server,
            expires_at_us=done.expires_at_us, owner=done.owner,
        )  # fmt: skip


def check_server(server: str, device: Device) -> str:
    """Version of the prosa server at an address. Raises UsageError where something else answers there."""
    connection = Connection(server, None, device.id)
    strange = UsageError(
        f"What answers at {server} is no prosa server.", "Nothing was sent.", "Check the address, and its path if any."
    )
    try:
        api = connection.ask("/v1/openapi.json", Api)
    except Unreachable as away:
        if "does not answer as a prosa server" in away.what:
            raise strange from None
        raise Unreachable(away.what, "Nothing was changed.", "Check the address, or try again later.") from None
    except ProsaError:
        raise strange from None
    finally:
        connection.close()
    if "prosa" not in api.info.title.lower():
        raise strange
    return api.info.version


@contextmanager
def begin(server: str, device: Device, *, loopback: bool) -> Iterator[Login]:
    """Announce a login. With `loopback` its answer comes through the browser of this machine, else as a code."""
    verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(32)
    listener: Listener | None = None
    if loopback:
        from prosa.sync.loopback import Listener

        listener = Listener(state)
    connection = Connection(server, None, device.id)
    try:
        question = LoginQuestion(
            device=device.id, hostname=device.hostname, machine=device.machine_hash, platform=device.platform,
            challenge=challenge(verifier), state=state, redirect_uri=listener.redirect_uri if listener else None,
        )  # fmt: skip
        begun = connection.post("/v1/login/begin", question, LoginBegun)
        if urlsplit(begun.authorize_url).scheme not in ("https", "http"):
            raise LoginFailed(f"{server} answers with no address to go to.", "Nothing was changed.")
        yield Login(connection, begun, verifier, listener, device)
    finally:
        connection.close()
        if listener:
            listener.close()


def challenge(verifier: str) -> str:
    """S256 of RFC 7636."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def keep(home: Home, auth: Auth, device: Device) -> bool:
    """Write the login down in place of an earlier one, whose token is revoked; False where its server did not say
    that it is."""
    before = before_this(home)
    try:
        auth_file.write(home, auth)
    except OSError:
        revoke(auth, device)  # nobody would have it
        raise
    _say(home, device, LoginCompleted(server=auth.server, device=auth.device))
    return before is None or before.token == auth.token or revoke(before, device)


def before_this(home: Home) -> Auth | None:
    """The login that holds; None also where its file is damaged, which a new login replaces."""
    try:
        return auth_file.read(home)
    except ProsaError:
        return None


def logout(home: Home, device: Device) -> tuple[Auth, bool] | None:
    """Forget the login; it, and whether its server knows that the token is void. None: there was none."""
    auth = auth_file.read(home)
    if auth is None:
        return None
    revoked = revoke(auth, device)
    auth_file.remove(home)
    _say(home, device, LogoutCompleted(server=auth.server, device=auth.device))
    return auth, revoked


def revoke(auth: Auth, device: Device) -> bool:
    """Whether the server takes this token no longer; it may have been void before."""
    connection = Connection(auth.server, auth.token, device.id)
    try:
        connection.post("/v1/logout", None, Done)
    except NotLoggedIn:
        return True
    except ProsaError:
        return False
    finally:
        connection.close()
    return True


def _say(home: Home, device: Device, event: Event) -> None:
    """In the log, where there is one: before the first sync there is none, and nothing it would belong to."""
    if not home.log.exists():
        return
    from prosa.events.log import Draft, Log

    stream = f"login-{device.id}"
    with Log(home.log, machine=device.machine_hash) as log:
        log.locate()
        last = log.last(stream, log.local)
        log.append([Draft(stream, last.stream_version if last else 0, event)])
