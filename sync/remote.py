"""The server asked the questions of projections/queries.py: the same answers as over the local index, page by page.

What a question is refused for is said in the same words and ends with the same exit code as here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any, Final, Literal, TypeVar
from urllib.parse import quote

from msgspec.structs import replace

from prosa.events.errors import ConflictError, DamageError, UsageError
from prosa.events.messages import Heads
from prosa.projections.asking import (
    UNIQUE_BYTES,
    LogPage,
    Matches,
    Rows,
    ShownEvent,
    Texts,
    TurnsPage,
    Values,
    filter_parameters,
    to_parameters,
)
from prosa.projections.queries import (
    Filters,
    Match,
    Report,
    Search,
    SearchPage,
    Session,
    ShownTurn,
    Timeline,
    TimelinePage,
    no_session,
)
from prosa.projections.showing import ALL
from prosa.projections.zones import zone
from prosa.sync.http import Connection, Parameters, ServerRefused

PAGE: Final = 1_000
ERRORS: Final[dict[str, type[UsageError | ConflictError]]] = {
    "invalid": UsageError, "not_found": UsageError, "conflict": ConflictError
}  # fmt: skip

T = TypeVar("T")


class RemoteBackend:
    """Answers as of the server's clock and what its tables have."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # behind TLS a kept connection saves two round trips a question, more than its client takes to load
        self._asking = connection.get if connection.server.startswith("https:") else connection.ask

    def behind(self) -> int:
        """Events of the server's log that are not in its tables yet."""
        heads = self._ask("/v1/heads", Heads)
        return max(0, heads.position - heads.projected)

    def timeline(self, question: Timeline) -> TimelinePage:
        """All of it, in as many pages as that takes; the counts are those of the last one."""
        sessions: list[Session] = []
        subagents: dict[str, int] = {}
        while True:
            asked = replace(question, limit=_page_of(question.limit, len(sessions)))
            page = self._ask("/v1/sessions", TimelinePage, to_parameters(asked))
            sessions += page.sessions
            subagents |= page.subagents
            if page.next is None or not page.sessions or (question.limit and len(sessions) >= question.limit):
                return TimelinePage(sessions, subagents, page.hidden_empty, page.total, page.next)
            question = replace(question, after=page.next)

    def search(self, question: Search) -> SearchPage:
        named = _zone_name(question.zone, needed="before:" in question.query or "after:" in question.query)
        question = replace(question, zone=named)
        found: SearchPage | None = None
        while True:
            asked = replace(question, limit=_page_of(question.limit, len(found.found) if found else 0))
            page = self._ask("/v1/search", SearchPage, to_parameters(asked))
            if found is None:
                found = page
            else:
                found.found += page.found
                found.more, found.next = page.more, page.next
            if page.next is None or not page.found or (question.limit and len(found.found) >= question.limit):
                return found
            question = replace(question, after=page.next)

    def find(self, prefix: str) -> list[Match]:
        return self._ask("/v1/sessions/find", Matches, {"text": prefix}).matches

    def unique(self, texts: Sequence[str]) -> set[str]:
        found: set[str] = set()
        for some in _in_addresses(texts):
            found.update(self._ask("/v1/sessions/unique", Texts, {"text": some}).texts)
        return found

    def session(self, key: str) -> Session:
        return self._ask(_path(key), Session)

    def turns(self, key: str, first: int = 0, most: int = ALL) -> Iterator[ShownTurn]:
        """Asked for page by page as they are taken."""
        asked: dict[str, str | int | list[str] | None] = {"first": first}
        while most > 0:
            page = self._ask(_path(key) + "/turns", TurnsPage, asked | {"limit": min(most, PAGE)})
            yield from page.turns
            most -= len(page.turns)
            if page.next is None or not page.turns:
                return
            asked = {"after": page.next}

    def raw(self, session: Session) -> Iterator[bytes]:
        """The preserved bytes, streamed. Raises DamageError at their end where they are not the ones it names."""
        assert session.raw is not None
        found, left = sha256(), session.raw.size
        try:
            for piece in self._connection.read(f"/v1/raw/{session.raw.sha256}"):
                found.update(piece)
                left -= len(piece)
                if left < 0:
                    break
                yield piece
        except ServerRefused as refused:
            if refused.problem.code == "not_found":  # the session is known: it is evidence that is missing
                raise ConflictError(refused.what, refused.kept or "Its turns are in the log.") from None
            raise _ours(refused) from None
        if found.hexdigest() != session.raw.sha256:
            raise DamageError(
                f"The server sent other bytes than the preserved copy {session.raw.sha256[:16]}….",
                "Nothing was changed.",
                "Ask again; if it says so again, the server's store is damaged.",
            )

    def report(self, question: Report) -> list[dict[str, Any]]:
        named = replace(question, zone=_zone_name(question.zone, needed=True))
        parameters = to_parameters(named)
        return self._ask(f"/v1/reports/{parameters.pop('name')}", Rows, parameters).rows

    def storage(self, filters: Filters) -> list[dict[str, Any]]:
        return self._ask("/v1/storage", Rows, filter_parameters(filters)).rows

    def values(self, what: Literal["agent", "device", "profile", "model", "project"]) -> list[str]:
        return self._ask(f"/v1/values/{what}", Values).values

    # the server's log

    def events(
        self, types: Sequence[str] | None = None, since_us: int | None = None, limit: int = 0
    ) -> Iterator[dict[str, Any]]:
        """Records in order of arrival; with a limit the last ones. Raises UsageError for a type nobody knows."""
        chosen: dict[str, str | int | list[str] | None] = {
            "types": ",".join(types) if types is not None else None, "since_us": since_us
        }  # fmt: skip
        if not limit:
            yield from self._pages("/v1/log", chosen)
            return
        last: list[dict[str, Any]] = []
        before: int | None = 1 << 61
        while before is not None and len(last) < limit:
            asked = chosen | {"before": before, "limit": min(PAGE, limit - len(last))}
            page = self._ask("/v1/log", LogPage, asked)
            last = page.events + last
            before = page.next if page.events else None
        yield from last

    def event(self, position: int) -> ShownEvent:
        return self._ask(f"/v1/log/{position}", ShownEvent)

    def history(self, session: Session) -> Iterator[dict[str, Any]]:
        return self._pages(f"/v1/why/{quote(session.key)}", {})

    def _pages(self, path: str, chosen: Parameters) -> Iterator[dict[str, Any]]:
        after: int | None = 0
        while after is not None:
            page = self._ask(path, LogPage, {**chosen, "after": after, "limit": PAGE})
            yield from page.events
            after = page.next if page.next is not None and page.next > after else None

    def _ask(self, path: str, kind: type[T], parameters: Parameters | None = None) -> T:
        try:
            return self._asking(path, kind, parameters)
        except ServerRefused as refused:
            raise _ours(refused) from None


