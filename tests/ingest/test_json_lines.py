"""Lines of any length, in any pieces, in bounded memory; and what can be saved of a damaged one."""

from __future__ import annotations

import json
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from prosa.ingest.json_lines import LIMIT, OVERSIZED, Lines, values

PIECE = 1 << 20


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line), max_size=8), st.data())
def test_any_pieces_give_the_same_lines(lines: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(line + b"\n" for line in lines) + b"rest"
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=5)))
    found: list[bytes] = []
    splitter = Lines()
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        found += splitter.feed(whole[start:end])
        splitter = Lines(splitter.rest)
    assert (found, splitter.rest) == (lines, b"rest")


def peak_of(line: bytes, times: int, end: bytes) -> tuple[list[bytes], int]:
    """The lines of a long one made of the same piece many times, and the most memory that took."""
    tracemalloc.start()
    splitter = Lines()
    found = splitter.feed(b'{"type": "user", "image": "')
    for _ in range(times):
        found += splitter.feed(line)
    found += splitter.feed(end)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return found, peak


def test_an_image_of_200_mb_leaves_a_line_that_can_be_read() -> None:
    (line, after), peak = peak_of(b"QUJD" * (PIECE // 4), 200, b'", "uuid": "u1"}\n{"next": 1}\n')
    assert json.loads(line)["uuid"] == "u1"
    assert after == b'{"next": 1}'
    assert peak < 40 * PIECE


def test_a_text_of_200_mb_is_one_malformed_line_and_the_next_is_read() -> None:
    (line, after), peak = peak_of(b"some words " * (PIECE // 11), 200, b'", "uuid": "u1"}\n{"next": 1}\n')
    assert line.startswith(OVERSIZED)
    assert len(line) < LIMIT + PIECE
    assert values(line[:1000])[1]
    assert after == b'{"next": 1}'
    assert peak < 3 * LIMIT
