"""GET what was asked: sessions, turns, raw, search, reports, the log. The answers are those of projections/queries.py.

A token for metadata gets sessions without title and first prompt, and no turns: no words of a transcript. Lists come
in pages: `next` of an answer is `after` of the next question, and there is a next page where it is not null.
"""

from __future__ import annotations

from typing import Final, TypeVar, get_args

import msgspec
from starlette.responses import Response

from prosa.events.errors import UsageError
from prosa.projections.asking import (
    FILTERS,
    LogPage,
    Matches,
    Rows,
    ShownEvent,
    Texts,
    TurnsPage,
    Values,
    filters_of,
    moment_us,
    to_question,
)
from prosa.projections.queries import (
    Backend,
    Report,
    ReportName,
    Search,
    SearchPage,
    Session,
    ShownTurn,
    Timeline,
    TimelinePage,
)
from prosa.server import reading_log
from prosa.server.backend import ask
from prosa.server.endpoints import MAY, Call, Endpoint, Refused
from prosa.server.raw_api import raw_response

PAGE: Final = 100
MOST: Final = 1_000
"""Sessions, hits, turns or events of a page."""
PAGE_BYTES: Final = 4 * 1024 * 1024
"""Of text in a page of turns; one larger turn stands alone."""
LAST_POSITION: Final = 1 << 62
VALUES: Final = ("agent", "device", "profile", "model", "project")

Asked = TypeVar("Asked", Timeline, Search, Report)


async def sessions(call: Call) -> TimelinePage:
    question = _question(call, Timeline, PAGE)
    page = await ask(call.server, lambda backend: backend.timeline(question))
    page.sessions = [_visible(call, session) for session in page.sessions]
    return page


async def find(call: Call) -> Matches:
    text = _only(call, "text").get("text", "")
    return Matches(await ask(call.server, lambda backend: backend.find(text)))


async def unique(call: Call) -> Texts:
    _only(call, "text")
    texts = call.request.query_params.getlist("text")
    return Texts(sorted(await ask(call.server, lambda backend: backend.unique(texts))))


async def session(call: Call) -> Session:
    key = _key(call)
    return _visible(call, await ask(call.server, lambda backend: backend.session(key)))


async def turns(call: Call) -> TurnsPage | Session:
    key, limit, first = _key(call), call.number("limit", MOST, 1, MOST), call.number("first", 0)
    after = _only(call, "first", "after", "limit").get("after")
    try:
        return await ask(call.server, lambda backend: turns_page(backend, key, first, after, limit))
    except UsageError as unknown:
        return await _ends_so(call, "/turns", unknown)


def turns_page(backend: Backend, key: str, first: int, after: str | None, limit: int) -> TurnsPage:
    """Turns from an ordinal on, or behind the one that `after` names by ordinal and key: also if others were put in
    front of it since. Raises Refused where that one is gone: the session was read anew in between.
    """
    if after is not None:
        first = _behind(backend, key, after)
    found: list[ShownTurn] = []
    size = 0
    for turn in backend.turns(key, first, limit + 1):
        size += len(turn.text)
        if len(found) == limit or (found and size > PAGE_BYTES):
            return TurnsPage(found, f"{found[-1].ordinal}-{found[-1].key}")
        found.append(turn)
    return TurnsPage(found, None)


def _behind(backend: Backend, key: str, after: str) -> int:
    text, _, turn_key = after.partition("-")
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise UsageError(f"after is {after[:40]!r}, not the next of a page.")
    there = (*backend.turns(key, int(text), 1),)
    for turn in there if there and there[0].key == turn_key else backend.turns(key):
        if turn.key == turn_key:
            return turn.ordinal + 1
    raise Refused("conflict", f"{key} was read anew while it was shown.", "Nothing is lost.", "Ask again.")


async def raw(call: Call) -> Response | Session:
    key = _key(call)
    try:
        found = await ask(call.server, lambda backend: backend.session(key))
    except UsageError as unknown:
        return await _ends_so(call, "/raw", unknown)
    if found.raw is None:
        raise Refused("conflict", f"No raw copy of {key} was preserved.", "Its turns are in the log.")
    return await raw_response(call.server, call.request, found.raw.sha256)


async def search(call: Call) -> SearchPage:
    question = _question(call, Search, 20)
    return await ask(call.server, lambda backend: backend.search(question))


async def report(call: Call) -> Rows:
    name = call.request.path_params["name"]
    if name not in get_args(ReportName):
        raise UsageError(f"There is no report {name!r}.", "", f"Reports: {', '.join(get_args(ReportName))}.")
    said = {"zone": "UTC"} | _only(call, *FILTERS, "limit", "zone")
    question = to_question(said | {"name": name, "limit": str(call.number("limit", 0))}, Report)
    return Rows(await ask(call.server, lambda backend: backend.report(question)))


async def storage(call: Call) -> Rows:
    filters = filters_of(_only(call, *FILTERS))
    return Rows(await ask(call.server, lambda backend: backend.storage(filters)))


async def values(call: Call) -> Values:
    what = call.request.path_params["what"]
    if what not in VALUES:
        raise UsageError(f"{what!r} is no filter.", "", f"Filters: {', '.join(VALUES)}.")
    return Values(await ask(call.server, lambda backend: backend.values(what)))


async def log(call: Call) -> LogPage:
    said = _only(call, "after", "before", "types", "since_us", "until_us", "limit")
    types = [word.strip() for word in said["types"].split(",") if word.strip()] if "types" in said else None
    since, until = (moment_us(said[name], name) if name in said else None for name in ("since_us", "until_us"))
    before = call.number("before", 0, 1, LAST_POSITION) if "before" in said else None
    after, limit = call.number("after", 0, 0, LAST_POSITION), call.number("limit", PAGE, 1, MOST)
    chosen = reading_log.Chosen(types, since, until)
    return await reading_log.page(call.server, chosen, limit, after=after, before=before)


