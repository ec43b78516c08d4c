"""Rules of the shared Cursor document and of the corpus' definitions, each on small inputs and end to end."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from rules_home import Listed, brief
from test_cursor import CHAT, CREATED_MS, OTHER, Chat, field, mirror, said, spoken, tool

THIRD = "77777777-7777-4888-8999-777777777777"
FOURTH = "88888888-7777-4888-8999-888888888888"
CWD = "/home/dev/app"


@pytest.fixture
def home(tmp_path: Path) -> Listed:
    return Listed(tmp_path)


def chatted(*texts: str) -> Chat:
    chat = Chat()
    chat.message("system", "You are Cursor.")
    for text in texts:
        chat.prompt(text)
        chat.answer(f"re {text}")
    return chat


def forked(chat: Chat) -> Chat:
    copy = Chat()
    copy.blobs, copy.root = dict(chat.blobs), chat.root
    return copy


def turns(one: dict[str, Any]) -> tuple[int, int]:
    return one["turns"]["user"], one["turns"]["assistant"]


# --- forks


def test_two_forks_of_one_parent_count_only_what_they_added(home: Listed) -> None:
    parent = chatted("one", "two")
    first, second = forked(parent), forked(parent)
    first.prompt("first way")
    first.answer("ok first")
    second.prompt("second way")
    second.answer("ok second")
    parent.prompt("three")
    parent.answer("re three")
    parent.write(home.user)
    first.write(home.user, OTHER, createdAt=CREATED_MS + 60_000)
    second.write(home.user, THIRD, createdAt=CREATED_MS + 120_000)
    found = home.sessions()
    assert {native: turns(one) for native, one in found.items()} == {CHAT: (3, 3), OTHER: (1, 1), THIRD: (1, 1)}
    assert [found[native]["lineage"]["forked_from"] for native in (CHAT, OTHER, THIRD)] == [None, CHAT, CHAT]
    assert found[THIRD]["first_prompt"] == "second way"


def test_a_fork_of_a_fork_names_the_fork(home: Listed) -> None:
    parent = chatted("one", "two")
    parent.write(home.user)
    child = forked(parent)
    child.prompt("child")
    child.answer("re child")
    child.write(home.user, OTHER, createdAt=CREATED_MS + 60_000)
    grandchild = forked(child)
    grandchild.prompt("grandchild")
    grandchild.write(home.user, THIRD, createdAt=CREATED_MS + 120_000)
    found = home.sessions()
    assert [found[native]["lineage"]["forked_from"] for native in (CHAT, OTHER, THIRD)] == [None, CHAT, OTHER]
    assert [turns(found[native]) for native in (CHAT, OTHER, THIRD)] == [(2, 2), (1, 1), (1, 0)]


def test_a_fork_of_a_parent_that_was_summarised_since_is_still_a_fork(home: Listed) -> None:
    parent = chatted("one", "two")
    child = forked(parent)
    child.prompt("own")
    child.answer("re own")
    parent.root = b""
    parent.message("system", "You are Cursor.")
    parent.message("user", "<summary>\nthey spoke\n</summary>")
    parent.prompt("three")
    parent.root += field(17, 1)
    parent.write(home.user)
    child.write(home.user, OTHER, createdAt=CREATED_MS + 60_000)
    found = home.sessions()
    assert found[OTHER]["lineage"]["forked_from"] == CHAT
    assert turns(found[OTHER]) == (1, 1)


def test_a_fork_whose_messages_have_their_content_first_is_still_a_fork(home: Listed) -> None:
    parent = Chat()
    for text in ("one", "two"):
        said_ = [{"text": f"<user_query>{text} {'long ' * 40}</user_query>", "type": "text"}]
        parent.root += field(1, parent.blob(json.dumps({"content": said_, "role": "user"}).encode()))
        parent.answer(f"re {text}")
    child = forked(parent)
    child.prompt("own")
    parent.write(home.user)
    child.write(home.user, OTHER, createdAt=CREATED_MS + 60_000)
    found = home.sessions()
    assert found[OTHER]["lineage"]["forked_from"] == CHAT
    assert turns(found[OTHER]) == (1, 0)


def test_a_fork_of_untagged_prompts_is_still_a_fork(home: Listed) -> None:
    parent = Chat()
    for text in ("one", "two"):
        parent.message("user", text)
        parent.answer(f"re {text}")
    child = forked(parent)
    child.message("user", "own")
    parent.write(home.user)
    child.write(home.user, OTHER, createdAt=CREATED_MS + 60_000)
    found = home.sessions()
    assert found[OTHER]["lineage"]["forked_from"] == CHAT
    assert turns(found[OTHER]) == (1, 0)


def test_compactions_that_a_fork_inherits_are_the_parents(home: Listed) -> None:
    parent = Chat()
    parent.turn("one", said("re one"))
    parent.turn("two", said("re two"))
    parent.root += field(17, 1)
    parent.write(home.user)
    child = forked(parent)
    child.turn("own", said("re own"))
    child.write(home.user, OTHER, createdAt=CREATED_MS + 60_000)
    found = home.sessions()
    assert brief(found[CHAT])["compactions"] == 1
    assert found[OTHER]["lineage"]["forked_from"] == CHAT
    assert brief(found[OTHER])["compactions"] == 0


def test_a_fork_that_was_summarised_itself_is_known_by_its_turn_tree(home: Listed) -> None:
    parent = Chat()
    parent.turn("one", said("re one"))
    parent.write(home.user)
    child = forked(parent)
    child.turn("own", said("re own"))
    child.message("user", "<summary>\nthey spoke\n</summary>")
    child.prompt("own")
    child.root += field(17, 1)
    child.write(home.user, OTHER, createdAt=CREATED_MS + 60_000)
    found = home.sessions()
    assert found[OTHER]["lineage"]["forked_from"] == CHAT
    assert (turns(found[OTHER]), brief(found[OTHER])["compactions"]) == ((1, 1), 1)


def test_a_chat_whose_messages_all_lie_in_an_older_one_is_a_fork(home: Listed) -> None:
    parent = Chat()
    parent.message("user", "one")
    parent.answer("re one")
    parent.write(home.user)
    parent.write(home.user, OTHER, createdAt=CREATED_MS + 60_000)
    found = home.sessions()
    assert (found[OTHER]["lineage"]["forked_from"], turns(found[OTHER])) == (CHAT, (0, 0))


def test_one_equal_prompt_without_a_tag_is_no_fork(home: Listed) -> None:
    for place, native in enumerate((CHAT, OTHER)):
        chat = Chat()
        chat.message("user", "hi")
        chat.answer("Hello!")
        chat.message("user", f"then {native}")
        chat.write(home.user, native, createdAt=CREATED_MS + place * 60_000)
    found = home.sessions()
    assert [(turns(one), one["lineage"]["forked_from"]) for one in found.values()] == [((2, 1), None)] * 2


def test_a_fork_that_was_compacted_itself_counts_that_one(home: Listed) -> None:
    parent = Chat()
    parent.turn("one", said("re one"))
    parent.write(home.user)
    child = forked(parent)
    child.turn("own", said("re own"))
    child.root += field(17, 1)
    child.write(home.user, OTHER, createdAt=CREATED_MS + 60_000)
    assert brief(home.sessions()[OTHER])["compactions"] == 1


def test_a_fork_in_another_workspace_folder_is_a_chat_of_its_own_start(home: Listed) -> None:
    parent = chatted("one", "two")
    parent.write(home.user)
    parent.write(home.user, OTHER, cwd="/home/dev/other", createdAt=CREATED_MS + 60_000)
    assert home.sessions()[OTHER]["lineage"]["forked_from"] is None


# --- which list


def both_lists(simulated: bool = False, shell: bool = False) -> Chat:
    chat = Chat()
    chat.prompt("one")
    chat.answer("re one")
    chat.turn("one", said("re one"))
    if simulated:
        chat.prompt("go on by yourself")
        chat.answer("went on")
        chat.turn("go on by yourself", said("went on"), user=field(5, 1))
    if shell:
        chat.message("user", "<user_query>\n!ls\n</user_query>")
        command, output = chat.blob(field(1, "ls")), chat.blob(field(1, "a.py"))
        chat.root += field(8, chat.blob(field(2, field(1, command) + field(2, output))))
    return chat


def test_a_simulated_prompt_is_a_user_turn_of_the_tree_and_no_prompt(home: Listed) -> None:
    """'Prefer field 8 when it holds at least as many user turns as field 1'; 'is_simulated=1 is not a prompt'."""
    both_lists(simulated=True).write(home.user)
    assert turns(home.sessions()[CHAT]) == (1, 2)


def test_a_shell_turn_is_a_turn_of_the_tree_and_no_prompt(home: Listed) -> None:
    both_lists(shell=True).write(home.user)
    assert turns(home.sessions()[CHAT]) == (1, 1)


def test_the_tree_serves_when_the_messages_were_summarised_twice(home: Listed) -> None:
    chat = Chat()
    for text in ("one", "two", "three"):
        chat.turn(text, said(f"re {text}"))
    chat.message("system", "You are Cursor.")
    chat.message("user", "<summary>\nsecond\n</summary>")
    chat.prompt("three")
    chat.answer("re three")
    chat.root += field(17, 2)
    chat.write(home.user)
    one = brief(home.sessions()[CHAT])
    assert (one["user"], one["assistant"], one["compactions"]) == (3, 3, 2)


def test_compactions_are_the_archives_where_no_count_is_recorded(home: Listed) -> None:
    chat = chatted("one")
    chat.root += field(13, chat.blob(field(2, "s1"))) + field(13, chat.blob(field(2, "s2")))
    chat.write(home.user)
    assert brief(home.sessions()[CHAT])["compactions"] == 2


def test_errors_and_results_come_from_the_list_that_has_them(home: Listed) -> None:
    chat = Chat()
    chat.turn("one", tool(1, field(1, "ls"), None), said("done"))
    chat.prompt("one")
    chat.message(
        "assistant",
        [
            {"type": "tool-call", "toolCallId": "t1", "toolName": "Shell", "args": {}},
            {"type": "reasoning", "text": "hm"},
        ],
    )
    chat.message(
        "tool",
        [{"type": "tool-result", "toolCallId": "t1", "toolName": "Shell", "result": "no"}],
        providerOptions={"cursor": {"highLevelToolCallResult": {"isError": True}}},
    )
    chat.answer("done")
    chat.write(home.user)
    one = brief(home.sessions()[CHAT])
    assert (one["tool_result"], one["tool_errors"], one["thinking"], one["tools"]) == (1, 1, 1, {"Shell": 1})


@pytest.mark.parametrize("number", [2, 3, 4, 5, 6])
def test_every_variant_but_success_is_an_error(home: Listed, number: int) -> None:
    chat = Chat()
    chat.turn("one", tool(8, field(1, "a"), field(number, field(1, "x"))), tool(8, field(1, "a"), field(1, b"")))
    chat.write(home.user)
    one = brief(home.sessions()[CHAT])
    assert (one["tools"], one["tool_result"], one["tool_errors"]) == ({"Read": 2}, 2, 1)


def test_a_shell_that_succeeded_with_an_exit_code_is_what_its_variant_says(home: Listed) -> None:
    chat = Chat()
    chat.turn("one", tool(1, field(1, "false"), field(1, field(1, "false") + field(3, 1))))
    chat.write(home.user)
    assert brief(home.sessions()[CHAT])["tool_errors"] == 0


# --- metadata


@pytest.mark.parametrize("encoded", ["hex", "json", "bytes", "upper"])
def test_the_meta_row_is_hex_or_plain_json(home: Listed, encoded: str) -> None:
    path = chatted("one").write(home.user, name="A title", lastUsedModel="gpt-5")
    with sqlite3.connect(path) as db:
        ((value,),) = db.execute("SELECT value FROM meta").fetchall()
        plain = bytes.fromhex(value)
        told: Any = {"hex": value, "json": plain.decode(), "bytes": plain, "upper": value.upper()}[encoded]
        db.execute("UPDATE meta SET value = ?", (told,))
    db.close()
    one = brief(home.sessions()[CHAT])
    assert (one["title"], one["models"], one["user"]) == ("A title", ["gpt-5"], 1)


@pytest.mark.parametrize("name", ["blobEncryptionKey", "blob_encryption_key", "blobencryptionkey", "encryptionKey"])
def test_no_spelling_of_the_key_is_kept(home: Listed, name: str) -> None:
    secret = "5ec7e7" * 10 + "beef"
    path = chatted("one").write(home.user, **{name: secret, "speculativeSummarizationEncryptionKey": secret})
    (path.parent / "meta.json").write_text(json.dumps({"schemaVersion": 1, "title": "T", name: secret}))
    home.sessions()
    assert home.leaks(secret) == []


def test_a_chat_with_a_key_and_plain_blobs_is_read_as_it_is(home: Listed) -> None:
    chatted("one").write(home.user, blobEncryptionKey="ab" * 32)
    one = home.sessions()[CHAT]
    assert (turns(one), one["state"], brief(one)["compactions"]) == ((1, 1), "plain", 0)


def encrypted(home: Listed, native: str = CHAT, **meta: Any) -> Path:
    chat = Chat()
    junk = hashlib.sha512(b"x").digest() * 3
    chat.root = b"\xff\xff" + junk
    return chat.write(home.user, native, blobEncryptionKey="ab" * 32, **meta)


def test_an_encrypted_store_is_a_session_of_metadata_with_unknown_compactions(home: Listed) -> None:
    path = encrypted(home, name="Secret plans")
    (path.parent / "meta.json").write_text(
        json.dumps({"cwd": CWD, "createdAtMs": CREATED_MS, "updatedAtMs": CREATED_MS + 5000})
    )
    one = brief(home.sessions()[CHAT])
    assert (one["user"], one["title"], one["compactions"], one["cwd"]) == (0, "Secret plans", None, CWD)
    assert (one["started"], one["last"]) == ("2026-06-01T10:00:00.000Z", "2026-06-01T10:00:05.000Z")


def test_an_encrypted_store_beside_a_mirror_falls_back_to_the_mirror(home: Listed) -> None:
    path = encrypted(home, name="Secret plans", lastUsedModel="gpt-5")
    (path.parent / "meta.json").write_text(
        json.dumps({"cwd": CWD, "createdAtMs": CREATED_MS, "updatedAtMs": CREATED_MS + 5000})
    )
    mirror(home.user, CHAT, spoken("user", "<user_query>hi</user_query>"), spoken("assistant", "ho"))
    one = brief(home.sessions()[CHAT])
    assert (one["user"], one["assistant"], one["title"], one["cwd"], one["models"]) == (
        1,
        1,
        "Secret plans",
        CWD,
        ["gpt-5"],
    )
    assert one["compactions"] is None


def test_a_mirror_with_more_prompts_serves_with_the_folder_of_the_stores_root(home: Listed) -> None:
    chat = chatted("one")
    chat.root += field(9, "file:///home/dev/app")
    chat.write(home.user, name="T")
    mirror(home.user, CHAT, *(spoken("user", f"<user_query>{n}</user_query>") for n in ("one", "two")), project="x-y")
    one = brief(home.sessions()[CHAT])
    assert (one["user"], one["title"], one["cwd"]) == (2, "T", CWD)


def test_a_mirror_with_as_many_prompts_does_not_serve(home: Listed) -> None:
    chatted("one", "two").write(home.user)
    mirror(home.user, CHAT, *(spoken("user", f"<user_query>{n}</user_query>") for n in ("one", "TWO")))
    one = brief(home.sessions()[CHAT])
    assert (one["user"], one["assistant"], one["compactions"]) == (2, 2, 0)


def test_a_store_that_loses_its_root_leaves_the_mirror(home: Listed) -> None:
    path = chatted("one").write(home.user)
    with sqlite3.connect(path) as db:
        db.execute(
            "UPDATE meta SET value = ?",
            (json.dumps({"agentId": CHAT, "latestRootBlobId": "ab" * 32, "createdAt": CREATED_MS}),),
        )
    db.close()
    mirror(home.user, CHAT, spoken("user", "<user_query>hi</user_query>"), spoken("assistant", "ho"))
    assert turns(home.sessions()[CHAT]) == (1, 1)


@pytest.mark.parametrize(
    ("told", "cwd"),
    [
        ({"cwd": "/moved/elsewhere"}, "/moved/elsewhere"),
        ({"cwd": "relative"}, "/from/root"),
        ({"cwd": ""}, "/from/root"),
        ({"cwd": 7}, "/from/root"),
    ],
)
def test_the_folder_of_meta_json_counts_where_it_is_absolute(home: Listed, told: dict[str, Any], cwd: str) -> None:
    chat = chatted("one")
    chat.root += field(9, "file:///from/root")
    path = chat.write(home.user, currentPlanUri="file:///from/plan/.cursor/plans/a.plan.md")
    (path.parent / "meta.json").write_text(json.dumps({"schemaVersion": 1, **told}))
    assert brief(home.sessions()[CHAT])["cwd"] == cwd


def test_the_folder_of_the_plan_comes_before_the_hash(home: Listed) -> None:
    chat = chatted("one")
    chat.message("user", f"<user_info>\nWorkspace Path: {CWD}\n</user_info>")
    chat.write(home.user, currentPlanUri="/from/plan/.cursor/plans/a.plan.md")
    assert brief(home.sessions()[CHAT])["cwd"] == "/from/plan"


@pytest.mark.parametrize(("path", "cwd"), [(CWD, CWD), ("/home/dev/wrong", None)])
def test_a_workspace_path_in_the_text_counts_only_by_its_hash(home: Listed, path: str, cwd: str | None) -> None:
    chat = Chat()
    chat.message("user", f"<user_info>\nOS: linux\nWorkspace Path: {path}\nShell: zsh\n</user_info>")
    chat.prompt("one")
    chat.write(home.user)
    one = brief(home.sessions()[CHAT])
    assert (one["cwd"], one["user"]) == (cwd, 1)


def test_the_folder_is_found_by_the_hash_of_an_ancestor_of_a_tools_path(home: Listed) -> None:
    chat = Chat()
    chat.prompt("one")
    args = {"path": f"{CWD}/src/deep/a.py", "other": "x /tmp/y"}
    chat.message("assistant", [{"type": "tool-call", "toolCallId": "t", "toolName": "Read", "args": args}])
    chat.write(home.user)
    assert brief(home.sessions()[CHAT])["cwd"] == CWD


def test_times_come_from_meta_json_then_the_meta_row(home: Listed) -> None:
    path = chatted("one").write(home.user)
    (path.parent / "meta.json").write_text(
        json.dumps({"createdAtMs": CREATED_MS - 2000, "updatedAtMs": CREATED_MS + 9000})
    )
    one = brief(home.sessions()[CHAT])
    assert (one["started"], one["last"]) == ("2026-06-01T09:59:58.000Z", "2026-06-01T10:00:09.000Z")


def test_last_activity_is_the_largest_time_that_the_root_reaches(home: Listed) -> None:
    chat = chatted("one")
    chat.root += field(3, chat.blob(field(1, "1") + field(4, CREATED_MS + 1000) + field(5, CREATED_MS + 7000)))
    chat.root += field(14, field(1, 500) + field(2, CREATED_MS + 3000))
    chat.write(home.user)
    assert brief(home.sessions()[CHAT])["last"] == "2026-06-01T10:00:07.000Z"


def test_an_empty_chat_is_no_session(home: Listed) -> None:
    folder = home.user / ".cursor" / "chats" / hashlib.md5(CWD.encode()).hexdigest() / CHAT
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text(json.dumps({"hasConversation": False, "title": "x", "createdAtMs": CREATED_MS}))
    (folder / "prompt_history.json").write_text('["typed"]')
    chatted("one").write(home.user, OTHER)
    assert list(home.sessions()) == [OTHER]


def test_the_same_chat_in_two_workspace_folders_is_one_session(home: Listed) -> None:
    chat = chatted("one")
    chat.write(home.user)
    chat.prompt("two")
    newer = chat.write(home.user, cwd="/home/dev/other")
    os.utime(newer, ns=(2_000_000_000 * 10**9,) * 2)
    assert turns(home.sessions()[CHAT]) == (2, 1)


def test_the_same_chat_in_two_workspace_folders_is_one_session_also_if_the_older_has_more(home: Listed) -> None:
    chat = chatted("one")
    newer = chat.write(home.user, cwd="/home/dev/other")
    chat.prompt("two")
    chat.write(home.user)
    os.utime(newer, ns=(2_000_000_000 * 10**9,) * 2)
    assert turns(home.sessions()[CHAT]) == (2, 1)


# --- edges of sub-agents


def test_a_parent_is_named_by_the_states_in_its_root(home: Listed) -> None:
    parent = chatted("one")
    parent.root += field(16, field(1, OTHER) + field(2, field(2, CREATED_MS)))
    parent.write(home.user)
    chatted("look").write(home.user, OTHER, createdAt=CREATED_MS + 1000)
    found = home.sessions()
    assert (found[OTHER]["parent_id"], found[CHAT]["kinds"]) == (CHAT, ["orchestrator"])


@pytest.mark.parametrize("shape", ["object", "text"])
@pytest.mark.parametrize("flagged", [True, False])
def test_a_task_result_names_the_child_chat(home: Listed, shape: str, flagged: bool) -> None:
    parent = Chat()
    parent.prompt("one")
    parent.message("assistant", [{"type": "tool-call", "toolCallId": "t", "toolName": "Task", "args": {"prompt": "p"}}])
    result: Any = {"agentId": OTHER, "text": "done"}
    result = result if shape == "object" else json.dumps(result)
    parent.message("tool", [{"type": "tool-result", "toolCallId": "t", "toolName": "Task", "result": result}])
    parent.write(home.user)
    path = chatted("look").write(home.user, OTHER, createdAt=CREATED_MS + 1000)
    if flagged:
        (path.parent / "meta.json").write_text(json.dumps({"isSubagent": True}))
    assert home.sessions()[OTHER]["parent_id"] == CHAT


def test_a_task_step_of_the_tree_names_the_child_chat(home: Listed) -> None:
    parent = Chat()
    parent.turn("one", tool(19, field(1, "look"), field(1, field(1, OTHER) + field(2, "done"))))
    parent.write(home.user)
    chatted("look").write(home.user, OTHER, createdAt=CREATED_MS + 1000)
    assert home.sessions()[OTHER]["parent_id"] == CHAT


def test_a_task_result_that_was_written_before_a_chat_began_does_not_name_it(home: Listed) -> None:
    """Only chats that were written to since a chat began are looked through for its name."""
    parent = Chat()
    parent.turn("one", tool(19, field(1, "look"), field(1, field(1, OTHER))))
    path = parent.write(home.user)
    os.utime(path, ns=((CREATED_MS + 500) * 10**6,) * 2)
    chatted("look").write(home.user, OTHER, createdAt=CREATED_MS + 1000)
    assert home.sessions()[OTHER]["parent_id"] is None


def test_a_chat_that_is_only_spoken_of_is_no_child(home: Listed) -> None:
    parent = chatted(f"look at chat {OTHER}")
    parent.write(home.user)
    chatted("look").write(home.user, OTHER, createdAt=CREATED_MS + 1000)
    assert home.sessions()[OTHER]["parent_id"] is None


def test_nested_sub_agents_of_mirrors_have_their_parents(home: Listed) -> None:
    base = home.user / ".cursor" / "projects" / "p" / "agent-transcripts"
    for place, native in ((CHAT, CHAT), (f"{CHAT}/subagents", OTHER), (f"{CHAT}/subagents/{OTHER}/subagents", THIRD)):
        (base / place).mkdir(parents=True, exist_ok=True)
        (base / place / f"{native}.jsonl").write_text(
            json.dumps(spoken("user", f"<user_query>{native}</user_query>")) + "\n"
        )
    found = home.sessions()
    assert [found[native]["parent_id"] for native in (CHAT, OTHER, THIRD)] == [None, CHAT, OTHER]


# --- mirrors


@pytest.mark.parametrize("kind", ["tool_use", "tool-use", "tool_call", "tool-call"])
def test_every_spelling_of_a_tool_block_is_one(home: Listed, kind: str) -> None:
    calls = {"role": "assistant", "message": {"content": [{"type": kind, "name": "Shell", "input": {"command": "ls"}}]}}
    mirror(home.user, CHAT, spoken("user", "<user_query>hi</user_query>"), calls, calls)
    assert brief(home.sessions()[CHAT])["tools"] == {"Shell": 2}


def test_a_content_may_be_a_string_and_unknown_records_are_passed_over(home: Listed) -> None:
    mirror(
        home.user,
        CHAT,
        {"role": "user", "message": {"content": "<user_query>hi</user_query>"}},
        {"role": "assistant", "message": {"content": "ho"}},
        {"type": "user_message", "text": "x"},
        {"type": "tool_call", "name": "Shell"},
        {"type": "turn_ended", "status": "error", "error": "boom"},
    )
    one = brief(home.sessions()[CHAT])
    assert (one["user"], one["assistant"], one["tools"], one["tool_errors"]) == (1, 1, {}, 0)


def test_a_mirror_alone_has_the_time_of_its_file_and_starts_at_its_first_stamp(home: Listed) -> None:
    stamp = "<timestamp>Monday, Jun 1, 2026, 12:00 PM (UTC+2)</timestamp>"
    path = mirror(home.user, CHAT, spoken("user", f"{stamp}\n<user_query>hi</user_query>"), spoken("assistant", "ho"))
    os.utime(path, ns=((CREATED_MS + 5000) * 10**6,) * 2)
    one = brief(home.sessions()[CHAT])
    assert (one["started"], one["last"]) == ("2026-06-01T10:00:00.000Z", "2026-06-01T10:00:05.000Z")
    assert (one["usage"], one["models"], one["compactions"]) == (None, [], None)


@pytest.mark.parametrize("flat", [True, False])
def test_of_both_extensions_the_lines_are_taken(home: Listed, flat: bool) -> None:
    base = home.user / ".cursor" / "projects" / "p" / "agent-transcripts"
    folder = base if flat else base / CHAT
    folder.mkdir(parents=True)
    (folder / f"{CHAT}.txt").write_text("user:\n<user_query>\na\n</user_query>\n\nassistant:\nb\n")
    (folder / f"{CHAT}.jsonl").write_text(json.dumps(spoken("user", "<user_query>x</user_query>")) + "\n")
    one = brief(home.sessions()[CHAT])
    assert (one["first_prompt"], one["assistant"]) == ("x", 0)


def test_of_both_extensions_the_lines_are_taken_also_if_the_text_has_more_prompts(home: Listed) -> None:
    """'If both extensions exist take .jsonl.'"""
    base = home.user / ".cursor" / "projects" / "p" / "agent-transcripts" / CHAT
    base.mkdir(parents=True)
    (base / f"{CHAT}.txt").write_text("user:\n<user_query>\na\n</user_query>\n\nassistant:\nb\n\nuser:\nc\n")
    (base / f"{CHAT}.jsonl").write_text(json.dumps(spoken("user", "<user_query>x</user_query>")) + "\n")
    assert turns(home.sessions()[CHAT]) == (1, 0)


def test_marks_of_the_text_form_last_while_lines_are_indented_or_blank(home: Listed) -> None:
    base = home.user / ".cursor" / "projects" / "p" / "agent-transcripts"
    base.mkdir(parents=True)
    (base / f"{CHAT}.txt").write_text(
        "user:\n<user_query>\nuser: is no mark here\n</user_query>\nassistant:\n[Thinking] let me\n  see\n\n"
        "[Tool call] Shell\n  command: ls\n\n  [Tool call] inner\n[Tool result] Shell\n  a.py\nVisible.\n"
        "assistant:\n[Tool call] Read\n  path: a.py\nassistant:\n[REDACTED]\n"
    )
    one = brief(home.sessions()[CHAT])
    assert (one["user"], one["assistant"], one["thinking"], one["tool_result"]) == (1, 1, 1, 1)
    assert one["tools"] == {"Shell": 1, "Read": 1}


def test_a_mirror_with_bom_crlf_and_a_torn_tail_is_read(home: Listed) -> None:
    path = mirror(home.user, CHAT)
    lines = [json.dumps(spoken("user", "<user_query>hi</user_query>")), json.dumps(spoken("assistant", "ho"))]
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode() + b'\r\n{"role":"user","mess')
    assert turns(home.sessions()[CHAT]) == (1, 1)


def test_image_only_prompts_count_in_every_surface(home: Listed) -> None:
    chat = Chat()
    chat.message("user", [{"type": "image", "image": "data:image/png;base64,AAAA"}])
    chat.write(home.user)
    block = {"type": "image", "source": {"data": "AAAA"}}
    mirror(home.user, OTHER, {"role": "user", "message": {"content": [block]}}, spoken("assistant", "ho"))
    found = home.sessions()
    assert (turns(found[CHAT])[0], turns(found[OTHER])[0]) == (1, 1)


# --- the IDE


def ide(home: Listed, rows: dict[str, Any], headers: list[tuple[Any, ...]] = ()) -> Path:  # type: ignore[assignment]
    path = home.user / ".config" / "Cursor" / "User" / "globalStorage" / "state.vscdb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE ItemTable (key TEXT UNIQUE, value BLOB)")
        db.execute("CREATE TABLE cursorDiskKV (key TEXT UNIQUE, value BLOB)")
        db.executemany(
            "INSERT INTO cursorDiskKV VALUES (?, ?)",
            [
                (key, value if isinstance(value, (str, bytes, type(None))) else json.dumps(value))
                for key, value in rows.items()
            ],
        )
        db.execute("INSERT INTO ItemTable VALUES ('cursorAuth/accessToken', 'tok-canary-1')")
        if headers:
            db.execute("CREATE TABLE composerHeaders (composerId, workspaceId, isSubagent, value)")
            db.executemany("INSERT INTO composerHeaders VALUES (?, ?, ?, ?)", headers)
    db.close()
    return path


def composer(native: str, bubbles: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    heads = [{"bubbleId": one["bubbleId"], "type": one["type"]} for one in bubbles]
    rows = {f"bubbleId:{native}:{one['bubbleId']}": one for one in bubbles}
    about = {"composerId": native, "createdAt": CREATED_MS, "fullConversationHeadersOnly": heads, **more}
    return {f"composerData:{native}": about} | rows


def bubble(native: str, type_: int, text: str = "", **more: Any) -> dict[str, Any]:
    return {"bubbleId": native, "type": type_, "text": text, **more}


def test_ide_chats_with_models_tokens_and_tools(home: Listed) -> None:
    rows = composer(
        CHAT,
        [
            bubble("b1", 1, "hi", createdAt="2026-06-01T10:00:01.000Z"),
            bubble("b2", 2, "", thinking={"text": "hm"}, createdAt=None),
            bubble(
                "b3",
                2,
                "",
                toolFormerData={"name": "read_file_v2", "status": "completed", "params": "{}", "result": "{}"},
            ),
            bubble(
                "b4",
                2,
                "",
                toolFormerData={"name": "run_terminal_cmd", "status": "error", "params": "{}", "error": "{}"},
            ),
            bubble("b5", 2, "", toolFormerData={"name": "edit_file", "status": "cancelled", "params": "{}"}),
            bubble(
                "b6",
                2,
                "ho",
                createdAt="2026-06-01T10:00:09.000Z",
                modelInfo={"modelName": "m1"},
                tokenCount={"inputTokens": 10, "outputTokens": 3},
            ),
        ],
        name="Chat",
        lastUpdatedAt=CREATED_MS + 9_000_000,
        modelConfig={"modelName": "m2"},
    )
    rows["bubbleId:" + CHAT + ":orphan"] = bubble("orphan", 1, "retracted")
    rows[f"composerData:{OTHER}"] = None
    rows[f"composerData:{THIRD}"] = '{"composerId": "tor'
    ide(home, rows)
    found = home.sessions()
    assert list(found) == [CHAT]
    one = brief(found[CHAT])
    assert (one["user"], one["assistant"], one["thinking"], one["tool_result"], one["tool_errors"]) == (1, 1, 1, 2, 1)
    assert one["tools"] == {"read_file_v2": 1, "run_terminal_cmd": 1, "edit_file": 1}
    assert (one["models"], one["usage"] and one["usage"]["input"]) == (["m1"], 10)
    assert (one["started"], one["last"]) == ("2026-06-01T10:00:00.000Z", "2026-06-01T10:00:09.000Z")
    assert home.leaks("tok-canary-1") == []


def test_secrets_in_ide_rows_are_kept_nowhere(home: Listed) -> None:
    secret = "sk-canary-4242"
    rows = composer(
        CHAT,
        [bubble("b1", 1, "hi", serviceToken=secret, context={"token": secret}, richText=secret)],
        name="Chat",
        blobEncryptionKey=secret,
        speculativeSummarizationEncryptionKey=secret,
        token=secret,
        modelConfig={"modelName": "m", "apiKey": secret},
        subagentInfo={"parentComposerId": OTHER, "key": secret},
    )
    rows["bubbleId:x:y"] = {"token": secret}
    rows["cursorAuth"] = secret
    ide(home, rows, [(CHAT, "w", 0, json.dumps({"token": secret}))])
    assert list(home.sessions()) == [CHAT]
    assert home.leaks(secret) == []


def test_an_ide_chat_in_old_inline_rows_finds_its_workspace(home: Listed) -> None:
    ide(
        home,
        {
            f"composerData:{CHAT}": {
                "composerId": CHAT,
                "createdAt": CREATED_MS,
                "conversation": [
                    bubble("b1", 1, "hi"),
                    bubble("b2", 2, "ho", timingInfo={"clientEndTime": CREATED_MS + 4000}),
                ],
            }
        },
    )
    storage = home.user / ".config" / "Cursor" / "User" / "workspaceStorage" / "abc"
    storage.mkdir(parents=True)
    (storage / "workspace.json").write_text(json.dumps({"folder": "file:///home/dev/my%20app"}))
    with sqlite3.connect(storage / "state.vscdb") as db:
        db.execute("CREATE TABLE ItemTable (key TEXT UNIQUE, value BLOB)")
        db.execute(
            "INSERT INTO ItemTable VALUES ('composer.composerData', ?)",
            (json.dumps({"allComposers": [{"composerId": CHAT}]}),),
        )
    db.close()
    one = brief(home.sessions()[CHAT])
    assert (one["user"], one["assistant"], one["cwd"]) == (1, 1, "/home/dev/my app")
    assert one["last"] == "2026-06-01T10:00:04.000Z"


def test_ide_times_as_strings_numbers_and_nothing(home: Listed) -> None:
    rows = composer(
        CHAT,
        [
            bubble("b1", 1, "hi", createdAt=None),
            bubble("b2", 2, "ho", createdAt=CREATED_MS + 3000),
            bubble("b3", 2, "x"),
        ],
        createdAt="2026-06-01T10:00:00.000Z",
    )
    ide(home, rows)
    one = brief(home.sessions()[CHAT])
    assert (one["started"], one["last"]) == ("2026-06-01T10:00:00.000Z", "2026-06-01T10:00:03.000Z")


def test_zero_tokens_everywhere_are_unknown(home: Listed) -> None:
    ide(
        home,
        composer(
            CHAT, [bubble("b1", 1, "hi"), bubble("b2", 2, "ho", tokenCount={"inputTokens": 0, "outputTokens": 0})]
        ),
    )
    assert home.sessions()[CHAT]["usage"] is None


def test_an_ide_chat_and_its_mirror_are_one_session(home: Listed) -> None:
    ide(
        home,
        composer(
            CHAT, [bubble("b1", 1, "hi"), bubble("b2", 2, "ho")], name="T", workspaceIdentifier={"uri": {"fsPath": CWD}}
        ),
    )
    mirror(home.user, CHAT, spoken("user", "<user_query>hi</user_query>"), spoken("assistant", "ho"))
    one = brief(home.sessions()[CHAT])
    assert (one["user"], one["assistant"], one["title"], one["cwd"]) == (1, 1, "T", CWD)


def test_an_ide_sub_agent_names_its_parent_in_both_ways(home: Listed) -> None:
    rows = composer(CHAT, [bubble("b1", 1, "hi")], subagentComposerIds=[OTHER])
    rows |= composer(OTHER, [bubble("c1", 1, "look")], subagentInfo={"subagentType": "explore"})
    rows |= composer(THIRD, [bubble("d1", 1, "look")], subagentInfo={"parentComposerId": CHAT})
    rows |= composer(FOURTH, [bubble("e1", 1, "look")])
    ide(home, rows)
    found = home.sessions()
    assert [found[native]["parent_id"] for native in (CHAT, OTHER, THIRD, FOURTH)] == [None, CHAT, CHAT, None]


# --- growing, journal modes, damage


def test_a_growing_store_gives_what_a_fresh_import_gives(home: Listed, tmp_path: Path) -> None:
    chat = chatted("one")
    for step in range(3):
        chat.prompt(f"more {step}")
        chat.message("assistant", [{"type": "tool-call", "toolCallId": f"t{step}", "toolName": "Read", "args": {}}])
        chat.message("tool", [{"type": "tool-result", "toolCallId": f"t{step}", "toolName": "Read", "result": "x"}])
        chat.answer(f"re more {step}")
        chat.write(home.user, name=f"title {step}", lastUsedModel=f"m{step}")
        grown = brief(home.sessions()[CHAT])
        fresh = Listed(tmp_path / f"fresh {step}")
        shutil.copytree(home.user, fresh.user, dirs_exist_ok=True)
        assert grown == brief(fresh.sessions()[CHAT])


@pytest.mark.parametrize("mode", ["wal", "delete", "truncate", "persist"])
def test_every_journal_mode_is_read_and_left_alone(home: Listed, mode: str) -> None:
    path = chatted("one").write(home.user)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(f"PRAGMA journal_mode = {mode}")
    db.execute("UPDATE meta SET value = value")
    home.store.sync()
    assert turns(home.listing()[CHAT]) == (1, 1)
    db.close()
    assert turns(home.sessions()[CHAT]) == (1, 1)


def test_damaged_neighbours_are_named_and_take_nothing_with_them(home: Listed) -> None:
    good = chatted("one").write(home.user)
    folder = good.parent.parent
    for name, data in (("zero", b""), ("garbage", b"x" * 5000), ("cut", good.read_bytes()[:5000])):
        (folder / name).mkdir()
        (folder / name / "store.db").write_bytes(data)
    shells = [
        ("tableless", "CREATE TABLE x (y)"),
        ("metaless", "CREATE TABLE meta (key, value); CREATE TABLE blobs (id, data)"),
    ]
    for name, statement in shells:
        (folder / name).mkdir()
        with sqlite3.connect(folder / name / "store.db") as db:
            db.executescript(statement)
        db.close()
    failed = home.troubles()
    assert sorted(Path(one.split(":")[0]).parent.name for one in failed) == ["cut", "garbage"]
    assert list(home.sessions()) == [CHAT]


def test_a_fork_keeps_its_numbers_where_both_are_mirrored(home: Listed) -> None:
    parent = chatted("one", "two")
    child = forked(parent)
    child.prompt("own")
    child.answer("re own")
    parent.write(home.user)
    child.write(home.user, OTHER, createdAt=CREATED_MS + 60_000)
    for native, texts in ((CHAT, ("one", "two")), (OTHER, ("one", "two", "own"))):
        said_ = [
            (spoken("user", f"<user_query>{text}</user_query>"), spoken("assistant", f"re {text}")) for text in texts
        ]
        mirror(home.user, native, *(line for pair in said_ for line in pair))
    found = home.sessions()
    assert (turns(found[OTHER]), found[OTHER]["lineage"]["forked_from"]) == ((1, 1), CHAT)


def test_a_fork_of_a_chat_whose_messages_were_summarised_inherits_that(home: Listed) -> None:
    parent = Chat()
    parent.message("user", "<summary>\nthey spoke\n</summary>")
    parent.prompt("two")
    parent.answer("re two")
    parent.root += field(17, 1)
    child = forked(parent)
    child.prompt("own")
    parent.write(home.user)
    child.write(home.user, OTHER, createdAt=CREATED_MS + 60_000)
    one = brief(home.sessions()[OTHER])
    assert (one["user"], one["compactions"]) == (1, 0)


def test_a_forks_own_call_with_an_inherited_id_is_its_own(home: Listed) -> None:
    parent = Chat()
    parent.prompt("one")
    parent.message("assistant", [{"type": "tool-call", "toolCallId": "t1", "toolName": "Read", "args": {}}])
    parent.message("tool", [{"type": "tool-result", "toolCallId": "t1", "result": "x", "isError": True}])
    child = forked(parent)
    child.prompt("own")
    child.message("assistant", [{"type": "tool-call", "toolCallId": "t1", "toolName": "Shell", "args": {}}])
    child.message("tool", [{"type": "tool-result", "toolCallId": "t1", "result": "x"}])
    parent.write(home.user)
    child.write(home.user, OTHER, createdAt=CREATED_MS + 60_000)
    one = brief(home.sessions()[OTHER])
    assert (one["tools"], one["tool_result"], one["tool_errors"]) == ({"Shell": 1}, 1, 0)


def test_a_time_of_the_meta_row_may_be_a_text(home: Listed) -> None:
    chatted("one").write(home.user, createdAt="2026-06-01T10:00:00.000Z")
    assert brief(home.sessions()[CHAT])["started"] == "2026-06-01T10:00:00.000Z"


def test_without_a_creation_the_start_is_the_first_stamp(home: Listed) -> None:
    chat = Chat()
    chat.prompt("one", stamp="Monday, Jun 1, 2026, 12:00 PM (UTC+2)")
    chat.write(home.user, createdAt=None)
    assert brief(home.sessions()[CHAT])["started"] == "2026-06-01T10:00:00.000Z"
