"""The hash chain of an origin: every event's hash covers its header, the hash before it, and its body's hash.

The chain covers the body's hash, not the body, so a body can be erased and the chain still verifies; the salt,
erased with the body, keeps the hash from giving a short body away. docs/log-format.md has the layout for readers
who do not have this code.
"""

from __future__ import annotations

import struct
from hashlib import sha256

START = bytes(32)
"""The hash before an origin's first event."""

_HEADER = struct.Struct(">B16sQ16sQIq32s32sHH").pack


def hash_body(salt: bytes, body: bytes) -> bytes:
    """sha256 of 0x00, the 16 bytes of salt and the uncompressed body."""
    return sha256(b"\x00" + salt + body).digest()


def hash_event(
    origin: bytes,
    origin_position: int,
    event_id: bytes,
    stream: str,
    stream_version: int,
    kind: str,
    version: int,
    at_us: int,
    before: bytes,
    body_hash: bytes,
) -> bytes:
    """sha256 of 0x01, the fields of fixed size, the lengths of the stream's name and the type, and both as UTF-8."""
    name, word = stream.encode(), kind.encode()
    fixed = _HEADER(
        1, origin, origin_position, event_id, stream_version, version, at_us, before, body_hash, len(name), len(word)
    )
    return sha256(fixed + name + word).digest()
