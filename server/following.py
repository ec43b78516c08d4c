"""Which words follow each other in a text, in few bytes: a phrase of frequent words is ruled out without reading it.

A bit of a table for each pair of neighbours, at a place that a hash of both gives (a Bloom filter with one hash). At
least 16 bits a pair, so at most one text in 16 that has not the pair has its bit.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

BYTES_A_PAIR: Final = 2
LEAST_BYTES: Final = 8
HASHES_KEPT: Final = 200_000

_hashes: dict[str, int] = {}


def followers(words: Sequence[str]) -> bytes:
    """The table of a text; its length is a power of two."""
    if len(_hashes) > HASHES_KEPT:
        _hashes.clear()
    hashes = []
    for word in words:
        known = _hashes.get(word)
        if known is None:
            known = _hashes[word] = zlib.crc32(word.encode())
        hashes.append(known)
    pairs = {7 * first ^ second for first, second in pairwise(hashes)}
    size = 1 << (max(LEAST_BYTES, len(pairs) * BYTES_A_PAIR) - 1).bit_length()
    mask = size * 8 - 1
    table = bytearray(size)
    for pair in pairs:
        place = pair & mask
        table[place >> 3] |= 1 << (place & 7)
    return bytes(table)


def place_of(first: str, second: str) -> tuple[int, int]:
    """Where two neighbours are noted: a byte, of which the table's length leaves the last bits, and a bit in it."""
    pair = 7 * zlib.crc32(first.encode()) ^ zlib.crc32(second.encode())
    return pair >> 3 & 0x7FFF_FFFF, 1 << (pair & 7)
