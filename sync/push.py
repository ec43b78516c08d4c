"""One push: what the server lacks of this device's raw, then of its events; then what it has shown to hold is noted.

The log is the outbox: what is left to send is worked out from where both sides end, so a push can be cut off anywhere
and the next one goes on. The first network error ends it; what was appended here is never waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal

from prosa.events.errors import LockedError, ProsaError
from prosa.events.home import Home
from prosa.events.locks import held
from prosa.events.log import Log, Origin
from prosa.events.messages import (
    EVENTS_BYTES,
    EVENTS_LIMIT,
    MISSING_LIMIT,
    ConfirmAnswer,
    ConfirmQuestion,
    Head,
    Heads,
    Manifest,
    PushBatch,
    PushedEvent,
    Receipt,
)
from prosa.events.raw import RawStore
from prosa.projections.index import open_index
from prosa.sync.heads import Part, ask_heads, common, compare, ends
from prosa.sync.http import Connection, NotLoggedIn, ServerRefused, Unreachable
from prosa.sync.plan import Fork, Send
from prosa.sync.receipts import Receipts, Unsent, unconfirmed
from prosa.sync.report import Left, PushItem, PushSummary

if TYPE_CHECKING:
    from prosa.sync.uploads import Uploaded

UNREACHABLE: Final = Unreachable.exit_code
ROUNDS: Final = 4
"""How often heads are compared in one push: a fork or a server that lost data costs another round."""
FORKING: Final = frozenset({"forked", "other_device"})
CONFIRM_EVERY: Final = 200
MANIFEST_PAGE: Final = 1_000
OTHERS: Final = "the server has other events of it, or more: this log was copied or restored"

Progress = Callable[[int, int | None, str], None]
"""Sent, how much in all, and whether it is `raw` in bytes or `events`."""
AskHeads = Callable[[], Heads]
"""Gives the heads that were asked for a moment ago, or raises what the asking raised."""
Settle = Callable[[], None]
"""Brings the index to the log's head."""


def push(
    home: Home, log: Log, connection: Connection, settle: Settle, progress: Progress, heads: AskHeads | None = None
) -> Iterator[PushItem | PushSummary]:
    """Send what the server lacks; the last item is the summary. The index must be at the log's head.

    Raises LockedError where another push runs. A server that cannot be reached, or does not take this device's
    login, is said in the summary.
    """
    with held(home.locks, "push"):
        yield from _Push(home, log, connection, settle, progress).run(heads)


