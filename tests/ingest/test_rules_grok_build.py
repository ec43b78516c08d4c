"""Rules of the shared Grok Build document and of the corpus' definitions, each on small inputs and end to end."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rules_home import Listed, brief
from test_grok_build import CHILD, ID, Log, chat, said, spent, summary_of, talk, write

THIRD = "01a22c0b-0000-7000-8000-00000000cccc"
FOURTH = "01a22c0b-0000-7000-8000-00000000dddd"


@pytest.fixture
def home(tmp_path: Path) -> Listed:
    return Listed(tmp_path)


def grok(home: Listed) -> Path:
    return home.user / ".grok"


def put(home: Listed, log: Log, native: str = "", group: str | None = None, **summary: Any) -> Path:
    native = native or log.native
    files = {"updates.jsonl": log.data, "summary.json": summary_of(log.native, **summary)}
    return write(grok(home), native, files, **({"group": group} if group else {}))


def turns(one: dict[str, Any]) -> tuple[int, int]:
    return one["turns"]["user"], one["turns"]["assistant"]


def meta(parent: str, child: str, **more: Any) -> bytes:
    return json.dumps({"child_session_id": child, "parent_session_id": parent, "status": "completed", **more}).encode()


def spoken(log: Log, text: str, tokens: int = 100, prompt: str = "") -> Log:
    return log.user(text, None).answer(f"re {text}").end(prompt or f"p-{text}", spent(tokens))


# --- forks


def test_two_forks_and_a_fork_of_a_fork_count_only_their_own(home: Listed) -> None:
    parent = spoken(spoken(Log(ID), "one"), "two")
    first, second = parent.fork(CHILD), parent.fork(THIRD)
    spoken(first, "first", 7)
    spoken(second, "second", 9)
    third = first.fork(FOURTH)
    spoken(third, "third", 11)
    put(home, spoken(parent, "three"))
    put(home, first, session_kind="fork", parent_session_id=ID, forked_at="2026-11-30T12:00:00Z")
    put(home, second, session_kind="fork", parent_session_id=ID)
    put(home, third, session_kind="fork", parent_session_id=CHILD)
    found = home.sessions()
    assert [turns(found[n]) for n in (ID, CHILD, THIRD, FOURTH)] == [(3, 3), (1, 1), (1, 1), (1, 1)]
    assert [found[n]["usage"]["input"] for n in (ID, CHILD, THIRD, FOURTH)] == [300, 7, 9, 11]
    assert [found[n]["lineage"]["forked_from"] for n in (ID, CHILD, THIRD, FOURTH)] == [None, ID, ID, CHILD]
    assert {one["parent_id"] for one in found.values()} == {None}


def test_a_fork_whose_parent_is_gone_still_counts_only_its_own(home: Listed) -> None:
    child = spoken(Log(ID), "one").fork(CHILD)
    put(home, spoken(child, "own", 7), session_kind="fork", parent_session_id=ID)
    one = home.sessions()[CHILD]
    assert (turns(one), one["usage"]["input"], one["lineage"]["forked_from"], one["first_prompt"]) == (
        (1, 1),
        7,
        ID,
        "own",
    )


def test_a_compaction_before_the_fork_is_the_parents_and_one_behind_it_the_forks(home: Listed) -> None:
    parent = spoken(Log(ID), "one").add("compaction_checkpoint", checkpoint_id="cp-1").add("auto_compact_completed")
    child = parent.fork(CHILD)
    spoken(child, "own").add("compaction_checkpoint", checkpoint_id="cp-2").add("auto_compact_completed")
    put(home, parent)
    put(home, child, session_kind="fork", parent_session_id=ID)
    found = home.sessions()
    assert [brief(found[n])["compactions"] for n in (ID, CHILD)] == [1, 1]


def test_a_fork_with_nothing_of_its_own_has_no_numbers(home: Listed) -> None:
    parent = spoken(Log(ID), "one")
    put(home, parent)
    put(home, parent.fork(CHILD), session_kind="fork", parent_session_id=ID)
    found = home.sessions()
    assert turns(found[ID]) == (1, 1)
    assert CHILD not in found or (turns(found[CHILD]), found[CHILD]["usage"]) in (((0, 0), None),)


def test_eventids_that_restart_on_resume_are_other_records(home: Listed) -> None:
    log = spoken(Log(ID), "one")
    log.number = 0
    spoken(log, "one", prompt="p-again")
    put(home, log)
    one = home.sessions()[ID]
    assert (turns(one), one["usage"]["input"]) == ((2, 2), 200)


# --- prompts


@pytest.mark.parametrize(
    ("tag", "counted"),
    [
        ({}, True),
        ({"interjection": True}, True),
        ({"hideFromScrollback": True}, False),
        ({"hostTurn": True}, False),
    ],
)
def test_what_a_human_typed(home: Listed, tag: dict[str, Any], counted: bool) -> None:
    log = spoken(Log(ID), "one").user("<user_query>\nmore\n</user_query>", 1, **tag).answer("ok").end("p-2", spent(5))
    put(home, log)
    assert turns(home.sessions()[ID]) == (1 + counted, 2)


def test_text_and_images_of_one_index_are_one_prompt_and_images_alone_are_one(home: Listed) -> None:
    log = Log(ID).user("see", 0)
    log.add(
        "user_message_chunk", {"promptIndex": 0}, content={"type": "image", "data": "AAAA", "mimeType": "image/png"}
    )
    log.answer("ok").end("p-1", spent(5))
    log.add(
        "user_message_chunk", {"promptIndex": 1}, content={"type": "image", "data": "AAAA", "mimeType": "image/png"}
    )
    log.answer("ok 2").end("p-2", spent(5))
    put(home, log)
    assert turns(home.sessions()[ID]) == (2, 2)


def test_rewound_prompts_and_their_tokens_count(home: Listed) -> None:
    log = Log(ID).user("one", 0).answer("a").end("p-1", spent(10))
    log.user("two", 1).answer("b").end("p-2", spent(20)).add("rewind_marker", target_prompt_index=1)
    log.user("two again", 1).answer("c").end("p-3", spent(30))
    put(home, log)
    one = home.sessions()[ID]
    assert (turns(one), one["usage"]["input"]) == ((3, 3), 60)


# --- tools and answers


@pytest.mark.parametrize(
    ("update", "error"),
    [
        ({"status": "completed", "rawOutput": {"type": "Bash", "exit_code": 0}}, 0),
        ({"status": "completed", "rawOutput": {"type": "Bash", "exit_code": 2}}, 1),
        ({"status": "completed", "rawOutput": {"type": "Bash", "exit_code": -15}}, 1),
        ({"status": "completed", "rawOutput": {"type": "Bash", "exit_code": None}}, 0),
        ({"status": "failed"}, 1),
        ({"status": "completed", "rawOutput": 'the "exit_code": 3 in prose'}, 0),
        ({"status": "completed", "rawOutput": {"output": '{"exit_code": 3}'}}, 0),
    ],
)
def test_failed_calls_and_exit_codes(home: Listed, update: dict[str, Any], error: int) -> None:
    log = Log(ID).user("one").call("c1", "run_terminal_command").result("c1", "x", **update)
    put(home, log.answer("done").end(tokens=spent(5)))
    one = brief(home.sessions()[ID])
    assert (one["tools"], one["tool_result"], one["tool_errors"]) == ({"run_terminal_command": 1}, 1, error)


def test_the_last_terminal_status_wins_and_a_pending_call_has_no_result(home: Listed) -> None:
    log = Log(ID).user("one").call("c1").result("c1", status="failed").result("c1", status="completed")
    log.call("c2").result("c2", status="in_progress").call("c3").result("c3", status="completed").result(
        "c3", status="failed"
    )
    put(home, log.end(tokens=spent(5)))
    one = brief(home.sessions()[ID])
    assert (one["tools"], one["tool_result"], one["tool_errors"]) == ({"read_file": 3}, 2, 1)


def test_a_tool_without_its_own_name_is_called_by_its_title(home: Listed) -> None:
    log = Log(ID).user("one").add("tool_call", toolCallId="c1", title="Reading a.py", rawInput={})
    put(home, log.result("c1").end(tokens=spent(5)))
    assert brief(home.sessions()[ID])["tools"] == {"Reading a.py": 1}


def test_boundaries_of_answers(home: Listed) -> None:
    log = Log(ID).user("one").thought("a").answer("b").call("c1").call("c2").result("c1").result("c2")
    log.answer("c").thought("d").answer("e").end("p-1", spent(5))
    put(home, log)
    one = brief(home.sessions()[ID])
    assert (one["assistant"], one["thinking"]) == (2, 2)


# --- usage and models


def test_usage_is_uncached_once_for_a_prompt_id(home: Listed) -> None:
    log = Log(ID).user("one").answer("a")
    tokens = {
        "inputTokens": 100,
        "outputTokens": 20,
        "cachedReadTokens": 30,
        "cacheCreationTokens": 10,
        "reasoningTokens": 5,
    }
    log.end("p-1", tokens | {"modelUsage": {"m": tokens}})
    log.end("p-1", tokens | {"modelUsage": {"m": tokens}})
    log.user("two", 1).answer("b").add("turn_completed", prompt_id="p-2", stop_reason="cancelled")
    put(home, log)
    assert brief(home.sessions()[ID])["usage"] == {
        "input": 60,
        "output": 20,
        "cache_read": 30,
        "cache_creation": 10,
        "reasoning": 5,
    }


@pytest.mark.parametrize("agree", [True, False])
def test_all_models_of_a_turn_are_its_models(home: Listed, agree: bool) -> None:
    """'Model: keys of modelUsage in order of first use'."""
    a, b = ({"inputTokens": n, "outputTokens": 1, "cachedReadTokens": 0} for n in (60, 40))
    whole = {"inputTokens": 100 if agree else 90, "outputTokens": 2, "modelUsage": {"m-a": a, "m-b": b}}
    put(home, Log(ID).user("one").answer("a").end("p-1", whole))
    one = brief(home.sessions()[ID])
    assert (one["models"], one["usage"] and one["usage"]["input"]) == (["m-a", "m-b"], whole["inputTokens"])


def test_models_in_order_of_first_use_and_not_the_last_choice(home: Listed) -> None:
    log = Log(ID).user("one").answer("a").end("p-1", spent(5, model="m-b")).user("two", 1).answer("b")
    put(home, log.end("p-2", spent(5, model="m-a")), current_model_id="m-c")
    assert brief(home.sessions()[ID])["models"] == ["m-b", "m-a"]


def test_without_usage_the_model_is_the_chunks_and_else_the_summarys(home: Listed) -> None:
    put(home, Log(ID).user("one").answer("a"), current_model_id="m-c")
    log = Log(CHILD).add("user_message_chunk", {"promptIndex": 0}, content=said("x"))
    put(home, log, current_model_id="m-c")
    found = home.sessions()
    assert (found[ID]["models"], found[CHILD]["models"]) == (["asked"], ["m-c"])
    assert (found[ID]["usage"], found[CHILD]["usage"]) == (None, None)


def test_an_aggregate_of_a_child_is_left_out_and_a_wake_turn_counts(home: Listed) -> None:
    log = spoken(Log(ID), "one", 10)
    log.end("subagent-completed-1", spent(1000))
    log.user("wake", None, hideFromScrollback=True).answer("woke").end("subagent-completed-2", spent(20))
    put(home, log)
    one = home.sessions()[ID]
    assert (turns(one), one["usage"]["input"]) == ((1, 2), 30)


# --- compactions


def test_only_checkpoints_and_ends_without_one_are_compactions(home: Listed) -> None:
    log = spoken(Log(ID), "one")
    log.add("auto_compact_started").add("compaction_checkpoint", checkpoint_id="a").add("auto_compact_completed")
    log.add("auto_compact_started").add("auto_compact_failed")
    log.add("auto_compact_started").add("auto_compact_cancelled")
    log.add("compaction_checkpoint", checkpoint_id="b").add("auto_compact_completed")
    log.add("auto_compact_completed")
    put(home, log)
    assert brief(home.sessions()[ID])["compactions"] == 3


# --- identity, place and times


@pytest.mark.parametrize("camel", [True, False])
def test_both_spellings_of_the_summary(home: Listed, camel: bool) -> None:
    told = {
        "generated_title": " <b>T</b> ",
        "session_summary": "S",
        "last_active_at": "2027-02-01T00:00:00.123456789Z",
        "head_branch": "main",
        "current_model_id": "m",
    }
    if camel:
        told = {
            "generatedTitle": " <b>T</b> ",
            "sessionSummary": "S",
            "lastActiveAt": "2027-02-01T00:00:00.123456789Z",
            "headBranch": "main",
            "currentModelId": "m",
        }
    put(home, spoken(Log(ID), "one"), **told)
    one = brief(home.sessions()[ID])
    assert (one["title"], one["branch"], one["last"]) == ("<b>T</b>", "main", "2027-02-01T00:00:00.123Z")


def test_the_summary_is_the_title_where_none_was_generated(home: Listed) -> None:
    put(home, spoken(Log(ID), "one"), generated_title="", session_summary="  S ")
    assert home.sessions()[ID]["title"] == "S"


def test_updated_at_serves_only_where_nothing_else_says_when(home: Listed) -> None:
    put(home, spoken(Log(ID), "one"), updated_at="2028-01-01T00:00:00Z")
    assert not brief(home.sessions()[ID])["last"].startswith("2028")


def test_the_id_inside_wins_and_the_spawners_meta_still_finds_it(home: Listed) -> None:
    folder = put(home, spoken(Log(ID), "one"))
    write(grok(home), ID, {f"subagents/{CHILD}/meta.json": meta(ID, CHILD)})
    put(home, spoken(Log(CHILD), "look"), native=THIRD, session_kind="subagent")
    found = home.sessions()
    assert folder.is_dir()
    assert (sorted(found), found[CHILD]["parent_id"]) == (sorted([ID, CHILD]), ID)


@pytest.mark.parametrize(
    ("info", "dot", "group", "cwd"),
    [
        ({"id": ID}, None, "%2Fhome%2Fdev%2Fmy%20app", "/home/dev/my app"),
        ({"id": ID}, "/real/path\n", "slug-abc123", "/real/path"),
        ({"id": ID}, None, "slug-abc123", None),
        ({"id": ID, "cwd": "/inside"}, "/real", "%2Fx", "/inside"),
    ],
)
def test_the_folder_in_the_order_of_the_document(
    home: Listed, info: dict[str, str], dot: str | None, group: str, cwd: str | None
) -> None:
    files = {"updates.jsonl": spoken(Log(ID), "one").data, "summary.json": json.dumps({"info": info}).encode()}
    write(grok(home), ID, files, group=group)
    if dot:
        (grok(home) / "sessions" / group / ".cwd").write_text(dot)
    assert brief(home.sessions()[ID])["cwd"] == cwd


@pytest.mark.parametrize("summary", [b"", b'{"info": {"id": "', b"[]", None])
def test_a_session_without_a_readable_summary_is_one_from_its_log(home: Listed, summary: bytes | None) -> None:
    files = {"updates.jsonl": spoken(Log(ID), "one").data} | ({} if summary is None else {"summary.json": summary})
    write(grok(home), ID, files)
    home.store.sync()
    one = home.listing()[ID]
    assert (turns(one), brief(one)["started"][:10]) == ((1, 1), brief(one)["last"][:10])


def test_folders_that_are_no_uuid_and_indexes_are_no_sessions(home: Listed) -> None:
    write(grok(home), "not-a-uuid", {"updates.jsonl": spoken(Log(ID), "one").data})
    write(grok(home), CHILD, {"summary.json": summary_of(CHILD)})
    write(grok(home), "..", {"prompt_history.jsonl": b'{"x": 1}\n'})
    assert home.sessions() == {}


# --- sub-agents


def test_a_resumed_sub_agent_has_its_spawner_and_the_child_before(home: Listed) -> None:
    put(home, spoken(Log(ID), "one"))
    write(
        grok(home),
        ID,
        {
            f"subagents/{CHILD}/meta.json": meta(ID, CHILD),
            f"subagents/{THIRD}/meta.json": meta(ID, THIRD, resumed_from=CHILD),
        },
    )
    first = spoken(Log(CHILD), "look", 10)
    put(home, first, session_kind="subagent", parent_session_id=ID)
    second = first.fork(THIRD)
    put(home, spoken(second, "again", 20), session_kind="subagent_resume", parent_session_id=CHILD)
    found = home.sessions()
    assert [found[n]["parent_id"] for n in (ID, CHILD, THIRD)] == [None, ID, ID]
    assert [found[n]["lineage"]["forked_from"] for n in (ID, CHILD, THIRD)] == [None, None, CHILD]
    assert [(turns(found[n]), found[n]["usage"]["input"]) for n in (CHILD, THIRD)] == [((1, 1), 10), ((1, 1), 20)]
    assert found[ID]["kinds"] == ["orchestrator"]


def test_a_forked_sub_agent_copies_its_spawner(home: Listed) -> None:
    parent = spoken(Log(ID), "one")
    put(home, parent)
    write(grok(home), ID, {f"subagents/{CHILD}/meta.json": meta(ID, CHILD)})
    put(home, spoken(parent.fork(CHILD), "look", 20), session_kind="subagent_fork", parent_session_id=ID)
    one = home.sessions()[CHILD]
    assert (one["parent_id"], one["lineage"]["forked_from"], turns(one)) == (ID, ID, (1, 1))


def test_a_sub_agent_in_another_group_is_found(home: Listed) -> None:
    put(home, spoken(Log(ID), "one"))
    write(grok(home), ID, {f"subagents/{CHILD}/meta.json": meta(ID, CHILD)})
    put(home, spoken(Log(CHILD), "look"), group="%2Fworktree", session_kind="subagent")
    assert home.sessions()[CHILD]["parent_id"] == ID


# --- chat alone


def test_a_chat_alone_is_read_in_both_formats_at_once(home: Listed) -> None:
    rows: list[dict[str, Any]] = [
        {"type": "system", "content": "x"},
        {"type": "user", "content": [{"type": "text", "text": "<user_query>one</user_query>"}], "prompt_index": 0},
        {"type": "user", "content": [{"type": "text", "text": "wake"}], "synthetic_reason": "task_completed"},
        {
            "type": "user",
            "content": [{"type": "text", "text": "<user_query>mid</user_query>"}],
            "synthetic_reason": "interjection",
        },
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "zz"},
        {"type": "reasoning", "summary": [], "encrypted_content": "zz"},
        {
            "type": "assistant",
            "content": "a",
            "tool_calls": [{"id": "c1", "name": "grep", "arguments": "{}"}],
            "model_id": "m",
        },
        {"type": "tool_result", "tool_call_id": "c1", "content": "x"},
        {"type": "backend_tool_call", "kind": {"tool_type": "web_search", "id": "w1"}},
        {"role": "user", "content": "old"},
        {
            "role": "assistant",
            "content": "b",
            "reasoning_content": "deep",
            "tool_calls": [{"id": "c2", "function": {"name": "ls", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c2", "content": "y"},
    ]
    write(grok(home), ID, {"chat_history.jsonl": chat(*rows), "summary.json": summary_of(ID)})
    one = brief(home.sessions()[ID])
    assert (one["user"], one["assistant"], one["thinking"], one["tool_result"]) == (3, 2, 2, 2)
    assert (one["tools"], one["models"], one["usage"]) == ({"grep": 1, "web_search": 1, "ls": 1}, ["m"], None)


def test_a_backend_call_mirrored_in_an_answers_raw_output_counts_once(home: Listed) -> None:
    rows: list[dict[str, Any]] = [
        {"type": "user", "content": "one", "prompt_index": 0},
        {"type": "backend_tool_call", "kind": {"tool_type": "x_search", "id": "w1"}},
        {"type": "assistant", "content": "a", "raw_output": [{"type": "x_search_call", "id": "w1"}]},
    ]
    write(grok(home), ID, {"chat_history.jsonl": chat(*rows), "summary.json": summary_of(ID)})
    assert brief(home.sessions()[ID])["tools"] == {"x_search": 1}


def test_a_log_without_turns_leaves_the_chat(home: Listed) -> None:
    log = Log(ID).add("available_commands_update").add("current_mode_update")
    files = {
        "updates.jsonl": log.data,
        "chat_history.jsonl": chat({"type": "user", "content": "one", "prompt_index": 0}),
        "summary.json": summary_of(ID),
    }
    write(grok(home), ID, files)
    assert turns(home.sessions()[ID]) == (1, 0)


# --- growing and damage


def test_a_growing_session_gives_what_a_fresh_import_gives(home: Listed, tmp_path: Path) -> None:
    log = talk()
    whole = log.lines
    for end in range(1, len(whole) + 1, 2):
        part = Log(log.native)
        part.lines = whole[:end]
        files = {
            "updates.jsonl": part.data + b'{"timestamp": 17',
            "summary.json": summary_of(log.native, generated_title=f"T{end}"),
        }
        write(grok(home), log.native, files)
        home.store.sync()
        grown = {native: brief(one) for native, one in home.listing().items()}
        fresh = Listed(tmp_path / f"fresh {end}")
        shutil.copytree(home.user, fresh.user, dirs_exist_ok=True)
        fresh.store.sync()
        assert grown == {native: brief(one) for native, one in fresh.listing().items()}, end


def test_torn_and_junk_lines_cost_only_themselves(home: Listed) -> None:
    log = spoken(Log(ID), "one")
    lines = log.data.split(b"\n")
    data = b"\n\n".join([lines[0], b"junk", b'{"timestamp": 1, "method": "session/upd', b"[]", b"\x00\x00", *lines[1:]])
    write(grok(home), ID, {"updates.jsonl": data, "summary.json": summary_of(ID)})
    home.store.sync()
    one = home.listing()[ID]
    assert (turns(one), one["usage"]["input"]) == ((1, 1), 100)


def test_old_records_of_a_fork_are_compared_with_the_parents_lines(home: Listed) -> None:
    parent = spoken(Log(ID), "one")
    child = parent.fork(CHILD)
    forked = datetime.fromtimestamp(child.at / 1000, UTC).isoformat()
    spoken(child, "own", 7)
    for line in (*parent.lines, *child.lines):
        line["params"]["_meta"].pop("eventId")
    put(home, parent)
    put(home, child, session_kind="fork", parent_session_id=ID, created_at=forked)
    found = home.sessions()
    assert [(turns(found[n]), found[n]["usage"]["input"]) for n in (ID, CHILD)] == [((1, 1), 100), ((1, 1), 7)]


def test_a_foreground_sub_agent_is_folded_into_its_parents_turn_as_recorded(home: Listed) -> None:
    put(home, Log(ID).user("one").call("t1", "task").result("t1").answer("done").end("p-1", spent(130)))
    write(grok(home), ID, {f"subagents/{CHILD}/meta.json": meta(ID, CHILD)})
    put(home, spoken(Log(CHILD), "look", 30), session_kind="subagent")
    found = home.sessions()
    assert [found[n]["usage"]["input"] for n in (ID, CHILD)] == [130, 30]
