"""One source at a time: read, hash, preserve, parse; the events come out ready to append.

The raw is durable before the event that names it is handed on. What a session's stream holds already is asked from
the log, so a content that was seen before costs a reading and says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import chain
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import apsw
import msgspec

from prosa.events.catalogue import Event, RawPreserved, SessionExtended, SessionParsed, SessionPart, SessionRestored
from prosa.events.errors import DamageError, ProsaError
from prosa.events.facts import Facts, Header
from prosa.events.log import Draft, Log, Prepared, prepare
from prosa.events.raw import RawStore, Stored
from prosa.ingest.cache import SavedFold
from prosa.ingest.continuing import between, checked, continued, has_all_rows, hashes_at, is_known_beginning
from prosa.ingest.history import History, KnownRevision
from prosa.ingest.importer import FileStat, Fold, Identity, Raw, Source, Trouble
from prosa.ingest.parts import Known, Parts, settled

if TYPE_CHECKING:
    pass

SMALL = 8 * 1024 * 1024
"""A raw up to this size is read into memory and parsed from its start; a larger one is streamed, its fold kept."""

KEY_LIMIT = 1024
"""Bytes; real ones have 50. A stream's name is hashed with 16 bits for its length."""

Status = Literal["imported", "extended", "reparsed", "unchanged", "rejected", "failed", "later", "pruned"]
"""later: another source of the same session was read in this run; read this one when that is in the log.
pruned: a raw to parse again that is not on this machine any more."""

RANK: tuple[Status, ...] = ("later", "failed", "imported", "extended", "reparsed", "unchanged", "rejected")
"""Of several sessions in one source, the first of these that one has is the source's."""


class Job(msgspec.Struct, frozen=True):
    """A source to read. `profile` is the home it lies in."""

    source: Source
    profile: str


