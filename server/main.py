"""The program `prosa-server`: serves, migrates, rebuilds, and gives out tokens for programs that read.

With --dev it brings its own Postgres and a folder for raw, and lets everybody on this machine sign in.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from prosa.events.errors import ProsaError
from prosa.server.settings import Settings, read_settings

SCOPES: Final = "reports", "metadata", "everything"


def main() -> None:
    """The entry point of the `prosa-server` command."""
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    asked = _parser().parse_args(words)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        with _opened_settings(dev=asked.dev) as settings:
            return asyncio.run(_do(asked, settings))
    except ProsaError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def _stop(*_: object) -> None:
    """Unwinds whatever is at work, so that a Postgres of our own never outlives us."""
    raise SystemExit(0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="prosa-server",
        description="The server of prosa: keeps what your devices push, and answers their questions.",
        epilog="Settings come from the environment: PROSA_DB_URL, PROSA_S3_*, PROSA_LISTEN and others.",
    )
    parser.add_argument(
        "--dev", action="store_true",
        help="its own Postgres and a folder for raw below $PROSA_HOME/server; everybody on this machine may sign in",
    )  # fmt: skip
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("serve", help="serve until it is told to stop (without a command, too)")
    commands.add_parser("migrate", help="make or change the log's tables, and end")
    rebuild = commands.add_parser("rebuild", help="make the projections anew beside the serving ones, then switch")
    rebuild.add_argument("--check", action="store_true", help="compare only; ends with 1 where they differ")
    token = commands.add_parser("token", help="tokens for programs that read").add_subparsers(
        dest="action", metavar="ACTION", required=True
    )
    create = token.add_parser("create", help="print a new token, once")
    create.add_argument("name", help="what it is for")
    create.add_argument("--scope", choices=SCOPES, default="reports", help="what it may read (default: reports)")
    create.add_argument("--days", type=int, default=90, help="how long it is taken (default: 90)")
    token.add_parser("list", help="every token that was given, also those of devices")
    token.add_parser("revoke", help="a token is no longer taken").add_argument("id", help="its public id")
    return parser


@contextlib.contextmanager
def _opened_settings(*, dev: bool) -> Iterator[Settings]:
    """The environment's; with `dev` completed by a Postgres that runs while the block does."""
    settings = read_settings(os.environ, dev=dev)
    if not dev:
        yield settings
        return
    from prosa.server.dev import complete

    with complete(settings) as completed:
        yield completed


async def _do(asked: argparse.Namespace, settings: Settings) -> int:
    match asked.command:
        case "migrate":
            return await _migrate(settings)
        case "rebuild":
            return await _rebuild(settings, only_check=asked.check)
        case "token":
            return await _token(asked, settings)
        case _:
            from prosa.server.serving import serve

            return await serve(settings)


async def _migrate(settings: Settings) -> int:
    from prosa.server.migrate import migrate

    assert settings.db_url is not None
    ran = await migrate(settings.migrate_url or settings.db_url, settings.db_url)
    print("\n".join(ran) if ran else "There is nothing to migrate.")
    return 0


async def _rebuild(settings: Settings, *, only_check: bool) -> int:
    from prosa.server import rebuilding
    from prosa.server.app import open_server

    async with open_server(settings, working=False) as server:
        found = await (rebuilding.check(server) if only_check else rebuilding.rebuild(server))
    for line in found:
        print(line)
    if only_check:
        print("The projections differ from the log." if found else "The projections are as the log makes them.")
        return 1 if found else 0
    print("The projections were made anew and serve now.")
    return 0


async def _token(asked: argparse.Namespace, settings: Settings) -> int:
    from prosa.server import tokens
    from prosa.server.app import open_server

    async with open_server(settings, working=False) as server:
        match asked.action:
            case "create":
                token, id = await tokens.issue(server, asked.scope, name=asked.name, by="admin", days=asked.days)
                print(f"Token {id} reads {asked.scope} for {asked.days} days. It is shown only now:", file=sys.stderr)
                print(token)
            case "revoke":
                await tokens.revoke(server, asked.id, "admin")
                print(f"Token {asked.id} is no longer taken.")
            case _:
                sys.stdout.write(msgspec.json.format(msgspec.json.encode(await tokens.listed(server))).decode() + "\n")
    return 0


if __name__ == "__main__":
    main()