class _Push:
    def __init__(self, home: Home, log: Log, connection: Connection, settle: Settle, progress: Progress) -> None:
        self._home, self._log, self._connection = home, log, connection
        self._settle, self._progress = settle, progress
        self._store = RawStore(home.raw)
        self._receipts = Receipts(log, connection.server_id)
        self._summary = PushSummary(server=connection.server)
        self._there: dict[int, Head] = {}
        """By number of the origin: where the server's copy ends, as far as it is ours."""
        self._unproven: dict[str, Unsent] = {}
        """Raw that is here and not confirmed yet, by sha256."""
        self._position = 0
        self._opened_before = {origin.origin for origin in log.origins}

    def run(self, heads: AskHeads | None) -> Iterator[PushItem | PushSummary]:
        started = time.monotonic()
        summary = self._summary
        self._log.locate()
        try:
            yield from self._rounds(heads)
        except ProsaError as why:
            summary.status = "offline" if why.exit_code == UNREACHABLE else "partial"
            summary.refused += why.exit_code not in (UNREACHABLE, LockedError.exit_code)
            summary.reason, summary.next_step = why.what, why.next_step or None
        finally:
            self._say_acknowledged()
        summary.left = self._left()
        if summary.status == "complete" and (summary.refused or summary.left != Left()):
            summary.status = "partial"
        if self._receipts.said:
            self._settle()
        summary.seconds = round(time.monotonic() - started, 3)
        yield summary

    def _rounds(self, asked: AskHeads | None) -> Iterator[PushItem]:
        for number in range(ROUNDS):
            heads = yield from self._heads(asked if number == 0 else None)
            if number == 0:
                self._receipts = Receipts(self._log, heads.server)
            parts = self._compared(heads)
            if number == 0 and asked and any(isinstance(part.step, Fork) for part in parts):
                heads = ask_heads(self._connection, self._log)  # what was asked before the log went on decides nothing
                parts = self._compared(heads)
            self._position = heads.position
            if number == 0:
                yield from self._send_raw(lost=any(part.step.lost for part in parts if isinstance(part.step, Send)))
            again = False
            for part in parts:
                if isinstance(part.step, Send):
                    again |= yield from self._send_origin(part, part.step)
                elif isinstance(part.step, Fork):
                    yield self._fork(
                        part.origin,
                        part.step.reason,
                        common(self._connection, self._log, part.origin, part.step.most),
                        OTHERS,
                    )
                    again = True
            if not again:
                break
        self._reconcile()

    # where both sides are

    def _heads(self, asked: AskHeads | None) -> Generator[PushItem, None, Heads]:
        try:
            return asked() if asked else ask_heads(self._connection, self._log)
        except ServerRefused as refused:
            from prosa.sync.merging import merge_at_server

            if not merge_at_server(self._home, self._connection, refused):
                raise
        yield PushItem(what="device", id=self._connection.device, status="merged", reason="the same machine")
        return ask_heads(self._connection, self._log)

    def _compared(self, heads: Heads) -> list[Part]:
        parts = compare(self._log, self._receipts, heads)
        self._there = {part.origin.number: part.there for part in parts if part.there is not None}
        return parts

    # raw

    def _send_raw(self, *, lost: bool) -> Iterator[PushItem]:
        here = self._here(lost=lost)
        if not here:
            return
        from prosa.sync.uploads import missing, upload

        self._unproven = {raw.sha256: raw for raw in (self._here(lost=False) if lost else here)}
        gone = missing(self._connection, here)
        done: list[tuple[str, str, str]] = []
        try:
            for item in upload(
                self._connection, self._store, [raw for raw in here if raw.sha256 in gone], self._progress
            ):
                if item.stored is not None:
                    self._unproven.pop(item.raw.sha256, None)
                    done += [(session, item.raw.sha256, item.stored.uri) for session in item.raw.sessions]
                    self._summary.sent += 1
                    self._summary.bytes += item.raw.stored
                elif not item.reason:
                    self._unproven.pop(item.raw.sha256, None)
                    continue
                yield self._say_raw(item)
                if len(done) >= CONFIRM_EVERY:
                    self._confirm(done)
                    done = []
        finally:
            self._confirm(done)

    def _say_raw(self, item: Uploaded) -> PushItem:
        raw = item.raw
        if item.stored is None:
            self._summary.refused += 1
            self._receipts.say_refused(f"raw {raw.sha256}", item.reason, item.retry_after_s)
        status: Literal["sent", "refused"] = "sent" if item.stored else "refused"
        return PushItem(
            what="raw", id=raw.sha256, status=status, sessions=list(raw.sessions),
            bytes=raw.stored if item.stored else 0, reason=item.reason or None,
        )  # fmt: skip

    def _confirm(self, found: list[tuple[str, str, str]]) -> None:
        self._receipts.say_confirmed(found, self._position)
        self._summary.confirmed += len(found)

    def _reconcile(self) -> None:
        """Raw the server had already: by its manifest, and what is not in its tables yet by a look at its store."""
        if not self._unproven:
            return
        wanted = {(session, raw.sha256) for raw in self._unproven.values() for session in raw.sessions}
        found: list[tuple[str, str, str]] = []
        after: str | None = None
        while True:
            page = self._connection.get("/v1/manifest", Manifest, {"after": after, "limit": MANIFEST_PAGE})
            found += [(e.session, e.sha256, e.uri) for e in page.entries if (e.session, e.sha256) in wanted]
            if page.next is None or page.next == after or not page.entries:
                break
            after = page.next
        rest = sorted(wanted - {(session, raw) for session, raw, _ in found})
        for start in range(0, len(rest), MISSING_LIMIT):
            question = ConfirmQuestion(rest[start : start + MISSING_LIMIT])
            answer = self._connection.post("/v1/prune/confirm", question, ConfirmAnswer)
            found += [(copy.session, copy.sha256, copy.uri) for copy in answer.copies if copy.held]
        self._confirm(found)
        still = wanted - {(session, raw) for session, raw, _ in found}
        self._unproven = {raw: self._unproven[raw] for _, raw in still}

    # events

    def _send_origin(self, part: Part, step: Send) -> Generator[PushItem, None, bool]:
        """Send one origin's events. Returns whether the heads must be compared again."""
        origin, name = part.origin, part.origin.origin.hex()
        good = Head(step.after, self._log.hash_at(origin, step.after) or b"")
        size = 0
        try:
            for events in self._batches(origin, step.after, part.position):
                receipt = self._connection.post("/v1/events", PushBatch(name, good, events), Receipt)
                if receipt.head != Head(events[-1].origin_position, events[-1].hash):
                    raise ProsaError("The server's receipt is not for what was sent.", "Everything is kept here.")
                good = self._there[origin.number] = receipt.head
                self._position = max(self._position, receipt.position_to)
                self._summary.events += len(events)
                size += sum(len(event.body or b"") for event in events)
                self._progress(good.position, part.position, "events")
        except ServerRefused as refused:
            code = refused.problem.code
            if code == "conflict":
                return True  # it lost data, or another process was faster, since the heads were compared
            if code in FORKING:
                yield self._fork(origin, "refused", good.position, refused.what)
                return True
            if isinstance(refused, NotLoggedIn):
                raise
            self._receipts.say_refused(f"events {name}", refused.what, refused.problem.retry_after_s)
            self._summary.refused += 1
            yield PushItem(what="events", id=name, status="refused", bytes=size, reason=refused.what)
            return False
        finally:
            self._summary.bytes += size
        if size:
            yield PushItem(what="events", id=name, status="sent", bytes=size)
        return False

    def _batches(self, origin: Origin, after: int, until: int) -> Iterator[list[PushedEvent]]:
        while after < until:
            batch: list[PushedEvent] = []
            size = 0
            for event in islice(self._log.of_origin(origin, after), EVENTS_LIMIT):
                size += len(event.stored or b"")
                if event.origin_position > until or (batch and size > EVENTS_BYTES):
                    break
                batch.append(PushedEvent.of(event))
            after = batch[-1].origin_position
            yield batch

    def _fork(self, origin: Origin, reason: str, good: int, why: str) -> PushItem:
        """What this log holds of the origin behind `good` is said again under a new one; the server keeps its own."""
        from prosa.events.restating import fork_and_restate

        if origin.origin not in self._opened_before:
            raise ProsaError(
                "The server says that it has other events of an origin that was opened a moment ago.",
                "Everything is kept here.",
                "Check the server; the next sync tries again.",
            )
        with held(self._home.locks, "sync"):
            fork_and_restate(self._log, reason, origin, good)
            self._settle()
        return PushItem(what="origin", id=origin.origin.hex(), status="forked", reason=why)

    # what is noted

    def _say_acknowledged(self) -> None:
        for origin in self._log.origins:
            head = self._there.get(origin.number)
            if head is not None and head.position and self._receipts.acknowledged(origin) != head.position:
                self._receipts.say_acknowledged(origin, head, self._position)

    def _left(self) -> Left:
        if not self._there:
            self._unproven = {raw.sha256: raw for raw in self._here(lost=False)}
        there = {number: head.position for number, head in self._there.items()}
        events = sum(
            max(0, end - there.get(origin.number, self._receipts.acknowledged(origin)))
            for origin, end in ends(self._log)
        )
        return Left(len(self._unproven), events)

    def _here(self, *, lost: bool) -> list[Unsent]:
        """Raw that no receipt says the server holds and whose file is here; `lost`: no receipt counts."""
        with closing(open_index(self._home.index)) as index:
            found = unconfirmed(index, self._receipts.server, lost=lost)
        return [raw for raw in found if self._store.has(raw.sha256)]
