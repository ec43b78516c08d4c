"""One list of questions, asked of every back end over the same history: each must give the same answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from typing import Any, cast, get_args

import msgspec
import pytest
from cluster import a_cluster, new_database
from golden_home import HAIKU, OPUS, START, SUMMER_TIME, WINTER_TIME, fill
from msgspec.structs import replace
from pushes import Device, Devices
from served import Served, a_server
from store import A, B, C

from prosa.events.errors import UsageError
from prosa.events.raw import RawStore
from prosa.projections.index import open_index
from prosa.projections.local import LocalBackend
from prosa.projections.queries import Backend, Filters, Report, ReportName, Search, Timeline
from prosa.server.backend import ServerBackend, ask
from prosa.server.state import Server
from prosa.sync.remote import RemoteBackend

Question = tuple[str, Any]
DAY = 86_400_000_000
NOW = START + 30 * DAY
EVERY = Filters()
WINDOWS = (
    Filters(since_us=START, until_us=START + 2 * DAY),
    Filters(since_us=START + 90_000_000),
    Filters(until_us=START - DAY // 3),
)
SOME = (
    *(Filters(agent="codex"), Filters(profile="work"), Filters(device="studio"), Filters(device="Läppi")),
    *(Filters(device="cccc"), Filters(model=OPUS), Filters(model=HAIKU), Filters(project="STRASSE")),
    *(Filters(project="tools"), Filters(project="/srv"), Filters(scope=("remote", "github.com/acme/Straße"))),
    *(Filters(scope=("marker", "tools")), Filters(scope=("path", "/srv/tools"))),
    *(Filters(kind=kind) for kind in ("orchestrator", "subagent", "goal", "workflow")),
    Filters(agent="codex", project="straße", since_us=START, model=OPUS),
)
UNKNOWN = (
    *(Filters(agent="nope"), Filters(project="nope"), Filters(model="nope"), Filters(profile="nope")),
    *(Filters(device="nope"), Filters(kind="nope"), Filters(device="")),
)
QUERIES = (
    *("reaper", "reaper.drain", '"the reaper"', "reap*", "drain -pool", "reaper OR 迁移", "数据库", "据库", "东京"),
    *("arger", "común OR common", "common error", "nosuchword", "rea", "x" * 1000, "x" * 995 + "*", "needle", "title"),
    *("stated title", "said later", "is:error", "error is:error", "tool:bash", "tool:Bash reaper", "role:user pool"),
    *("kind:thinking", "kind:tool_call", "kind:compaction", "kind:subagent pool", "kind:orchestrator reaper"),
    *(f"model:{OPUS}", f"model:{HAIKU} reaper", "agent:codex pool", "agent:codex agent:pi the", "project:tools the"),
    *("after:2026-06-02 common", "before:2026-06-02", "after:2026-05-30 before:2026-06-01 orphan", "-pool", "::", ""),
    *(
        "nul \0 here",
        "agent:nope x",
        "tool:nope",
        "kind:nope",
        "before:soon",
        "'; DROP TABLE sessions; --",
        "% _",
        "NOT",
    ),
)
NOTHING = {"found": [], "widened": False, "more": False, "searched": 0}
ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu")
KEYS = (
    "codex/main",
    "pi/spring",
    "hermes/timeless",
    "gemini/s29",
    f"claude-code/{B}",
    f"claude-code/{C}",
    "codex/long",
)


def questions() -> Iterator[Question]:
    for filters in (EVERY, *WINDOWS, *SOME, *UNKNOWN):
        yield "timeline", Timeline(filters=filters)
        yield "timeline", Timeline(filters=filters, flat=True, include_empty=True, limit=7)
    for query in QUERIES:
        yield "search", Search(query=query, filters=EVERY, zone="Europe/Berlin")
        yield "search", Search(query=query, filters=EVERY, limit=3, all_hits=True, zone="UTC")
    for filters in (*WINDOWS, *SOME):
        yield "search", Search(query="the OR common", filters=filters, limit=0)
    for name in get_args(ReportName):
        yield from (("report", Report(name=name, filters=filters, zone="UTC")) for filters in (EVERY, *WINDOWS, *SOME))
        for zone in ZONES:
            around = Filters(since_us=SUMMER_TIME - DAY, until_us=WINTER_TIME + DAY)
            yield "report", Report(name=name, filters=around, zone=zone, limit=400)
    yield from (("storage", filters) for filters in (EVERY, *WINDOWS, *SOME))
    yield from (("values", what) for what in ("agent", "device", "profile", "model", "project"))
    yield from (("find", text) for text in ("", "codex/"))
    for text in (*KEYS, "main", "s0", A[:8], "nope", "codex/main\U0010ffff", "%"):
        yield "find", text
        yield "session", text
        yield "turns", text
    yield "unique", ["main", "s0", "codex/", A[:8], "codex/main", "nope"]


class Postgres:
    """The server's own back end, asked from here."""

    def __init__(self, served: Served) -> None:
        self._served = served

    def __getattr__(self, name: str) -> Any:
        return partial(self._ask, name)

    def _ask(self, name: str, question: Any) -> Any:
        def whole(backend: ServerBackend) -> Any:
            answer = getattr(backend, name)(question)
            return list(answer) if isinstance(answer, Iterator) else answer

        return self._served.run(lambda server: ask(server, whole))


