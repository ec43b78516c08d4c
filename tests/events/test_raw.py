"""The raw store: what is kept reads back exactly, grows in place, and damage is seen."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prosa.events.errors import DamageError
from prosa.events.raw import RawStore, Stored


def keep(store: RawStore, data: bytes) -> Stored:
    writer = store.writer(len(data))
    for start in range(0, len(data), 1000):
        writer.write(data[start : start + 1000])
    return store.keep(writer)


@pytest.fixture
def store(tmp_path: Path) -> RawStore:
    return RawStore(tmp_path / "raw")


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 3_000_000])
def test_what_is_kept_reads_back_exactly(store: RawStore, size: int) -> None:
    data = (b"line %d\n" * (size // 8 + 1))[:size]
    kept = keep(store, data)
    assert kept.sha256 == sha256(data).hexdigest()
    assert b"".join(store.read(kept.sha256, kept.size)) == data
    assert store.verify(kept.sha256, kept.size)
    assert store.path(kept.sha256).stat().st_mode & 0o777 == 0o600


def test_the_same_content_is_one_file(store: RawStore) -> None:
    first, second = keep(store, b"abc" * 500), keep(store, b"abc" * 500)
    assert first == second
    assert len(list(store.files())) == 1
    assert store.sweep() == 0


@given(pieces=st.lists(st.binary(min_size=1, max_size=3000), min_size=2, max_size=5))
@settings(max_examples=30, deadline=None)
def test_a_grown_copy_reads_back_at_every_stage(tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]) -> None:
    store = RawStore(tmp_path_factory.mktemp("raw"))
    whole = pieces[0]
    old = keep(store, whole)
    for piece in pieces[1:]:
        grown = whole + piece
        new = store.extend(old, [piece], sha256(grown).hexdigest(), len(grown))
        assert new is not None
        assert b"".join(store.read(new.sha256, new.size)) == grown
        assert b"".join(store.read(old.sha256, old.size)) == whole  # the old name still reads as it was
        whole, old = grown, new


def test_a_tail_left_by_a_crash_is_not_read_and_not_kept(store: RawStore) -> None:
    old = keep(store, b"first\n" * 300)
    with store.path(old.sha256).open("ab") as file:
        file.write(b"half a frame")
    assert store.verify(old.sha256, old.size)
    grown = b"first\n" * 300 + b"second\n"
    new = store.extend(old, [b"second\n"], sha256(grown).hexdigest(), len(grown))
    assert new is not None
    assert store.verify(new.sha256, new.size)


def test_a_missing_copy_cannot_be_extended(store: RawStore) -> None:
    assert store.extend(Stored("0" * 64, 10, 10), [b"x"], "1" * 64, 11) is None


def test_removing_the_old_name_leaves_the_grown_copy(store: RawStore) -> None:
    old = keep(store, b"a" * 5000)
    new = store.extend(old, [b"b"], sha256(b"a" * 5000 + b"b").hexdigest(), 5001)
    assert new is not None
    store.remove(old.sha256)
    store.remove(old.sha256)
    assert store.verify(new.sha256, new.size)
    assert not store.has(old.sha256)


def test_damage_and_a_cut_are_seen(store: RawStore) -> None:
    kept = keep(store, bytes(range(256)) * 100)
    path = store.path(kept.sha256)
    whole = path.read_bytes()
    path.write_bytes(whole[:-8])
    assert not store.verify(kept.sha256, kept.size)
    path.write_bytes(whole[:20] + bytes([whole[20] ^ 1]) + whole[21:])
    assert not store.verify(kept.sha256, kept.size)
    with pytest.raises(DamageError):
        list(store.read(kept.sha256, kept.size))


def test_a_half_written_file_is_swept(store: RawStore) -> None:
    writer = store.writer()
    writer.write(b"abc")
    writer.close()
    assert list(store.files()) == []
    assert store.sweep() == 1


def test_a_copy_that_was_compressed_anew_is_not_cut_where_the_old_one_ended(store: RawStore) -> None:
    data = bytes(range(256)) * 20
    kept = keep(store, data)
    shorter = kept._replace(stored=kept.stored - 5)
    assert store.extend(shorter, [b"more"], sha256(data + b"more").hexdigest(), len(data) + 4) is None
    assert store.verify(kept.sha256, kept.size)
