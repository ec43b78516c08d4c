"""One push: what the server lacks of this device's raw, then of its events; then what it has shown to hold is noted.

The log is the outbox: what is left to send is worked out from where both sides end, so a push can be cut off anywhere
and the next one goes on. The first network error ends it; what was appended here is never waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from itertools import islice
from typing import Final, Literal, NamedTuple

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
from prosa.events.restating import fork_and_restate, void_after
from prosa.projections.aliases import SAME_MACHINE
from prosa.projections.index import open_index
from prosa.sync.http import Connection, NotLoggedIn, ServerRefused, Unreachable
from prosa.sync.merging import merge_at_server
from prosa.sync.plan import Fork, Here, Send, Step, There, plan
from prosa.sync.receipts import Receipts, Unsent, unconfirmed
from prosa.sync.report import Left, PushItem, PushSummary
from prosa.sync.uploads import Progress, Uploaded, missing, upload

ROUNDS: Final = 4
"""How often heads are compared in one push: a fork or a server that lost data costs another round."""
FORKING: Final = frozenset({"forked", "other_device"})
PROBES: Final = 16
"""Places of an origin that are compared by one request."""
CONFIRM_EVERY: Final = 200
MANIFEST_PAGE: Final = 1_000
OTHERS: Final = "the server has other events of it, or more: this log was copied or restored"
NO_EVENTS: Final = Head(0, bytes(32))

AskHeads = Callable[[], Heads]
"""Gives the heads that were asked for a moment ago, or raises what the asking raised."""
Settle = Callable[[], None]
"""Brings the index to the log's head."""


class Part(NamedTuple):
    """One origin of the log and what to do with it."""

    origin: Origin
    position: int
    """Its last event that holds here."""
    step: Step


def ask_heads(connection: Connection, log: Log) -> Heads:
    """The request that every push begins with, and an unchanged one ends with."""
    good = void_after(log)
    names = []
    for origin in log.origins:
        if origin.scope == "shared":
            names += [origin.origin.hex(), _at(origin, good.get(origin.number, log.head_of(origin)[0]))]
    return connection.ask("/v1/heads", Heads, {"origin": names})


def _at(origin: Origin, position: int) -> str:
    return f"{origin.origin.hex()}@{position}"


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

    def run(self, heads: AskHeads | None) -> Iterator[PushItem | PushSummary]:
        started = time.monotonic()
        summary = self._summary
        try:
            yield from self._rounds(heads)
        except (Unreachable, NotLoggedIn) as why:
            summary.status, summary.reason, summary.next_step = "offline", why.what, why.next_step or None
        except LockedError as why:
            summary.status, summary.reason, summary.next_step = "partial", why.what, why.next_step or None
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
            parts = self._compare(heads)
            if number == 0 and asked and any(isinstance(part.step, Fork) for part in parts):
                heads = ask_heads(self._connection, self._log)  # what was asked before the log went on decides nothing
                parts = self._compare(heads)
            self._position = heads.position
            if number == 0:
                yield from self._send_raw(lost=any(part.step.lost for part in parts if isinstance(part.step, Send)))
            again = False
            for part in parts:
                if isinstance(part.step, Send):
                    again |= yield from self._send_origin(part, part.step)
                elif isinstance(part.step, Fork):
                    yield self._fork(part.origin, part.step.reason, self._common(part.origin, part.step.most), OTHERS)
                    again = True
            if not again:
                break
        self._reconcile()

    # where both sides are

    def _heads(self, asked: AskHeads | None) -> Generator[PushItem, None, Heads]:
        try:
            return asked() if asked else ask_heads(self._connection, self._log)
        except ServerRefused as refused:
            if not merge_at_server(self._home, self._connection, refused):
                raise
        yield PushItem(what="device", id=self._connection.device, status="merged", reason=SAME_MACHINE)
        return ask_heads(self._connection, self._log)

    def _compare(self, heads: Heads) -> list[Part]:
        good = void_after(self._log)
        parts = []
        for origin in self._log.origins:
            if origin.scope != "shared":
                continue
            there = heads.origins.get(origin.origin.hex(), NO_EVENTS)
            position = good.get(origin.number, self._log.head_of(origin)[0])
            here = Here(
                position,
                self._log.hash_at(origin, position) or b"",
                self._log.hash_at(origin, there.position) if there.position <= position else None,
                self._receipts.acknowledged(origin),
                origin == self._log.shared,
            )
            at = heads.origins.get(_at(origin, position)) if position else NO_EVENTS
            step = plan(here, There(there.position, there.hash, at.hash if at else None))
            if here.hash_there == there.hash:
                self._there[origin.number] = there
            elif not isinstance(step, Fork):
                self._there[origin.number] = Head(position, here.hash)
            parts.append(Part(origin, position, step))
        return parts

    def _common(self, origin: Origin, most: int) -> int:
        """Up to where both sides have the same events of an origin: equal hashes mean that all before are equal."""
        least = 0
        while least < most:
            step = max(1, (most - least) // PROBES)
            places = [*range(least + step, most, step), most]
            names = [_at(origin, place) for place in places]
            there = self._connection.ask("/v1/heads", Heads, {"origin": names}).origins
            for place, name in zip(places, names, strict=True):
                if name not in there or there[name].hash != self._log.hash_at(origin, place):
                    most = place - 1
                    break
                least = place
        return least

    # raw

    def _send_raw(self, *, lost: bool) -> Iterator[PushItem]:
        with closing(open_index(self._home.index, read_only=True)) as index:
            unproven = unconfirmed(index, self._receipts.server, lost=False)
            asked = unconfirmed(index, self._receipts.server, lost=True) if lost else unproven
        self._unproven = {raw.sha256: raw for raw in unproven if self._store.has(raw.sha256)}
        here = [raw for raw in asked if self._store.has(raw.sha256)]
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
            if page.next is None or page.next == after:
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
        with held(self._home.locks, "sync"):
            fork_and_restate(self._log, reason, origin, good)
            self._settle()
        return PushItem(what="origin", id=origin.origin.hex(), status="forked", reason=why)

    # what is noted

    def _say_acknowledged(self) -> None:
        for origin in self._log.origins:
            head = self._there.get(origin.number)
            if head and head.hash and head.position and self._receipts.acknowledged(origin) != head.position:
                self._receipts.say_acknowledged(origin, head, self._position)

    def _left(self) -> Left:
        if not self._there:
            with closing(open_index(self._home.index, read_only=True)) as index:
                found = unconfirmed(index, self._receipts.server, lost=False)
            self._unproven = {raw.sha256: raw for raw in found if self._store.has(raw.sha256)}
        good = void_after(self._log)
        events = 0
        for origin in self._log.origins:
            if origin.scope == "shared":
                there = self._there.get(origin.number)
                known = there.position if there else self._receipts.acknowledged(origin)
                events += max(0, good.get(origin.number, self._log.head_of(origin)[0]) - known)
        return Left(len(self._unproven), events)
