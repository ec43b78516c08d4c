"""One sync: look, read what changed, append, project. Holds the sync lock from beginning to end.

Order of writing: raw files, then the log, then the index and the cache. A crash at any point costs the next sync a
second reading of some files and nothing else.
"""

from __future__ import annotations

import ast
import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Protocol

from prosa import __version__
from prosa.events import catalogue as c
from prosa.events import device
from prosa.events.chain import START
from prosa.events.home import Home
from prosa.events.locks import held
from prosa.events.log import BATCH_BYTES, BATCH_EVENTS, Draft, Log, Prepared, Recorded, prepare
from prosa.events.raw import RawStore
from prosa.ingest import projects
from prosa.ingest.agents import IMPORTERS
from prosa.ingest.cache import Cache, SavedFold, Seen
from prosa.ingest.discovery import AgentHome, Found, Profiles, agent_homes, look
from prosa.ingest.importer import Aside, Identity, Trouble
from prosa.ingest.importing import Item, Outcome, Reparse
from prosa.ingest.reparsing import changes
from prosa.ingest.report import Progress, SourceDone, SyncItem, SyncOptions, SyncSummary
from prosa.ingest.worker import work, work_beside

BESIDE_BYTES = 32 * 1024 * 1024
"""With more to read than this, a second process reads while this one writes."""


class Projector(Protocol):
    """Where appended events go on to. The command line wires the index in."""

    def appended(self, events: list[Recorded]) -> None:
        """Events that were just committed."""

    def settle(self) -> None:
        """Bring the index to the log's head."""

    def described(self) -> dict[tuple[str, str, str], str | None]:
        """(session, field, evidence) → value, of all that other files were found to say."""

    def outdated(self, parsers: Mapping[str, str], everything: bool) -> list[Reparse]:
        """Revisions of this origin that another parser than the given one of their agent read last."""

    def referenced(self, raw: str) -> bool:
        """Whether the current raw of a revision is this one."""

    def superseded(self) -> list[str]:
        """Every raw that another one continues: what a killed sync may have left behind."""

    def leftovers(self, since_us: int) -> tuple[list[str], int]:
        """Raws that were pruned at or after this moment, by every session that names them; and the last prune's."""

    def sources(self) -> dict[str, Seen]:
        """Present sources as the log has them, for a cache that was lost: what they looked like is unknown."""

    def close(self, *, complete: bool) -> None:
        """The sync is over; not complete: it ended with an error."""


