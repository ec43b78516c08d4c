"""Checking what was written: every origin's numbers without gaps, its chain of hashes, the bodies, the raw copies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from prosa.events import codec
from prosa.events.catalogue import RawPreserved, SessionPruned, SessionRestored
from prosa.events.chain import START, hash_body, hash_event
from prosa.events.errors import DamageError
from prosa.events.log import Log
from prosa.events.raw import RawStore

COPIED = frozenset({RawPreserved.TYPE, SessionPruned.TYPE, SessionRestored.TYPE})


class Fault(NamedTuple):
    """One event or raw file that is not what was written."""

    where: str
    """`event 12`, `raw <sha256>`, or `log.db` itself."""
    what: str


def verify_log(log: Log, *, bodies: bool = True) -> Iterator[Fault]:
    """Faults of the whole log in order of position. Without bodies only the headers are read."""
    if bodies:
        for text in log.integrity():
            yield Fault("log.db", text)
    origins = {origin.number: origin.origin for origin in log.origins}
    heads: dict[int, tuple[int, bytes]] = {}
    versions: dict[tuple[int, str], int] = {}
    expected = 0
    for (
        position, origin, origin_position, event_id, stream, stream_version, kind, version, at_us, body_hash, hash_,
        salt, stored,
    ) in log.read(bodies=bodies):  # fmt: skip
        expected += 1
        if position != expected:
            yield Fault(f"event {position}", f"follows event {expected - 1}: what was between is missing")
            expected = position
        before_position, before = heads.get(origin) or (0, START)
        if origin_position != before_position + 1:
            yield Fault(f"event {position}", f"its origin goes from {before_position} to {origin_position}")
        if stream_version != versions.get((origin, stream), 0) + 1:
            yield Fault(f"event {position}", f"stream {stream} does not go on with version {stream_version}")
        versions[origin, stream] = stream_version
        if hash_ != hash_event(
            origins.get(origin, bytes(16)), origin_position, event_id, stream, stream_version, kind, version, at_us,
            before, body_hash,
        ):  # fmt: skip
            yield Fault(f"event {position}", "its hash does not follow from its header and the event before it")
        heads[origin] = (origin_position, hash_)
        if stored is not None and salt is not None:
            try:
                if hash_body(salt, codec.unpack(stored)) != body_hash:
                    yield Fault(f"event {position}", "its body is not the one that was written")
            except DamageError as bad:
                yield Fault(f"event {position}", bad.what)


class Copies(NamedTuple):
    """What the log says of this machine's raw copies."""

    here: dict[str, int]
    """sha256 → size of every raw that should be here: those a longer one continues were removed for it."""
    pruned: set[str]
    """Raws that every session which names them pruned."""


def copies(log: Log) -> Copies:
    """Read from the events that preserve, prune and restore."""
    sizes: dict[str, int] = {}
    holders: dict[str, set[str]] = {}
    continued: set[str] = set()
    for header in log.read(bodies=False):
        if header.type not in COPIED:
            continue
        recorded = log.at(header.position)
        if recorded is None or recorded.erased:
            continue
        match recorded.event():
            case RawPreserved() as event:
                sizes[event.sha256] = event.size
                holders.setdefault(event.sha256, set()).add(event.session)
                if event.extends:
                    continued.add(event.extends)
            case SessionPruned() as event:
                holders.setdefault(event.raw, set()).discard(event.session)
            case SessionRestored() as event:
                holders.setdefault(event.raw, set()).add(event.session)
    pruned = {digest for digest, sessions in holders.items() if not sessions}
    gone = continued | pruned
    return Copies({raw: size for raw, size in sizes.items() if raw not in gone}, pruned)


def preserved(log: Log) -> dict[str, int]:
    """sha256 → size of every raw that should be here."""
    return copies(log).here


def verify_raws(raw: RawStore, sizes: dict[str, int]) -> Iterator[Fault]:
    """Every copy is read and hashed."""
    for digest, size in sorted(sizes.items()):
        if not raw.has(digest):
            yield Fault(f"raw {digest}", "the file is missing")
        elif not raw.verify(digest, size):
            yield Fault(f"raw {digest}", f"its first {size:,} bytes do not have this hash")


def leftovers(raw: RawStore, pruned: set[str]) -> Iterator[Fault]:
    """Copies that are pruned and still there, as a killed prune leaves one."""
    for digest in sorted(pruned):
        if raw.has(digest):
            yield Fault(f"raw {digest}", "was pruned and the file is still here: prosa sync --verify removes it")
