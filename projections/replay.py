"""From events to rows: applies events to an index, one at a time or a whole log at once.

A parse takes effect with the event that ends it: parts of one that never ended are passed over. A session with one
revision is written in the order of its events; where there are several (a rewritten file, another device), they are
united by key, the newest first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import apsw

from prosa.events import catalogue as c
from prosa.events import codec
from prosa.events.database import Database
from prosa.events.errors import DamageError
from prosa.events.facts import Header, moment
from prosa.events.log import LogReader, Recorded
from prosa.projections.ownership import Ownership
from prosa.projections.records import MASK, Names, Price, Writer, drop_session, span
from prosa.projections.sessions import refresh

PARSES = frozenset({c.SessionParsed.TYPE, c.SessionExtended.TYPE})
FACTS = PARSES | {c.SessionPart.TYPE}

Aside = Callable[[str, int, Exception], None]
"""Told of what cannot be applied: its stream, the first position concerned, why."""

FAULTS: Final = (
    OSError, MemoryError, apsw.FullError, apsw.IOError, apsw.BusyError, apsw.LockedError, apsw.CorruptError,
    apsw.NotADBError, apsw.NoMemError, apsw.InterruptError, apsw.ReadOnlyError,
)  # fmt: skip
"""What says nothing about an event: the machine failed, or the log could not be read."""

SESSION_BY_KEY = "SELECT sid, applied, next FROM sessions WHERE key = ?"
NEW_SESSION = """
INSERT INTO sessions (key, agent, scope, id, profile, applied, next, header) VALUES (?, ?, ?, ?, ?, 0, 1, x'80')"""
# no RETURNING inside a load: its statement savepoint makes every full-text table write a segment (7 s of 20)
PUT_RAW = """
INSERT INTO raws VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET stored = min(stored, excluded.stored),
    extends = coalesce(max(extends, excluded.extends), extends, excluded.extends)"""
PUT_REVISION = "INSERT OR REPLACE INTO revisions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
REVISIONS = """
SELECT origin, surface, revision, profile, parser, raw, first, last, latest, header FROM revisions WHERE sid = ?"""
SERVE = "UPDATE sessions SET applied = ?, next = ?, header = ?, raw = ?, profile = ?, leaf = ? WHERE sid = ?"
PUT_PUSHED = "INSERT INTO pushed VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET uri = excluded.uri"
PUT_PRUNE = """
INSERT INTO prunes VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 1) ON CONFLICT DO UPDATE SET at_us = excluded.at_us,
    server = excluded.server, uri = excluded.uri, size = excluded.size, stored = excluded.stored, plan = excluded.plan,
    gone = excluded.at_us > restored_us
WHERE (excluded.at_us, excluded.plan) > (at_us, plan)"""
PUT_RESTORED = """
INSERT INTO prunes VALUES (?, ?, 0, '', '', 0, 0, '', ?, 0) ON CONFLICT DO UPDATE SET
    restored_us = max(restored_us, excluded.restored_us), gone = at_us > max(restored_us, excluded.restored_us)"""
PUT_MERGE = """
INSERT INTO merges VALUES (?, ?, ?, ?, ?, ?, 0) ON CONFLICT DO UPDATE SET device = excluded.device,
    into_device = excluded.into_device, evidence = excluded.evidence, by = excluded.by, at_us = excluded.at_us"""
PUT_REVERT = "INSERT INTO merges VALUES (?, '', '', '', '', 0, 1) ON CONFLICT DO UPDATE SET reverted = 1"
PUT_NAME = """
INSERT INTO device_names VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET name = excluded.name, at_us = excluded.at_us,
    origin = excluded.origin, origin_position = excluded.origin_position
