from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from prosa.events.errors import UsageError
from prosa.events.facts import Compaction, Usage, fact_key
from prosa.projections import local, session_objects
from prosa.projections.queries import Filters, Timeline

if TYPE_CHECKING:
    from archive import Archive


def test_a_session_is_the_object_of_the_contract(archive: Archive) -> None:
    archive.device("aaaa000011112222", "studio")
    archive.project("/home/dev/repo", remote="github.com/owner/repo")
    say, start = archive.say, archive.start
    key = archive.session(
        "s",
        say("user", "do  it\nnow", start + 1_500),
        say("assistant", "…", start + 2_000, kind="thinking"),
        say("assistant", "ls", start + 3_000, kind="tool_call", tool="Bash", model="test-model"),
        say("tool", "no", start + 4_000, kind="tool_result", tool="Bash", is_error=True),
        say("assistant", "done", start + archive.hour, model="test-model"),
        usage=(Usage(key=0, at=start, model="test-model", input=1_234_567, output=1, cache_read=2, cache_write_1h=3),),
        compactions=(Compaction(key=fact_key("codex", "compaction", "1"), id="1", at=start),),
        compactions_known=False,
        compactions_reason="the file does not say",
        raw=b"hello",
        source="/agents/s.jsonl",
        cwd="/home/dev/repo",
        branch="main",
        title="A title",
        kinds=("goal",),
        cleared_from="before",
    )
    archive.chat("child", "x", parent="s")
    assert msgspec.to_builtins(archive.backend(start + archive.hour + archive.minute).session(key)) == {
        "key": "codex/s",
        "id": "s",
        "agent": "codex",
        "device": "aaaa000011112222",
        "device_name": "studio",
        "profile": "default",
        "parent_id": None,
        "lineage": {"forked_from": None, "cleared_from": "before", "resumed_from": None},
        "title": "A title",
        "first_prompt": "do it now",
        "kinds": ["orchestrator", "goal"],
        "project": {
            "name": "owner/repo",
            "remote": "github.com/owner/repo",
            "marker": None,
            "path": "/home/dev/repo",
        },
        "branch": "main",
        "started_at": "2026-06-01T00:00:00.000Z",
        "last_activity_at": "2026-06-01T01:00:00.000Z",
        "active": True,
        "model": "test-model",
        "models": ["test-model"],
        "turns": {"user": 1, "assistant": 1, "thinking": 1, "tool_call": 1, "tool_result": 1},
        "tools": {"Bash": 1},
        "tool_errors": 1,
        "usage": {
            "input": 1_234_567,
            "output": 1,
            "cache_read": 2,
            "cache_creation": 3,
            "reasoning": None,
            "total": 1_234_573,
        },
        "cost_usd": "1.234577",
        "compactions": {"count": 1, "known": False, "reason": "the file does not say"},
        "inherited": None,
        "state": "plain",
        "raw": {
            "sha256": "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
            "size": 5,
            "stored": 14,
            "state": "local",
        },
        "source": {"path": "/agents/s.jsonl", "state": "present"},
    }


def test_unknown_is_null_and_never_zero(archive: Archive) -> None:
    key = archive.chat("s", "x", at=None)
    session = archive.backend().session(key)
    assert (session.usage, session.cost_usd, session.model, session.project) == (None, None, None, None)
    assert (session.started_at, session.last_activity_at, session.active) == (None, None, False)
    assert (session.device, session.device_name, session.title) == (None, None, None)


def test_a_cost_is_null_when_any_model_has_no_price(archive: Archive) -> None:
    priced, unpriced = Usage(key=0, at=1, model="test-model", input=1), Usage(key=0, at=2, model="no such", input=1)
    zero = archive.session("zero", archive.say("user", "x", 1), has_usage=True)
    mixed = archive.session("mixed", archive.say("user", "x", 1), usage=(priced, unpriced))
    backend = archive.backend()
    assert (backend.session(mixed).cost_usd, backend.session(zero).cost_usd) == (None, "0.000000")


def test_active_is_less_than_ten_minutes_ago(archive: Archive) -> None:
    key = archive.chat("s", "x")
    assert archive.backend(archive.start + 10 * archive.minute - 1).session(key).active
    assert not archive.backend(archive.start + 10 * archive.minute).session(key).active


def test_a_raw_that_was_removed_is_missing_whether_few_or_many_are_asked(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [archive.chat(f"s{number}", "x", raw=b"%d" % number) for number in range(3)]
    backend = archive.backend()
    copy = backend.session(keys[1]).raw
    assert copy is not None
    archive.raw.remove(copy.sha256)
    for few in (1_000, 0):
        monkeypatch.setattr(local, "FEW", few)
        sessions = backend.timeline(Timeline(filters=Filters())).sessions
        assert [session.raw.state for session in sessions if session.raw] == ["local", "missing", "local"]


def test_a_whole_id_beats_longer_ones(archive: Archive) -> None:
    for native in ("abc", "abcd", "xyz"):
        archive.chat(native, "x")
    archive.chat("abcd", "x", agent="pi", at=archive.start + 1)
    backend = archive.backend()

    def found(text: str) -> list[str]:
        return [match.key for match in backend.find(text)]

    assert found("abc") == ["codex/abc"]
    assert found("abcd") == ["pi/abcd", "codex/abcd"]
    assert found("codex/abcd") == ["codex/abcd"]
    assert found("ab") == ["pi/abcd", "codex/abc", "codex/abcd"]
    assert found("codex/x") == ["codex/xyz"]
    assert found("%") == found("_bc") == found("") == found("ABC") == []


def test_finding_a_session_uses_the_indexes(archive: Archive) -> None:
    archive.chat("s", "x")
    backend = archive.backend()
    tables = backend._tables
    tables.execute("DROP TABLE IF EXISTS sqlite_stat1")  # with one row, statistics would advise to read it
    tables.execute("ANALYZE sqlite_schema")
    for sql in (session_objects.WHOLE, session_objects.BEGINNING):
        plan = str(list(tables.execute(f"EXPLAIN QUERY PLAN {sql}", {"text": "a", "end": "b"})))
        assert "SCAN sessions" not in plan


def test_an_unknown_key_is_a_usage_error(archive: Archive) -> None:
    archive.chat("s", "x")
    backend = archive.backend()
    for ask in (backend.session, backend.turns):
        with pytest.raises(UsageError, match="'codex/nope'"):
            ask("codex/nope")


def test_the_values_of_filters_are_listed(archive: Archive) -> None:
    archive.device("aaaa000011112222", "studio")
    archive.session("s", archive.say("user", "x", 1), archive.say("assistant", "y", 2, model="m"), cwd="/home/b")
    archive.chat("t", "x", agent="pi", profile="work", cwd="/home/a")
    backend = archive.backend()
    assert {what: backend.values(what) for what in ("agent", "device", "profile", "model", "project")} == {  # type: ignore[arg-type]
        "agent": ["codex", "pi"],
        "device": ["studio"],
        "profile": ["default", "work"],
        "model": ["m"],
        "project": ["a", "b"],
    }


def test_a_device_has_the_name_it_gave_itself_last(archive: Archive) -> None:
    archive.device("aaaa000011112222", "old")
    key = archive.chat("s", "x")
    archive.device("aaaa000011112222", "new")
    assert archive.backend().session(key).device_name == "new"
