"""Rules of the shared Antigravity document and of the corpus' definitions, each on small inputs and end to end."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from rules_home import Listed, brief
from test_antigravity import CHAT, START, Conversation, call, field, line, log, moment, tokens

OTHER = "99999999-2222-4333-8444-555555555555"
THIRD = "88888888-2222-4333-8444-555555555555"


@pytest.fixture
def home(tmp_path: Path) -> Listed:
    return Listed(tmp_path)


def turns(one: dict[str, Any]) -> tuple[int, int]:
    return one["turns"]["user"], one["turns"]["assistant"]


def spoken(native: str = CHAT, *texts: str) -> Conversation:
    chat = Conversation(native)
    for text in texts or ("one",):
        chat.prompt(text)
        chat.answer(f"re {text}")
    return chat


def summaries(home: Listed, *rows: dict[str, Any], instance: str = "antigravity-cli") -> None:
    path = home.user / ".gemini" / instance / "conversation_summaries.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE TABLE conversation_summaries (conversation_id, title, workspace_uris, parent_conversation_id)"
        )
        for row in rows:
            db.execute(
                "INSERT INTO conversation_summaries VALUES (?, ?, ?, ?)",
                (row["id"], row.get("title"), json.dumps(row.get("uris", [])), row.get("parent")),
            )
    db.close()


def request(text: str, more: str = "") -> str:
    return f"<USER_REQUEST>\n{text}\n</USER_REQUEST>\n<ADDITIONAL_METADATA>\nlocal time\n</ADDITIONAL_METADATA>{more}"


def user(idx: int, text: str, **more: Any) -> dict[str, Any]:
    return line(idx, "USER_INPUT", request(text), source="USER_EXPLICIT", **more)


def planner(idx: int, text: str | None = None, *calls: str, **more: Any) -> dict[str, Any]:
    told = [{"name": name, "args": {"toolAction": "x"}} for name in calls]
    return line(idx, "PLANNER_RESPONSE", text, source="MODEL", **({"tool_calls": told} if told else {}), **more)


# --- logs


def test_a_line_that_two_chunks_share_is_one_line(home: Listed) -> None:
    """'every full chunk file had exactly 102,400 bytes, so lines must be split across chunks'."""
    lines = [user(0, "one"), planner(1, "re one"), user(2, "two"), planner(3, "re two")]
    data = "".join(json.dumps(said) + "\n" for said in lines)
    log(home.user, lines[3])
    logs = home.user / ".gemini/antigravity-cli/brain" / CHAT / ".system_generated/logs/chunks/transcript_full"
    logs.mkdir(parents=True)
    cut = len(json.dumps(lines[0])) + 60
    for number, piece in enumerate((data[:cut], data[cut : cut + 200], data[cut + 200 :])):
        (logs / f"{number:08}.jsonl").write_text(piece)
    assert turns(home.sessions()[CHAT]) == (2, 2)


def test_chunks_that_end_in_a_whole_line_without_its_newline_are_not_glued(home: Listed) -> None:
    logs = home.user / ".gemini/antigravity-cli/brain" / CHAT / ".system_generated/logs/chunks/transcript_full"
    logs.mkdir(parents=True)
    for number, said in enumerate((user(0, "one"), planner(1, "re one"))):
        (logs / f"{number:08}.jsonl").write_text(json.dumps(said))
    assert turns(home.sessions()[CHAT]) == (1, 1)


def test_logs_are_merged_by_step_the_whole_before_the_cleared_and_the_last_of_a_file(home: Listed) -> None:
    log(
        home.user,
        line(0, "USER_INPUT", status="CLEARED"),
        line(1, "PLANNER_RESPONSE", status="CLEARED"),
        user(2, "two"),
        name="overview.txt",
    )
    log(home.user, user(2, "two"), planner(3, "first"), planner(3, "re two"), user(5, "late"))
    log(home.user, planner(1, "re one"), planner(3, "capped"), name="transcript.jsonl")
    one = home.sessions()[CHAT]
    assert (turns(one), one["first_prompt"]) == ((3, 2), "two")


@pytest.mark.parametrize(
    ("text", "counted", "shown"),
    [
        (request("hello"), True, "hello"),
        ("<USER_REQUEST>a</USER_REQUEST> b</USER_REQUEST>", True, "a</USER_REQUEST> b"),
        ("bare", True, "bare"),
        (request(""), False, None),
        (request("  \n "), False, None),
    ],
)
def test_the_text_of_a_prompt(home: Listed, text: str, counted: bool, shown: str | None) -> None:
    log(home.user, line(0, "USER_INPUT", text, source="USER_EXPLICIT"), planner(1, "ok"))
    one = home.sessions()[CHAT]
    assert (turns(one)[0], one["first_prompt"]) == (int(counted), shown)


def test_a_failed_command_is_told_by_its_words_and_a_code_in_its_field(home: Listed) -> None:
    log(
        home.user,
        user(0, "x"),
        planner(1, None, "run_command", "run_command", "view_file", "run_command"),
        line(2, "RUN_COMMAND", "The command failed with exit code: 2\nOutput: x"),
        line(3, "RUN_COMMAND", "The command completed successfully."),
        line(4, "VIEW_FILE", "no", status="ERROR"),
        line(5, "RUN_COMMAND", "The command failed with exit code: 2", exit_code=0),
    )
    one = brief(home.sessions()[CHAT])
    assert (one["tool_result"], one["tool_errors"], one["tools"]) == (4, 2, {"run_command": 3, "view_file": 1})


def test_one_result_for_a_call_and_none_without_one(home: Listed) -> None:
    log(
        home.user,
        user(0, "x"),
        line(1, "VIEW_FILE", "stray"),
        planner(2, None, "view_file"),
        line(3, "VIEW_FILE", "a"),
        line(4, "VIEW_FILE", "another"),
        line(5, "SYSTEM_MESSAGE", "note"),
        planner(6, None, "new_tool"),
        line(7, "ERROR_MESSAGE", "oops"),
        line(8, "SOME_NEW_TYPE", "result"),
        planner(9, "done"),
    )
    one = brief(home.sessions()[CHAT])
    assert (one["tool_result"], one["tools"], one["assistant"]) == (2, {"view_file": 1, "new_tool": 1}, 1)


def test_tokens_of_a_transcript_are_the_usage_where_no_database_is(home: Listed) -> None:
    log(
        home.user,
        user(0, "x"),
        planner(1, "a", input_tokens=10, cache_read_tokens=2, output_tokens=5),
        planner(2, "b", input_tokens=20, cache_read_tokens=3, output_tokens=6),
    )
    log(home.user, planner(1, "a", input_tokens=10, cache_read_tokens=2, output_tokens=5), name="transcript.jsonl")
    usage = brief(home.sessions()[CHAT])["usage"]
    assert usage == {"input": 30, "output": 11, "cache_read": 5, "cache_creation": 0, "reasoning": None}


def test_a_transcript_without_tokens_is_unknown(home: Listed) -> None:
    log(home.user, user(0, "x"), planner(1, "a"))
    assert home.sessions()[CHAT]["usage"] is None


def test_the_model_of_a_log_is_the_last_that_was_chosen(home: Listed) -> None:
    change = (
        "<USER_SETTINGS_CHANGE>\nThe user changed setting `Model Selection` from {} to {}. No need to comment.\n"
        "</USER_SETTINGS_CHANGE>"
    )
    log(
        home.user,
        line(0, "USER_INPUT", request("a", change.format("None", "Gemini 3 Pro (High)"))),
        planner(1, "a"),
        line(2, "USER_INPUT", request("b", change.format("Gemini 3 Pro (High)", "Claude Opus 4.5 (Thinking)"))),
        planner(3, "b"),
    )
    assert brief(home.sessions()[CHAT])["models"] == ["Gemini 3 Pro (High)", "Claude Opus 4.5 (Thinking)"]


def test_damaged_lines_of_a_log_cost_only_themselves(home: Listed) -> None:
    log(
        home.user,
        user(0, "x"),
        "junk",
        "[1]",
        json.dumps(user(1, "y", created_at="2026-08-20T12:0 …[trimmed]")),
        '{"step_index": "2", "type": "USER_INPUT", "content": "bad index"}',
        planner(3, "a\0b"),
        '{"step_index": 4, "ty',
    )
    home.store.sync()
    assert turns(home.listing()[CHAT]) == (2, 1)


def test_compactions_are_checkpoints_without_mere_intent(home: Listed) -> None:
    log(
        home.user,
        user(0, "x"),
        line(1, "CHECKPOINT", "{{ CHECKPOINT 1 }} truncated"),
        planner(2, "a"),
        line(3, "CHECKPOINT", "{{ CHECKPOINT 2 }}"),
    )
    assert brief(home.sessions()[CHAT])["compactions"] == 2


# --- database


def test_checkpoints_of_a_database(home: Listed) -> None:
    chat = spoken()
    chat.step(23, field(30, field(1, 1) + field(9, 1) + field(10, "Intent title")))
    chat.step(23, field(30, field(1, 2) + field(10, "Checkpoint title") + field(5, "they spoke")))
    chat.write(home.user)
    one = brief(home.sessions()[CHAT])
    assert (one["compactions"], one["title"]) == (1, "Checkpoint title")


def test_the_title_in_the_order_of_the_document(home: Listed) -> None:
    for native in (CHAT, OTHER):
        chat = spoken(native)
        chat.step(23, field(30, field(10, "Checkpoint title")))
        chat.write(home.user)
    summaries(home, {"id": CHAT, "title": "Index title"}, {"id": OTHER, "title": ""})
    found = home.sessions()
    assert [found[native]["title"] for native in (CHAT, OTHER)] == ["Index title", "Checkpoint title"]


def test_a_modified_response_is_preferred_and_blank_thinking_is_none(home: Listed) -> None:
    chat = Conversation()
    chat.prompt("x")
    chat.step(15, field(20, field(1, "draft") + field(8, "final") + field(3, "  ") + field(16, "raw")))
    chat.step(15, field(20, field(1, "only") + field(14, b"\x01\x02") + field(5, 1)))
    chat.step(15, field(20, field(8, " ")))
    chat.write(home.user)
    one = brief(home.sessions()[CHAT])
    assert (one["assistant"], one["thinking"]) == (2, 1)


def test_an_image_alone_is_a_prompt_and_queued_ones_count(home: Listed) -> None:
    chat = Conversation()
    chat.step(14, field(19, field(5, field(1, "png"))))
    chat.step(14, field(19, field(3, field(1, "from items")) + field(6, 1)))
    chat.answer("a")
    chat.write(home.user)
    assert turns(home.sessions()[CHAT]) == (2, 1)


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (field(28, field(23, "false") + field(6, 1)), 3, 1),
        (field(28, field(23, "true") + field(6, 0)), 3, 0),
        (field(28, field(23, "x") + field(21, field(1, "The command failed with exit code: 4"))), 3, 1),
        (field(28, field(23, "x") + field(6, 0) + field(21, field(1, "The command failed with exit code: 4"))), 3, 0),
        (field(28, field(23, "x")), 7, 1),
    ],
)
def test_errors_of_a_command_in_a_database(home: Listed, body: bytes, status: int, error: int) -> None:
    chat = Conversation()
    chat.prompt("x")
    chat.answer("", call("run_command", "c1"))
    chat.step(21, body, status=status, answers=call("run_command", "c1"))
    chat.write(home.user)
    one = brief(home.sessions()[CHAT])
    assert (one["tools"], one["tool_result"], one["tool_errors"]) == ({"run_command": 1}, 1, error)


def test_usage_once_by_response_and_without_an_id_each(home: Listed) -> None:
    chat = spoken(CHAT, "one", "two")
    chat.generation(tokens(10, 4, 2, 1, "r1"), 1)
    chat.generation(tokens(10, 4, 2, 1, "r1"), 1)
    chat.generation(tokens(10, 4, 2, 1), 3)
    chat.generation(tokens(10, 4, 2, 1), 3)
    chat.generation(tokens(1, 1))
    chat.write(home.user)
    usage = brief(home.sessions()[CHAT])["usage"]
    assert usage == {"input": 31, "output": 13, "cache_read": 6, "cache_creation": 0, "reasoning": 3}


def test_usage_of_the_steps_serves_only_where_no_generation_has_any(home: Listed) -> None:
    for native, generations in ((CHAT, True), (OTHER, False)):
        chat = Conversation(native)
        chat.prompt("x")
        chat.answer("a", metadata=field(1, moment(1)) + field(9, tokens(50, 4, 0, 0, "r1")))
        if generations:
            chat.generation(tokens(10, 4, 0, 0, "r9"), 1)
        chat.write(home.user)
    found = home.sessions()
    assert [found[n]["usage"]["input"] for n in (CHAT, OTHER)] == [10, 50]


def test_a_checkpoint_that_cost_tokens_by_its_step(home: Listed) -> None:
    """'Only if gen_metadata gives nothing use steps.metadata field 9': of any step."""
    chat = Conversation()
    chat.prompt("x")
    chat.answer("a", metadata=field(1, moment(1)) + field(9, tokens(50, 4, 0, 0, "r1")))
    number = len(chat.steps)
    about = field(1, moment(number)) + field(9, tokens(7, 1, 0, 0, "r2"))
    chat.step(23, field(30, field(5, "they spoke")), metadata=about)
    chat.write(home.user)
    assert brief(home.sessions()[CHAT])["usage"]["input"] == 57


def test_models_switched_by_executor(home: Listed) -> None:
    chat = spoken(CHAT, "one", "two")
    for last, model in ((1, "gemini-3-flash"), (3, "claude-opus-4-5")):
        chat.executors.append(field(3, last) + field(10, field(1, field(28, model))))
    chat.write(home.user)
    assert brief(home.sessions()[CHAT])["models"] == ["gemini-3-flash", "claude-opus-4-5"]


def test_times_are_created_and_completed(home: Listed) -> None:
    chat = Conversation()
    chat.step(14, field(19, field(2, "x")), metadata=field(1, moment(5)))
    chat.step(
        15,
        field(20, field(8, "a")),
        metadata=field(1, moment(6))
        + field(6, moment(90))
        + field(7, moment(91))
        + field(8, field(1, START + 30) + field(2, 250_000_000)),
    )
    chat.write(home.user)
    one = brief(home.sessions()[CHAT])
    assert one["last"].endswith("30.250Z") or one["last"] > one["started"]


def test_the_folder_in_the_order_of_the_document(home: Listed) -> None:
    base = home.user / ".gemini" / "antigravity-cli"
    natives = [f"{n}0000000-2222-4333-8444-555555555555" for n in range(1, 6)]
    for place, native in enumerate(natives):
        chat = spoken(native, f"prompt {place}")
        chat.blob = field(1, field(1, "file:///by/blob%20x") + field(4, "main")) if place == 0 else field(2, moment(0))
        chat.write(home.user)
    summaries(home, {"id": natives[0], "uris": ["file:///by/index"]}, {"id": natives[1], "uris": ["file:///by/index"]})
    rows = [
        {"display": "prompt 1", "timestamp": START * 1000, "workspace": "/by/history", "conversationId": natives[1]},
        {"display": "prompt 2", "timestamp": START * 1000, "workspace": "/by/history", "conversationId": natives[2]},
        {"display": "prompt 3", "timestamp": START * 1000 + 59_000, "workspace": "/by/text"},
        {"display": "prompt 4", "timestamp": START * 1000 + 120_000, "workspace": "/too/late"},
    ]
    (base / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = home.sessions()
    assert [brief(found[n])["cwd"] for n in natives] == ["/by/blob x", "/by/index", "/by/history", "/by/text", None]
    assert found[natives[0]]["branch"] == "main"


# --- sub-agents


def invoked(*children: str) -> str:
    told = [{"conversationId": child, "workspaceUris": ["file:///home/dev/app"]} for child in children]
    return "Created the following subagents:\n" + "\n".join(json.dumps(one) for one in told)


def test_the_result_of_a_call_names_two_children(home: Listed) -> None:
    log(
        home.user,
        user(0, "x"),
        planner(1, None, "invoke_subagent"),
        line(2, "INVOKE_SUBAGENT", invoked(OTHER, THIRD)),
        planner(3, "a"),
    )
    for native in (OTHER, THIRD):
        log(
            home.user,
            line(0, "SYSTEM_MESSAGE", "look", source="SYSTEM"),
            planner(1, "a", input_tokens=5, output_tokens=1),
            native=native,
        )
    found = home.sessions()
    assert [(found[n]["parent_id"], brief(found[n])["cwd"]) for n in (OTHER, THIRD)] == [(CHAT, "/home/dev/app")] * 2
    assert (found[CHAT]["kinds"], found[CHAT]["usage"]) == (["orchestrator"], None)


def test_a_child_is_named_by_the_log_also_where_the_parent_has_a_database(home: Listed) -> None:
    """'invoke_subagent (type number not established)': the log beside the database names the child all the same."""
    chat = Conversation()
    chat.prompt("x")
    chat.answer("", call("invoke_subagent", "c1"))
    chat.step(133, field(150, field(1, "opaque")), answers=call("invoke_subagent", "c1"))
    chat.answer("done")
    chat.write(home.user)
    log(
        home.user,
        user(0, "x"),
        planner(1, None, "invoke_subagent"),
        line(2, "INVOKE_SUBAGENT", invoked(OTHER)),
        planner(3, "done"),
    )
    log(
        home.user,
        line(0, "SYSTEM_MESSAGE", "look", source="SYSTEM"),
        planner(1, "a", input_tokens=5, output_tokens=1),
        native=OTHER,
    )
    assert home.sessions()[OTHER]["parent_id"] == CHAT


def test_a_grandchild_hangs_on_the_child_that_made_it(home: Listed) -> None:
    for native, child in ((CHAT, OTHER), (OTHER, THIRD)):
        log(
            home.user,
            user(0, "x"),
            planner(1, None, "invoke_subagent"),
            line(2, "INVOKE_SUBAGENT", invoked(child)),
            planner(3, "a"),
            native=native,
        )
    log(home.user, user(0, "deep"), planner(1, "a"), native=THIRD)
    found = home.sessions()
    assert [found[n]["parent_id"] for n in (CHAT, OTHER, THIRD)] == [None, CHAT, OTHER]


def test_the_index_names_the_parent_before_the_blob(home: Listed) -> None:
    for native in (CHAT, OTHER, THIRD):
        chat = spoken(native)
        chat.blob = field(1, field(1, "file:///home/dev/app")) + field(6, CHAT)
        chat.write(home.user)
    summaries(home, {"id": THIRD, "parent": OTHER})
    found = home.sessions()
    assert [found[n]["parent_id"] for n in (CHAT, OTHER, THIRD)] == [None, CHAT, OTHER]


# --- instances and generations


def test_one_conversation_in_three_instances_is_one_session(home: Listed) -> None:
    chat = spoken(CHAT, "one")
    chat.generation(tokens(10, 4, 0, 0, "r1"), 1)
    chat.write(home.user, instance="antigravity-backup")
    chat.prompt("two")
    chat.answer("re two")
    chat.generation(tokens(20, 4, 0, 0, "r2"), 3)
    chat.write(home.user, instance="antigravity")
    log(home.user, user(0, "one"), instance="antigravity-ide")
    one = home.sessions()[CHAT]
    assert (turns(one)[1], one["usage"]["input"]) == (2, 30)
    assert turns(one)[0] == 2


def test_a_database_is_preferred_to_the_encrypted_file_of_its_id(home: Listed) -> None:
    path = spoken().write(home.user)
    path.with_suffix(".pb").write_bytes(os.urandom(300))
    one = home.sessions()[CHAT]
    assert (turns(one), one["state"], brief(one)["compactions"]) == ((1, 1), "plain", 0)


def test_an_encrypted_file_alone_is_its_frame(home: Listed) -> None:
    base = home.user / ".gemini" / "antigravity" / "conversations"
    base.mkdir(parents=True)
    pb = base / f"{CHAT}.pb"
    pb.write_bytes(os.urandom(300))
    os.utime(pb, ns=((START + 50) * 10**9,) * 2)
    (base / f"{OTHER}.pb").write_bytes(b"\0" * 300)
    (base.parent / "implicit").mkdir()
    (base.parent / "implicit" / f"{THIRD}.pb").write_bytes(os.urandom(300))
    row = (
        field(1, "Sidebar title")
        + field(3, moment(10))
        + field(7, moment(2))
        + field(9, field(1, "file:///home/dev/side"))
        + field(10, moment(40))
    )
    entry = field(1, field(1, CHAT) + field(2, field(1, b64encode(row))))
    state = home.user / ".config" / "Antigravity" / "User" / "globalStorage" / "state.vscdb"
    state.parent.mkdir(parents=True)
    with sqlite3.connect(state) as db:
        db.execute("CREATE TABLE ItemTable (key TEXT UNIQUE, value BLOB)")
        db.execute(
            "INSERT INTO ItemTable VALUES ('antigravityUnifiedStateSync.trajectorySummaries', ?)",
            (b64encode(entry).decode(),),
        )
        db.execute("INSERT INTO ItemTable VALUES ('antigravityUnifiedStateSync.oauthToken', 'ya29.canary')")
        db.execute("INSERT INTO ItemTable VALUES ('antigravityAuthStatus', '{\"apiKey\": \"ya29.canary\"}')")
    db.close()
    found = home.sessions()
    assert list(found) == [CHAT]
    one = brief(found[CHAT])
    assert (one["title"], one["cwd"], one["compactions"], found[CHAT]["state"]) == (
        "Sidebar title",
        "/home/dev/side",
        None,
        "encrypted",
    )
    assert (one["started"][-6:], one["last"][-6:]) == ("2.000Z"[-6:], "0.000Z"[-6:])
    assert home.leaks("ya29.canary") == []


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_growing_database_gives_what_a_fresh_import_gives(home: Listed, tmp_path: Path, mode: str) -> None:
    chat = Conversation()
    for number in range(4):
        chat.prompt(f"p{number}")
        chat.answer("", call("run_command", f"c{number}"))
        chat.step(21, field(28, field(6, number % 2)), answers=call("run_command", f"c{number}"))
        chat.answer(f"a{number}")
        chat.generation(tokens(10, 4, 0, 0, f"r{number}"), len(chat.steps) - 1)
        path = chat.write(home.user)
        db = sqlite3.connect(path, isolation_level=None)
        db.execute(f"PRAGMA journal_mode = {mode}")
        db.execute("UPDATE steps SET status = status")
        home.store.sync()
        grown = brief(home.listing()[CHAT])
        fresh = Listed(tmp_path / f"fresh {number}")
        shutil.copytree(home.user, fresh.user, dirs_exist_ok=True)
        fresh.store.sync()
        assert grown == brief(fresh.listing()[CHAT]), number
        db.close()
    assert turns(home.sessions()[CHAT]) == (4, 4)


def test_a_log_that_was_cut_at_its_start_still_has_all_that_was_said(home: Listed) -> None:
    lines = [user(0, "one"), planner(1, "a"), user(2, "two"), planner(3, "b")]
    log(home.user, *lines[:2])
    home.store.sync()
    log(home.user, *lines[2:])
    home.store.sync()
    assert turns(home.listing()[CHAT]) == (2, 2)


def test_a_step_that_was_running_at_first_counts_once(home: Listed) -> None:
    log(home.user, user(0, "one"), planner(1, None, "run_command"), line(2, "RUN_COMMAND", "", status="RUNNING"))
    home.store.sync()
    log(home.user, user(0, "one"), planner(1, None, "run_command"), line(2, "RUN_COMMAND", "ok"), planner(3, "done"))
    home.store.sync()
    one = brief(home.listing()[CHAT])
    assert (one["tool_result"], one["assistant"], one["tools"]) == (1, 1, {"run_command": 1})


def test_what_is_damaged_is_named_and_takes_nothing_with_it(home: Listed) -> None:
    good = spoken().write(home.user)
    (good.parent / f"{OTHER}.db").write_bytes(b"garbage" * 300)
    (good.parent / f"{THIRD}.db").write_bytes(b"")
    (good.parent.parent / "conversation_summaries.db").write_bytes(b"garbage" * 300)
    items = list(home.store.items())
    said = " ".join(f"{getattr(one, 'path', '')} {getattr(one, 'reason', '')}" for one in items)
    assert f"{OTHER}.db" in said
    assert "conversation_summaries.db" in said
    assert [n for n, one in home.listing().items() if turns(one) != (0, 0)] == [CHAT]


def test_the_logs_times_serve_where_the_steps_have_none(home: Listed) -> None:
    chat = Conversation()
    chat.steps.append((0, 14, 3, None, field(1, 14) + field(19, field(2, "one"))))
    chat.write(home.user)
    log(home.user, user(0, "one"), planner(1, "re one"), user(2, "two"), planner(3, "re two"))
    one = brief(home.sessions()[CHAT])
    assert (one["user"], one["assistant"]) == (2, 2)
    assert (one["started"], one["last"]) == ("2026-08-20T12:00:00.000Z", "2026-08-20T12:00:03.000Z")