class Sync:
    """The work of one sync, in the order of its methods."""

    def __init__(
        self,
        home: Home,
        profiles: Profiles,
        options: SyncOptions,
        progress: Progress,
        projector: Projector,
        log: Log,
        env: Mapping[str, str],
    ) -> None:
        self._home, self._options, self._progress, self._projector = home, options, progress, projector
        self._log, self._store, self._cache = log, RawStore(home.raw), Cache(home.cache)
        chosen = [module for module in IMPORTERS if options.agent in (None, module.AGENT)]
        self._homes: list[AgentHome] = agent_homes(chosen, profiles, env, Path(env.get("HOME") or Path.home()))
        self._modules: dict[str, ModuleType] = {module.AGENT: module for module in chosen}
        self.summary = SyncSummary()
        self._batch: list[Prepared] = []
        self._batch_bytes = 0
        self._done: list[Outcome] = []
        self._cwds: dict[str, None] = {}
        self._vanished: dict[tuple[str, str], list[Seen]] = {}
        self._forgotten: list[str] = []
        self._superseded: list[str] = []
        self._later: set[str] = set()

    def run(self) -> Iterator[SyncItem]:
        started = time.monotonic()
        if self._options.dry_run:
            yield from self._would_change()
            return
        self._projector.settle()  # an index that cannot follow stops the sync before anything is appended
        self._log.locate()
        first = self._log.head()[0]
        self._identify_device()
        seen = self._remembered()
        found = look(self._homes, seen, everything=self._options.verify)
        self.summary.sources = found.sources
        for old in found.vanished:
            self._vanished.setdefault((old.agent, old.sha256), []).append(old)
        for trouble in found.troubles:
            yield self._failed(trouble)
        yield from self._read(found)
        yield from self._forget(found)
        yield from self._reparse()
        self._projector.settle()
        self._remove_superseded()
        self._remove_pruned()
        yield from self._hear_asides(seen, changed=bool(found.jobs))
        yield from self._identify_projects()
        self._projector.settle()
        self.summary.events = self._log.head()[0] - first
        self.summary.unchanged += max(0, found.sources - len(found.jobs))
        self.summary.status = "partial" if self.summary.failed else "complete"
        self.summary.seconds = round(time.monotonic() - started, 3)
        self._cache.close()
        yield self.summary

    def _remembered(self) -> dict[str, Seen]:
        """What the sources looked like, unless the log lost its end since: then everything is read again."""
        stamp = self._cache.stamp("log")
        position, hash_ = ast.literal_eval(stamp.decode()) if stamp else (0, START)
        at = self._log.header_at(position) if position else None
        if position and (at is None or at.hash != hash_):
            self._cache.clear()
        return self._cache.sources() or self._projector.sources()

    # reading

    def _read(self, found: Found) -> Iterator[SyncItem]:
        jobs = found.jobs
        if jobs:
            self._store.sweep()
        while jobs:
            size_of = {job.source.path: sum(file.size for file in job.source.files) for job in jobs}
            total = sum(size_of.values())
            beside = total > BESIDE_BYTES and _cores() > 1
            items = work_beside(self._home, jobs) if beside else work(self._home, jobs, self._log, self._cache)
            self._later = set()
            yield from self._take(items, size_of, total)
            again = [job for job in jobs if job.source.path in self._later]
            jobs = again if len(again) < len(jobs) else []

    def _take(self, items: Iterator[Item], size_of: Mapping[str, int], total: int) -> Iterator[SyncItem]:
        done = 0
        for item in items:
            if isinstance(item, Outcome) and item.status == "later":
                self._later.add(item.path)
            elif isinstance(item, Outcome):
                done += size_of.get(item.path, 0)
                self._progress(done, total, item.path)
                self.summary.bytes += item.size
                self._say_source(item)
                self._done.append(item)
                self._cwds.update(dict.fromkeys(item.cwds))
            else:
                self._put(item)
            if len(self._batch) >= BATCH_EVENTS or self._batch_bytes > BATCH_BYTES:
                yield from self._commit()
        yield from self._commit()

    def _put(self, item: Prepared) -> None:
        self._batch.append(item)
        self._batch_bytes += len(item.stored)

    def _commit(self) -> Iterator[SyncItem]:
        """Append what is gathered; then what depends on its being in the log."""
        if self._batch:
            events = self._log.append(self._batch)
            self._batch, self._batch_bytes = [], 0
            self._projector.appended(events)
            # before the rows: a cache that is newer than a restored log must not hide what the log lost
            self._cache.set_stamp("log", repr((events[-1].position, events[-1].hash)).encode())
        done, self._done = self._done, []
        seen: list[Seen] = []
        folds: list[SavedFold] = []
        for item in done:
            if item.files and item.status != "failed":
                seen.append(Seen(item.path, item.agent, item.profile, item.files, item.sha256, item.sessions))
            folds += item.folds
        forgotten, self._forgotten = self._forgotten, []
        self._cache.write(seen, folds, forgotten)
        for item in done:
            self._superseded += item.superseded
            setattr(self.summary, item.status, getattr(self.summary, item.status) + 1)
            if item.status != "unchanged" and item.status != "later" and item.status != "pruned":
                yield SourceDone(
                    agent=item.agent,
                    path=item.path,
                    status=item.status,
                    reason=item.reason,
                    sessions=list(item.sessions),
                )

    def _failed(self, trouble: Trouble) -> SourceDone:
        self.summary.failed += 1
        path = os.fsencode(trouble.path).decode("utf-8", "backslashreplace")
        return SourceDone(agent=trouble.agent, path=path, status="failed", reason=trouble.reason)

    # sources

    def _say(self, stream: str, event: c.Event) -> bool:
        """Append an observation if it differs from the last of its stream."""
        last = self._log.last(stream)
        if last is not None and not last.erased and last.event() == event:
            return False
        self._put(prepare(Draft(stream, last.stream_version if last else 0, event)))
        return True

    def _say_source(self, item: Outcome) -> None:
        stream = source_stream(item.agent, item.path)
        if item.status in ("failed", "reparsed", "pruned") or (item.status == "unchanged" and not item.sha256):
            return  # of no source, or of one that could not be read
        if item.status == "rejected":
            reason = item.reason or "nothing to import"
            self._say(
                stream,
                c.SourceRejected(
                    agent=item.agent, profile=item.profile, path=item.path, size=item.size, sha256=item.sha256,
                    reason=reason,
                ),
            )  # fmt: skip
            return
        gone = self._vanished.get((item.agent, item.sha256))
        if gone and self._log.last(stream) is None:
            old = gone.pop()
            self._put(
                prepare(
                    Draft(
                        stream, 0,
                        c.SourceMoved(
                            agent=item.agent, profile=item.profile, path=old.path, to=item.path, sha256=item.sha256,
                            sessions=item.sessions,
                        ),
                    )
                )
            )  # fmt: skip
            self.summary.moved += 1
            self._forgotten.append(old.path)  # once the event is in the log
            return
        self._say(
            stream,
            c.SourceDetected(
                agent=item.agent, profile=item.profile, path=item.path, size=item.size, sha256=item.sha256,
                sessions=item.sessions,
            ),
        )  # fmt: skip

    def _forget(self, found: Found) -> Iterator[SyncItem]:
        """Sources the agent deleted. Their sessions stay."""
        gone = [old for same in self._vanished.values() for old in same]
        for old in gone:
            event = c.SourceVanished(agent=old.agent, path=old.path, sha256=old.sha256, sessions=old.sessions)
            self._say(source_stream(old.agent, old.path), event)
        yield from self._commit()
        self._cache.write([], [], [old.path for old in gone])
        self.summary.vanished = len(gone)
        for old in gone:
            yield SourceDone(agent=old.agent, path=old.path, status="vanished", sessions=list(old.sessions))

    # beside the sources

    def _would_change(self) -> Iterator[SyncItem]:
        """A dry run: what parsing every preserved raw again would change. Nothing is appended."""
        self._projector.settle()
        parsers = {agent: module.PARSER for agent, module in self._modules.items()}
        jobs = self._projector.outdated(parsers, True)
        self.summary.pruned = yield from changes(jobs, self._modules, self._log, self._store)
        yield self.summary

    def _identify_device(self) -> None:
        here = device.identify()
        event = c.DeviceIdentified(
            device=here.id, hostname=here.hostname, machine=here.machine_hash, platform=here.platform
        )
        if self._say(f"device-{self._log.shared.origin.hex()}", event):
            list(self._commit())

    def _reparse(self) -> Iterator[SyncItem]:
        """Preserved raw whose parser is older than the importer's."""
        parsers = {agent: module.PARSER for agent, module in self._modules.items()}
        stamp = repr(sorted(parsers.items())).encode()
        if not self._options.reparse and self._cache.stamp("parsers") == stamp:
            return
        self._projector.settle()
        jobs = self._projector.outdated(parsers, self._options.reparse)
        yield from self._take(work(self._home, jobs, self._log, self._cache), {}, 0)
        if self._options.agent is None:
            self._cache.set_stamp("parsers", stamp)

    def _remove_superseded(self) -> None:
        """Raws that a longer one continues and no revision was read from last; with `verify`, also a killed sync's."""
        for raw in self._projector.superseded() if self._options.verify else self._superseded:
            if self._store.has(raw) and not self._projector.referenced(raw):
                self._store.remove(raw)

    def _remove_pruned(self) -> None:
        """Files that a killed prune left behind its events; with `verify`, also those of earlier ones."""
        seen = int(self._cache.stamp("pruned") or 0)
        raws, last = self._projector.leftovers(0 if self._options.verify else seen)
        for raw in raws:
            self._store.remove(raw)
        if last != seen:
            self._cache.set_stamp("pruned", str(last).encode())

    def _identify_projects(self) -> Iterator[SyncItem]:
        """Of directories that were named for the first time in this sync."""
        for cwd in self._cwds:
            found = projects.identify(cwd)
            if found.remote or found.marker:
                event = c.ProjectIdentified(path=cwd, remote=found.remote, marker=found.marker)
                self._say(f"project-{_short(cwd)}", event)
        yield from self._commit()

    def _hear_asides(self, seen: Mapping[str, Seen], *, changed: bool) -> Iterator[SyncItem]:
        """What shared files say about sessions; read only where they or a source changed."""
        stats = {home: _stats(home.path, home.importer.ASIDE_FILES) for home in self._homes}
        heard = [home for home in self._homes if changed or self._cache.stamp(f"asides {home.path}") != stats[home]]
        if not heard:
            return
        known = _identities(self._cache.sources() if changed else seen)
        said = self._projector.described()
        first: dict[tuple[str, str, str], AgentHome] = {}
        for home in heard:
            troubles: list[Trouble] = []
            if odd := _not_files(home.path, home.importer.ASIDE_FILES):
                for path in odd:  # opening a pipe would wait for ever
                    yield self._failed(Trouble(home.importer.AGENT, path, "neither a file nor a folder"))
                continue
            for aside in home.importer.asides(home.path, known.get(home.importer.AGENT, {}), troubles.append):
                place = (aside.identity.key, aside.field, aside.evidence)
                if first.setdefault(place, home) is not home:
                    continue  # a copied home: what the first one says holds, or the two would take turns
                if place in said and said[place] == aside.value:
                    continue
                said[place] = aside.value
                if aside.field == "cwd":
                    self._cwds[aside.value] = None
                self._append_aside(aside)
            yield from self._commit()
            for trouble in troubles:
                yield self._failed(trouble)
            if self._cache.stamp(f"asides {home.path}") != stats[home]:
                self._cache.set_stamp(f"asides {home.path}", stats[home])

    def _append_aside(self, aside: Aside) -> None:
        event: c.Event
        key = aside.identity.key
        match aside.field:
            case "parent" | "forked_from" | "cleared_from" | "resumed_from" as kind:
                event = c.SessionLinked(
                    session=key, other=aside.value, kind=kind, evidence=aside.evidence, rank=aside.rank
                )
            case field:
                event = c.SessionDescribed(
                    session=key, field=field, value=aside.value, rank=aside.rank, evidence=aside.evidence
                )
        stream = f"session-{key}"
        waiting = sum(1 for item in self._batch if item.stream == stream)
        self._put(prepare(Draft(stream, self._log.stream_version(stream) + waiting, event)))


