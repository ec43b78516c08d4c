"""Event bodies: canonical msgpack, compressed with zstd; old versions are lifted when they are read.

Canonical: fields in the order of the class, defaults omitted, so the same event gives the same bytes. The hash
covers the uncompressed bytes as they were written; they are never encoded again to be verified.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
import zstandard

from prosa.events.catalogue import EVENTS, Event
from prosa.events.errors import DamageError, UpgradeError

LEVEL = 6
"""0.1375 → 0.1304 of the transcripts against level 3, for 2.4 s more a GB."""
BODY_LIMIT = 64 * 1024 * 1024
"""No body is larger; a stored frame that claims more is damage."""

Upcast = Callable[[dict[str, Any]], dict[str, Any]]
UPCASTS: Mapping[tuple[str, int], Upcast] = {}
"""(type, version) → the same body in the next version."""

BY_TYPE: dict[str, type[Event]] = {event.TYPE: event for event in EVENTS}

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[type, msgspec.msgpack.Decoder[Any]] = {}


class _Zstd(threading.local):
    """One of each a thread: two threads that use one at once get damaged bytes."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()


_zstd = _Zstd()

T = TypeVar("T")


def encode(body: msgspec.Struct) -> bytes:
    """Canonical bytes of an event's body, or of a part of one."""
    return _encoder.encode(body)


def pack(body: bytes) -> bytes:
    """The body as it is stored: a zstd frame, or itself where that is no smaller."""
    stored = _zstd.compressor.compress(body)
    return stored if len(stored) < len(body) else body


def unpack(stored: bytes) -> bytes:
    """The body from its stored form; a msgpack map never starts like a zstd frame. Raises DamageError."""
    if not stored.startswith(zstandard.FRAME_HEADER):
        return stored
    try:
        if zstandard.frame_content_size(stored) > BODY_LIMIT:
            raise DamageError(f"An event body claims more than {BODY_LIMIT:,} bytes.")
        return _zstd.decompressor.decompress(stored)
    except zstandard.ZstdError as bad:
        raise DamageError(f"An event body cannot be decompressed: {bad}.") from None


def plain_size(stored: bytes) -> int:
    """Bytes that `unpack` gives, as far as the stored form tells."""
    if not stored.startswith(zstandard.FRAME_HEADER):
        return len(stored)
    try:
        return zstandard.frame_content_size(stored)
    except zstandard.ZstdError:
        return len(stored)


def decode_as(kind: type[T], body: bytes) -> T:
    """A body as any struct that has some of its fields: a lean one skips what it does not name.

    Raises msgspec.DecodeError, also for text that is none and for lists in lists without end.
    """
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    try:
        return decoder.decode(body)  # type: ignore[no-any-return]
    except (UnicodeDecodeError, RecursionError) as bad:
        raise msgspec.DecodeError(type(bad).__name__) from None


def known(kind: str, version: int) -> bool:
    """Whether this prosa understands a type of event."""
    return kind in BY_TYPE and version <= BY_TYPE[kind].VERSION


def newer(kind: str, version: int) -> UpgradeError:
    """What to raise for an event that this prosa does not know."""
    return UpgradeError(
        f"The log has an event of type {kind} version {version}, which this prosa does not know.",
        "Nothing was changed.",
        "Upgrade prosa and try again.",
    )


def decode(kind: str, version: int, body: bytes) -> Event:
    """The event in its present version. Raises UpgradeError for a type or version of a newer prosa."""
    if not known(kind, version):
        raise newer(kind, version)
    cls = BY_TYPE[kind]
    try:
        if version == cls.VERSION:
            return decode_as(cls, body)
        old = msgspec.msgpack.decode(body)
        for step in range(version, cls.VERSION):
            old = UPCASTS[kind, step](old)
        return msgspec.convert(old, cls)
    except msgspec.DecodeError as bad:
        raise DamageError(f"The body of a {kind} event cannot be read: {bad}.") from None
