"""A pushed batch, checked by itself before any row is locked: shape, order, hash chain, bodies, types.

An event's body is taken exactly as the device stored it. What the server does not know (a newer prosa's types) is
taken too: the chain covers it all the same.
"""

from __future__ import annotations

import struct
from typing import Final

from prosa.events import catalogue as c
from prosa.events import codec
from prosa.events.chain import START, hash_body, hash_event
from prosa.events.errors import DamageError
from prosa.events.messages import EVENT_BYTES, EVENTS_BYTES, EVENTS_LIMIT, Head, PushBatch, PushedEvent
from prosa.server.endpoints import Refused

NOTHING: Final = Head(0, START)
SERVERS_OWN: Final = frozenset({c.LoginApproved.TYPE, c.TokenIssued.TYPE, c.TokenRevoked.TYPE, c.DeviceRevoked.TYPE})
"""Types that the server alone says: a device that could would grant itself what they tell."""
LARGEST: Final = 2**63 - 1
NAME_BYTES: Final = 1_000
"""Of a stream or a type: an index row of Postgres takes 2,700."""


def check(batch: PushBatch) -> bytes:
    """The origin's 16 bytes. Raises Refused(invalid | too_large), naming the first event that is wrong."""
    origin = origin_bytes(batch.origin)
    if len(batch.expect.hash) != 32 or not 0 <= batch.expect.position < LARGEST:
        raise Refused("invalid", "expect is no head: it needs a position and a hash of 32 bytes.")
    if batch.expect.position == 0 and batch.expect != NOTHING:
        raise Refused("invalid", "expect has position 0 and a hash that is not zeros.")
    _check_size(batch.events)
    before = batch.expect
    versions: dict[str, int] = {}
    for event in batch.events:
        if event.origin_position != before.position + 1:
            raise _wrong(event, f"follows {before.position}: the batch has a gap")
        _check_event(event)
        if event.stream in versions and event.stream_version != versions[event.stream] + 1:
            raise _wrong(event, f"has version {event.stream_version} of its stream after {versions[event.stream]}")
        versions[event.stream] = event.stream_version
        before = Head(event.origin_position, _hash(origin, event, before.hash))
        if before.hash != event.hash:
            raise _wrong(event, "does not continue the hash chain")
    return origin


def origin_bytes(text: str) -> bytes:
    """From hex. Raises Refused(invalid)."""
    try:
        origin = bytes.fromhex(text)
    except ValueError:
        origin = b""
    if len(origin) != 16 or origin.hex() != text:
        raise Refused("invalid", f"The origin is {text[:64]!r}, not 32 hex digits.")
    return origin


def _check_size(events: list[PushedEvent]) -> None:
    if len(events) > EVENTS_LIMIT:
        raise Refused("too_large", f"The batch has {len(events):,} events; {EVENTS_LIMIT} is the most.")
    size = sum(len(event.body or b"") for event in events)
    most = EVENT_BYTES if len(events) == 1 else EVENTS_BYTES
    if size > most:
        raise Refused("too_large", f"The batch has {size:,} bytes; {most:,} is the most.")


def _check_event(event: PushedEvent) -> None:
    if len(event.id) != 16 or len(event.body_hash) != 32 or len(event.hash) != 32:
        raise _wrong(event, "has an id or a hash of the wrong length")
    for name in (event.stream, event.type):
        if not name or "\0" in name or len(name.encode()) > NAME_BYTES:
            raise _wrong(event, f"has a stream or type that is empty, too long or not text: {name[:64]!r}")
    if not (1 <= event.stream_version < LARGEST and 0 < event.version < 2**31 and abs(event.at_us) < LARGEST):
        raise _wrong(event, "has a number out of bounds")
    kind = codec.BY_TYPE.get(event.type)
    if (kind is not None and kind.SCOPE == "local") or event.type in SERVERS_OWN:
        raise _wrong(event, f"is of type {event.type}, which no device pushes")
    _check_body(event)


def _check_body(event: PushedEvent) -> None:
    """An erased body has nothing to check."""
    if event.body is None and event.salt is None:
        return
    if event.body is None or event.salt is None or len(event.salt) != 16:
        raise _wrong(event, "has a body without salt, or salt without a body")
    try:
        body = codec.unpack(event.body)
    except DamageError as bad:
        raise _wrong(event, f"has a damaged body: {bad.what}") from None
    if hash_body(event.salt, body) != event.body_hash:
        raise _wrong(event, "has a body that does not match its hash")


def _hash(origin: bytes, event: PushedEvent, before: bytes) -> bytes:
    try:
        return hash_event(
            origin, event.origin_position, event.id, event.stream, event.stream_version, event.type, event.version,
            event.at_us, before, event.body_hash,
        )  # fmt: skip
    except struct.error:
        raise _wrong(event, "has a number out of bounds") from None


def _wrong(event: PushedEvent, why: str) -> Refused:
    return Refused("invalid", f"Event {event.origin_position} {why}.", "Nothing of the batch was taken.")
