"""Rules of the shared Copilot document and of the corpus' definitions, each on small inputs and end to end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from rules_home import Listed, brief
from test_copilot import ID, Events

OTHER = "0f0f0f0f-0000-4a1a-9c11-00000000000b"


@pytest.fixture
def home(tmp_path: Path) -> Listed:
    return Listed(tmp_path)


def state(home: Listed) -> Path:
    return home.user / ".copilot" / "session-state"


def put(home: Listed, events: Events, native: str = "", workspace: str | None = None, tail: bytes = b"") -> Path:
    folder = state(home) / (native or events.native)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "events.jsonl").write_bytes(events.data + tail)
    if workspace is not None:
        (folder / "workspace.yaml").write_text(workspace)
    return folder


def turns(one: dict[str, Any]) -> tuple[int, int]:
    return one["turns"]["user"], one["turns"]["assistant"]


def metrics(**models: tuple[int, int, int, int]) -> dict[str, Any]:
    return {
        name: {
            "requests": {"count": 1, "cost": 1},
            "usage": {
                "inputTokens": total,
                "outputTokens": out,
                "cacheReadTokens": read,
                "cacheWriteTokens": write,
                "reasoningTokens": 1,
            },
        }
        for name, (total, out, read, write) in models.items()
    }


def record(events: Events, total: int, out: int = 5, agent: str | None = None, **more: Any) -> Events:
    usage = {"model": "m", "inputTokens": total, "outputTokens": out, "cacheReadTokens": 0, "cacheWriteTokens": 0}
    return events.add("session.usage_record", agent, **(usage | more))


def resumed(events: Events) -> Events:
    return events.add("session.resume", resumeTime="2026-11-30T12:00:00Z", eventCount=3)


def usage_of(home: Listed) -> dict[str, Any] | None:
    found: dict[str, Any] | None = brief(home.sessions()[ID])["usage"]
    return found


# --- usage


def test_input_includes_both_caches(home: Listed) -> None:
    events = Events().user("hi").answer("m1", "ho").add("session.shutdown", modelMetrics=metrics(m=(100, 9, 30, 20)))
    put(home, events)
    assert usage_of(home) == {"input": 50, "output": 9, "cache_read": 30, "cache_creation": 20, "reasoning": 1}


def test_cumulative_metrics_over_resumes_are_taken_once(home: Listed) -> None:
    events = Events().user("hi").answer("m1", "ho").add("session.shutdown", modelMetrics=metrics(m=(100, 9, 0, 0)))
    resumed(events).user("more").answer("m2", "ok")
    events.add("session.shutdown", modelMetrics=metrics(m=(150, 12, 0, 0), n=(7, 1, 0, 0)))
    resumed(events).add("session.shutdown", modelMetrics=metrics(m=(150, 12, 0, 0), n=(7, 1, 0, 0)))
    put(home, events)
    usage = usage_of(home)
    assert usage is not None
    assert (usage["input"], usage["output"]) == (157, 13)


def test_metrics_of_each_run_are_summed(home: Listed) -> None:
    events = Events().user("hi").answer("m1", "ho").add("session.shutdown", modelMetrics=metrics(m=(100, 9, 0, 0)))
    resumed(events).user("more").answer("m2", "ok").add("session.shutdown", modelMetrics=metrics(m=(60, 12, 0, 0)))
    put(home, events)
    usage = usage_of(home)
    assert usage is not None
    assert (usage["input"], usage["output"]) == (160, 21)


def test_records_are_preferred_to_the_metrics_behind_them(home: Listed) -> None:
    events = record(record(Events().user("hi"), 100), 50).answer("m1", "ho").shutdown(m=(150, 10))
    put(home, events)
    usage = usage_of(home)
    assert usage is not None
    assert usage["input"] == 150


def test_records_of_a_killed_run_are_not_booked_again_by_the_next_ones_sum(home: Listed) -> None:
    events = record(record(Events().user("hi"), 100), 50).answer("m1", "ho")
    resumed(events).shutdown(m=(150, 10))
    put(home, events)
    usage = usage_of(home)
    assert usage is not None
    assert usage["input"] == 150


def test_records_are_preferred_also_where_the_start_is_repeated(home: Listed) -> None:
    """'events of a resumed session may repeat session.start'"""
    events = record(Events().user("hi"), 100)
    events.add("session.start", sessionId=ID, copilotVersion="1.0.102")
    put(home, events.answer("m1", "ho").shutdown(m=(100, 5)))
    usage = usage_of(home)
    assert usage is not None
    assert usage["input"] == 100


def test_tokens_of_a_sub_agent_count_and_its_turns_do_not(home: Listed) -> None:
    events = record(Events().user("hi").answer("m1", "", ("t1", "task"), model="m"), 100)
    events.add("subagent.started", toolCallId="t1", agentName="explore")
    events.add("user.message", "a1", content="look")
    events.add(
        "assistant.message",
        "a1",
        messageId="s1",
        content="looked",
        reasoningText="hm",
        model="m",
        toolRequests=[{"toolCallId": "x1", "name": "bash", "arguments": {}}],
    )
    events.add("tool.execution_start", "a1", toolCallId="x1", toolName="bash")
    events.add("tool.execution_complete", "a1", toolCallId="x1", success=False)
    record(events, 40, agent="a1").add("subagent.completed", toolCallId="t1")
    put(home, events.done("t1").answer("m2", "done", model="m"))
    one = brief(home.sessions()[ID])
    assert (one["user"], one["assistant"], one["thinking"], one["tools"], one["tool_errors"]) == (
        1,
        1,
        0,
        {"task": 1},
        0,
    )
    assert one["usage"]["input"] == 140


def test_no_shutdown_and_no_record_is_unknown(home: Listed) -> None:
    put(home, Events().user("hi").answer("m1", "ho"))
    assert usage_of(home) is None


# --- turns


@pytest.mark.parametrize(
    ("source", "counted"),
    [(None, True), ("user", True), ("skill-pdf", False), ("agent-x", False), ("system", False)],
)
def test_who_typed_a_message(home: Listed, source: str | None, counted: bool) -> None:
    events = (
        Events()
        .user("first")
        .user("second", transformedContent="<x>second</x>", **({"source": source} if source else {}))
    )
    put(home, events.answer("m1", "ho"))
    one = home.sessions()[ID]
    assert (turns(one)[0], one["first_prompt"]) == (1 + counted, "first")


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ({"success": True}, 0),
        ({"success": False}, 1),
        ({"success": False, "error": {"message": "denied", "code": "denied"}}, 1),
        ({"success": True, "shellExecution": {"exitCode": 3}}, 1),
        ({"success": True, "shellExecution": {"exitCode": 0}}, 0),
        ({"success": True, "shellExecution": {}}, 0),
    ],
)
def test_a_failed_tool(home: Listed, data: dict[str, Any], error: int) -> None:
    events = Events().user("hi").answer("m1", "", ("t1", "bash")).done("t1", **data)
    put(home, events)
    one = brief(home.sessions()[ID])
    assert (one["tools"], one["tool_result"], one["tool_errors"]) == ({"bash": 1}, 1, error)


def test_opaque_reasoning_is_none_and_blank_text_too(home: Listed) -> None:
    events = Events().user("hi").answer("m1", "a", reasoningText="hm", reasoningOpaque="zz")
    events.answer("m2", "b", reasoningOpaque="zz").answer("m3", " ", reasoningText="  ")
    put(home, events)
    one = brief(home.sessions()[ID])
    assert (one["thinking"], one["assistant"]) == (1, 2)


def test_only_successful_compactions_count(home: Listed) -> None:
    events = Events().user("hi").answer("m1", "a").add("session.compaction_start")
    events.add("session.compaction_complete", success=False, error="x").add("session.compaction_start")
    events.add(
        "session.compaction_complete",
        success=True,
        checkpointNumber=1,
        compactionTokensUsed={"input": 99999, "output": 1},
    )
    events.user("more").add("session.compaction_complete", success=True, checkpointNumber=2)
    put(home, events.shutdown(m=(100, 5)))
    one = brief(home.sessions()[ID])
    assert (one["compactions"], one["usage"]["input"]) == (2, 100)


def test_models_in_order_and_the_selected_one_else(home: Listed) -> None:
    events = Events(selectedModel="picked").user("hi").answer("m1", "a", model="m-b")
    events.add("session.model_change", previousModel="m-b", newModel="m-a").answer("m2", "b", model="m-a")
    put(home, events)
    put(home, Events(OTHER, selectedModel="picked").user("hi"))
    found = home.sessions()
    assert (found[ID]["models"], found[OTHER]["models"]) == (["m-b", "m-a"], ["picked"])


# --- the session


def test_the_workspace_gives_the_title_and_what_the_events_lack(home: Listed) -> None:
    put(
        home,
        Events(context={"cwd": "/by/event", "branch": "main"}).user("hi").answer("m1", "a"),
        workspace=f"id: {ID}\ncwd: /by/file\nbranch: other\nname: A name\nuser_named: true\n"
        "updated_at: 2030-01-01T00:00:00Z\n",
    )
    put(
        home,
        Events(OTHER).user("hi").answer("m1", "a"),
        workspace=f"id: {OTHER}\ncwd: /by/file\nbranch: other\nname: null\n",
    )
    found = {native: brief(one) for native, one in home.sessions().items()}
    assert [found[ID][name] for name in ("title", "cwd", "branch")] == ["A name", "/by/event", "main"]
    assert [found[OTHER][name] for name in ("title", "cwd", "branch")] == [None, "/by/file", "other"]
    assert found[ID]["last"] < "2030"


def test_a_changed_title_is_the_title(home: Listed) -> None:
    events = Events().user("hi").answer("m1", "a")
    put(home, events, workspace=f"id: {ID}\nname: first name\n")
    home.store.sync()
    put(home, events.user("more"), workspace=f"id: {ID}\nname: second name\n")
    home.store.sync()
    assert home.listing()[ID]["title"] == "second name"


def test_the_id_of_the_events_wins_over_the_folder(home: Listed) -> None:
    put(home, Events(ID).user("hi"), native=OTHER)
    assert list(home.sessions()) == [ID]


def test_of_three_generations_the_newest_serves(home: Listed) -> None:
    put(home, Events(ID).user("new").answer("m1", "a"))
    (state(home) / f"{ID}.jsonl").write_bytes(Events(ID).user("flat").user("flat 2").data)
    (state(home) / f"{OTHER}.jsonl").write_bytes(Events(OTHER).user("flat only").data)
    old = home.user / ".copilot" / "history-session-state"
    old.mkdir()
    (old / f"session_{ID}_1760000000000.json").write_text('[{"role": "user", "content": "oldest"}]')
    third = "77777777-0000-4a1a-9c11-00000000000c"
    (old / f"session_{third}_1760000000000.json").write_text(
        '[{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]'
    )
    found = home.sessions()
    assert {n: (turns(one), one["first_prompt"]) for n, one in found.items()} == {
        ID: ((1, 1), "new"),
        OTHER: ((1, 0), "flat only"),
        third: ((1, 1), "x"),
    }
    assert brief(found[third])["started"] == "2025-10-09T08:53:20.000Z"


def test_damage_and_repetition(home: Listed) -> None:
    events = Events().user("hi \u2028 there").answer("m1", "a", ("t1", "bash")).done("t1")
    events.lines += [events.lines[0], events.lines[1]]
    put(home, events, tail=b'{"type":"user.mess')
    home.store.sync()
    one = brief(home.listing()[ID])
    assert (one["user"], one["assistant"], one["tool_result"]) == (1, 1, 1)


def test_secrets_beside_the_sessions_are_kept_nowhere(home: Listed) -> None:
    put(home, Events().user("hi").answer("m1", "a"), workspace=f"id: {ID}\nname: T\ntoken: sk-canary-4242\n")
    base = home.user / ".copilot"
    (base / "config.json").write_text('{"token": "sk-canary-4242"}')
    (base / "mcp-config.json").write_text('{"env": {"K": "sk-canary-4242"}}')
    (base / "logs").mkdir()
    (base / "logs" / "x.log").write_text("sk-canary-4242")
    home.sessions()
    assert home.leaks("sk-canary-4242") == []


def test_a_growing_session_gives_what_a_fresh_import_gives(home: Listed, tmp_path: Path) -> None:
    events = (
        record(Events().user("hi").answer("m1", "", ("t1", "bash"), reasoningText="hm"), 10)
        .done("t1")
        .answer("m2", "ok")
    )
    events.shutdown(m=(10, 5))
    resumed(events).user("more").answer("m3", "x").shutdown(m=(25, 9))
    whole = events.lines
    for end in range(1, len(whole) + 1, 2):
        part = Events()
        part.lines = whole[:end]
        put(
            home,
            part,
            workspace=f"id: {ID}\nname: T\n",
            tail=json.dumps(whole[end])[:20].encode() if end < len(whole) else b"",
        )
        home.store.sync()
        grown = {native: brief(one) for native, one in home.listing().items()} if home.store.home.index.exists() else {}
        fresh = Listed(tmp_path / f"fresh {end}")
        shutil.copytree(home.user, fresh.user, dirs_exist_ok=True)
        fresh.store.sync()
        assert grown == {native: brief(one) for native, one in fresh.listing().items()}, end
