"""What a person typed into Cursor, out of what the client writes around it, and its time stamps.

A prompt stands in `<user_query>`, mostly behind a `<timestamp>` with the user's own offset. Old stores have bare text.
Everything else in a user message is the client's: user_info, reminders, attached files, summaries.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

from prosa.events.facts import Kind, Role
from prosa.ingest.clock import EPOCH, plausible
from prosa.ingest.json_lines import plain

QUERY = re.compile(r"<user_query>(.*?)(?:</user_query>|\Z)", re.DOTALL)
STAMP = re.compile(r"<timestamp>([^<]{8,80})</timestamp>")
STAMP_PARTS = re.compile(
    r"(?:[A-Za-z]+,\s*)?([A-Za-z]{3})[a-z]*\.?\s+(\d{1,2}),\s*(\d{4}),?\s+(\d{1,2}):(\d{2})(?::(\d{2}))?\s*([AaPp][Mm])?"
    r"\s*(?:\((?:UTC|GMT)?([+-]\d{1,2})?(?::?(\d{2}))?\))?\s*"
)
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WRAPPER = re.compile(r"<([a-z]+(?:_[a-z]+)+|timestamp|summary|rules|attachments)(?:\s[^<>]*)?>")
"""The client's own tags have underscores; a pasted `<div>` is the user's."""
REDACTED = "[REDACTED]"
PLACEHOLDERS = frozenset({"new agent", "new chat", "untitled"})


class Entry(NamedTuple):
    """One thing that was said or done, before it has a key. `native` names it within its session."""

    kind: Kind
    role: Role
    text: str
    native: str
    tool: str | None = None
    call: str | None = None
    is_error: bool = False
    counted: bool = True
    at: int | None = None
    model: str | None = None
    copied: bool = False


class Prompt(NamedTuple):
    text: str
    counted: bool
    at: int | None
    """Whole minutes: what `<timestamp>` says."""
    is_summary: bool = False


def prompt_of(text: str) -> Prompt:
    """The typed text of a user message, or all of it, not counted, where nobody typed."""
    stamp = STAMP.search(text)
    at = stamp_time(stamp[1]) if stamp else None
    if "<user_query>" in text:
        typed = "\n".join(part.strip() for part in QUERY.findall(text) if not part.isspace() and part)
        return Prompt(typed, True, at) if typed else Prompt(text.strip(), False, at)
    typed = _without_wrappers(text).strip()
    if typed:
        return Prompt(typed, True, at)
    return Prompt(text.strip(), False, at, text.lstrip().startswith("<summary>"))


def _without_wrappers(text: str) -> str:
    """Linear, also for a text with ten thousand tags that nobody closes. An unclosed one goes to the end."""
    kept: list[str] = []
    place = 0
    for opened in WRAPPER.finditer(text):
        if opened.start() < place:
            continue
        kept.append(text[place : opened.start()])
        closing = f"</{opened[1]}>"
        end = text.find(closing, opened.end())
        if end < 0:
            return "".join(kept)
        place = end + len(closing)
    return "".join((*kept, text[place:]))


def stamp_time(text: str) -> int | None:
    """`Tuesday, Jun 16, 2026, 9:00 AM (UTC+0)` in microseconds UTC; without an offset it is UTC."""
    found = STAMP_PARTS.fullmatch(text.strip())
    if found is None or found[1].lower() not in MONTHS:
        return None
    hour = int(found[4])
    if found[7]:
        hour = hour % 12 + (12 if found[7].lower() == "pm" else 0)
    hours = int(found[8] or 0)
    minutes = int(found[9] or 0)
    try:
        zone = timezone(timedelta(hours=hours, minutes=-minutes if (found[8] or "").startswith("-") else minutes))
        when = datetime(
            int(found[3]), MONTHS.index(found[1].lower()) + 1, int(found[2]), hour, int(found[5]), int(found[6] or 0),
            tzinfo=zone,
        ).astimezone(UTC)  # fmt: skip
    except (ValueError, OverflowError):
        return None
    elapsed = when - EPOCH
    return plausible((elapsed.days * 86_400 + elapsed.seconds) * 1_000_000)


def title_of(*names: object) -> str | None:
    """The first that is a title and no placeholder."""
    for name in names:
        if isinstance(name, str) and name.strip() and name.strip().lower() not in PLACEHOLDERS:
            return plain(name)
    return None