class Reparse(msgspec.Struct, frozen=True):
    """A preserved raw to parse again: its parser is newer, or the user asked."""

    identity: Identity
    profile: str
    revision: int


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a source. Comes behind its events."""

    agent: str
    path: str
    profile: str
    status: Status
    files: tuple[FileStat, ...] = ()
    sessions: tuple[str, ...] = ()
    sha256: str = ""
    size: int = 0
    reason: str | None = None
    folds: tuple[SavedFold, ...] = ()
    superseded: tuple[str, ...] = ()
    """Raws whose content the new ones continue; to be removed once the events are in the log."""
    cwds: tuple[str, ...] = ()


Item = Prepared | Outcome
FoldOf = Callable[[str, int], SavedFold | None]


class _Done(NamedTuple):
    """One session of a source."""

    key: str
    status: Status
    raw: str
    size: int
    reason: str | None = None
    fold: SavedFold | None = None
    superseded: str | None = None
    cwd: str | None = None


class _Parse(NamedTuple):
    """One parse under way. `resumed`: the fold goes on from a saved state, so what it takes is all new."""

    raw: Raw
    profile: str
    history: History
    base: KnownRevision | None
    fold: Fold
    resumed: bool = False


class Importing:
    """Reads sources with the importers given; `log` is only read here."""

    def __init__(self, importers: Mapping[str, ModuleType], log: Log, store: RawStore, fold_of: FoldOf) -> None:
        self._importers, self._log, self._store, self._fold_of = importers, log, store, fold_of
        self._told: set[str] = set()
        """Sessions whose events may not be in the log yet."""

    def run(self, job: Job | Reparse) -> Iterator[Item]:
        """Events of one job in the order to append, then its outcome."""
        if isinstance(job, Reparse):
            yield from self._reparse(job)
            return
        source = job.source
        troubles: list[Trouble] = []
        done: list[_Done] = []
        try:
            for raw in self._importers[source.agent].raws(source, troubles.append):
                for item in self._raw(raw, job.profile):
                    if isinstance(item, _Done):
                        done.append(item)
                    else:
                        yield item
        except (OSError, DamageError) as bad:
            reason = f"{type(bad).__name__}: {bad.strerror}" if isinstance(bad, OSError) else str(bad)
            troubles.append(Trouble(source.agent, source.path, reason, retry=isinstance(bad, FileNotFoundError)))
        except Exception as bug:  # an importer's: it costs this source, is counted and said, never all the others
            if isinstance(bug, apsw.Error | MemoryError | ProsaError):
                raise
            reason = f"prosa has a bug: {type(bug).__name__}: {str(bug)[:200]}"
            troubles.append(Trouble(source.agent, source.path, reason))
        yield _outcome(job, done, troubles)

    # one session's raw

    def _raw(self, raw: Raw, profile: str) -> Iterator[Prepared | _Done]:
        if len(raw.identity.key.encode()) > KEY_LIMIT:
            yield _Done(raw.identity.key, "rejected", "", 0, f"its id has {len(raw.identity.id):,} characters")
            return
        if raw.identity.key in self._told:
            yield _Done(raw.identity.key, "later", "", 0)
            return
        history = History(self._log, raw.identity.key)
        if history.erased:
            yield _Done(raw.identity.key, "rejected", "", 0, "erased on request")
            return
        pieces = iter(raw.chunks())
        head: list[bytes] = []
        size = 0
        for piece in pieces:
            head.append(piece)
            size += len(piece)
            if size > SMALL:
                break
        else:
            yield from self._small(raw, profile, history, b"".join(head))
            return
        yield from self._large(raw, profile, history, chain(head, pieces))

    def _small(self, raw: Raw, profile: str, history: History, data: bytes) -> Iterator[Prepared | _Done]:
        """In memory, from the start."""
        digest = sha256(data).hexdigest()
        key, module = raw.identity.key, self._importers[raw.identity.agent]
        if not data:
            yield _Done(key, "rejected", digest, 0, "empty")
            return
        hash_at: Callable[[int], str | None] = lambda size: sha256(data[:size]).hexdigest()  # noqa: E731
        base, same = self._place(raw, history, digest, len(data), hash_at)
        if same is not None:
            self._bring_back(history, digest, len(data), iter((data,)))
            yield _Done(key, "unchanged", digest, len(data), same or None)
            return
        fold: Fold = module.fold(raw.identity)
        fold.feed(data)
        fold.end()
        if base is None and _is_nothing(fold):
            yield _Done(key, "rejected", digest, len(data), "not a transcript")
            return
        stored = self._preserve(history, digest, data)
        yield from self._tell(_Parse(raw, profile, history, base, fold), lambda: stored, None)

    def _large(self, raw: Raw, profile: str, history: History, pieces: Iterable[bytes]) -> Iterator[Prepared | _Done]:
        """Twice through the source: hash and decide, then store and parse only what is new."""
        key = raw.identity.key
        hashes = hashes_at(pieces, {known.size for known in history.raws.values()})
        size, whole = max(hashes.items())
        digest = whole.hexdigest()

        def hash_at(place: int) -> str | None:
            return hashes[place].hexdigest() if place in hashes else None

        base, same = self._place(raw, history, digest, size, hash_at)
        if same is not None:
            self._bring_back(history, digest, size, checked(between(raw, 0, size), sha256(), digest))
            yield _Done(key, "unchanged", digest, size, same or None)
            return
        old = history.raws[base.raw] if base else None
        grew = old is not None and hash_at(old.size) == old.sha256
        fold, skip, resumed = self._large_fold(raw, history, base if grew else None)
        parse = _Parse(raw, profile, history, base, fold, resumed)
        if old is not None and grew:
            stored = Stored(old.sha256, old.size, old.stored) if self._store.has(digest) else None
            if old.sha256 != digest:
                tail = checked(between(raw, old.size, size), hashes[old.size], digest)
                stored = self._store.extend(Stored(old.sha256, old.size, old.stored), tail, digest, size)
            if stored is not None:
                kept = stored
                rest = checked(between(raw, skip, size), hashes[skip] if skip else sha256(), digest)
                yield from self._tell(parse, lambda: kept, rest)
                return
        writer = self._store.writer(size)
        done: list[Stored] = []

        def storing() -> Iterator[bytes]:
            place = 0
            for piece in checked(between(raw, 0, size), sha256(), digest):
                writer.write(piece)
                if place + len(piece) > skip:
                    yield piece[max(0, skip - place) :]
                place += len(piece)
            done.append(self._store.keep(writer))

        try:
            yield from self._tell(parse, lambda: done[0], storing())
        finally:
            if not done:
                writer.discard()

    def _place(
        self, raw: Raw, history: History, digest: str, size: int, hash_at: Callable[[int], str | None]
    ) -> tuple[KnownRevision | None, str | None]:
        """The revision that the content is or continues; where there is nothing to say about it, why ("" or a text)."""
        if (digest, self._importers[raw.identity.agent].PARSER) in history.parsed or history.was_pruned(digest):
            return None, ""  # what was pruned comes back only with a source that changed
        if not raw.verbatim:
            # rows of a container: its first line changes with every row, and what it lacks now was said before
            same = [known for known in history.revisions.values() if known.surface == raw.surface]
            return max(same, default=None, key=lambda known: known.revision), None
        base = continued(history, hash_at, size)
        if base is None and is_known_beginning(self._store, history, digest, size):
            return None, "shorter than what is preserved"
        return base, None

    def _large_fold(self, raw: Raw, history: History, base: KnownRevision | None) -> tuple[Fold, int, bool]:
        """A fold, how many bytes it has behind it already, and whether it goes on from there."""
        module = self._importers[raw.identity.agent]
        saved = self._fold_of(raw.identity.key, base.revision) if base is not None else None
        if base is None or saved is None:
            return module.fold(raw.identity), 0, False
        now = (module.PARSER, self._log.shared.number, history.version, base.raw)
        if (saved.parser, saved.origin, saved.stream_version, saved.raw) != now:
            return module.fold(raw.identity), 0, False
        return module.fold(raw.identity, saved.state), history.raws[base.raw].size, True

    def _bring_back(self, history: History, digest: str, size: int, pieces: Iterator[bytes]) -> None:
        """Preserve again what is missing in the store, unless a longer copy has it or it was pruned."""
        continued_by = {known.extends for known in history.raws.values()}
        if (
            digest not in history.raws
            or digest in continued_by
            or self._store.has(digest)
            or history.was_pruned(digest)
        ):
            return
        writer = self._store.writer(size)
        try:
            for piece in pieces:
                writer.write(piece)
            self._store.keep(writer)
        except BaseException:
            writer.discard()
            raise

    def _preserve(self, history: History, digest: str, data: bytes) -> Stored:
        old = history.raws.get(digest)
        if old is not None and self._store.has(digest):
            return Stored(digest, old.size, old.stored)
        writer = self._store.writer(len(data))
        try:
            writer.write(data)
            return self._store.keep(writer)
        except BaseException:
            writer.discard()
            raise

    # events

    def _tell(
        self, parse: _Parse, stored: Callable[[], Stored], pieces: Iterable[bytes] | None
    ) -> Iterator[Prepared | _Done]:
        """Feed the pieces (None: all was fed); then parts, raw_preserved, and the event that ends the parse.

        `stored` is asked once all is fed: by then the raw is durable.
        """
        raw, history, base, fold = parse.raw, parse.history, parse.base, parse.fold
        self._told.add(raw.identity.key)
        known = Known(history.facts(base)) if base is not None and not parse.resumed else None
        parts, count = Parts(), 0

        def full() -> Iterator[Prepared]:
            facts = settled(fold.take())
            for part in parts.add(known.new(facts) if known else facts):
                yield draft(_part(part))

        def draft(event: Event) -> Prepared:
            item = prepare(Draft(history.stream, history.version, event))
            history.version += 1
            return item

        for piece in pieces or ():
            fold.feed(piece)
            for item in full():
                yield item
                count += 1
        if pieces is not None:
            fold.end()
        for item in full():
            yield item
            count += 1
        kept = stored()
        identity, parser = raw.identity, self._importers[raw.identity.agent].PARSER
        extends = base.raw if base is not None and base.raw != kept.sha256 else None
        if extends is not None and not raw.verbatim and not has_all_rows(self._store, history.raws[extends], kept):
            extends = None
        if kept.sha256 not in history.raws:
            yield draft(
                RawPreserved(
                    session=identity.key, sha256=kept.sha256, size=kept.size, stored=kept.stored,
                    verbatim=raw.verbatim, extends=extends,
                )
            )  # fmt: skip
        if history.left and (base is None or base.raw != kept.sha256):
            history.left = False
            yield draft(SessionRestored(session=identity.key, raw=kept.sha256))
        rest, header = parts.rest(), fold.header()
        revision = base.revision if base is not None else max(history.revisions, default=0) + 1
        fields: dict[str, Any] = {
            "session": identity.key, "agent": identity.agent, "id": identity.id, "scope": identity.scope,
            "profile": parse.profile, "surface": raw.surface, "revision": revision, "parser": parser,
            "raw": kept.sha256, "parts": count, "header": header, "turns": tuple(rest.turns),
            "usage": tuple(rest.usage), "marks": tuple(rest.marks), "compactions": tuple(rest.compactions),
        }  # fmt: skip
        if base is None:
            yield draft(SessionParsed(**fields))
        else:
            gone = known.gone() if known and raw.verbatim else ()
            yield draft(SessionExtended(gone=gone, **fields))
        saved = None
        state = fold.state() if kept.size > SMALL else None
        if state is not None:
            origin = self._log.shared.number
            saved = SavedFold(identity.key, revision, parser, origin, history.version, kept.sha256, state)
        status: Status = "imported" if base is None else "extended" if base.raw != kept.sha256 else "reparsed"
        damage = f"malformed lines: {header.malformed:,}" if header.malformed else None
        yield _Done(identity.key, status, kept.sha256, kept.size, damage, saved, extends, header.cwd)

    def _reparse(self, job: Reparse) -> Iterator[Item]:
        """Parse a preserved raw again and append the difference."""
        history = History(self._log, job.identity.key)
        base = history.revisions.get(job.revision)
        nothing = Outcome(agent=job.identity.agent, path=job.identity.key, profile=job.profile, status="unchanged")
        if base is None or base.raw not in history.raws or base.raw in history.pruned or not self._store.has(base.raw):
            if base is not None and history.was_pruned(base.raw):
                yield msgspec.structs.replace(nothing, status="pruned")
            else:
                yield msgspec.structs.replace(nothing, reason="its raw copy is not here")
            return
        preserved = history.raws[base.raw]
        raw = Raw(
            job.identity,
            lambda: self._store.read(base.raw, preserved.size),
            verbatim=preserved.verbatim,
            surface=base.surface,
        )
        fold = self._importers[job.identity.agent].fold(job.identity)
        stored = Stored(preserved.sha256, preserved.size, preserved.stored)
        try:
            for item in self._tell(_Parse(raw, job.profile, history, base, fold), lambda: stored, raw.chunks()):
                if isinstance(item, _Done):
                    folds = (item.fold,) if item.fold else ()
                    yield msgspec.structs.replace(nothing, status="reparsed", sessions=(item.key,), folds=folds)
                else:
                    yield item
        except (OSError, DamageError) as bad:
            yield msgspec.structs.replace(nothing, status="failed", reason=str(bad))


def _outcome(job: Job, done: list[_Done], troubles: list[Trouble]) -> Outcome:
    source = job.source
    statuses: set[Status] = {item.status for item in done}
    if any(trouble.lost for trouble in troubles):
        statuses.add("failed")
    status: Status = next((name for name in RANK if name in statuses), "rejected")
    reasons = [
        f"{trouble.reason}; the next sync tries again" if trouble.retry else trouble.reason for trouble in troubles
    ]
    reasons += [item.reason for item in done if item.reason]
    hashes = [item.raw for item in done]
    digest = hashes[0] if len(hashes) == 1 else sha256("".join(hashes).encode()).hexdigest()
    return Outcome(
        agent=source.agent,
        path=source.path,
        profile=job.profile,
        status=status,
        files=source.files,
        sessions=tuple(item.key for item in done if item.status != "rejected"),
        sha256=digest,
        size=sum(item.size for item in done),
        reason="; ".join(dict.fromkeys(reasons)) or ("nothing to import" if not done else None),
        folds=tuple(item.fold for item in done if item.fold),
        superseded=tuple(item.superseded for item in done if item.superseded),
        cwds=tuple(dict.fromkeys(item.cwd for item in done if item.cwd)),
    )


def _is_nothing(fold: Fold) -> bool:
    """No record of the agent at all: only damage, or another program's file."""
    header = fold.header()
    return header.malformed > 0 and header == Header(malformed=header.malformed, malformed_bytes=header.malformed_bytes)


def _part(facts: Facts) -> SessionPart:
    return SessionPart(
        turns=tuple(facts.turns),
        usage=tuple(facts.usage),
        marks=tuple(facts.marks),
        compactions=tuple(facts.compactions),
    )
