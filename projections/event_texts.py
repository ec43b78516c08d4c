"""An event in a few words and as a record: what it was about and its numbers, never transcript text.

Titles, prompts and turns are transcript text and are left out; paths, ids, hashes and counts are not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec

from prosa.events import codec
from prosa.events.errors import DamageError
from prosa.events.log import LogReader, Recorded
from prosa.projections.zones import rfc3339

FACTS = ("turns", "usage", "marks", "compactions", "gone")
HIDDEN = frozenset({"header", "value", *FACTS})
"""Fields of a body that hold, or may hold, transcript text, or that are counted instead."""
FIELD_BYTES = 1_000_000
"""Of a field that is said; the keys of 20,000 sessions have room in it."""
MEANT = ("reason", "to", "field", "kind", "other", "parser", "device", "hostname", "remote", "marker", "evidence")
SUBJECTS = ("session", "path", "subject")
"""A line says the numbers first, then these, and the subject last: ids and paths are long."""

PHRASES = {
    "prune_planned": "{rule}: {sessions:,} sessions, {bytes:,} bytes on disk",
    "session_pruned": "{size:,} bytes, {stored:,} freed on disk  {rule}, held by {server}  {session}",
    "session_restored": "its source changed and is preserved again  {session}",
    "push_confirmed": "raw {raw:.16} is at the server  {session}",
    "events_acknowledged": "origin {origin:.16} is at the server up to {origin_position:,}",
    "push_refused": "{what}: {why}",
    "device_renamed": "{device} is called {name}",
    "device_merged": "{device} is shown as {into}  {evidence}",
    "device_merge_reverted": "merge {merge} is taken back",
    "device_revoked": "{device}",
    "token_issued": "{token} {scope}",
    "token_revoked": "{token}",
    "login_completed": "{server}  {device}",
    "logout_completed": "{server}  {device}",
}
"""For types whose fields alone do not say what happened."""


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
        small = {name: msgspec.msgpack.decode(raw) for name, raw in fields.items() if is_small(name, raw)}
        msgspec.json.encode(small)
    except (DamageError, msgspec.DecodeError, ValueError, TypeError, RecursionError):
        return {}  # also what JSON cannot say
    return small | counted


def is_small(name: str, raw: msgspec.Raw) -> bool:
    return name not in HIDDEN and len(raw) <= FIELD_BYTES


class OriginNames(dict[int, str]):
    """Number of an origin in a log → its name, as hex. One that joins while events are read is looked up then."""

    def __init__(self, log: LogReader) -> None:
        super().__init__()
        self._log = log

    def __missing__(self, number: int) -> str:
        self.update((origin.number, origin.origin.hex()) for origin in self._log.origins)
        return self.get(number, "")


def record(origins: Mapping[int, str], event: Recorded) -> dict[str, Any]:
    """The JSON of one event."""
    return {
        "position": event.position,
        "at": rfc3339(event.at_us),
        "origin": origins[event.origin],
        "origin_position": event.origin_position,
        "id": event.id.hex(),
        "stream": event.stream,
        "stream_version": event.stream_version,
        "type": event.type,
        "version": event.version,
        "body": summary(event),
        "erased": event.erased,
    }


def words(said: Mapping[str, Any]) -> str:
    """Of a record: `31 turns, 12 usage  claude-code/1  claude-code/3f2c…`; one line, not cleaned."""
    if said["erased"]:
        return "(body erased)"
    small = said["body"]
    if said["type"] in PHRASES and small:
        with contextlib.suppress(KeyError, ValueError, TypeError):  # not as prosa writes it
            return PHRASES[said["type"]].format_map(small)
    facts = [f"{small[name]:,} {name}" for name in FACTS if small.get(name)]
    if isinstance(size := small.get("size"), int) and size:
        facts.append(f"{size:,} bytes")
    meant = [str(small[name]) for name in MEANT if small.get(name) not in (None, "")]
    subject = next((str(small[name]) for name in SUBJECTS if small.get(name)), "")
    return "  ".join(filter(None, (", ".join(facts), " ".join(meant), subject)))
