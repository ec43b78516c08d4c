"""Every place where a command reaches into the other rooms. No command opens a file of prosa's by itself.

Imports stand inside the functions: a command loads what it needs and no more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from prosa.events.errors import ConflictError, DamageError, LockedError, ProsaError, UpgradeError
from prosa.events.home import Home

if TYPE_CHECKING:
    from prosa.cli.items import Checked, IndexState, Progress, Rebuilt
    from prosa.events.erasing import ErasePlan
    from prosa.events.log import Log
    from prosa.ingest.importer import Importer
    from prosa.ingest.report import SyncItem, SyncOptions
    from prosa.projections.local import LocalBackend
    from prosa.projections.queries import Backend, Session
    from prosa.projections.trail import Trail
    from prosa.sync.candidates import Plan
    from prosa.sync.prune_report import PruneAnswer
    from prosa.sync.remote import RemoteBackend

PRUNED = "Its turns are still here, and the server confirmed its own copy first."
CHECKPOINT = "SELECT position, hash FROM checkpoint"


class NothingImported(ProsaError):
    """There is no log yet. Nothing to list is no failure."""

    exit_code = 0

    def __init__(self) -> None:
        super().__init__("Nothing is imported yet.", "", "Next: prosa sync")


@contextmanager
def open_log(home: Home) -> Iterator[Log]:
    """The log. Raises NothingImported where there is none."""
    if not home.log.exists():
        raise NothingImported
    from prosa.events.log import Log

    with Log(home.log) as log:
        yield log


@contextmanager
def open_log_to_append(home: Home) -> Iterator[Log]:
    """The log, as its machine writes to it. Raises NothingImported where there is none."""
    if not home.log.exists():
        raise NothingImported
    from prosa.events.device import identify
    from prosa.events.log import Log

    with Log(home.log, machine=identify().machine_hash) as log:
        yield log


@contextmanager
def open_backend(home: Home, *, remote: bool = False) -> Iterator[Backend]:
    """The queries over this device's log, or the server's over the logs of all devices.

    Either says on stderr how far its tables are behind.
    """
    if not remote:
        with open_local(home) as local:
            yield local
        return
    from prosa.cli.terminal import hint

    with open_remote(home) as backend:
        if behind := backend.behind():
            hint(f"The server's tables are {behind:,} events behind its log: it is at work on them.")
        yield backend


@contextmanager
def open_trail(home: Home, *, remote: bool = False) -> Iterator[Trail | RemoteBackend]:
    """The audit trail of this device's log, or of the server's. Raises NothingImported where there is no log."""
    if remote:
        with open_remote(home) as backend:
            yield backend
        return
    from prosa.projections.trail import Trail

    with open_log(home) as log:
        yield Trail(log)


@contextmanager
def open_remote(home: Home) -> Iterator[RemoteBackend]:
    """The server this device is logged in to. Raises NotLoggedIn where it is not."""
    from prosa.sync.http import Connection, NotLoggedIn
    from prosa.sync.remote import RemoteBackend

    connection = Connection.of(home)
    if connection is None:
        raise NotLoggedIn
    with closing(connection):
        yield RemoteBackend(connection)


@contextmanager
def open_local(home: Home) -> Iterator[LocalBackend]:
    """The queries over this device's log, caught up. Raises NothingImported where there is no log.

    Where the index cannot be caught up now, it answers from what is there and says on stderr how far behind it is.
    """
    with open_log(home) as log:
        from prosa.cli.progress import Bar
        from prosa.cli.terminal import hint
        from prosa.events.clock import now_us
        from prosa.events.raw import RawStore
        from prosa.projections.engine import open_current
        from prosa.projections.index import IndexMissing
        from prosa.projections.local import LocalBackend

        try:
            with Bar("building the index", unit="event") as bar:
                index = open_current(home.index, home.locks, log, prices(home), bar.update)
        except IndexMissing:
            raise LockedError(
                "Another prosa is building the index.", "Nothing was changed.", "Try again when it is done."
            ) from None
        with closing(index.db):
            if index.warning:
                hint(index.warning)
            elif index.standing.behind > 0:
                hint(f"The index is {index.standing.behind:,} events behind the log: another prosa is at work on it.")
            yield LocalBackend(index.db, log, RawStore(home.raw), now_us=now_us())


def run_sync(home: Home, options: SyncOptions, progress: Progress) -> Iterator[SyncItem]:
    """Detect, parse, preserve, append, project. Raises LockedError where another sync runs.

    Yields each source that did something or failed, and a SyncSummary at the end. Creates log and folders.
    """
    from prosa.cli.indexing import IndexProjector
    from prosa.ingest.run import sync

    overrides = prices(home)
    yield from sync(home, profiles(home), options, progress, lambda log: IndexProjector(home, log, overrides))


def run_prune(
    home: Home, older_than: str, age_us: int, *, limit: int, dry_run: bool, progress: Progress
) -> Iterator[PruneAnswer]:
    """Remove local copies of raw that the server holds too; see prosa.sync.prune. The last item is the summary."""
    from prosa.events.clock import now_us
    from prosa.sync.candidates import Rule
    from prosa.sync.prune import prune

    if not home.log.exists():
        raise NothingImported
    rule = Rule(f"older than {older_than}", now_us() - age_us)
    yield from prune(home, rule, prices(home), limit=limit, dry_run=dry_run, progress=progress)


def prunable_now(home: Home) -> list[Plan]:
    """What `prosa prune` would do at this moment; empty where this machine is not logged in."""
    from prosa.sync import auth_file

    auth = auth_file.read(home)
    if auth is None:
        return []
    from prosa.events.clock import now_us
    from prosa.events.raw import RawStore
    from prosa.projections.index import open_index
    from prosa.sync.candidates import DAY_US, UNTOUCHED_DAYS, Rule, plan

    rule = Rule(f"older than {UNTOUCHED_DAYS}d", now_us() - UNTOUCHED_DAYS * DAY_US)
    with closing(open_index(home.index, read_only=True)) as db:
        return [plan(db, RawStore(home.raw), auth.server_id, rule)]


def run_rebuild(home: Home, progress: Progress) -> Rebuilt:
    """Build a new index from the log and switch to it. Raises LockedError where another rebuild runs."""
    from prosa.cli.items import Rebuilt
    from prosa.events.locks import held
    from prosa.projections.building import rebuild

    start = time.monotonic()
    with open_log(home) as log, held(home.locks, "rebuild"):
        events, _ = log.head()
        digest = rebuild(home.index, log, prices(home), lambda done, total: progress(done, total, ""))
    return Rebuilt(digest=digest.whole, events=events, seconds=round(time.monotonic() - start, 3))


def check_rebuild(home: Home, progress: Progress) -> Checked:
    """Build an index aside, compare it with the one in use, switch nothing."""
    from prosa.cli.items import Checked
    from prosa.events.locks import held
    from prosa.projections.building import check

    start = time.monotonic()
    with open_log(home) as log, held(home.locks, "rebuild"):
        events, _ = log.head()
        found = check(home.index, log, prices(home), lambda done, total: progress(done, total, ""))
    return Checked(differences=found, events=events, seconds=round(time.monotonic() - start, 3))


def index_state(home: Home) -> IndexState:
    """How far the index is, without catching up."""
    import apsw

    from prosa.cli.items import IndexState
    from prosa.projections.index import IndexMissing, open_index

    with open_log(home) as log:
        head, _ = log.head()
        try:
            with closing(open_index(home.index, read_only=True)) as db:
                position, hash_ = db.execute(CHECKPOINT).fetchone() or (0, b"")
        except IndexMissing:
            return IndexState(state="missing", position=0, log_position=head)
        except UpgradeError:
            return IndexState(state="newer", position=0, log_position=head)
        except (DamageError, apsw.Error):
            return IndexState(state="damaged", position=0, log_position=head)
        known = log.header_at(position)
        if position > head:
            state = "ahead"
        elif position and (known is None or known.hash != hash_):
            state = "foreign"
        else:
            state = "current" if position == head else "behind"
        return IndexState(state=cast(Any, state), position=position, log_position=head)


def plan_erasure(home: Home, key: str | None) -> ErasePlan:
    """What erasing a session would clear; None: the bodies that later parses replaced. Nothing is changed."""
    from prosa.events.erasing import plan_session, plan_superseded
    from prosa.events.raw import RawStore

    with open_log(home) as log:
        return plan_superseded(log) if key is None else plan_session(log, RawStore(home.raw), key)


def run_erasure(home: Home, plan: ErasePlan) -> None:
    """Clear what the plan names and build the index again. Raises LockedError where a sync runs."""
    from getpass import getuser

    from prosa.events.device import identify
    from prosa.events.erasing import execute
    from prosa.events.locks import held
    from prosa.events.log import Log
    from prosa.events.raw import RawStore
    from prosa.projections.building import rebuild

    machine = identify().machine_hash
    with held(home.locks, "sync"), held(home.locks, "rebuild", wait=True), Log(home.log, machine=machine) as log:
        execute(log, RawStore(home.raw), plan, getuser())
        for suffix in ("", "-wal", "-shm"):  # saved parser states hold text; without them files are read again
            home.cache.with_name(home.cache.name + suffix).unlink(missing_ok=True)
        rebuild(home.index, log, prices(home))


def read_raw(home: Home, session: Session) -> Iterator[bytes]:
    """The preserved bytes of a session, as its agent wrote them. Raises ConflictError where they are not here."""
    from prosa.events.raw import RawStore

    copy = session.raw
    if copy is None:
        raise ConflictError(f"No raw copy of {session.key} was preserved.", "Its turns are in the log.")
    if copy.state == "pruned":
        yield from read_pruned(home, session)
        return
    try:
        yield from RawStore(home.raw).read(copy.sha256, copy.size)
    except FileNotFoundError:
        raise ConflictError(
            f"The raw copy {copy.sha256[:16]}… of {session.key} is missing.",
            "Its turns are in the log and were not changed.",
            "See what else is missing: prosa log verify --deep",
        ) from None


def read_remote(home: Home, session: Session) -> Iterator[bytes]:
    """The bytes that the server preserves."""
    if session.raw is None:
        raise ConflictError(f"No raw copy of {session.key} was preserved.", "Its turns are in the log.")
    with open_remote(home) as backend:
        yield from backend.raw(session)


def read_pruned(home: Home, session: Session) -> Iterator[bytes]:
    """The bytes from the server, which showed that it had them before they were pruned here."""
    from msgspec.structs import replace

    from prosa.sync.http import NotLoggedIn, Unreachable

    what = f"The raw copy of {session.key} was pruned from this machine"
    try:
        yield from read_remote(home, session)
    except NotLoggedIn as refused:
        why = f"{what}, and the server's copy needs a login."
        raise NotLoggedIn(replace(refused.problem, what=why, kept=PRUNED, next_step="Next: prosa login")) from None
    except Unreachable as gone:
        raise Unreachable(f"{what}; {gone.what}", PRUNED, gone.next_step, gone.retry_after_s) from None


def identify_project(cwd: Path) -> tuple[str | None, str | None]:
    """Normalised git remote and marker of a directory on this machine."""
    from prosa.ingest.projects import identify

    found = identify(str(cwd))
    return found.remote, found.marker


def importers() -> Sequence[Importer]:
    """Every agent prosa can read."""
    from prosa.ingest.agents import IMPORTERS

    return cast("Sequence[Importer]", IMPORTERS)


def agent_names() -> list[str]:
    return [importer.AGENT for importer in importers()]


def resume_words(session: Session) -> list[str] | None:
    """The agent's own command that goes on with a session; None if it has none."""
    from prosa.ingest.importer import Identity

    cwd = session.project.path if session.project else None
    for importer in importers():
        if session.agent == importer.AGENT:
            return importer.resume(Identity.from_key(session.key), cwd)
    return None


def this_device() -> str:
    """Fingerprint of this machine."""
    from prosa.events.device import identify

    return identify().id


def price_table() -> str:
    from prosa.projections.prices import table_version

    return table_version()


def profiles(home: Home) -> dict[str, dict[str, Path]]:
    """Agent → profile → its home, as configured."""
    from prosa.cli.config import read

    return read(home).profiles


def prices(home: Home) -> dict[str, dict[str, object]]:
    """Model → the user's own prices."""
    from prosa.cli.config import read

    return read(home).prices
