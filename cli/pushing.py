"""The second half of a sync: what the server lacks is sent. It is asked where it stands while the first half works."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from prosa.events.home import Home

if TYPE_CHECKING:
    from prosa.cli.items import Progress
    from prosa.events.log import Log
    from prosa.events.messages import Heads
    from prosa.sync.http import Connection
    from prosa.sync.report import Prunable, PushItem, PushSummary

RETRY_S = 60
"""How long a sync that goes on (`--watch`) waits before it tries again what it could not send."""


class Pushing:
    """Pushes of one process. Without a login, every one of them is off."""

    def __init__(self, home: Home, *, enabled: bool = True, watching: bool = False) -> None:
        self._home = home
        self._connection = connect(home) if enabled else None
        self._asked = None if watching or self._connection is None else asked_beside(home, self._connection)
        self._watching, self._complete, self._last = watching, False, float("-inf")
        self._said: str | None = None
        self._events = 0

    def wanted(self, events: int) -> bool:
        """Whether to push after a sync that appended so many events."""
        self._events = events
        if self._connection is None:
            return False
        waited = time.monotonic() - self._last >= RETRY_S
        return not self._watching or (waited and not self._complete) or (events > 0 and (waited or self._complete))

    def run(self, progress: Progress) -> Iterator[PushItem | PushSummary]:
        """Device entries of this machine are merged, then everything is sent; the last item is the summary."""
        from prosa.events.device import identify
        from prosa.events.errors import LockedError
        from prosa.events.log import Log
        from prosa.sync.push import push
        from prosa.sync.report import PushSummary

        assert self._connection is not None
        asked, self._asked = self._asked, None
        with Log(self._home.log, machine=identify().machine_hash) as log, closing(self._connection):
            if self._events:  # another name of this machine was said by an event
                yield from self._merge_names(log)
            settle = partial(caught_up, self._home, log)
            try:
                for item in push(self._home, log, self._connection, settle, progress, asked):
                    if isinstance(item, PushSummary):
                        self._complete, self._last = item.status == "complete", time.monotonic()
                    yield item
            except LockedError as busy:
                yield PushSummary(status="partial", server=self._connection.server, reason=busy.what)

    def _merge_names(self, log: Log) -> Iterator[PushItem]:
        from prosa.projections.aliases import SAME_MACHINE
        from prosa.projections.index import open_index
        from prosa.sync.merging import merge_self
        from prosa.sync.report import PushItem

        with closing(open_index(self._home.index)) as db:
            merged = merge_self(log, db)
        for device in merged:
            yield PushItem(what="device", id=device, status="merged", reason=SAME_MACHINE)
        if merged:
            caught_up(self._home, log)

    def is_news(self, push: PushSummary) -> bool:
        """Whether a push did something, or went otherwise than the last one."""
        said, self._said = self._said, push.status if push.status != "off" else self._said
        return bool(push.sent or push.events or push.refused) or self._said not in (said, "complete")

    def prunable(self) -> Prunable | None:
        """What `prosa prune` could free, if it is worth saying."""
        if self._connection is None:
            return None
        from prosa.events.clock import now_us
        from prosa.projections.index import open_index
        from prosa.sync.candidates import advisory
        from prosa.sync.report import Prunable

        with closing(open_index(self._home.index)) as db:
            found = advisory(db, self._connection.server_id, now_us())
        return Prunable(sessions=found.sessions, bytes=found.bytes) if found.sessions else None


def connect(home: Home) -> Connection | None:
    """To the server this device is logged in to; what talks to servers is loaded only then."""
    from prosa.sync import auth_file

    if auth_file.read(home) is None:
        return None
    from prosa.sync.http import Connection

    return Connection.of(home)


def asked_beside(home: Home, connection: Connection) -> Callable[[], Heads] | None:
    """Ask for the heads in a thread. What is returned waits for the answer, or raises what the asking raised."""
    if not home.log.exists():
        return None
    import threading

    from prosa.events.log import Log

    answer: list[Heads] = []
    failure: list[Exception] = []

    def ask() -> None:
        try:
            from prosa.sync.heads import ask_heads

            with Log(home.log) as log:
                answer.append(ask_heads(connection, log))
        except Exception as error:  # raised where it is waited for
            failure.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()

    def wait() -> Heads:
        asking.join()
        if failure:
            raise failure[0]
        return answer[0]

    return wait


def caught_up(home: Home, log: Log) -> None:
    """Bring the index to the log's head; build it anew where it cannot follow."""
    from prosa.cli.opening import prices
    from prosa.projections.engine import open_current

    open_current(home.index, home.locks, log, prices(home)).db.close()