async def projected(server: Server) -> None:
    assert server.worker is not None
    await server.worker.wait_for(await server.pool.fetchval("SELECT position FROM log_head"))


@pytest.fixture(scope="module")
def backends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Backend]]:
    folder = tmp_path_factory.mktemp("backends")
    with ExitStack() as stack:
        cluster = stack.enter_context(a_cluster())
        served = stack.enter_context(a_server(new_database(cluster), folder / "server", working=True))
        device: Device = Devices(served, folder / "devices")()
        fill(device.store)
        assert device.sync().summary.status == "complete"
        served.run(projected)
        served.server.now_us = lambda: NOW
        home = device.store.home
        db, log = open_index(home.index), stack.enter_context(device.log())
        stack.callback(db.close)
        yield {
            "sqlite": LocalBackend(db, log, RawStore(home.raw), now_us=NOW),
            "postgres": cast("Backend", Postgres(served)),
            "http": RemoteBackend(stack.enter_context(closing(device.connection()))),
        }


def answer(backend: Backend, question: Question) -> Any:
    """As JSON has it, but where a page ends; an error as what it says."""
    name, asked = question
    try:
        found = getattr(backend, name)(asked)
        found = list(found) if isinstance(found, Iterator) else found
    except UsageError as refused:
        return {"refused": (refused.what, refused.next_step, refused.exit_code)}
    plain = json.loads(msgspec.json.encode(sorted(found) if isinstance(found, set) else found))
    if isinstance(plain, dict):
        plain.pop("next", None)
    return plain


def apart(here: Any, there: Any) -> tuple[Any, Any]:
    """The first place where two answers differ."""
    if isinstance(here, dict) and isinstance(there, dict) and here.keys() == there.keys():
        return next(apart(here[name], there[name]) for name in here if here[name] != there[name])
    if isinstance(here, list) and isinstance(there, list) and len(here) == len(there):
        return next(apart(one, other) for one, other in zip(here, there, strict=True) if one != other)
    return here, there


@pytest.mark.parametrize("other", ["postgres", "http"])
def test_every_back_end_gives_the_same_answers(backends: dict[str, Backend], other: str) -> None:
    asked = list(questions())
    expected = [answer(backends["sqlite"], question) for question in asked]
    nothing = [found for found in expected if found in ([], NOTHING)]
    assert len(asked) > 400
    assert len(nothing) < len(asked) // 6
    found = [answer(backends[other], question) for question in asked]
    different = [(q, *apart(*both)) for q, *both in zip(asked, expected, found, strict=True) if both[0] != both[1]]
    assert different == []


@pytest.mark.parametrize("name", ["sqlite", "postgres", "http"])
def test_pages_give_together_what_is_asked_for_at_once(backends: dict[str, Backend], name: str) -> None:
    backend = backends[name]
    for filters, flat in ((EVERY, False), (Filters(agent="codex"), True), (Filters(agent="hermes"), True)):
        whole = backend.timeline(Timeline(filters=filters, flat=flat))
        for limit in (3, 40, len(whole.sessions) - 1, len(whole.sessions), len(whole.sessions) + 1):
            asked, listed = Timeline(filters=filters, flat=flat, limit=limit), []
            while True:
                page = backend.timeline(asked)
                assert (page.total, page.hidden_empty) == (whole.total, whole.hidden_empty)
                assert len(page.sessions) == limit or page.next is None
                listed += page.sessions
                if page.next is None:
                    break
                asked = replace(asked, after=page.next)
            assert [one.key for one in listed] == [one.key for one in whole.sessions]


@pytest.mark.parametrize("name", ["sqlite", "postgres", "http"])
@pytest.mark.parametrize("all_hits", [False, True])
@pytest.mark.parametrize("query", ["pool OR reaper OR word", "common", "reap", "is:error agent:codex", "迁移"])
def test_pages_of_hits_give_together_what_is_asked_for_at_once(
    backends: dict[str, Backend], name: str, all_hits: bool, query: str
) -> None:
    backend = backends[name]
    whole = backend.search(Search(query=query, filters=EVERY, limit=0, all_hits=all_hits))
    assert whole.next is None
    for limit in (7, 40, len(whole.found) - 1, len(whole.found), len(whole.found) + 1):
        asked, hits = Search(query=query, filters=EVERY, limit=limit, all_hits=all_hits), []
        while True:
            page = backend.search(asked)
            assert (page.searched, page.widened) == (whole.searched, whole.widened)
            assert (page.next is not None) == page.more
            assert len(page.found) == limit or not page.more
            hits += page.found
            if page.next is None:
                break
            asked = replace(asked, after=page.next)
        assert [(hit.session.key, hit.hit.ordinal, hit.hit.key) for hit in hits] == [
            (hit.session.key, hit.hit.ordinal, hit.hit.key) for hit in whole.found
        ]


@pytest.mark.parametrize("name", ["sqlite", "postgres", "http"])
def test_a_page_after_nothing_known_is_refused(backends: dict[str, Backend], name: str) -> None:
    for asked in ("x", "WyJ0aW1lbGluZSJd"):
        for question in (Timeline(filters=EVERY, after=asked), Search(query="x", filters=EVERY, after=asked)):
            with pytest.raises(UsageError, match="no page after"):
                getattr(backends[name], type(question).__name__.lower())(question)
