"""What doctor looks at of the server: the login here, and whether the server takes it, is ready, and tells our time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prosa.cli.checks import Check
from prosa.events.errors import ProsaError
from prosa.events.home import Home

if TYPE_CHECKING:
    from prosa.events.device import Device
    from prosa.sync.auth_file import Auth

SOON_US = 14 * 86_400_000_000
SKEW_S = 300
"""Above this, times of this machine's events stand between those of others where they did not happen."""
LIMIT_S = 5
LOG_IN = "prosa login"


def check_login(home: Home) -> Iterator[Check]:
    """The login, and the server it is for; nothing is asked of anybody where there is none."""
    from prosa.events.clock import now_us
    from prosa.events.device import identify
    from prosa.sync import auth_file

    try:
        auth = auth_file.read(home)
    except ProsaError as damaged:
        yield Check("login", "fail", damaged.what, LOG_IN)
        return
    if auth is None:
        yield Check("login", "ok", "none: everything stays on this machine", "To push to a server: prosa login")
        return
    device = identify()
    yield check_auth(auth, device, now_us())
    yield from check_server(auth, device)


def check_auth(auth: Auth, device: Device, now_us: int) -> Check:
    """What auth.json says."""
    from prosa.cli.amounts import duration

    owner = f" as {auth.owner}" if auth.owner else ""
    text = f"{auth.server}{owner}, device {device.hostname} ({device.id[:8]})"
    left_us = None if auth.expires_at_us is None else auth.expires_at_us - now_us
    if left_us is not None and left_us <= 0:
        return Check("login", "fail", f"{text}; it ended {duration(-left_us / 1_000_000)} ago", LOG_IN)
    if auth.device != device.id:
        return Check(
            "login",
            "warn",
            f"{text}; it was made by device {auth.device[:8]}: this machine's name or id changed",
            "prosa sync merges both if the machine id is the same; else: prosa login",
        )
    if left_us is not None and left_us < SOON_US:
        return Check("login", "warn", f"{text}; it ends in {duration(left_us / 1_000_000)}", LOG_IN)
    return Check("login", "ok", text if left_us is None else f"{text}; good for {duration(left_us / 1_000_000)}")


def check_server(auth: Auth, device: Device) -> Iterator[Check]:
    """Whether it answers, is ready, takes the login, and what time it has."""
    import httpx

    try:
        ready = httpx.get(f"{auth.server}/readyz", timeout=LIMIT_S)
    except httpx.HTTPError as away:
        said = str(away) or type(away).__name__
        yield Check("server", "warn", f"{auth.server} cannot be reached: {said}", "What is here is pushed later.")
        return
    yield check_answers(auth, device, ready=ready.status_code == httpx.codes.OK)
    if clock := check_clock(ready.headers.get("date")):
        yield clock


def check_answers(auth: Auth, device: Device, *, ready: bool) -> Check:
    from prosa import __version__
    from prosa.events.messages import WhoAmI
    from prosa.sync.http import Connection, ServerRefused

    connection = Connection(auth.server, auth.token, device.id)
    try:
        who = connection.ask("/v1/whoami", WhoAmI)
    except ServerRefused as refused:
        return Check("server", "fail", f"{auth.server} refuses the login: {refused.what}", LOG_IN)
    except ProsaError as trouble:
        return Check("server", "fail", trouble.what, trouble.next_step)
    finally:
        connection.close()
    text = f"{auth.server} answers, prosa {who.version}"
    if not ready:
        return Check("server", "fail", f"{text}, but it is not ready", "Look at its /readyz and its log.")
    if who.server != auth.server_id:
        return Check("server", "warn", f"{text}; it was set up anew since the login", "prosa sync sends it all again.")
    if who.version != __version__:
        return Check("server", "ok", f"{text}; this is {__version__}")
    return Check("server", "ok", text)


def check_clock(date: str | None) -> Check | None:
    """From the Date of its answer; None where that is near, or there is none."""
    from email.utils import parsedate_to_datetime
    from time import time

    from prosa.cli.amounts import duration

    try:
        skew_s = time() - parsedate_to_datetime(date or "").timestamp()
    except ValueError:
        return None
    if abs(skew_s) <= SKEW_S:
        return None
    side = "ahead of" if skew_s > 0 else "behind"
    return Check(
        "clock", "warn", f"{duration(abs(skew_s))} {side} the server's", "Set this machine's clock, or the server's."
    )
