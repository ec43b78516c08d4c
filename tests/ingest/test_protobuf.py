"""The schema-less protobuf reader: bounded, and never another error than its own."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire import field, varint

from prosa.ingest import protobuf
from prosa.ingest.protobuf import EMPTY, Message, WireError, leaves, packed, readable


def nested(depth: int) -> bytes:
    data = field(2, "core")
    for _ in range(depth):
        data = field(1, data)
    return data


def test_fields_are_read_by_number_and_type() -> None:
    message = Message(field(1, "one") + field(2, 300) + field(1, "two") + field(3, field(4, 7)))
    assert message.texts(1) == ["one", "two"]
    assert message.text(1) == "two"
    assert message.number(2) == 300
    assert message.message(3).number(4) == 7
    assert 3 in message and 9 not in message


def test_absent_and_wrong_typed_fields_read_as_nothing() -> None:
    message = Message(field(1, 5) + field(2, "\xff\xfe"))
    assert message.text(1) is None
    assert message.number(2) is None
    assert message.message(2) is EMPTY
    assert message.message(7).message(8).text(9) is None
    assert message.messages(1) == []


def test_fixed_widths_are_numbers() -> None:
    assert Message(b"\x09" + b"\x01" + bytes(7)).number(1) == 1
    assert Message(b"\x0d" + b"\x02" + bytes(3)).number(1) == 2


@pytest.mark.parametrize(
    "data",
    [
        b"\x0b", b"\x0c", b"\x0e\x00", b"\x0f", b"\x00\x00", b"\x08", b"\x08" + b"\xff" * 11, b"\x0a\x05abc",
        b"\x09\x00", b"\x0d\x00", b"\x0a\xff\xff\xff\xff\x0f", b"\xff" * 12,
    ],
)  # fmt: skip
def test_groups_unknown_wire_types_and_torn_fields_are_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        Message(data)


def test_messages_nested_beyond_the_bound_read_as_empty() -> None:
    message = Message(nested(5_000))
    for _ in range(protobuf.DEPTH):
        assert 1 in message
        message = message.message(1)
    assert message.message(1) is EMPTY
    assert "core" not in list(leaves(nested(5_000)))
    assert list(leaves(nested(20))) == ["core"]


def test_the_number_of_fields_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf, "FIELDS", 100)
    assert len(Message(field(1, 0) * 100).numbers(1)) == 100
    with pytest.raises(WireError):
        Message(field(1, 0) * 101)
    assert len(list(leaves(field(1, field(1, 1) * 60) + field(2, field(1, 1) * 60)))) < 100


def test_packed_numbers_are_read_with_single_ones() -> None:
    assert packed([5, varint(6) + varint(700), b"\x01\xff"]) == [5, 6, 700, 1]


def test_lone_surrogates_and_bad_bytes_become_replacement_characters() -> None:
    message = Message(field(1, b"\xed\xb2\xb2") + field(2, b"a\xffb"))
    assert (message.text(1) or "").encode()
    assert message.text(2) == "a\ufffdb"


def test_text_is_told_from_messages_by_its_control_characters() -> None:
    assert readable(b"ls\r\n\tx") == "ls\r\n\tx"
    assert readable(field(1, "ab")) is None
    assert readable(b"\xff") is None
    assert readable(b"") is None


@given(st.binary(max_size=300))
def test_any_bytes_are_a_message_or_a_wire_error(data: bytes) -> None:
    with contextlib.suppress(WireError):
        message = Message(data)
        for number in message.fields:
            assert message.texts(number) is not None
            assert message.messages(number) is not None
            assert packed(message.fields[number]) is not None
    with contextlib.suppress(WireError):
        for leaf in leaves(data):
            assert isinstance(leaf, (int, str))


VALUES: Any = st.one_of(st.integers(0, 2**64 - 1), st.binary(max_size=40))


@given(st.lists(st.tuples(st.integers(1, 2**29 - 1), VALUES), max_size=20))
def test_what_is_written_is_read(pairs: list[tuple[int, int | bytes]]) -> None:
    message = Message(b"".join(field(number, value) for number, value in pairs))
    want: dict[int, list[int | bytes]] = {}
    for number, value in pairs:
        want.setdefault(number, []).append(value)
    assert message.fields == want


@given(st.binary(min_size=1, max_size=60), st.integers(0, 59))
def test_a_message_cut_short_is_no_message_or_a_shorter_one(body: bytes, cut: int) -> None:
    data = field(1, 7) + field(2, body)
    with contextlib.suppress(WireError):
        assert set(Message(data[:cut]).fields) <= {1, 2}
