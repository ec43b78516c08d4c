"""The server's settings, all from the environment; docs/server.md lists them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from prosa.events.errors import UsageError
from prosa.events.home import Home

LISTEN = "127.0.0.1:7070"


class S3Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Where raw is kept, as any S3-compatible service takes it; path-style addresses."""

    endpoint: str | None
    """None: AWS."""
    access_key: str
    secret_key: str
    bucket: str = "prosa-raw"
    region: str = "us-east-1"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    listen: str = LISTEN
    public_url: str
    """As browsers and devices reach it, without a slash at the end."""
    db_url: str | None
    """None: its own Postgres (--dev)."""
    migrate_url: str | None = None
    """A login that may change tables; None: db_url's."""
    s3: S3Settings | None
    """None: raw is kept in `raw_folder`."""
    raw_folder: Path
    work_folder: Path
    """Where workers keep what they can make again."""
    owner_emails: tuple[str, ...] = ()
    dev_login: str | None = None
    """E-mail that is signed in by a click; only on loopback."""
    github_id: str | None = None
    github_secret: str | None = None
    github_url: str = "https://github.com"
    github_api_url: str = "https://api.github.com"
    cookie_key: str = ""
    admin_token: str | None = None
    token_days: int = 365
    allowed_hosts: tuple[str, ...] = ()

    @property
    def host(self) -> str:
        return self.listen.rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.listen.rpartition(":")[2])

    @property
    def is_loopback(self) -> bool:
        return self.host in ("127.0.0.1", "::1", "[::1]", "localhost")


def read_settings(env: Mapping[str, str] = os.environ, *, dev: bool = False) -> Settings:
    """Raises UsageError that names the variable which is missing or wrong."""
    folder = Home.of(env).data / "server"
    listen = env.get("PROSA_LISTEN") or LISTEN
    if not listen.rpartition(":")[2].isdigit():
        raise UsageError(f"PROSA_LISTEN is {listen!r}, not host:port.")
    if not dev and not env.get("PROSA_DB_URL"):
        raise UsageError("PROSA_DB_URL is not set.", "Nothing was started.", "Or try it out: prosa-server --dev")
    s3 = None
    if env.get("PROSA_S3_ACCESS_KEY") or env.get("PROSA_S3_ENDPOINT"):
        missing = [name for name in ("PROSA_S3_ACCESS_KEY", "PROSA_S3_SECRET_KEY") if not env.get(name)]
        if missing:
            raise UsageError(f"{missing[0]} is not set.", "Nothing was started.")
        s3 = S3Settings(
            endpoint=env.get("PROSA_S3_ENDPOINT") or None,
            access_key=env["PROSA_S3_ACCESS_KEY"],
            secret_key=env["PROSA_S3_SECRET_KEY"],
            bucket=env.get("PROSA_S3_BUCKET") or "prosa-raw",
            region=env.get("PROSA_S3_REGION") or "us-east-1",
        )
    emails = tuple(part.strip().lower() for part in env.get("PROSA_OWNER_EMAILS", "").split(",") if part.strip())
    dev_login = env.get("PROSA_PANEL_DEV_LOGIN") or ("dev@localhost" if dev else None)
    days = env.get("PROSA_TOKEN_DAYS") or "365"
    if not days.isdigit() or not int(days):
        raise UsageError(f"PROSA_TOKEN_DAYS is {days!r}, not a number of days.")
    settings = Settings(
        listen=listen,
        public_url=(env.get("PROSA_PUBLIC_URL") or f"http://{listen}").rstrip("/"),
        db_url=env.get("PROSA_DB_URL") or None,
        migrate_url=env.get("PROSA_DB_MIGRATE_URL") or None,
        s3=s3,
        raw_folder=Path(env.get("PROSA_RAW_FOLDER") or folder / "raw"),
        work_folder=Path(env.get("PROSA_WORK_FOLDER") or folder / "work"),
        owner_emails=emails or ((dev_login.lower(),) if dev_login else ()),
        dev_login=dev_login,
        github_id=env.get("PROSA_GITHUB_CLIENT_ID") or None,
        github_secret=env.get("PROSA_GITHUB_CLIENT_SECRET") or None,
        github_url=(env.get("PROSA_GITHUB_URL") or "https://github.com").rstrip("/"),
        github_api_url=(env.get("PROSA_GITHUB_API_URL") or "https://api.github.com").rstrip("/"),
        cookie_key=env.get("PROSA_COOKIE_KEY", ""),
        admin_token=env.get("PROSA_ADMIN_TOKEN") or None,
        token_days=int(days),
        allowed_hosts=tuple(part.strip() for part in env.get("PROSA_ALLOWED_HOSTS", "").split(",") if part.strip()),
    )
    if settings.dev_login and not settings.is_loopback:
        raise UsageError(
            f"PROSA_PANEL_DEV_LOGIN lets everybody in, and PROSA_LISTEN is {listen}, not this machine alone.",
            "Nothing was started.",
            "Unset it, or listen on 127.0.0.1.",
        )
    return settings
