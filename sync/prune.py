"""Removing local copies of raw that the server holds, too: planned, confirmed, said, and only then unlinked.

The whole run holds the lock that import takes, and each event is fenced by the version its session's stream had in
the plan. Wherever it is killed, a file is gone only if its event is in the log; one that is said to be pruned and is
still there is removed by the next prune or sync.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from getpass import getuser
from typing import Final, Literal

from prosa.events.catalogue import PrunePlanned, SessionPruned
from prosa.events.database import Database
from prosa.events.device import identify
from prosa.events.errors import DamageError, LockedError, ProsaError
from prosa.events.home import Home
from prosa.events.locks import held
from prosa.events.log import Draft, Log, StaleError
from prosa.events.messages import MISSING_LIMIT, ConfirmAnswer, Confirmed, ConfirmQuestion
from prosa.events.raw import RawStore
from prosa.projections.engine import open_current
from prosa.projections.index import IndexMissing
from prosa.projections.prices import Overrides
from prosa.projections.pruned import leftovers
from prosa.sync.candidates import Copy, Group, Plan, Rule, freed_by, plan
from prosa.sync.http import Connection, NotLoggedIn, ServerRefused, Unreachable
from prosa.sync.merging import merge_at_server, merge_self
from prosa.sync.prune_report import PruneAnswer, PruneItem, PruneSummary
from prosa.sync.receipts import URI

CONFIRM: Final = "/v1/prune/confirm"
NOTHING: Final = "Nothing was pruned."
NOTHING_MORE: Final = "What the server did not confirm was not removed."

Progress = Callable[[int, int | None, str], None]
"""(done, of how many, session)."""


class PruneStopped(ProsaError):
    """The server refused, or was gone in the middle."""

    def __init__(self, why: ProsaError) -> None:
        super().__init__(why.what, NOTHING_MORE, why.next_step)
        self.exit_code = why.exit_code if isinstance(why, Unreachable | NotLoggedIn) or why.exit_code == 4 else 3


def prune(
    home: Home, rule: Rule, overrides: Overrides, *, limit: int = 0, dry_run: bool = False,
    connection: Connection | None = None, progress: Progress = lambda *_: None,
) -> Iterator[PruneAnswer]:  # fmt: skip
    """Run one prune; its last item is the summary. A dry run plans and appends nothing.

    Raises NotLoggedIn without a login, PruneStopped after the summary where the server cannot be asked, LockedError
    where a sync runs.
    """
    connection = connection or Connection.of(home)
    if connection is None:
        raise NotLoggedIn
    with ExitStack() as stack:
        stack.callback(connection.close)
        if not dry_run:
            stack.enter_context(held(home.locks, "sync"))
        log = stack.enter_context(Log(home.log, machine=identify().machine_hash))
        try:
            index = open_current(home.index, home.locks, log, overrides)
        except IndexMissing:
            raise LockedError("Another prosa is building the index.", NOTHING, "Try again when it is done.") from None
        stack.enter_context(closing(index.db))
        if index.standing.behind and not dry_run:
            what = index.warning or "Another prosa is at work on the index."
            raise LockedError(what, NOTHING, "Try again in a moment.")
        run = Prune(home, log, index.db, connection, progress)
        planned = plan(index.db, run.store, connection.server_id, rule, limit)
        yield from run.show(planned) if dry_run else run.execute(planned)


class Prune:
    """One run, over a log and its index. Hold the sync lock to execute."""

    def __init__(self, home: Home, log: Log, index: Database, connection: Connection, progress: Progress) -> None:
        self._home, self._log, self._index, self._connection = home, log, index, connection
        self._progress = progress
        self.store = RawStore(home.raw)
        self._started = time.monotonic()
        self.summary = PruneSummary()
        self._position = 0
        """Of the log, that the plan was made at."""
        self._plan_id = self._rule = self._actor = ""

    def show(self, planned: Plan) -> Iterator[PruneAnswer]:
        """What executing it would do."""
        self._begin(planned)
        for group in planned.groups:
            freed = freed_by(self.store, group)
            for session in group.sessions:
                yield _item(session, "planned", group, freed)
        yield from self._skipped(planned)
        self.summary.status, self.summary.bytes = "planned", planned.bytes
        yield self._ended()

    def execute(self, planned: Plan) -> Iterator[PruneAnswer]:
        """Confirm, say and remove, group by group; the summary comes last, also before an error of the server."""
        self._begin(planned)
        self._log.locate()
        merge_self(self._log, self._index)
        self._remove_leftovers()
        self._position = planned.position
        if planned.groups:
            self._say_plan(planned)
        yield from self._skipped(planned)
        for page in _pages(planned.groups):
            try:
                answer = self._confirm([copy for group in page for copy in group.copies])
            except ProsaError as why:
                self.summary.status = "stopped"
                yield self._ended()
                raise PruneStopped(why) from why
            for group in page:
                yield from self._prune(group, answer)
                done = self.summary.pruned + self.summary.skipped + self.summary.failed
                self._progress(done, planned.sessions + len(planned.skipped), group.sessions[-1])
        self.summary.status = "partial" if self.summary.failed else "complete"
        yield self._ended()

    def _begin(self, planned: Plan) -> None:
        self._rule, self._actor = planned.rule.words, getuser()
        self.summary.rule, self.summary.sessions = planned.rule.words, planned.sessions
        self.summary.unconfirmed, self.summary.unconfirmed_bytes = planned.unconfirmed

    def _ended(self) -> PruneSummary:
        self.summary.seconds = round(time.monotonic() - self._started, 3)
        return self.summary

    def _skipped(self, planned: Plan) -> Iterator[PruneItem]:
        for session, reason in planned.skipped:
            self.summary.skipped += 1
            yield PruneItem(session=session, status="skipped", reason=reason)

    def _remove_leftovers(self) -> None:
        """What a killed run said was pruned and did not come to unlink."""
        for raw in leftovers(self._index):
            if self.store.has(raw):
                self.store.remove(raw)
                self.summary.leftovers += 1

    def _say_plan(self, planned: Plan) -> None:
        stream = f"prune-{self._log.shared.origin.hex()}"
        event = PrunePlanned(
            rule=self._rule, actor=self._actor, sessions=planned.sessions, bytes=planned.bytes,
            list_sha256=planned.list_sha256,
        )  # fmt: skip
        (recorded,) = self._log.append([Draft(stream, self._log.stream_version(stream), event)])
        self._plan_id = recorded.id.hex()

    def _confirm(self, copies: list[Copy]) -> tuple[int, Mapping[tuple[str, str], Confirmed]]:
        """The server's clock, and what it holds of these copies at this moment."""
        found: dict[tuple[str, str], Confirmed] = {}
        at_us = 0
        for start in range(0, len(copies), MISSING_LIMIT):
            question = ConfirmQuestion([(copy.session, copy.raw) for copy in copies[start : start + MISSING_LIMIT]])
            try:
                answer = self._connection.post(CONFIRM, question, ConfirmAnswer)
            except ServerRefused as refused:
                if not merge_at_server(self._home, self._connection, refused):
                    raise
                answer = self._connection.post(CONFIRM, question, ConfirmAnswer)
            at_us = at_us or answer.at_us
            found.update({(said.session, said.sha256): said for said in answer.copies})
        return at_us, found

    # one group

    def _prune(self, group: Group, answer: tuple[int, Mapping[tuple[str, str], Confirmed]]) -> Iterator[PruneItem]:
        at_us, confirmed = answer
        for copy in group.copies:
            if reason := _unconfirmed(copy, confirmed.get((copy.session, copy.raw))):
                yield from self._left(group, "skipped", reason)
                return
        try:
            versions = {session: self._version(session) for session in group.sessions}
            for copy in group.copies:
                if reason := self._damage(copy):
                    yield from self._left(group, "failed", reason)
                    return
            freed = freed_by(self.store, group)
            self._log.append(self._events(group, freed, confirmed, at_us, versions))
        except StaleError:
            yield from self._left(group, "skipped", "it changed since the plan was made")
            return
        try:
            for raw in group.files:
                self.store.remove(raw)
        except OSError as bad:
            reason = f"its file could not be removed ({bad.strerror}); the next sync tries again"
            yield from self._left(group, "failed", reason)
            return
        for session in group.sessions:
            item = _item(session, "pruned", group, freed)
            self.summary.pruned += 1
            self.summary.bytes += item.bytes
            yield item

    def _left(self, group: Group, status: Literal["skipped", "failed"], reason: str) -> Iterator[PruneItem]:
        for session in group.sessions:
            setattr(self.summary, status, getattr(self.summary, status) + 1)
            raws = [copy.raw for copy in group.of(session)]
            yield PruneItem(session=session, status=status, raws=raws, reason=reason)

    def _damage(self, copy: Copy) -> str | None:
        """What is wrong with the local bytes, which are read and hashed once more."""
        try:
            for _ in self.store.read(copy.raw, copy.size):
                pass
        except DamageError as bad:
            return bad.what
        except OSError as bad:
            return f"its copy cannot be read ({bad.strerror})"
        return None

    def _version(self, session: str) -> int:
        """Of the session's stream. Raises StaleError where something was said about it since the plan."""
        last = self._log.last(f"session-{session}")
        if last is not None and last.position > self._position:
            raise StaleError(f"{session} changed since the plan was made.")
        return last.stream_version if last else 0

    def _events(
        self, group: Group, freed: Mapping[Copy, int], confirmed: Mapping[tuple[str, str], Confirmed], at_us: int,
        versions: dict[str, int],
    ) -> list[Draft]:  # fmt: skip
        """For one transaction, fenced by the versions of the streams; they are counted up."""
        drafts = []
        for copy in group.copies:
            event = SessionPruned(
                session=copy.session, raw=copy.raw, size=copy.size, stored=freed[copy],
                server=self._connection.server, uri=confirmed[copy.session, copy.raw].uri[:URI], confirmed_at_us=at_us,
                rule=self._rule, actor=self._actor, plan=self._plan_id,
            )  # fmt: skip
            drafts.append(Draft(f"session-{copy.session}", versions[copy.session], event))
            versions[copy.session] += 1
        return drafts


def _pages(groups: tuple[Group, ...]) -> Iterator[list[Group]]:
    """Groups with about as many copies as one question takes."""
    page: list[Group] = []
    copies = 0
    for group in groups:
        copies += len(group.copies)
        if page and copies > MISSING_LIMIT:
            yield page
            page, copies = [], len(group.copies)
        page.append(group)
    if page:
        yield page


def _unconfirmed(copy: Copy, said: Confirmed | None) -> str | None:
    """Why the server's answer does not let this copy go."""
    if said is None or not said.held:
        return "the server does not hold its bytes now"
    if said.size != copy.size:
        return f"the server's copy has {said.size:,} bytes, this one {copy.size:,}"
    return None if said.projected else "the server has not read its events yet"


def _item(session: str, status: Literal["planned", "pruned"], group: Group, freed: Mapping[Copy, int]) -> PruneItem:
    copies = group.of(session)
    return PruneItem(
        session=session,
        status=status,
        raws=[copy.raw for copy in copies],
        size=sum(copy.size for copy in copies),
        bytes=sum(freed[copy] for copy in copies),
    )
