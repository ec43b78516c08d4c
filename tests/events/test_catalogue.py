"""Every event type and version ever shipped: its golden body still decodes, and the present ones encode to its bytes.

A golden file is the canonical body of one example with every field set: `type-version.msgpack`, and for a field that
came later within the version `type-version.2.msgpack`. UPDATE_GOLDEN=1 adds the ones that are missing and never changes
one: what it holds lies in somebody's log.
"""

from __future__ import annotations

import os
import types
import typing
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
import pytest

from prosa.events import codec
from prosa.events.catalogue import EVENTS, Event

GOLDEN = Path(__file__).parent / "golden"
FILES = sorted(GOLDEN.glob("*.msgpack"))


def example(cls: type[Any]) -> Any:
    """A value of every field that is not its default, the same each time; of a choice the first that differs."""
    hints = typing.get_type_hints(cls)
    values = {}
    for field in msgspec.structs.fields(cls):
        values[field.name] = value(hints[field.name], field.name, field.default)
    return cls(**values)


def value(kind: Any, name: str, default: Any = msgspec.NODEFAULT) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return value(next(each for each in inner if each is not type(None)), name, default)
    if origin is Literal:
        return next(each for each in inner if each != default)
    if origin is tuple:
        few = inner[:1] if Ellipsis in inner else inner
        return tuple(value(each, f"{name}{number}") for number, each in enumerate(few))
    if origin is dict:
        return {value(inner[0], name): value(inner[1], name)}
    if kind is bool:
        return not default if isinstance(default, bool) else True
    if kind is int:
        return sum(name.encode()) - 5_000_000_000
    if kind is str:
        return f"{name} – 日本"
    return example(kind)


def golden(kind: str, version: int) -> list[Path]:
    """Files of one version of a type, in the order in which its fields came."""
    return [path for path in FILES if named(path) == (kind, version)]


def named(path: Path) -> tuple[str, int]:
    kind, _, version = path.name.split(".")[0].rpartition("-")
    return kind, int(version)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.TYPE)
def test_every_type_has_a_golden_body_with_every_field(event: type[Event]) -> None:
    there = golden(event.TYPE, event.VERSION)
    body = codec.encode(example(event))
    for path in there:
        # a field that was added is not in an older file: the example may say more than it, never other things
        lost = missing(msgspec.msgpack.decode(path.read_bytes()), msgspec.msgpack.decode(body))
        assert lost == [], f"{event.TYPE} lost, renamed or retyped {lost}: raise VERSION and add an upcast"
    if body in [path.read_bytes() for path in there]:
        return
    number = f".{len(there) + 1}" if there else ""
    new = GOLDEN / f"{event.TYPE}-{event.VERSION}{number}.msgpack"
    assert os.environ.get("UPDATE_GOLDEN"), f"{new.name} is missing: UPDATE_GOLDEN=1 adds it; look at it and commit it"
    with new.open("xb") as file:
        file.write(body)


def missing(written: Any, told: Any, where: str = "") -> list[str]:
    """Places of the golden body that an example of the present class does not say in the same way."""
    if isinstance(written, dict) and isinstance(told, dict):
        return [
            place
            for name, inner in written.items()
            for place in (missing(inner, told[name], f"{where}.{name}") if name in told else [f"{where}.{name}"])
        ]
    if isinstance(written, list) and isinstance(told, (list, tuple)) and len(written) == len(told):
        return [place for old, new in zip(written, told, strict=True) for place in missing(old, new, where)]
    return [] if written == told else [where]


def test_a_version_that_was_shipped_is_still_understood() -> None:
    for path in FILES:
        assert codec.known(*named(path)), f"{path.name} lies in logs"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_golden_body_decodes_and_encodes_to_the_same_bytes(path: Path) -> None:
    kind, version = named(path)
    body = path.read_bytes()
    event = codec.decode(kind, version, body)
    assert type(event) is codec.BY_TYPE[kind]
    again = codec.encode(event)
    if version == codec.BY_TYPE[kind].VERSION:
        assert again == body
    assert codec.decode(kind, codec.BY_TYPE[kind].VERSION, again) == event
    assert codec.unpack(codec.pack(body)) == body


def test_every_older_version_has_its_upcast() -> None:
    for event in EVENTS:
        assert {(event.TYPE, version) for version in range(1, event.VERSION)} <= set(codec.UPCASTS)


def test_types_are_named_once_in_the_past_tense_and_described() -> None:
    names = [event.TYPE for event in EVENTS]
    assert len(set(names)) == len(names)
    for event in EVENTS:
        assert event.__doc__ and event.__doc__ != Event.__doc__, event.TYPE
        assert "".join("_" + c.lower() if c.isupper() else c for c in event.__name__).lstrip("_") == event.TYPE
        assert event.TYPE.endswith("ed") or event.TYPE == "session_part"
