"""The database's tables, changed by numbered .sql files that run once each; files are added, never edited.

Run at deploy and when a server starts, never while somebody pushes: an advisory lock lets one run at a time, and a
lock_timeout keeps a change of a table from queueing everybody behind a long reader.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

import asyncpg

from prosa.events.errors import ProsaError, UpgradeError
from prosa.server.state import OWNER

FOLDER: Final = Path(__file__).with_name("migrations")
ROLE: Final = "prosa_app"
"""As whom the server works; it may not change or delete events."""
LOCK: Final = 0x70726F73
TIMEOUT: Final = "10s"
CONNECT_S: Final = 20

HAS_TABLE: Final = "SELECT to_regclass('public.migrations') IS NOT NULL"
DONE: Final = "SELECT number FROM migrations ORDER BY number"
MAKE_TABLE: Final = """
CREATE TABLE IF NOT EXISTS migrations (
    number integer PRIMARY KEY, name text NOT NULL, done_at timestamptz NOT NULL DEFAULT now()
)"""
MAKE_ROLE: Final = f"""
DO $$ BEGIN
    CREATE ROLE {ROLE} NOLOGIN;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$"""
GRANT: Final = f"""
DO $$ BEGIN
    EXECUTE format('GRANT CREATE ON DATABASE %I TO {ROLE}', current_database());
    GRANT USAGE ON SCHEMA public TO {ROLE};
    GRANT SELECT ON migrations TO {ROLE};
END $$"""
HAS_OWNER: Final = "SELECT 1 FROM owners WHERE owner = $1"
MAY_PROJECT: Final = (
    "SELECT 1 FROM pg_roles WHERE rolname = $1 AND has_database_privilege(oid, current_database(), 'CREATE')"
)
"""A copied or restored database has lost that."""
PUT_OWNER: Final = "INSERT INTO owners (owner, log_id) VALUES ($1, $2)"
PUT_HEAD: Final = "INSERT INTO log_head (owner, position) VALUES ($1, 0)"

log = logging.getLogger(__name__)


def files() -> list[tuple[int, Path]]:
    """Number and file of every migration this server knows, in order."""
    return sorted((int(path.name.partition("_")[0]), path) for path in FOLDER.glob("*.sql"))


async def migrate(url: str, app_url: str | None = None) -> list[str]:
    """Run what has not run yet. Returns the names of the files that ran; a database that has them all is only read.

    `app_url` is the login the server uses, where that is another: it is made a member of prosa_app. Raises
    UpgradeError where a newer server was here, ProsaError where the login may not change tables or a lock is held.
    """
    connection = await _connect(url)
    try:
        done = await _done(connection)
        if not await _is_due(connection, done):
            return []
        login = await _login(app_url) if app_url and app_url != url else None
        return await _run(connection, login)
    except asyncpg.LockNotAvailableError:
        raise ProsaError(
            f"Another session held a lock for {TIMEOUT} while the database was to be changed.",
            "Nothing was changed.",
            "Try again when it is done.",
        ) from None
    except asyncpg.InsufficientPrivilegeError as refused:
        raise ProsaError(
            f"The database's login may not change its tables: {refused}.",
            "Nothing was changed.",
            "Run prosa-server migrate with PROSA_DB_MIGRATE_URL set to a login that may create roles and tables.",
        ) from None
    finally:
        await connection.close()


async def _connect(url: str) -> asyncpg.Connection:
    try:
        return await asyncpg.connect(url, timeout=CONNECT_S)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as down:
        raise ProsaError(
            f"Postgres cannot be reached: {down or type(down).__name__}.",
            "Nothing was started.",
            "Check PROSA_DB_URL and PROSA_DB_MIGRATE_URL.",
        ) from None


async def _done(connection: asyncpg.Connection) -> set[int]:
    if not await connection.fetchval(HAS_TABLE):
        return set()
    return {row["number"] for row in await connection.fetch(DONE)}


async def _is_due(connection: asyncpg.Connection, done: set[int]) -> bool:
    known = {number for number, _ in files()}
    if newer := done - known:
        raise UpgradeError(
            f"The database was changed by a newer prosa-server (migration {max(newer)}; this one knows {max(known)}).",
            "Nothing was changed.",
            "Upgrade prosa-server.",
        )
    if known - done or not await connection.fetchval(HAS_OWNER, OWNER):
        return True
    return not await connection.fetchval(MAY_PROJECT, ROLE)


async def _login(url: str) -> str:
    connection = await _connect(url)
    try:
        return str(await connection.fetchval("SELECT session_user"))
    finally:
        await connection.close()


async def _run(connection: asyncpg.Connection, login: str | None) -> list[str]:
    ran = []
    await connection.execute(f"SET lock_timeout = '{TIMEOUT}'")
    await connection.execute("SELECT pg_advisory_lock($1)", LOCK)  # the session ends with it
    done = await _done(connection)
    await connection.execute(MAKE_ROLE)
    await connection.execute(MAKE_TABLE)
    await connection.execute(GRANT)
    login = login or str(await connection.fetchval("SELECT current_user"))
    if not await connection.fetchval("SELECT pg_has_role($1::name, $2::name, 'MEMBER')", login, ROLE):
        await connection.execute(f"GRANT {ROLE} TO {_quoted(login)}")
    for number, path in files():
        if number in done:
            continue
        async with connection.transaction():
            await connection.execute(path.read_text(encoding="utf-8"))
            await connection.execute("INSERT INTO migrations (number, name) VALUES ($1, $2)", number, path.name)
        log.info("migrated", extra={"migration": path.name})
        ran.append(path.name)
    async with connection.transaction():
        if not await connection.fetchval(HAS_OWNER, OWNER):
            await connection.execute(PUT_OWNER, OWNER, os.urandom(16))
            await connection.execute(PUT_HEAD, OWNER)
    return ran


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
