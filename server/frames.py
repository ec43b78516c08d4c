"""Raw as it is uploaded and served: zstd frames, decoded piece by piece in bounded memory.

Input goes in slices of SLICE bytes: a block of 128 KiB takes at least four bytes, so a slice never gives more than
32 MiB, whatever was uploaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from typing import IO, Final

import zstandard

from prosa.events.errors import DamageError
from prosa.server.endpoints import Refused

SLICE: Final = 1024
PIECE: Final = 1024 * 1024
WINDOW: Final = 1 << 27
"""128 MB: what `zstd --ultra` makes at most, and what the device's reader takes."""


class Frames:
    """Decodes what it is fed, across frames."""

    def __init__(self) -> None:
        self._decode = zstandard.ZstdDecompressor(max_window_size=WINDOW).decompressobj(read_across_frames=True)

    def feed(self, stored: bytes) -> Iterator[bytes]:
        """Plain bytes in pieces that are never empty. Raises DamageError where it is not zstd."""
        view = memoryview(stored)
        for start in range(0, len(stored), SLICE):
            try:
                plain = self._decode.decompress(view[start : start + SLICE])
            except zstandard.ZstdError as bad:
                raise DamageError(f"These are no zstd frames: {bad}.") from None
            if plain:
                yield plain


def check_frames(file: IO[bytes], digest: str, size: int) -> None:
    """Whether a file of frames is the raw it is said to be. Raises Refused(invalid).

    Stops as soon as there are more plain bytes than `size`: a bomb is never decoded whole.
    """
    frames, found, left = Frames(), sha256(), size
    file.seek(0)
    while stored := file.read(PIECE):
        try:
            for plain in frames.feed(stored):
                left -= len(plain)
                if left < 0:
                    raise _refused(digest, f"is longer than the {size:,} bytes it is said to have")
                found.update(plain)
        except DamageError as bad:
            raise _refused(digest, f"cannot be decoded: {bad.what}") from None
    if left:
        raise _refused(digest, f"has {size - left:,} bytes, not {size:,}")
    if found.hexdigest() != digest:
        raise _refused(digest, "has another hash")


def _refused(digest: str, why: str) -> Refused:
    return Refused("invalid", f"Raw {digest} {why}.", "Nothing was kept.", "It is sent again with the next sync.")


async def plain_range(stored: AsyncIterator[bytes], start: int, end: int) -> AsyncIterator[bytes]:
    """Plain bytes from `start` to before `end`; what lies before is decoded and dropped."""
    frames, place = Frames(), 0
    async for piece in stored:
        decoded = frames.feed(piece)
        while place < end and (plain := await asyncio.to_thread(_gather, decoded)):
            first, last = max(start - place, 0), min(end - place, len(plain))
            place += len(plain)
            if first < last:
                yield plain[first:last]
        if place >= end:
            return
    if place < end:
        raise DamageError(f"A preserved copy ends {end - place:,} bytes early.")


def _gather(decoded: Iterator[bytes]) -> bytes:
    """About PIECE bytes; empty at the end."""
    pieces: list[bytes] = []
    size = 0
    for plain in decoded:
        pieces.append(plain)
        size += len(plain)
        if size >= PIECE:
            break
    return b"".join(pieces)