def _ours(refused: ServerRefused) -> Exception:
    """The error that the same question raises here."""
    problem = refused.problem
    kind = ERRORS.get(problem.code)
    return kind(problem.what, problem.kept, problem.next_step) if kind else refused


def _path(key: str) -> str:
    """A key has an agent and an id. Raises UsageError for what is none."""
    if "/" not in key:
        raise no_session(key)
    return f"/v1/sessions/{quote(key)}"


def _page_of(limit: int, got: int) -> int:
    return min(limit - got, PAGE) if limit else PAGE


def _in_addresses(texts: Sequence[str]) -> Iterator[list[str]]:
    """As many as one URL takes."""
    some: list[str] = []
    size = 0
    for text in texts:
        size += len(quote(text)) + 6
        if some and size > UNIQUE_BYTES:
            yield some
            some, size = [], len(quote(text)) + 6
        some.append(text)
    if some:
        yield some


def _zone_name(name: str | None, *, needed: bool) -> str | None:
    """The zone by a name that the server knows too. Raises UsageError where this machine's has none."""
    if name is not None:
        return name
    local = zone()
    found = getattr(local, "key", None) or str(local)
    try:
        zone(found)
    except UsageError:
        if not needed:
            return None
        raise UsageError("The time zone of this machine has no name.", "", "Give one: --tz Europe/Madrid.") from None
    return found