async def log_event(call: Call) -> ShownEvent:
    _only(call)
    return await reading_log.event(call.server, min(call.request.path_params["position"], LAST_POSITION))


async def why(call: Call) -> LogPage:
    key = _key(call)
    after, limit = call.number("after", 0, 0, LAST_POSITION), call.number("limit", MOST, 1, MOST)
    _only(call, "after", "limit")
    found = await ask(call.server, lambda backend: backend.session(key))
    return await reading_log.history(call.server, found, limit, after)


def _key(call: Call) -> str:
    return f"{call.request.path_params['agent']}/{call.request.path_params['id']}"


def _only(call: Call, *names: str) -> dict[str, str]:
    """The parameters. Raises UsageError for one that is none of these: a filter with a typing error must not be
    a question without a filter."""
    said = dict(call.request.query_params)
    if unknown := said.keys() - set(names):
        raise UsageError(f"There is no parameter {min(unknown)!r} here.", "", f"Known: {', '.join(names)}.")
    return said


def _question(call: Call, kind: type[Asked], default: int) -> Asked:
    names = [name for name in kind.__struct_fields__ if name != "filters"]
    said = {"zone": "UTC"} | _only(call, *FILTERS, *names)
    return to_question(said | {"limit": str(call.number("limit", default, 1, MOST))}, kind)


def _visible(call: Call, found: Session) -> Session:
    assert call.caller.scope is not None
    if "everything" in MAY[call.caller.scope]:
        return found
    return msgspec.structs.replace(found, title=None, first_prompt=None)


async def _ends_so(call: Call, suffix: str, unknown: UsageError) -> Session:
    """The session whose own id ends like a route."""
    key = _key(call) + suffix
    try:
        return await ask(call.server, lambda backend: backend.session(key))
    except UsageError:
        raise unknown from None


PARAMETERS: Final[dict[str, tuple[type, str]]] = {
    "since_us": (int, "Only what was active since then: microseconds since 1970."),
    "until_us": (int, "Only what was active before then."),
    "project": (str, "Part of a project's name, remote, marker or path."),
    "scope": (str, "Exactly one project: remote:…, marker:… or path:…"),
    "agent": (str, "One agent."),
    "device": (str, "Fingerprint, a beginning of it, or the name of a device."),
    "profile": (str, "One profile of an agent."),
    "model": (str, "Sessions that used a model."),
    "kind": (str, "orchestrator, subagent, goal, workflow or ralph-loop."),
    "limit": (int, f"At most so many, {MOST} in a page."),
    "after": (str, "`next` of the page before."),
    "first": (int, "Ordinal of the first turn."),
    "flat": (bool, "Subagents too, each by itself."),
    "include_empty": (bool, "Also sessions with no prompt and no usage."),
    "query": (str, "As prosa search takes it."),
    "all_hits": (bool, "Every turn that matches, not the best of each session."),
    "zone": (str, "IANA name of a time zone; UTC if not given."),
    "text": (str, "Key or id of a session, or a beginning of either."),
    "before": (str, "Position: the last events in front of it."),
    "types": (str, "Types of event, with commas."),
}


def _parameters(*names: str) -> tuple[tuple[str, type, str], ...]:
    return tuple((name, *PARAMETERS[name]) for name in names)


ONE: Final = "/v1/sessions/{agent}/{id:path}"
ENDPOINTS: Final = (
    Endpoint(
        "GET", "/v1/sessions", "metadata", sessions, "Sessions, newest first.", TimelinePage,
        parameters=_parameters(*FILTERS, "limit", "after", "flat", "include_empty"),
    ),
    Endpoint(
        "GET", "/v1/sessions/find", "metadata", find, "Sessions by key or id, or a beginning of either.", Matches,
        parameters=_parameters("text"),
    ),
    Endpoint(
        "GET", "/v1/sessions/unique", "metadata", unique, "Which texts find one session alone.", Texts,
        parameters=_parameters("text"),
    ),
    Endpoint(
        "GET", f"{ONE}/turns", "everything", turns, "The turns of a session.", TurnsPage,
        parameters=_parameters("first", "after", "limit"),
    ),
    Endpoint("GET", f"{ONE}/raw", "everything", raw, "The preserved bytes of a session, also a range of them."),
    Endpoint("GET", ONE, "metadata", session, "One session.", Session),
    Endpoint(
        "GET", "/v1/search", "everything", search, "Full text.", SearchPage,
        parameters=_parameters("query", *FILTERS, "limit", "after", "all_hits", "zone"),
    ),
    Endpoint(
        "GET", "/v1/reports/{name}", "reports", report, "One of the fixed reports.", Rows,
        parameters=_parameters(*FILTERS, "limit", "zone"),
    ),
    Endpoint("GET", "/v1/values/{what}", "metadata", values, "Values a filter can have.", Values),
    Endpoint(
        "GET", "/v1/storage", "metadata", storage, "Bytes by agent, project and age.", Rows,
        parameters=_parameters(*FILTERS),
    ),
    Endpoint(
        "GET", "/v1/log", "metadata", log, "The audit trail.", LogPage,
        parameters=_parameters("after", "before", "types", "since_us", "until_us", "limit"),
    ),
    Endpoint("GET", "/v1/log/{position:int}", "metadata", log_event, "One event.", ShownEvent),
    Endpoint(
        "GET", "/v1/why/{agent}/{id:path}", "metadata", why, "The events that made a session what it is.", LogPage,
        parameters=_parameters("after", "limit"),
    ),
)  # fmt: skip
