"""What --dev brings: a Postgres of its own, and keys that stay the same from one start to the next."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from prosa.events.home import Home, private_file, private_folder
from prosa.server.postgres import running
from prosa.server.settings import Settings

KEYS: Final = "keys.json"
WARNING: Final = """\
prosa-server --dev: EVERYBODY ON THIS MACHINE CAN SIGN IN as {email}, with one click and no password.
It listens on this machine alone. For anything else set PROSA_DB_URL and leave --dev away."""


class Keys(msgspec.Struct, frozen=True):
    cookie_key: str
    admin_token: str


@contextmanager
def complete(settings: Settings) -> Iterator[Settings]:
    """The settings with a database that runs while the block does. Whatever the environment set is kept."""
    folder = private_folder(Home.of().data / "server")
    keys = read_keys(folder / KEYS)
    print(WARNING.format(email=settings.dev_login), file=sys.stderr, flush=True)
    settings = msgspec.structs.replace(
        settings,
        cookie_key=settings.cookie_key or keys.cookie_key,
        admin_token=settings.admin_token or keys.admin_token,
    )
    if settings.db_url is not None:
        yield settings
        return
    with running(folder / "postgres") as cluster:
        yield msgspec.structs.replace(settings, db_url=cluster.url())


def read_keys(path: Path) -> Keys:
    """Made once; nobody else may read them."""
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=Keys)
    keys = Keys(secrets.token_urlsafe(32), f"prosa_admin_{secrets.token_urlsafe(32)}")
    half = private_file(path.with_name(f".{path.name}.{os.getpid()}"))
    half.write_bytes(msgspec.json.encode(keys))
    half.replace(path)
    return keys
