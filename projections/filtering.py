"""Filters as SQL over the sessions, and the values they can have.

A value that no session has is an error that names the known ones; where there are no sessions nothing is known, and
nothing is refused.
"""

from __future__ import annotations

import json
import string
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from prosa.events.errors import UsageError
from prosa.projections.named_devices import Devices
from prosa.projections.queries import KINDS, Filters
from prosa.projections.tables import NOTHING, Tables, Values, value

What = Literal["agent", "device", "profile", "model", "project"]
NAMED = 30
"""A message about an unknown value names so many of the known ones."""
PROJECTS_NAMED = 10
"""A message about an unknown project names so many, those with the latest activity."""

ANY_SESSION = "SELECT EXISTS (SELECT 1 FROM sessions)"
SOME_SESSION = "SELECT EXISTS (SELECT 1 FROM sessions s WHERE {})"
VALUES: dict[What | Literal["tool"], str] = {
    "agent": "SELECT DISTINCT agent FROM sessions ORDER BY 1",
    "device": "SELECT DISTINCT device FROM sessions WHERE device IS NOT NULL ORDER BY 1",
    "profile": "SELECT DISTINCT profile FROM sessions ORDER BY 1",
    "project": """
        SELECT project FROM sessions WHERE project IS NOT NULL GROUP BY project
        ORDER BY max(last) DESC NULLS LAST, project""",
    "tool": "SELECT DISTINCT name FROM turn_sums JOIN names ON number = tool ORDER BY 1",
}
MODELS = "SELECT DISTINCT models FROM sessions"
PROJECTS = "SELECT sid, project, remote, marker, cwd FROM sessions"

SINCE = "coalesce(s.last, s.started) >= :since"
UNTIL = "coalesce(s.started, s.last) < :until"
DEVICE = "s.device IN list(:devices)"
SESSION_VALUES: dict[What, str] = {
    "agent": "s.agent = :{}",
    "profile": "s.profile = :{}",
    "model": "s.models <> replace(s.models, :{}, '')",
    "project": "s.sid IN list(:{})",
}
"""What a session must be to have the value of a parameter. In a list of texts as JSON, a text in its quotes stands
nowhere but as an item."""
SCOPES = {"remote": "s.remote = :scope", "marker": "s.marker = :scope", "path": "s.cwd = :scope"}
HAS_KIND = "s.kinds <> replace(s.kinds, '\"{}\"', '')"
IS_ORCHESTRATOR = "(s.agent, s.id) IN (SELECT agent, parent FROM sessions WHERE parent IS NOT NULL)"
KIND_SQL = {"orchestrator": IS_ORCHESTRATOR, "subagent": "s.parent IS NOT NULL"}
NUMBERS = "SELECT number FROM names WHERE lower(name) = :name"
ASCII_LOWER: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
"""What `lower` does to a column, in SQLite and with Postgres' collation "C"."""

texts = msgspec.json.Decoder(list[str]).decode
"""Of a column that holds a list."""


class Condition(NamedTuple):
    """What stands behind WHERE, and its parameters."""

    sql: str
    values: Values

    def also(self, sql: str, values: Values) -> Condition:
        """Both."""
        return Condition(f"{self.sql} AND {sql}", {**self.values, **values})


EVERY = Condition("TRUE", NOTHING)


def condition(tables: Tables, filters: Filters) -> Condition:
    """The sessions that the filters let through. A session without times matches only where there is no window.

    Raises UsageError for a value that no session has.
    """
    chosen = EVERY
    if filters.since_us is not None:
        chosen = chosen.also(SINCE, {"since": filters.since_us})
    if filters.until_us is not None:
        chosen = chosen.also(UNTIL, {"until": filters.until_us})
    for what in SESSION_VALUES:
        text = getattr(filters, what)
        if text is not None:
            chosen = chosen.also(*any_of(tables, what, (text,)))
    if filters.device is not None:
        chosen = chosen.also(DEVICE, {"devices": _fingerprints(tables, filters.device)})
    if filters.scope is not None:
        chosen = chosen.also(SCOPES[filters.scope[0]], {"scope": filters.scope[1]})
    if filters.kind is not None:
        chosen = chosen.also(*any_kind((filters.kind,)))
    return chosen


