from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import pytest

from prosa.events.catalogue import RawPreserved
from prosa.events.errors import UsageError
from prosa.events.facts import Turn, Usage
from prosa.projections.local import LocalBackend
from prosa.projections.queries import Filters, Report, ReportName

if TYPE_CHECKING:
    from archive import Archive

SPRING = 1_774_742_400_000_000
"""2026-03-29 00:00 UTC: in Madrid the clock goes from 02:00 to 03:00 one hour later."""


def ask(backend: LocalBackend, name: ReportName, *, limit: int = 0, zone: str = "UTC", **filters: Any) -> list[Any]:
    return backend.report(Report(name=name, filters=Filters(**filters), limit=limit, zone=zone))


def picked(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def call(archive: Archive, tool: str, at: int, *, failed: bool = False, model: str | None = None) -> list[Turn]:
    return [
        archive.say("assistant", "x", at, kind="tool_call", tool=tool, model=model),
        archive.say("tool", "x", at + 1, kind="tool_result", tool=tool, is_error=failed),
    ]


def spent(at: int | None, model: str = "test-model", **counts: int) -> Usage:
    return Usage(key=0, at=at, model=model, **counts)


@pytest.mark.parametrize("name", get_args(ReportName))
def test_every_report_of_an_empty_index_is_made(archive: Archive, name: ReportName) -> None:
    whole = {"hours": 24, "heatmap": 52 * 7 + 4}  # Sunday to Wednesday
    assert len(ask(archive.backend(archive.start + 30 * archive.day), name)) == whole.get(name, 0)


def test_sessions_by_agent(archive: Archive) -> None:
    start = archive.start
    archive.session(
        "a", archive.say("user", "x", start), *call(archive, "Bash", start), archive.say("assistant", "y", start)
    )
    archive.chat("b", "x", "y", agent="pi")
    archive.chat("c", "x", agent="pi")
    archive.session("empty", archive.say("assistant", "x", start))
    assert ask(archive.backend(), "sessions") == [
        {"agent": "pi", "sessions": 2, "turns": 3, "prompts": 3, "answers": 0},
        {"agent": "codex", "sessions": 1, "turns": 4, "prompts": 1, "answers": 1},
    ]


def test_tools_count_uses_by_calls_and_errors_by_results(archive: Archive) -> None:
    start = archive.start
    first = [
        *call(archive, "Bash", start, failed=True),
        *call(archive, "Bash", start + 5),
        *call(archive, "Read", start),
    ]
    archive.session("a", archive.say("user", "x", start), *first)
    archive.session("b", archive.say("user", "x", start), *call(archive, "Bash", start, failed=True))
    backend = archive.backend()
    assert ask(backend, "tools") == [
        {"tool": "Bash", "uses": 3, "errors": 2, "sessions": 2},
        {"tool": "Read", "uses": 1, "errors": 0, "sessions": 1},
    ]
    assert len(ask(backend, "tools", limit=1)) == 1


def test_models_by_sessions_with_null_for_none(archive: Archive) -> None:
    archive.chat("a", "x", usage=(spent(1, "m1", input=1), spent(2, "m1", input=1), spent(3, "m2", input=1)))
    archive.chat("b", "x", usage=(spent(1, "m1", input=1),))
    archive.chat("c", "x")
    backend = archive.backend()
    assert picked(ask(backend, "models"), "model", "sessions", "answers") == [
        ("m1", 2, 3), ("m2", 1, 1), (None, 1, 0),
    ]  # fmt: skip
    assert picked(ask(backend, "models", model="m2"), "model", "sessions", "answers") == [("m2", 1, 1)]


def test_in_a_window_a_model_counts_where_it_answered(archive: Archive) -> None:
    start, day = archive.start, archive.day
    archive.chat("a", "x", usage=(spent(start, "m1", input=1), spent(start + day, "m2", input=1)))
    rows = ask(archive.backend(), "models", since_us=start + day)
    assert picked(rows, "model", "sessions", "answers") == [("m2", 1, 1)]


def test_projects_by_what_they_are_and_not_by_their_name(archive: Archive) -> None:
    archive.project("/a/notes", remote="github.com/me/notes")
    archive.project("/b/clone", remote="github.com/me/notes")
    for native, cwd in (("1", "/a/notes"), ("2", "/b/clone"), ("3", "/x/notes"), ("4", "/y/notes"), ("5", None)):
        archive.chat(native, "x", cwd=cwd)
    assert picked(ask(archive.backend(), "projects"), "project", "agent", "sessions", "prompts") == [
        ("me/notes", "codex", 2, 2), ("/x/notes", "codex", 1, 1), ("/y/notes", "codex", 1, 1), (None, "codex", 1, 1),
    ]  # fmt: skip


def test_profiles_by_device(archive: Archive) -> None:
    archive.device("aaaa000011112222", "studio")
    archive.chat("a", "x")
    archive.chat("b", "x", profile="work")
    archive.chat("c", "x", profile="work")
    studio = {"device": "aaaa000011112222", "device_name": "studio", "agent": "codex"}
    assert ask(archive.backend(), "profiles") == [
        studio | {"profile": "work", "sessions": 2},
        studio | {"profile": "default", "sessions": 1},
    ]


def test_usage_by_agent_knows_unmeasured_from_zero(archive: Archive) -> None:
    archive.chat("a", "x", usage=(spent(1, input=1_000_000, output=2, cache_read=3, cache_write_5m=4, reasoning=1),))
    archive.chat("b", "x", usage=(spent(1, "no such", input=5), spent(2, "nor this", input=5)))
    archive.chat("c", "x")
    archive.chat("d", "x", agent="pi")
    archive.chat("e", "x", agent="gemini", has_usage=True)
    zero = dict.fromkeys(("input", "output", "cache_read", "cache_creation", "total"), 0)
    unknown = dict.fromkeys((*zero, "reasoning", "cost_usd"))
    assert ask(archive.backend(), "usage") == [
        {
            "agent": "codex", "sessions": 3, "measured": 2, "input": 1_000_010, "output": 2, "cache_read": 3,
            "cache_creation": 4, "reasoning": 1, "total": 1_000_019, "cost_usd": "1.000020",
            "unpriced_models": ["no such", "nor this"],
        },
        {"agent": "gemini", "sessions": 1, "measured": 1, **zero, "reasoning": None, "cost_usd": "0.000000",
         "unpriced_models": []},
        {"agent": "pi", "sessions": 1, "measured": 0, **unknown, "unpriced_models": []},
    ]  # fmt: skip


def test_usage_by_model_has_no_cost_where_nothing_is_priced(archive: Archive) -> None:
    archive.chat("a", "x", usage=(spent(1, input=10, output=1), spent(2, "no such", input=500)))
    archive.chat("b", "x", usage=(spent(1, input=10),))
    rows = ask(archive.backend(), "usage_by_model")
    assert picked(rows, "model", "sessions", "input", "total", "cost_usd") == [
        ("no such", 1, 500, 500, None),
        ("test-model", 2, 20, 21, "0.000030"),
    ]


def test_a_window_cuts_the_records_of_a_session_that_began_before_it(archive: Archive) -> None:
    start, day = archive.start, archive.day
    turns = [archive.say("user", "x", start), archive.say("user", "x", start + day), *call(archive, "Bash", start)]
    archive.session("a", *turns, usage=(spent(start, input=1), spent(start + day, input=10)))
    backend = archive.backend()
    later: dict[str, Any] = {"since_us": start + day}
    assert picked(ask(backend, "usage", **later), "sessions", "input") == [(1, 10)]
    assert picked(ask(backend, "usage_by_model", **later), "input") == [(10,)]
    assert picked(ask(backend, "sessions", **later), "turns", "prompts") == [(1, 1)]
    assert ask(backend, "tools", **later) == []
    assert picked(ask(backend, "days", **later), "date", "prompts", "input") == [("2026-06-02", 1, 10)]
    assert picked(ask(backend, "projects", **later), "sessions", "prompts", "input") == [(1, 1, 10)]
    assert picked(ask(backend, "usage", until_us=start + day), "input") == [(1,)]


def test_with_a_filter_on_the_model_usage_is_that_models_alone(archive: Archive) -> None:
    archive.chat("a", "x", usage=(spent(1, input=1), spent(2, "other", input=10)))
    backend = archive.backend()
    assert picked(ask(backend, "usage", model="other"), "sessions", "input") == [(1, 10)]
    assert picked(ask(backend, "usage_by_model", model="other"), "model") == [("other",)]
    with pytest.raises(UsageError):
        ask(backend, "usage", model="neither")


def test_what_has_no_time_counts_at_the_sessions_start(archive: Archive) -> None:
    start = archive.start
    archive.session("dated", archive.say("user", "x"), usage=(spent(None, input=1),), started_at=start)
    archive.session("unknown", archive.say("user", "x"), usage=(spent(None, input=10),))
    backend = archive.backend()
    assert picked(ask(backend, "days"), "date", "prompts", "input") == [("2026-06-01", 1, 1), (None, 1, 10)]
    assert picked(ask(backend, "usage"), "input") == [(11,)]
    assert picked(ask(backend, "usage", since_us=start, until_us=start + 1), "input") == [(1,)]
    assert sum(row["prompts"] for row in ask(backend, "hours")) == 1


def test_days_are_those_of_the_zone_also_when_the_clock_changes(archive: Archive) -> None:
    hour = archive.hour
    for name, at in (("a", -2 * hour), ("b", -hour), ("c", 21 * hour), ("d", 22 * hour)):
        archive.chat(name, "x", at=SPRING + at, cwd="/p")
    backend = archive.backend()
    assert picked(ask(backend, "days", zone="Europe/Madrid"), "date", "project", "sessions") == [
        ("2026-03-30", "p", 1), ("2026-03-29", "p", 2), ("2026-03-28", "p", 1),
    ]  # fmt: skip
    assert picked(ask(backend, "days", zone="Asia/Kathmandu"), "date", "sessions") == [
        ("2026-03-30", 2),
        ("2026-03-29", 2),
    ]
    by_hour = {row["hour"]: row["sessions"] for row in ask(backend, "hours", zone="Europe/Madrid") if row["sessions"]}
    assert by_hour == {0: 2, 23: 2}


def test_a_day_has_its_projects_the_most_active_first(archive: Archive) -> None:
    start, minute = archive.start, archive.minute
    archive.chat("a", "x", "y", "z", cwd="/short")
    archive.session("b", *[archive.say("user", "x", start + n * minute) for n in range(10)], cwd="/long")
    archive.chat("c", "x", cwd="/short", usage=(spent(start, "no such", input=7), spent(start, input=1_000_000)))
    rows = ask(archive.backend(), "days")
    assert picked(rows, "project", "sessions", "prompts", "active_minutes") == [("long", 1, 10, 9), ("short", 2, 4, 2)]
    assert picked(rows, "total", "cost_usd", "unpriced_models") == [
        (None, None, []),
        (1_000_007, "1.000000", ["no such"]),
    ]


def test_a_heatmap_fills_the_days_of_its_window(archive: Archive) -> None:
    start, day = archive.start, archive.day
    archive.chat("a", "x", "y", at=start + day)
    archive.chat("b", "x", at=start + day)
    backend = archive.backend(start + 3 * day)
    window: dict[str, Any] = {"since_us": start, "until_us": start + 3 * day}
    assert picked(ask(backend, "heatmap", **window), "date", "sessions", "prompts") == [
        ("2026-06-01", 0, 0), ("2026-06-02", 2, 3), ("2026-06-03", 0, 0),
    ]  # fmt: skip
    whole = ask(backend, "heatmap")
    assert (whole[0]["date"], whole[-1]["date"]) == ("2025-06-01", "2026-06-04")
    assert sum(row["sessions"] for row in whole) == 2


def test_errors_by_session_and_tool_the_newest_session_first(archive: Archive) -> None:
    start, day = archive.start, archive.day
    failures = [*call(archive, "Bash", start, failed=True), *call(archive, "Read", start, failed=True)]
    archive.session("a", archive.say("user", "x", start), *failures, *call(archive, "Bash", start + 9, failed=True))
    archive.session(
        "b", archive.say("user", "x", start + day), *call(archive, "Edit", start + day, failed=True), cwd="/p"
    )
    archive.session("fine", archive.say("user", "x", start), *call(archive, "Edit", start))
    rows = ask(archive.backend(), "errors")
    assert rows[0] == {
        "started_at": "2026-06-02T00:00:00.000Z",
        "agent": "codex",
        "project": "p",
        "session": "codex/b",
        "tool": "Edit",
        "errors": 1,
    }
    assert picked(rows, "session", "tool", "errors") == [
        ("codex/b", "Edit", 1), ("codex/a", "Bash", 2), ("codex/a", "Read", 1),
    ]  # fmt: skip


def test_an_error_belongs_to_the_model_that_spoke_before_it(archive: Archive) -> None:
    start, day = archive.start, archive.day
    both = [
        *call(archive, "Bash", start, failed=True, model="m1"),
        *call(archive, "Bash", start + 10, failed=True, model="m2"),
        *call(archive, "Bash", start + 20, failed=True),
        *call(archive, "Bash", start + day, failed=True, model="m1"),
    ]
    archive.session("two", archive.say("user", "x", start), *both)
    archive.session("one", archive.say("user", "x", start), *call(archive, "Bash", start, failed=True, model="m1"))
    archive.session("none", archive.say("user", "x", start), *call(archive, "Bash", start, failed=True))
    backend = archive.backend()
    assert picked(ask(backend, "errors_by_model"), "model", "errors", "sessions") == [
        ("m1", 3, 2), ("m2", 2, 1), (None, 1, 1),
    ]  # fmt: skip
    inside = ask(backend, "errors_by_model", until_us=start + archive.hour, model="m1")
    assert picked(inside, "model", "errors", "sessions") == [("m1", 2, 2)]


def test_subagents_by_the_agent_of_the_children(archive: Archive) -> None:
    archive.chat("p", "x")
    for number in range(3):
        archive.chat(f"c{number}", "x", parent="p")
    archive.chat("d", "x", parent="not here")
    assert ask(archive.backend(), "subagents") == [{"agent": "codex", "parents": 2, "children": 4, "max_fanout": 3}]


def test_an_unknown_zone_is_refused(archive: Archive) -> None:
    with pytest.raises(UsageError, match="Mars"):
        ask(archive.backend(), "days", zone="Mars/Olympus")


def test_two_questions_after_each_other_do_not_meet(archive: Archive) -> None:
    archive.chat("a", "x")
    backend = archive.backend()
    with pytest.raises(UsageError):
        ask(backend, "days", agent="nobody")
    for _ in range(2):
        assert picked(ask(backend, "sessions"), "sessions") == [(1,)]


def test_storage_by_agent_project_and_age(archive: Archive) -> None:
    start, day = archive.start, archive.day
    archive.chat("a", "x", raw=b"a" * 10_000, cwd="/p", at=start)
    archive.chat("b", "x", raw=b"b" * 5_000, agent="pi", at=start + 20 * day)
    archive.chat("none", "x")
    backend = archive.backend(start + 40 * day)
    rows = backend.storage(Filters())
    assert picked(rows, "by", "value", "sessions", "raw_bytes") == [
        ("agent", "codex", 1, 10_000), ("agent", "pi", 1, 5_000),
        ("project", "p", 1, 10_000), ("project", None, 1, 5_000),
        ("age", "7 to 30 days", 1, 5_000), ("age", "30 to 90 days", 1, 10_000),
    ]  # fmt: skip
    assert all(0 < row["stored_bytes"] == row["local_bytes"] < row["raw_bytes"] for row in rows)
    copy = backend.session("codex/a").raw
    assert copy is not None
    archive.raw.remove(copy.sha256)
    assert picked(backend.storage(Filters(agent="codex")), "local_bytes") == [(0,)] * 3


def test_a_copy_that_grew_is_stored_once(archive: Archive) -> None:
    key = archive.chat("a", "x", raw=b"grown" * 1_000)
    copy = archive.backend().session(key).raw
    assert copy is not None
    before = RawPreserved(session=key, sha256="0" * 64, size=5, stored=5)
    archive.write(f"session-{key}", before)
    grown = RawPreserved(session=key, sha256=copy.sha256, size=copy.size, stored=copy.stored, extends=before.sha256)
    archive.write(f"session-{key}", grown)
    rows = archive.backend().storage(Filters())
    assert picked(rows, "raw_bytes", "stored_bytes") == [(copy.size, copy.stored)] * 3
