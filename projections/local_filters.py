"""Filters as SQL over the index's sessions, and the values they can have.

A value that no session has is an error that names the known ones; in an empty index nothing is known, and nothing is
refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import apsw

from prosa.events.errors import UsageError
from prosa.projections.local_rows import rows, value
from prosa.projections.queries import KINDS, Filters

What = Literal["agent", "device", "profile", "model", "project"]
PROJECTS_NAMED = 10
"""A message about an unknown project names so many, those with the latest activity."""

NAMES_CONTAIN = "names_contain"
"""SQL function (part, name, remote, marker, path): whether one of them contains the part, whatever its case."""

DEVICES = "SELECT device, hostname FROM devices ORDER BY position"
ANY_SESSION = "SELECT EXISTS (SELECT 1 FROM sessions)"
SOME_SESSION = "SELECT EXISTS (SELECT 1 FROM sessions s WHERE {})"
VALUES: dict[What | Literal["tool"], str] = {
    "agent": "SELECT DISTINCT agent FROM sessions ORDER BY 1",
    "device": "SELECT DISTINCT device FROM sessions WHERE device IS NOT NULL ORDER BY 1",
    "profile": "SELECT DISTINCT profile FROM sessions ORDER BY 1",
    "model": "SELECT DISTINCT value FROM sessions, json_each(models) ORDER BY 1",
    "project": "SELECT project FROM sessions WHERE project IS NOT NULL GROUP BY 1 ORDER BY max(last) DESC, 1",
    "tool": "SELECT DISTINCT name FROM turn_sums JOIN names ON number = tool ORDER BY 1",
}

Value = str | int | None
SINCE = "coalesce(s.last, s.started) >= :since"
UNTIL = "coalesce(s.started, s.last) < :until"
DEVICE = "s.device IN (SELECT value FROM json_each(:devices))"
SESSION_VALUES: dict[What, str] = {
    "agent": "s.agent = :{}",
    "profile": "s.profile = :{}",
    "model": "EXISTS (SELECT 1 FROM json_each(s.models) WHERE value = :{})",
    "project": f"{NAMES_CONTAIN}(:{{}}, s.project, s.remote, s.marker, s.cwd)",
}
"""What a session must be to have the value of a parameter."""
SCOPES = {"remote": "s.remote = :scope", "marker": "s.marker = :scope", "path": "s.cwd = :scope"}
HAS_KIND = "EXISTS (SELECT 1 FROM json_each(s.kinds) WHERE value = '{}')"
IS_ORCHESTRATOR = "(s.agent, s.id) IN (SELECT agent, parent FROM sessions WHERE parent IS NOT NULL)"
KIND_SQL = {"orchestrator": IS_ORCHESTRATOR, "subagent": "s.parent IS NOT NULL"}
NUMBERS = "SELECT number FROM names WHERE lower(name) = lower(?)"


class Condition(NamedTuple):
    """What stands behind WHERE, and its parameters."""

    sql: str
    values: Mapping[str, Value]

    def also(self, sql: str, values: Mapping[str, Value]) -> Condition:
        """Both."""
        return Condition(f"{self.sql} AND {sql}", {**self.values, **values})


EVERY = Condition("TRUE", {})


def register(db: apsw.Connection) -> None:
    """Give a connection the function that `condition` uses."""

    @lru_cache(1 << 16)
    def names_contain(part: str, *names: str | None) -> bool:
        folded = part.casefold()
        return any(name is not None and folded in name.casefold() for name in names)

    db.create_scalar_function(NAMES_CONTAIN, names_contain, 5, deterministic=True)


def condition(db: apsw.Connection, filters: Filters) -> Condition:
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
            chosen = chosen.also(*any_of(db, what, (text,)))
    if filters.device is not None:
        chosen = chosen.also(DEVICE, {"devices": json.dumps(_fingerprints(db, filters.device))})
    if filters.scope is not None:
        chosen = chosen.also(SCOPES[filters.scope[0]], {"scope": filters.scope[1]})
    if filters.kind is not None:
        chosen = chosen.also(*any_kind((filters.kind,)))
    return chosen


def any_of(db: apsw.Connection, what: What, texts: Sequence[str], mark: str = "") -> Condition:
    """Sessions with one of these values. `mark` keeps its parameters apart from those of another one for `what`.

    Raises UsageError for a value that no session has.
    """
    parts = []
    values: dict[str, Value] = {}
    for number, text in enumerate(texts):
        name = f"{mark}{what}{number}"
        part = Condition(SESSION_VALUES[what].format(name), {name: text})
        _check(db, what, part, text)
        parts.append(part.sql)
        values[name] = text
    return Condition(f"({' OR '.join(parts)})", values) if parts else EVERY


def any_kind(kinds: Sequence[str]) -> Condition:
    """Sessions of one of these kinds. Raises UsageError for a kind there is not."""
    for kind in kinds:
        if kind not in KINDS:
            raise _unknown("kind", kind, KINDS)
    parts = [KIND_SQL.get(kind) or HAS_KIND.format(kind) for kind in kinds]
    return Condition(f"({' OR '.join(parts)})", {}) if parts else EVERY


def numbers(db: apsw.Connection, what: Literal["model", "tool"], texts: Sequence[str]) -> list[int]:
    """The numbers of names, whatever their case. Raises UsageError for a name that nothing here has."""
    found = []
    for text in texts:
        of_text = [int(number) for (number,) in rows(db, NUMBERS, (text,))]
        if not of_text and value(db, ANY_SESSION):
            raise _unknown(what, text, _values(db, what))
        found += of_text
    return found


def device_names(db: apsw.Connection) -> dict[str, str]:
    """Fingerprint → the name the device gave itself last."""
    return dict(rows(db, DEVICES))


def known_values(db: apsw.Connection, what: What) -> list[str]:
    """Every value a filter can have: a device by its name, or by its fingerprint where it has none."""
    found = _values(db, what)
    if what == "device":
        names = device_names(db)
        return sorted({names.get(device, device) for device in found})
    return sorted(found) if what == "project" else found


def _values(db: apsw.Connection, what: What | Literal["tool"]) -> list[str]:
    return [text for (text,) in rows(db, VALUES[what])]


def _fingerprints(db: apsw.Connection, text: str) -> list[str]:
    """Devices of that fingerprint, else of that name, else those whose fingerprint begins so."""
    devices = _values(db, "device")
    names = device_names(db)
    found = (
        [device for device in devices if device == text]
        or [device for device in devices if names.get(device) == text]
        or [device for device in devices if text and device.startswith(text)]
    )
    if not found and value(db, ANY_SESSION):
        raise _unknown("device", text, [f"{names[d]} ({d})" if d in names else d for d in devices])
    return found


def _check(db: apsw.Connection, what: What, part: Condition, text: str) -> None:
    if not value(db, SOME_SESSION.format(part.sql), part.values) and value(db, ANY_SESSION):
        known = _values(db, what)
        raise _unknown(what, text, known[:PROJECTS_NAMED] if what == "project" else known, len(known))


def _unknown(what: str, text: str, known: Iterable[str], total: int | None = None) -> UsageError:
    named = list(known)
    more = f", and {total - len(named)} more" if total is not None and total > len(named) else ""
    listed = ", ".join(named) + more if named else "none"
    return UsageError(f"No session here has the {what} {text!r}.", "", f"Known: {listed}.")
