"""The questions prosa answers, and the shape of the answers: the same on SQLite, on the server and over HTTP.

Every struct here is also the JSON of `--json` and of the API, field by field (docs/cli.md). Times are RFC 3339 UTC
with milliseconds, money is a decimal string in US dollars, unknown is null.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from prosa.events.errors import UsageError

ReportName = Literal[
    "sessions", "tools", "models", "projects", "profiles", "heatmap", "usage", "errors", "hours", "usage_by_model",
    "errors_by_model", "subagents", "days",
]  # fmt: skip
KINDS = ("orchestrator", "subagent", "goal", "workflow", "ralph-loop")


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """What every question can be narrowed by. A window selects sessions whose activity overlaps it."""

    since_us: int | None = None
    until_us: int | None = None
    """Exclusive."""
    project: str | None = None
    """Part of the name, the remote, the marker or the path, case-insensitive; no wildcards."""
    scope: tuple[str, str] | None = None
    """Exact: ("remote", …), ("marker", …) or ("path", …): the current project."""
    agent: str | None = None
    device: str | None = None
    """Fingerprint, a prefix of it, or the exact name."""
    profile: str | None = None
    model: str | None = None
    kind: str | None = None


class Turns(msgspec.Struct, frozen=True, gc=False):
    user: int
    assistant: int
    thinking: int
    tool_call: int
    tool_result: int


class Tokens(msgspec.Struct, frozen=True, gc=False):
    input: int
    """Uncached."""
    output: int
    """Includes reasoning."""
    cache_read: int
    cache_creation: int
    reasoning: int | None
    total: int


class Project(msgspec.Struct, frozen=True, gc=False):
    name: str | None
    remote: str | None
    marker: str | None
    path: str | None
    """The session's cwd as its agent recorded it."""


class Lineage(msgspec.Struct, frozen=True, gc=False):
    forked_from: str | None = None
    cleared_from: str | None = None
    resumed_from: str | None = None


class Compactions(msgspec.Struct, frozen=True, gc=False):
    count: int
    known: bool
    """False: count is a lower bound, and reason says why."""
    reason: str | None


class Inherited(msgspec.Struct, frozen=True, gc=False, rename={"from_": "from"}):
    turns: int
    from_: str | None


class RawCopy(msgspec.Struct, frozen=True, gc=False):
    sha256: str
    size: int
    stored: int
    state: Literal["local", "pruned", "missing"]


class SourceFile(msgspec.Struct, frozen=True, gc=False):
    path: str | None
    state: Literal["present", "orphaned"]


