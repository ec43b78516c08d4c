"""`auth.json` in the configuration folder: which server this device may talk to, and the token it shows there."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from prosa.events.errors import ProsaError
from prosa.events.home import Home, private_folder, sync_folder


class Auth(msgspec.Struct, frozen=True, kw_only=True):
    """A login."""

    server: str
    """Base URL without a slash at the end."""
    token: str
    device: str
    """Fingerprint the token was issued to."""
    server_id: str
    """Of the server's log: receipts of another one say nothing about this one."""
    expires_at_us: int | None = None
    owner: str = ""


def path(home: Home) -> Path:
    return home.config / "auth.json"


def read(home: Home) -> Auth | None:
    """The login; None where there is none. Raises ProsaError for a file that cannot be understood."""
    try:
        text = path(home).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(text, type=Auth)
    except msgspec.DecodeError as bad:
        raise ProsaError(
            f"{path(home)} is no login of prosa: {bad}.", "Nothing was changed.", "Log in again: prosa login"
        ) from None


def write(home: Home, auth: Auth) -> None:
    """Replace the login, whole and 0600 at every moment."""
    file = path(home)
    private_folder(file.parent)
    aside = file.with_name("auth.json.new")
    aside.unlink(missing_ok=True)
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as opened:
        opened.write(msgspec.json.format(msgspec.json.encode(auth), indent=2) + b"\n")
        opened.flush()
        os.fsync(opened.fileno())
    aside.replace(file)
    sync_folder(file.parent)


def remove(home: Home) -> bool:
    """Forget the login; whether there was one."""
    try:
        path(home).unlink()
    except FileNotFoundError:
        return False
    return True