def _identities(seen: Mapping[str, Seen]) -> dict[str, dict[str, list[Identity]]]:
    """Agent → native id → the sessions of all sources."""
    found: dict[str, dict[str, list[Identity]]] = {}
    for source in seen.values():
        for key in source.sessions:
            identity = Identity.from_key(key)
            found.setdefault(identity.agent, {}).setdefault(identity.id, []).append(identity)
    return found


def sync(
    home: Home,
    profiles: Profiles,
    options: SyncOptions,
    progress: Progress,
    project: Callable[[Log], Projector],
    env: Mapping[str, str] = os.environ,
) -> Iterator[SyncItem]:
    """Run one sync; its last item is the summary. Raises LockedError where another one runs."""
    machine = device.identify().machine_hash
    with held(home.locks, "sync"), Log(home.log, create=True, machine=machine, prosa=__version__) as log:
        projector = project(log)
        complete = False
        try:
            yield from Sync(home, profiles, options, progress, projector, log, env).run()
            complete = True
        finally:
            projector.close(complete=complete)


def source_stream(agent: str, path: str) -> str:
    """The stream of a source; its path is in the events."""
    return f"source-{agent}/{_short(path)}"


def _short(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:24]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _not_files(home: Path, names: tuple[str, ...]) -> list[str]:
    """Those that are pipes, sockets or devices."""
    found = []
    for name in names:
        with contextlib.suppress(OSError):
            mode = (home / name).stat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                found.append(str(home / name))
    return found


def _stats(home: Path, names: tuple[str, ...]) -> bytes:
    found = []
    for name in names:
        try:
            seen = (home / name).stat()
            found.append((name, seen.st_size, seen.st_mtime_ns, seen.st_ino))
        except OSError:
            found.append((name, -1, 0, 0))
    return repr(found).encode()