class Session(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One session, its numbers those of its own records."""

    key: str
    id: str
    agent: str
    device: str | None
    device_name: str | None
    profile: str
    parent_id: str | None
    lineage: Lineage
    title: str | None
    first_prompt: str | None
    kinds: list[str]
    project: Project | None
    branch: str | None
    started_at: str | None
    last_activity_at: str | None
    active: bool
    model: str | None
    models: list[str]
    turns: Turns
    tools: dict[str, int]
    tool_errors: int
    usage: Tokens | None
    cost_usd: str | None
    compactions: Compactions
    inherited: Inherited | None
    state: Literal["plain", "encrypted", "partial"]
    raw: RawCopy | None
    source: SourceFile


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Newest last activity first, unknown last, then key."""

    filters: Filters
    limit: int = 0
    """0: no limit."""
    flat: bool = False
    """True: subagents are listed alone; False: only as children (`subagents` of TimelinePage)."""
    include_empty: bool = False
    after: str | None = None
    """`next` of the page before; the question is the same but for the limit."""


class TimelinePage(msgspec.Struct):
    sessions: list[Session]
    subagents: dict[str, int]
    """Key of a listed session → number of sessions below it, at any depth, that are not listed."""
    hidden_empty: int
    """Sessions with no prompt and no usage that the filters would have shown."""
    total: int
    """Sessions the filters match, without the limit."""
    next: str | None = None
    """`after` of the next page; None: this is the last."""


class Search(msgspec.Struct, frozen=True, kw_only=True):
    query: str
    filters: Filters
    limit: int = 20
    all_hits: bool = False
    """False: the best turn of each session."""
    zone: str | None = None
    after: str | None = None
    """`next` of the page before; the question is the same but for the limit."""


class Hit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    ordinal: int
    key: str
    """The turn's key, 16 hex digits; empty for a hit in the title."""
    role: str
    kind: str
    tool: str | None
    at: str | None
    snippet: str
    marks: list[tuple[int, int]]
    """Character offsets into snippet."""
    score: int
    """3 title or prompt, 2 answer, 1 thinking, 0 everything else."""


class Found(msgspec.Struct, frozen=True):
    session: Session
    hit: Hit


class SearchPage(msgspec.Struct):
    found: list[Found]
    widened: bool
    """True: the words as they stand found nothing; these hits are for words that begin with them."""
    more: bool
    """There are further hits beyond the limit."""
    searched: int
    """Sessions that the filters let through."""
    next: str | None = None
    """`after` of the next page; None: this is the last."""


class ShownTurn(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    ordinal: int
    key: str
    role: str
    kind: str
    at: str | None
    text: str
    tool: str | None
    tool_call_id: str | None
    is_error: bool
    model: str | None
    truncated: bool
    counted: bool
    inherited: bool


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """One of several sessions an id fits."""

    key: str
    id: str
    agent: str
    device_name: str | None
    parent_id: str | None
    started_at: str | None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    name: ReportName
    filters: Filters
    limit: int = 0
    zone: str | None = None
    """IANA name for days, hours and heatmaps; None: the system's."""


class TimelinePlace(msgspec.Struct, frozen=True, tag="timeline", array_like=True):
    """The last session of a page, by the two things that order the timeline."""

    last: int | None
    key: str


class SearchPlace(msgspec.Struct, frozen=True, tag="search", array_like=True):
    """The last hit of a page: the session by what orders search, and where in it."""

    score: int
    """Of the session's best hit."""
    last: int | None
    key: str
    widened: bool
    hit_score: int
    hit: int
    """Place of the hit among the session's facts."""


Cursor = TypeVar("Cursor", TimelinePlace, SearchPlace)


def cursor(place: TimelinePlace | SearchPlace) -> str:
    """The place as callers carry it from page to page; what is in it is nobody's business."""
    return urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def place_of(after: str, kind: type[Cursor]) -> Cursor:
    """Raises UsageError for what is no cursor of that question."""
    try:
        return msgspec.json.decode(urlsafe_b64decode(after + "=" * (-len(after) % 4)), type=kind)
    except (ValueError, msgspec.DecodeError, RecursionError):
        raise UsageError(f"There is no page after {after[:60]!r}.", "", "Take `next` of the page before.") from None


def no_session(key: str) -> UsageError:
    """What every back end says of a key that it has not."""
    return UsageError(f"There is no session {key!r}.", "", "List them with: prosa --all --last 52w")


class Backend(Protocol):
    """What the command line, the API and the panel ask."""

    def timeline(self, question: Timeline) -> TimelinePage: ...

    def search(self, question: Search) -> SearchPage: ...

    def find(self, prefix: str) -> list[Match]:
        """Sessions whose key or id is the text, else those it is a prefix of."""

    def unique(self, texts: Sequence[str]) -> set[str]:
        """Of these the ones that find one session alone."""

    def session(self, key: str) -> Session: ...

    def turns(self, key: str, first: int = 0, most: int = ...) -> Iterator[ShownTurn]:
        """In reading order, from an ordinal on, at most so many."""

    def report(self, question: Report) -> list[dict[str, Any]]:
        """Rows with snake_case columns; numbers as numbers, money as decimal strings."""

    def storage(self, filters: Filters) -> list[dict[str, Any]]:
        """Bytes of the preserved transcripts by agent, project and age."""

    def values(self, what: Literal["agent", "device", "profile", "model", "project"]) -> list[str]:
        """Every value a filter can have, for messages and completion."""
