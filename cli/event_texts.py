"""An event in a few words and as a record: what it was about and its numbers, never transcript text.

Titles, prompts and turns are transcript text and are left out; paths, ids, hashes and counts are not.
"""

from __future__ import annotations

from typing import Any

import msgspec

from prosa.events import codec
from prosa.events.errors import DamageError
from prosa.events.log import Log, Recorded
from prosa.projections.zones import rfc3339

FACTS = ("turns", "usage", "marks", "compactions", "gone")
HIDDEN = frozenset({"header", "value", *FACTS})
"""Fields of a body that hold, or may hold, transcript text, or that are counted instead."""
MEANT = ("reason", "to", "field", "kind", "other", "parser", "device", "hostname", "remote", "marker", "evidence")
SUBJECTS = ("session", "path", "subject")
"""A line says the numbers first, then these, and the subject last: ids and paths are long."""


class Facts(msgspec.Struct):
    """A parse without its texts: every list is only counted."""

    turns: list[msgspec.Raw] = []
    usage: list[msgspec.Raw] = []
    marks: list[msgspec.Raw] = []
    compactions: list[msgspec.Raw] = []
    gone: list[msgspec.Raw] = []


def summary(event: Recorded) -> dict[str, Any]:
    """The small fields of a body, and how many facts it states. Empty for an erased or damaged one."""
    if event.erased:
        return {}
    try:
        body = event.body()
        fields = msgspec.msgpack.decode(body, type=dict[str, msgspec.Raw])
        counted = {name: len(facts) for name in FACTS if (facts := getattr(codec.decode_as(Facts, body), name))}
        small = {name: msgspec.msgpack.decode(raw) for name, raw in fields.items() if name not in HIDDEN}
    except (DamageError, msgspec.DecodeError):
        return {}
    return small | counted


def record(log: Log, event: Recorded) -> dict[str, Any]:
    """The JSON of one event."""
    numbers = {origin.number: origin for origin in log.origins}
    return {
        "position": event.position,
        "at": rfc3339(event.at_us),
        "origin": numbers[event.origin].origin.hex(),
        "origin_position": event.origin_position,
        "id": event.id.hex(),
        "stream": event.stream,
        "stream_version": event.stream_version,
        "type": event.type,
        "version": event.version,
        "body": summary(event),
        "erased": event.erased,
    }


def words(event: Recorded) -> str:
    """`31 turns, 12 usage  claude-code/1  claude-code/3f2c…`; one line, not cleaned."""
    if event.erased:
        return "(body erased)"
    small = summary(event)
    facts = [f"{small[name]:,} {name}" for name in FACTS if small.get(name)]
    if size := small.get("size"):
        facts.append(f"{size:,} bytes")
    meant = [str(small[name]) for name in MEANT if small.get(name) not in (None, "")]
    subject = next((str(small[name]) for name in SUBJECTS if small.get(name)), "")
    return "  ".join(filter(None, (", ".join(facts), " ".join(meant), subject)))