def any_of(tables: Tables, what: What, asked: Sequence[str], mark: str = "") -> Condition:
    """Sessions with one of these values. `mark` keeps its parameters apart from those of another one for `what`.

    Raises UsageError for a value that no session has.
    """
    parts = []
    values: dict[str, str | list[int]] = {}
    for number, text in enumerate(asked):
        name = f"{mark}{what}{number}"
        given = _of_project(tables, text) if what == "project" else json_text(text) if what == "model" else text
        part = Condition(SESSION_VALUES[what].format(name), {name: given})
        _check(tables, what, part, text)
        parts.append(part.sql)
        values[name] = given
    return Condition(f"({' OR '.join(parts)})", values) if parts else EVERY


def any_kind(kinds: Sequence[str]) -> Condition:
    """Sessions of one of these kinds. Raises UsageError for a kind there is not."""
    for kind in kinds:
        if kind not in KINDS:
            raise _unknown("kind", kind, KINDS)
    parts = [KIND_SQL.get(kind) or HAS_KIND.format(kind) for kind in kinds]
    return Condition(f"({' OR '.join(parts)})", NOTHING) if parts else EVERY


def numbers(tables: Tables, what: Literal["model", "tool"], asked: Sequence[str]) -> list[int]:
    """The numbers of names, whatever their case. Raises UsageError for a name that nothing here has."""
    found = []
    for text in asked:
        of_text = [int(number) for (number,) in tables.execute(NUMBERS, {"name": text.translate(ASCII_LOWER)})]
        if not of_text and value(tables, ANY_SESSION):
            raise _unknown(what, text, _values(tables, what))
        found += of_text
    return found


def known_values(tables: Tables, what: What) -> list[str]:
    """Every value a filter can have: a device by its name, or by its fingerprint where it has none."""
    found = _values(tables, what)
    if what == "device":
        devices = Devices(tables)
        return sorted({devices.name(device) or devices.shown(device) for device in found})
    return sorted(found) if what == "project" else found


def json_text(text: str) -> str:
    """As an item stands in a column that holds a list of texts: sessions.py writes them so."""
    return json.dumps(text, ensure_ascii=False)


def _values(tables: Tables, what: What | Literal["tool"]) -> list[str]:
    if what == "model":
        return sorted({model for (models,) in tables.execute(MODELS) for model in texts(models)})
    return [text for (text,) in tables.execute(VALUES[what])]


def _of_project(tables: Tables, part: str) -> list[int]:
    """Sessions whose project's name, remote, marker or path contains the part, whatever its case."""
    folded = part.casefold()
    fits: dict[str | None, bool] = {None: False}
    found = []
    for sid, *names in tables.execute(PROJECTS):
        for name in names:
            if name not in fits:
                fits[name] = folded in name.casefold()
            if fits[name]:
                found.append(sid)
                break
    return found


def _fingerprints(tables: Tables, text: str) -> list[str]:
    """Devices of that fingerprint, else of that name, else those whose fingerprint begins so; with what is merged."""
    known = Devices(tables)
    devices = _values(tables, "device")
    found = (
        [device for device in devices if text in (device, known.shown(device))]
        or [device for device in devices if known.name(device) == text]
        or [device for device in devices if text and (device.startswith(text) or known.shown(device).startswith(text))]
    )
    if not found and value(tables, ANY_SESSION):
        names = {shown: known.name(shown) for shown in map(known.shown, devices)}
        raise _unknown("device", text, [f"{name} ({device})" if name else device for device, name in names.items()])
    whole = {known.shown(device) for device in found}
    return [device for device in devices if known.shown(device) in whole]


def _check(tables: Tables, what: What, part: Condition, text: str) -> None:
    if not value(tables, SOME_SESSION.format(part.sql), part.values) and value(tables, ANY_SESSION):
        known = _values(tables, what)
        raise _unknown(what, text, known[:PROJECTS_NAMED] if what == "project" else known, len(known))


def _unknown(what: str, text: str, known: Iterable[str], total: int | None = None) -> UsageError:
    every = list(known)
    named = every[:NAMED]
    left = (total or len(every)) - len(named)
    more = f", and {left} more" if left else ""
    listed = ", ".join(named) + more if named else "none"
    return UsageError(f"No session here has the {what} {text!r}.", "", f"Known: {listed}.")
