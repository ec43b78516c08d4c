"""A preserved copy that is missing comes back from its source, where that still has the same bytes."""

from __future__ import annotations

import pytest
from store import A, B, Store, claude_lines

from prosa.events.raw import RawStore
from prosa.events.verify import preserved, verify_raws
from prosa.ingest.report import SyncOptions

VERIFY = SyncOptions(verify=True)


def files(store: Store) -> dict[str, int]:
    return dict(RawStore(store.home.raw).files())


@pytest.mark.parametrize("large", [False, True])
def test_verify_preserves_again_what_is_missing(large: bool, store: Store) -> None:
    text = "word " * (200_000 if large else 1)
    store.write(A, b"".join(claude_lines(A, 8, text=text)))
    store.write(B, b"".join(claude_lines(B, 2)))
    store.sync()
    before, rows = files(store), store.rebuilt()
    for digest in before:
        RawStore(store.home.raw).path(digest).unlink()
    assert store.sync().events == 0
    assert files(store) == {}
    done = store.sync(VERIFY)
    assert (done.events, done.failed) == (0, 0)
    assert set(files(store)) == set(before)
    with store.log() as log:
        assert list(verify_raws(RawStore(store.home.raw), preserved(log))) == []
    assert store.rebuilt() == rows


def test_a_longer_copy_stands_for_what_it_continues(store: Store) -> None:
    for turns in (2, 5):
        store.write(A, b"".join(claude_lines(A, turns)))
        store.sync()
    before = files(store)
    store.write(A, b"".join(claude_lines(A, 2)))
    store.sync(VERIFY)
    assert files(store) == before


def test_a_source_that_changed_while_the_copy_was_missing_is_read_whole(store: Store) -> None:
    store.write(A, b"".join(claude_lines(A, 2)))
    store.sync()
    for digest in files(store):
        RawStore(store.home.raw).path(digest).unlink()
    store.write(A, b"".join(claude_lines(A, 5)))
    assert store.sync().extended == 1
    assert store.serving() == store.rebuilt()
