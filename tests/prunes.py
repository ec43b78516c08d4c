"""What the tests of prune do: log in, push until the server has projected it, prune, look at what is left."""

from __future__ import annotations

from typing import Any

from served import OWNER, Served
from store import Store

from prosa.cli.pushing import Pushing
from prosa.events.clock import now_us
from prosa.events.device import identify
from prosa.events.raw import RawStore
from prosa.events.verify import copies, leftovers, verify_log, verify_raws
from prosa.server import tokens
from prosa.server.state import Server
from prosa.sync import auth_file
from prosa.sync.candidates import DAY_US, Rule
from prosa.sync.prune import prune
from prosa.sync.prune_report import PruneItem, PruneSummary

OLD = Rule("older than 30d", now_us() - 30 * DAY_US)


def log_in(store: Store, served: Served) -> None:
    """As `prosa login` leaves this machine."""
    device = identify().id
    token, _ = served.run(lambda server: tokens.issue(server, "device", device=device, by=OWNER))
    auth = auth_file.Auth(server=served.url, token=token, device=device, server_id=served.server.id)
    auth_file.write(store.home, auth)


def push(store: Store, served: Served) -> None:
    for _ in range(2):
        *_, last = Pushing(store.home).run(lambda *_: None)
    assert last.status == "complete", last
    served.run(projected)


async def projected(server: Server) -> None:
    assert server.worker is not None
    await server.worker.wait_for(await server.pool.fetchval("SELECT position FROM log_head"))


def run(store: Store, rule: Rule = OLD, **options: Any) -> tuple[list[PruneItem], PruneSummary]:
    *items, summary = prune(store.home, rule, {}, **options)
    assert isinstance(summary, PruneSummary)
    return [item for item in items if isinstance(item, PruneItem)], summary


def here(store: Store) -> list[str]:
    return [raw for raw, _ in RawStore(store.home.raw).files()]


def whole(store: Store) -> None:
    """Every event verifies, every copy is here or said to be pruned, and a rebuild says the same."""
    with store.log() as log:
        known, raw = copies(log), RawStore(store.home.raw)
        assert [*verify_log(log), *verify_raws(raw, known.here), *leftovers(raw, known.pruned)] == []
    store.sync()
    assert store.serving() == store.rebuilt()


def key(session: str) -> str:
    return f"claude-code/{session}"