WHERE (excluded.at_us, excluded.origin, excluded.origin_position) > (at_us, origin, origin_position)"""
TITLED_BY = "SELECT s.sid FROM foreign_titles f JOIN sessions s ON s.leaf = f.leaf WHERE f.sid = ?"
REVISION = "SELECT first, latest, first_at FROM revisions WHERE sid = ? AND origin = ? AND surface = ? AND revision = ?"


class Ending(NamedTuple):
    """A complete parse: its last event, and the positions of all its events."""

    origin: int
    event: c.SessionParsed
    positions: list[int]

    @property
    def place(self) -> tuple[int, str, int]:
        return self.origin, self.event.surface, self.event.revision

    @property
    def first(self) -> int:
        return self.positions[0]


class Revision(NamedTuple):
    origin: int
    surface: str
    revision: int
    profile: str
    parser: str
    raw: str
    first: int
    last: int
    latest: int | None
    header: bytes


class Replay:
    """Applies events to one index inside the caller's transaction. With `bulk`, `finish` must be called at the end.

    With `aside`, what cannot be applied is told to it and passed over; without, it raises.
    """

    def __init__(
        self,
        db: Database,
        log: LogReader,
        price: Callable[[Names], Price],
        *,
        bulk: bool = False,
        aside: Aside | None = None,
    ) -> None:
        self._db, self._log, self._bulk, self._aside = db, log, bulk, aside
        self._names = Names(db)
        self._price = price(self._names)
        self._owners = Ownership(db, self.turn_text)
        self._dirty: set[int] = set()
        self._event: tuple[int, c.SessionParsed | c.SessionPart] | None = None
        self._origin_bytes = {origin.number: origin.origin for origin in log.origins}
        db.executemany("INSERT OR IGNORE INTO origins VALUES (?, ?)", list(self._origin_bytes.items()))
        if bulk:
            db.execute("CREATE TEMP TABLE arrivals (key INTEGER, id INTEGER, copied INTEGER, source INTEGER)")

    def turn_text(self, position: int, number: int) -> str:
        """A turn's text from the log; empty once its body was erased."""
        if self._event is None or self._event[0] != position:
            event = self._parse(position)
            if event is None:
                return ""
            self._event = (position, event)
        return self._event[1].turns[number].text

    # the log, in order

    def apply(self, events: Iterable[Recorded]) -> None:
        """Some events in order of arrival. Sessions are written one after the other, each once."""
        batch = list(events)
        if self._aside is None:
            self._apply(batch)
        elif self._tried(lambda: self._apply(batch)) is not None:
            self._apply_singly(batch)

    def _apply(self, batch: list[Recorded]) -> None:
        for recorded in batch:
            if recorded.type not in FACTS:
                self.note(recorded)
        for stream in self._parsed(batch):
            self.advance(stream)
        if not self._bulk:
            self.settle()

    def _apply_singly(self, batch: list[Recorded]) -> None:
        """Each event and each session by itself, so that what fails takes nothing with it."""
        for recorded in batch:
            if recorded.type not in FACTS:
                self.noted(recorded)
        for stream, position in self._parsed(batch).items():
            self.advanced(stream, position)
        self.settle()

    def _parsed(self, batch: list[Recorded]) -> dict[str, int]:
        """The streams in which a parse ended, and where first, in the order they are written."""
        parses: dict[str, int] = {}
        for recorded in batch:
            if recorded.type in PARSES:
                parses.setdefault(recorded.stream, recorded.position)
        known: list[tuple[int, str]] = []
        applied: dict[str, int] = {}
        for stream in parses:
            row = self._db.execute(SESSION_BY_KEY, (stream.removeprefix("session-"),)).fetchone()
            known.append((row[0] if row else 1 << 62, stream))
            applied[stream] = row[1] if row else 0
        self._log.expect(applied)
        # full-text row ids must rise
        return {stream: parses[stream] for _, stream in sorted(known, key=lambda pair: pair[0])}

    def noted(self, recorded: Recorded) -> None:
        """One event that is no parse; told to `aside` where it cannot be applied."""
        if self._aside is None:
            self.note(recorded)
        elif (why := self._tried(lambda: self.note(recorded))) is not None:
            self._aside(recorded.stream, recorded.position, why)

    def advanced(self, stream: str, position: int, until: int | None = None) -> None:
        """A session as `advance` has it, settled at once; told to `aside` where that cannot be."""

        def work() -> None:
            self.advance(stream, until)
            if not self._bulk:
                self.settle()

        if self._aside is None:
            work()
        elif (why := self._tried(work)) is not None:
            self._aside(stream, position, why)

    def _tried(self, work: Callable[[], None]) -> Exception | None:
        """Do some work, or leave everything as it was and say why. Raises what is no fault of an event."""
        self._db.execute("SAVEPOINT tried")
        # a bulk load looks at every session in the end
        before = None if self._bulk else (set(self._dirty), self._owners.pending())
        try:
            work()
        except FAULTS:
            raise
        except Exception as why:  # (whatever it is, it must not hold up other sessions)
            self._db.execute("ROLLBACK TO tried; RELEASE tried")
            self._names.forget()
            self._owners.forget(before and before[1])
            self._dirty = before[0] if before else set()
            return why
        self._db.execute("RELEASE tried")
        return None

    def settle(self) -> None:
        """Owners first, then the rows of every session that something changed for."""
        self._dirty |= self._owners.settle()
        for sid in sorted(self._dirty):
            if self._bulk and self._aside is not None:
                self._refreshed(sid, self._aside)
            else:
                refresh(self._db, sid, self.turn_text)
        self._dirty.clear()

    def _refreshed(self, sid: int, aside: Aside) -> None:
        why = self._tried(lambda: refresh(self._db, sid, self.turn_text))
        if why is not None:
            key, position = self._db.execute("SELECT key, applied FROM sessions WHERE sid = ?", (sid,)).fetchone()
            aside(f"session-{key}", position, why)

    def finish(self) -> None:
        """End a bulk load: claims in key order, then owners and rows."""
        self._db.execute("INSERT OR REPLACE INTO claims SELECT * FROM arrivals ORDER BY key, id")
        self._db.execute("DROP TABLE arrivals")
        self._owners.contest_all()
        self._dirty.update(sid for (sid,) in self._db.execute("SELECT sid FROM sessions"))
        self.settle()

    def note(self, recorded: Recorded) -> None:
        """One event that is no parse."""
        if recorded.erased:
            return
        event, db = recorded.event(), self._db
        match event:
            case c.DeviceIdentified():
                db.execute(
                    "INSERT OR REPLACE INTO devices VALUES (?, ?, ?, ?, ?, ?)",
                    (recorded.origin, recorded.position, event.device, event.hostname, event.machine, event.platform),
                )
            case c.SourceDetected():
                self._source(recorded.origin, event.path, event, "present", recorded.position)
            case c.SourceVanished():
                self._source(recorded.origin, event.path, event, "vanished", recorded.position)
            case c.SourceMoved():
                self._source(recorded.origin, event.path, event, "moved", recorded.position)
                self._source(recorded.origin, event.to, event, "present", recorded.position)
            case c.SourceRejected():
                self._source(recorded.origin, event.path, event, "rejected", recorded.position)
            case c.RawPreserved():
                db.execute(
                    PUT_RAW,
                    (event.sha256, event.session, event.size, event.stored, event.verbatim, event.extends),
                )
                self._touch(event.session)
            case c.SessionDescribed():
                self._describe(recorded, event.session, event.field, event.value, event.rank, event.evidence)
            case c.SessionLinked():
                self._describe(recorded, event.session, event.kind, event.other, event.rank, event.evidence)
            case c.ProjectIdentified():
                self._project(recorded.origin, event)
            case c.DeviceRenamed() | c.DeviceMerged() | c.DeviceMergeReverted():
                self._device(recorded, event)
            case c.SessionPruned() | c.SessionRestored() | c.PushConfirmed():
                self._copy(recorded, event)
            case c.BodyErased():
                if event.reason == "requested" and event.subject.startswith("session-"):
                    db.execute("INSERT OR IGNORE INTO erased VALUES (?)", (event.subject.removeprefix("session-"),))

    def _source(
        self,
        origin: int,
        path: str,
        event: c.SourceDetected | c.SourceVanished | c.SourceMoved | c.SourceRejected,
        state: str,
        position: int,
    ) -> None:
        sessions = () if isinstance(event, c.SourceRejected) else event.sessions
        profile = "default" if isinstance(event, c.SourceVanished) else event.profile
        reason = event.reason if isinstance(event, c.SourceRejected) else None
        size = 0 if isinstance(event, (c.SourceVanished, c.SourceMoved)) else event.size
        db = self._db
        old = db.execute("SELECT sessions FROM sources WHERE origin = ? AND path = ?", (origin, path)).fetchone()
        db.execute(
            "INSERT OR REPLACE INTO sources VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                origin, path, event.agent, profile, event.sha256, size, state, reason,
                json.dumps(sessions, ensure_ascii=False), position,
            ),
        )  # fmt: skip
        db.execute("DELETE FROM source_sessions WHERE origin = ? AND path = ? AND session NOT IN "
                   "(SELECT value FROM json_each(?))", (origin, path, json.dumps(sessions)))  # fmt: skip
        for key in sessions:
            db.execute("INSERT OR IGNORE INTO source_sessions VALUES (?, ?, ?)", (key, origin, path))
        if not self._bulk:
            for key in {*sessions, *(json.loads(old[0]) if old else ())}:
                self._touch(key)

    def _describe(
        self, recorded: Recorded, session: str, field: str, value: str | None, rank: int, evidence: str
    ) -> None:
        origin = self._origin_bytes[recorded.origin]
        self._db.execute(
            "INSERT OR REPLACE INTO described VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (session, field, value, rank, recorded.at_us, origin, recorded.origin_position, evidence),
        )
        self._touch(session)

    def _device(self, recorded: Recorded, event: c.DeviceRenamed | c.DeviceMerged | c.DeviceMergeReverted) -> None:
        """What is said about devices. The order of arrival changes nothing."""
        db = self._db
        match event:
            case c.DeviceRenamed():
                place = (recorded.at_us, self._origin_bytes[recorded.origin], recorded.origin_position)
                db.execute(PUT_NAME, (event.device, event.name, *place))
            case c.DeviceMerged():
                values = (event.device, event.into, event.evidence, event.by, recorded.at_us)
                db.execute(PUT_MERGE, (recorded.id.hex(), *values))
            case c.DeviceMergeReverted():
                db.execute(PUT_REVERT, (event.merge,))

    def _copy(self, recorded: Recorded, event: c.SessionPruned | c.SessionRestored | c.PushConfirmed) -> None:
        """Where the bytes of a raw are, beside this machine's store."""
        db, at_us = self._db, recorded.at_us
        match event:
            case c.SessionPruned():
                values = (event.server, event.uri, event.size, event.stored, event.plan)
                db.execute(PUT_PRUNE, (event.session, event.raw, at_us, *values))
            case c.SessionRestored():
                db.execute(PUT_RESTORED, (event.session, event.raw, at_us))
            case c.PushConfirmed():
                db.execute(PUT_PUSHED, (event.session, event.raw, event.server, event.uri, at_us))

    def _project(self, origin: int, event: c.ProjectIdentified) -> None:
        """The first answer that is more than the bare path stays."""
        db = self._db
        db.execute(
            "INSERT INTO projects VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET remote = excluded.remote, "
            "marker = excluded.marker WHERE remote IS NULL AND marker IS NULL",
            (origin, event.path, event.remote, event.marker),
        )
        if not self._bulk:
            rows = db.execute("SELECT sid FROM sessions WHERE cwd = ?", (event.path,)).fetchall()
            self._dirty.update(sid for (sid,) in rows)

    def _touch(self, key: str) -> None:
        if not self._bulk:
            row = self._db.execute(SESSION_BY_KEY, (key,)).fetchone()
            if row:
                self._dirty.add(row[0])

    # one session

    def touch_all(self, sids: set[int]) -> None:
        """Sessions whose rows must be made again."""
        self._dirty |= sids

    def advance(self, stream: str, until: int | None = None) -> None:
        """Apply every complete parse of a session, up to a position, that is not in the index yet."""
        row = self._db.execute(SESSION_BY_KEY, (stream.removeprefix("session-"),)).fetchone()
        endings = [
            ending
            for ending in self._endings(stream, row[1] if row else 0)
            if until is None or ending.positions[-1] <= until
        ]
        if not endings:
            return
        first = endings[0].event
        if row is None:
            values = (first.session, first.agent, first.scope, first.id, first.profile)
            self._db.execute(NEW_SESSION, values)
            sid, next_n = self._db.last_insert_rowid(), 1
            self._owners.appeared(sid, first.agent, first.id)
        else:
            sid, next_n = row[0], row[2]
        places = {revision[:3] for revision in self.revisions(sid)} | {ending.place for ending in endings}
        goes_on = [isinstance(ending.event, c.SessionExtended) for ending in endings]
        if len(places) == 1 and all(goes_on if row else goes_on[1:]):
            next_n = self._write_on(sid, next_n, endings, fresh=row is None)
        else:
            for ending in endings:
                self._put_revision(sid, ending, self._latest(ending.positions))
            next_n = self._unite(sid, next_n)
        serving = self._newest(self.revisions(sid))[0]
        last = endings[-1]
        header = codec.decode_as(Header, serving.header)
        self._db.execute(
            SERVE, (last.positions[-1], next_n, serving.header, serving.raw, serving.profile, header.leaf, sid)
        )
        self._dirty.add(sid)
        if header.foreign_titles:
            self._db.executemany(
                "INSERT OR REPLACE INTO foreign_titles VALUES (?, ?, ?)",
                [(title.leaf, sid, title.text) for title in header.foreign_titles],
            )
            self._dirty.update(other for (other,) in self._db.execute(TITLED_BY, (sid,)))

    def _endings(self, stream: str, after: int) -> Iterator[Ending]:
        """Complete parses of a stream behind a position; parts that never ended are passed over."""
        parts: dict[int, list[int]] = {}
        for recorded in self._log.stream(stream, after, bodies=False):
            if recorded.type == c.SessionPart.TYPE:
                parts.setdefault(recorded.origin, []).append(recorded.position)
            elif recorded.type in PARSES:
                before = parts.pop(recorded.origin, [])
                event = self._parse(recorded.position)
                if isinstance(event, c.SessionParsed):
                    if f"session-{event.session}" != stream:
                        raise DamageError(f"Event {recorded.position} is about another session than its stream.")
                    yield Ending(recorded.origin, event, [*before[len(before) - event.parts :], recorded.position])

    def _write_on(self, sid: int, next_n: int, endings: list[Ending], *, fresh: bool) -> int:
        """The session's only revision, or what was added to it, in the order of its events."""
        writer = Writer(self._db, self._names, self._price, sid, next_n)
        if not fresh:
            low, high = span(sid)
            table = "arrivals" if self._bulk else "claims"
            writer.lookup = lambda key: _one(
                self._db, f"SELECT id FROM {table} WHERE key = ? AND id BETWEEN ? AND ?", (key, low, high)
            )
        for ending in endings:
            for position in ending.positions[:-1]:
                event = self._parse(position)
                if event is not None:
                    writer.write(event, position)
            writer.write(ending.event, ending.positions[-1])
            self._put_revision(sid, ending, writer.latest)
        self._claim(sid, writer)
        return writer.next

    def _put_revision(self, sid: int, ending: Ending, latest: int | None) -> None:
        event = ending.event
        old = self._db.execute(REVISION, (sid, *ending.place)).fetchone()
        if old and isinstance(event, c.SessionExtended):
            first, first_at = old[0], old[2]
            latest = max((at for at in (latest, old[1]) if at is not None), default=None)
        else:
            header = self._log.header_at(ending.first)
            assert header is not None
            first, first_at = ending.first, header.at_us
        self._db.execute(
            PUT_REVISION,
            (
                sid, *ending.place, event.profile, event.parser, event.raw, first, first_at, ending.positions[-1],
                latest, codec.encode(event.header),
            ),
        )  # fmt: skip

    def _claim(self, sid: int, writer: Writer, old: list[tuple[int, int]] | None = None) -> None:
        gone = writer.gone if old is None else old
        if not self._bulk:
            self._owners.changed(sid, writer.claims, gone)
            return
        if gone:
            low, high = span(sid)
            self._db.execute("DELETE FROM arrivals WHERE id BETWEEN ? AND ? AND id IN (SELECT value FROM json_each(?))",
                             (low, high, json.dumps([fact for _, fact in gone])))  # fmt: skip
        self._db.executemany(
            "INSERT INTO arrivals VALUES (?, ?, ?, ?)",
            [(key, claim.id, claim.copied, claim.source) for key, claim in writer.claims.items()],
        )
        self._owners.suggest(sid, writer.claims.values())

    def _parse(self, position: int) -> c.SessionParsed | c.SessionPart | None:
        """The facts an event holds; None once they were erased."""
        recorded = self._log.at(position)
        return recorded.parse() if recorded else None

    def _latest(self, positions: Iterable[int]) -> int | None:
        latest: int | None = None
        for position in positions:
            event = self._parse(position)
            if event is None:
                continue
            for at in (
                *(turn.at for turn in event.turns), *(item.at for item in event.usage),
                *(mark.last for mark in event.marks), *(item.at for item in event.compactions),
            ):  # fmt: skip
                known = moment(at)
                if known is not None and (latest is None or known > latest):
                    latest = known
        return latest

    def revisions(self, sid: int) -> list[Revision]:
        return [Revision._make(row) for row in self._db.execute(REVISIONS, (sid,))]

    def _newest(self, revisions: list[Revision]) -> list[Revision]:
        """The serving surface's revisions: the replica with the latest activity first, in it the highest revision.

        The surface with more prompts serves; one named `~…` only where there is no other.
        """
        surfaces = {revision.surface for revision in revisions}
        if len(surfaces) > 1:
            prompts = {name: self._prompts([r for r in revisions if r.surface == name]) for name in sorted(surfaces)}
            best = max(prompts, key=lambda name: (not name.startswith("~"), prompts[name]))
            revisions = [revision for revision in revisions if revision.surface == best]
        replicas: dict[int, int] = {}
        for revision in revisions:
            replicas[revision.origin] = max(replicas.get(revision.origin, 0), revision.latest or 0)
        return sorted(
            revisions,
            key=lambda r: (-replicas[r.origin], self._origin_bytes[r.origin], -r.revision),
        )

    def _prompts(self, revisions: list[Revision]) -> int:
        events = (self._parse(position) for revision in revisions for position in self._positions(revision))
        keys = {
            turn.key
            for event in events
            if event is not None
            for turn in event.turns
            if turn.kind == "message" and turn.role == "user" and turn.counted
        }
        return len(keys)

    def _positions(self, revision: Revision) -> Iterator[int]:
        """The events of a revision, in order."""
        first = self._log.at(revision.first)
        assert first is not None
        for ending in self._endings(first.stream, revision.first - 1):
            if ending.positions[-1] > revision.last:
                break
            if ending.place == revision[:3]:
                yield from ending.positions

    def _unite(self, sid: int, next_n: int) -> int:
        """Write a session anew from all its revisions. Returns the next free n."""
        claims = "arrivals" if self._bulk else "claims"
        old = self._db.execute(f"SELECT key, id FROM {claims} WHERE id BETWEEN ? AND ?", span(sid)).fetchall()
        drop_session(self._db, sid)
        if next_n > MASK // 2:
            next_n = 1  # every number is free again; a session that is united at each sync would run out of them
        writer = Writer(self._db, self._names, self._price, sid, next_n)
        for revision in self._newest(self.revisions(sid)):
            writer.start_revision(set(writer.known))
            for position in self._positions(revision):
                event = self._parse(position)
                if event is not None:
                    writer.write(event, position)
        self._claim(sid, writer, old)
        return writer.next


def _one(db: Database, statement: str, values: tuple[int, ...]) -> int | None:
    row = db.execute(statement, values).fetchone()
    return int(row[0]) if row else None
