"""The rules of the Gemini CLI format, each held end to end: small homes, and what prosa says of their sessions."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from store import Store
from told import Json, lines, only, put, told

A, B, C = (f"{letter * 8}-2222-4222-8222-{letter * 12}" for letter in "abc")
ROOT = "/home/dev/shop"
HASH = hashlib.sha256(ROOT.encode()).hexdigest()
SHELL = "run_shell_command"
SNAPSHOT = "<state_snapshot>\n<overall_goal>x</overall_goal>\n</state_snapshot>"
TAKEN = "Got it. Thanks for the additional context!"
COUNTS = ("user", "assistant", "thinking", "result", "tools", "errors", "compactions")


def at(second: int) -> str:
    return f"2026-06-01T09:{second // 60:02d}:{second % 60:02d}.000Z"


def head(session: str = A, second: int = 0, **fields: Any) -> Json:
    stamp = at(second)
    about = {"sessionId": session, "projectHash": HASH, "startTime": stamp, "lastUpdated": stamp, "kind": "main"}
    return about | fields


def user(number: int, said: Any, second: int | None = None, **fields: Any) -> Json:
    content = [{"text": said}] if isinstance(said, str) else said
    stamp = at(number if second is None else second)
    return {"id": f"u{number}", "timestamp": stamp, "type": "user", "content": content, **fields}


def answer(number: int, said: Any, second: int | None = None, **fields: Any) -> Json:
    tokens = {"input": 10, "output": 5, "cached": 2, "thoughts": 1, "tool": 0, "total": 16}
    stamp = at(number if second is None else second)
    about = {"id": f"g{number}", "timestamp": stamp, "type": "gemini", "content": said, "thoughts": []}
    return about | {"tokens": tokens, "model": "gemini-3"} | fields


def responded(call: str, **said: Any) -> Json:
    return {"functionResponse": {"id": call, "name": SHELL, "response": said or {"output": "x"}}}


def called(call: str | None, status: str = "success", **fields: Any) -> Json:
    about = {"id": call, "name": SHELL, "args": {"command": "ls"}, "status": status, "timestamp": at(50)}
    return about | {"result": [responded(call or "")]} | fields


def listed(*messages: Json, **fields: Any) -> Json:
    return {"$set": {"messages": list(messages), **fields}}


def stripped(message: Json) -> Json:
    lost = ("tokens", "toolCalls", "thoughts", "model")
    return {name: value for name, value in message.items() if name not in lost}


def chat(folder: str = "shop", session: str = A, suffix: str = "jsonl", minute: str = "09-00") -> str:
    return f".gemini/tmp/{folder}/chats/session-2026-06-01T{minute}-{session[:8]}.{suffix}"


def inner(parent: str, name: str) -> str:
    return f".gemini/tmp/shop/chats/{parent}/{name}.jsonl"


def document(*messages: Json, **fields: Any) -> bytes:
    return json.dumps({**head(**fields), "messages": list(messages)}).encode()


def home(store: Store, files: dict[str, Any]) -> dict[str, Json]:
    for name, body in files.items():
        put(store, name, *([body] if isinstance(body, bytes) else body))
    return told(store)


def session(store: Store, *records: Json) -> Json:
    return home(store, {chat(): list(records)})[A]


TALK = [user(1, "one"), answer(2, "a1"), user(3, "two"), answer(4, "a2")]
USE = {"input": 8, "output": 6, "cache_read": 2, "cache_creation": 0, "reasoning": 1}


# one message, many records


@pytest.mark.parametrize(
    "records",
    [
        [
            answer(2, "", tokens=None),
            answer(2, "a", tokens=None),
            answer(2, "a"),
            answer(2, "a", toolCalls=[called("c")]),
        ],
        [answer(2, "a", toolCalls=[called("c")]), answer(2, "a")],
        [answer(2, "a", toolCalls=[called("c")]), answer(2, "a", tokens=None, toolCalls=[called("c")])],
        [
            answer(2, "a", tokens=None),
            answer(2, "a", toolCalls=[called("c", "executing", result=None)]),
            answer(2, "a", toolCalls=[called("c")]),
        ],
        [answer(2, "a", toolCalls=[called("c")]), user(9, [responded("c")])],
        [answer(2, [{"text": "a"}, {"functionCall": {"id": "c", "name": SHELL, "args": {}}}], toolCalls=[called("c")])],
    ],
)
def test_what_was_recorded_of_a_message_counts_once_and_is_never_erased(store: Store, records: list[Json]) -> None:
    found = session(store, head(), user(1, "x"), *records)
    assert only(found, COUNTS) == (1, 1, 0, 1, {SHELL: 1}, 0, 0)
    assert found["usage"] == USE


def test_a_later_count_takes_the_place_of_an_earlier_one(store: Store) -> None:
    tokens = {"input": 20, "output": 9, "cached": 2, "thoughts": 1, "tool": 3, "total": 33}
    found = session(store, head(), user(1, "x"), answer(2, "a"), answer(2, "a", tokens=tokens))
    assert found["usage"] == USE | {"input": 21, "output": 10}


@pytest.mark.parametrize("target", ["u3", "unknown"])
@pytest.mark.parametrize("relisted", [[], [listed(*TALK[:2])]])
def test_a_rewind_takes_nothing_back(store: Store, target: str, relisted: list[Json]) -> None:
    found = session(store, head(), *TALK, {"$rewindTo": target}, *relisted, user(5, "three"), answer(6, "a3"))
    assert only(found, ("user", "assistant")) == (3, 3)


def test_a_prompt_that_is_typed_again_is_another_one_in_lists_too(store: Store) -> None:
    again = [user(5, "one"), answer(6, "a1")]
    assert only(session(store, head(), *TALK, *again, listed(*TALK, *again)), ("user", "assistant")) == (3, 3)


THOUGHT = {"subject": "s", "description": "d", "timestamp": at(2)}
FULL = answer(2, "a1", toolCalls=[called("c1")], thoughts=[THOUGHT])
PARTS = [{"text": "d", "thought": True}, {"text": "a1"}, {"functionCall": {"id": "c1", "name": SHELL, "args": {}}}]
BARE = stripped(answer(2, PARTS, 60))
RESPONSE = {**user(2, [responded("c1")], 60), "id": "g2"}


def test_a_stripped_list_on_resume_loses_and_adds_nothing(store: Store) -> None:
    found = session(store, head(), user(1, "x"), FULL, listed(user(1, "x", 60), BARE, RESPONSE), *TALK[2:])
    assert only(found, COUNTS) == (2, 2, 1, 1, {SHELL: 1}, 0, 0)
    assert (found["usage"]["input"], found["models"]) == (16, ["gemini-3"])


def test_of_a_stripped_list_alone_the_parts_count(store: Store) -> None:
    failed = {**RESPONSE, "content": [responded("c1", error="bad")]}
    found = session(store, head(), listed(user(1, "x"), BARE, failed))
    assert only(found, COUNTS) == (1, 1, 1, 1, {SHELL: 1}, 1, 0)
    assert found["usage"] is None


# calls, thoughts


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([called("c", "error", result=[responded("c", error="x")])], (1, 1, 1)),
        ([called("c", "error", result=None)], (1, 0, 1)),
        ([called("c", "cancelled", result=None)], (1, 0, 0)),
        ([called("c", "cancelled", result=[responded("c", error="[Operation Cancelled] Reason: User")])], (1, 1, 0)),
        ([called("c", "executing", result=None)], (1, 0, 0)),
        ([called("c", result=[responded("c", output="Exit Code: 1")])], (1, 1, 0)),
        ([called("c", result=[])], (1, 0, 0)),
        ([called("c", result="text")], (1, 1, 0)),
        ([called(None), called(None)], (2, 2, 0)),
        ([called("c"), called("d")], (2, 2, 0)),
    ],
)
def test_a_call_fails_by_its_status(store: Store, calls: list[Json], expected: tuple[int, int, int]) -> None:
    found = session(store, head(), user(1, "x"), answer(2, "a", toolCalls=calls))
    assert (found["tools"], found["result"], found["errors"]) == ({SHELL: expected[0]}, *expected[1:])


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([answer(2, [{"text": "t", "thought": True}, {"text": "a"}], thoughts=[THOUGHT])], 1),
        ([answer(2, "a", thoughts=[{"subject": "s"}, {"subject": "", "description": " "}, THOUGHT])], 2),
        ([answer(2, "", thoughts=[THOUGHT]), answer(2, "a", thoughts=[THOUGHT, THOUGHT])], 2),
        ([answer(2, "a", thoughts=[THOUGHT]), answer(2, "a")], 1),
    ],
)
def test_thoughts_count_each_and_in_one_place(store: Store, records: list[Json], expected: int) -> None:
    assert session(store, head(), user(1, "x"), *records)["thinking"] == expected


@pytest.mark.parametrize(
    "first",
    ["a", ""],
)
def test_models_stand_in_order_of_first_use(store: Store, first: str) -> None:
    answers = [answer(2, first, model="m1"), answer(4, "b", model="m2"), answer(6, "c", model="m1")]
    assert session(store, head(), user(1, "x"), *answers)["models"] == ["m1", "m2"]


# prompts


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([user(1, "see @a\n--- a ---\nbody", displayContent=[{"text": "see @a"}])], (1, "see @a")),
        ([user(1, "expanded", displayContent="/fix 1")], (1, "/fix 1")),
        ([user(1, "/help"), user(2, "? x"), user(3, "  /x"), user(4, "do it")], (1, "do it")),
        ([user(1, "<session_context>\nx"), user(2, "<hook_context>x</hook_context>"), user(3, "do it")], (1, "do it")),
        (
            [user(1, "do it"), user(2, "System: Potential loop detected. Details: x", displayContent="do it")],
            (1, "do it"),
        ),
        ([user(1, "do it"), user(2, "You have stopped calling tools without finishing. x")], (1, "do it")),
        ([user(1, [{"inlineData": {"mimeType": "image/png", "data": "AA"}}])], (1, "[image]")),
        ([user(1, [{"text": "look"}, {"inlineData": {"mimeType": "image/png", "data": "AA"}}])], (1, "look")),
        ([user(1, "do it"), user(2, [responded("q"), {"text": "file body"}])], (1, "do it")),
        ([user(1, "  "), user(2, []), user(3, "why <session_context>?")], (1, "why <session_context>?")),
        (
            [user(1, "do it"), *({"id": k, "timestamp": at(2), "type": k, "content": "x"} for k in ("info", "error"))],
            (1, "do it"),
        ),
    ],
)
def test_a_prompt_is_what_was_typed(store: Store, records: list[Json], expected: tuple[int, str]) -> None:
    assert only(session(store, head(), *records, answer(20, "a")), ("user", "first_prompt")) == expected


# compression

KEPT = [user(33, "two"), answer(34, "a2", tokens=None)]
COMPRESSED = listed(user(30, "<session_context>x"), user(31, SNAPSHOT), answer(32, TAKEN, tokens=None), *KEPT)
OTHER = SNAPSHOT.replace("x", "y")
NEXT = [user(40, "three"), answer(41, "a3")]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([COMPRESSED], (2, 2, 1)),
        ([listed(user(31, SNAPSHOT), answer(32, TAKEN, tokens=None), *TALK[2:])], (2, 2, 1)),
        ([COMPRESSED, *NEXT, listed(user(31, SNAPSHOT, 70), answer(32, TAKEN), *KEPT, *NEXT)], (3, 3, 1)),
        (
            [COMPRESSED, *NEXT, listed(user(51, OTHER), answer(52, TAKEN), user(53, "three"), answer(54, "a3"))],
            (3, 3, 2),
        ),
        ([COMPRESSED, *NEXT, listed(user(31, SNAPSHOT), user(51, OTHER), answer(52, TAKEN, tokens=None))], (3, 3, 2)),
        ([COMPRESSED, answer(34, "a2")], (2, 2, 1)),
        ([COMPRESSED, user(70, "two"), answer(71, "a2")], (3, 3, 1)),
        ([listed(*TALK)], (2, 2, 0)),
        ([{"id": "i1", "timestamp": at(9), "type": "info", "content": ""}], (2, 2, 0)),
    ],
)
def test_each_new_snapshot_is_a_compaction_and_what_is_kept_a_copy(
    store: Store, records: list[Json], expected: tuple[int, int, int]
) -> None:
    assert only(session(store, head(), *TALK, *records), ("user", "assistant", "compactions")) == expected


# where it was


def touching(path: str) -> list[Json]:
    return [head(), user(1, "x"), answer(2, "a", toolCalls=[called("c", args={"file_path": path})])]


def context(*folders: str, session: str = A) -> list[Json]:
    text = "<session_context>\n- **Workspace Directories:**\n" + "".join(f"  - {folder}\n" for folder in folders)
    return [head(session), user(1, text), user(2, "x"), answer(3, "y")]


REGISTRY = json.dumps({"projects": {ROOT: "shop"}}).encode()
PLAIN = [head(), *TALK]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({chat(HASH): touching(f"{ROOT}/src/a.py")}, ROOT),
        ({chat(HASH): touching("/home/dev/other/a.py")}, None),
        ({".gemini/projects.json": REGISTRY, chat(): PLAIN}, ROOT),
        ({".gemini/projects.json": REGISTRY, chat(HASH): PLAIN}, ROOT),
        ({".gemini/tmp/shop/.project_root": b"/x/y\n", ".gemini/projects.json": REGISTRY, chat(): PLAIN}, "/x/y"),
        ({".gemini/trustedFolders.json": json.dumps({ROOT: "TRUST_FOLDER"}).encode(), chat(HASH): PLAIN}, ROOT),
        ({chat("q"): context("/a", ROOT)}, ROOT),
        ({chat("q"): context("/a")}, None),
        ({chat("q"): [head(directories=["/w"]), *TALK]}, None),
        (
            {
                chat(HASH): PLAIN,
                chat(HASH, B): [
                    {**record, "sessionId": B} if "sessionId" in record else record
                    for record in touching(f"{ROOT}/a.py")
                ],
            },
            ROOT,
        ),
        (
            {chat(HASH): PLAIN, chat("other", B): context(ROOT, session=B)},
            ROOT,
        ),
    ],
)
def test_cwd_is_stated_by_a_file_or_verified_by_the_hash(
    store: Store, files: dict[str, Any], expected: str | None
) -> None:
    assert home(store, files)[A]["cwd"] == expected


# files of a session


def test_document_lines_and_stub_of_one_id_are_one_session(store: Store) -> None:
    stub = [head(second=600), user(90, "<session_context>x", 600)]
    found = home(store, {chat(suffix="json"): document(*TALK[:2]), chat(): PLAIN, chat(minute="10-30"): stub})
    assert list(found) == [A]
    assert only(found[A], ("user", "assistant", "started", "last")) == (2, 2, at(0), at(600))
    assert found[A]["usage"]["input"] == 16


def test_a_session_in_the_hash_folder_and_in_the_slugs_is_one(store: Store) -> None:
    found = home(store, {chat(): PLAIN, chat(HASH): [head(), *TALK[:2], user(9, "left")]})
    assert list(found) == [A]
    assert (found[A]["user"], found[A]["usage"]["input"]) == (3, 16)


def test_metadata_is_merged_whatever_the_order(store: Store) -> None:
    later = [{"$set": {"summary": "T1"}}, {"$set": {"lastUpdated": at(99), "summary": "T2"}}, head(), head(second=30)]
    found = session(store, head(second=5), *TALK, *later)
    assert only(found, ("title", "started", "last", "user")) == ("T2", at(0), at(99), 2)


def test_a_file_without_a_project_hash_is_no_session(store: Store) -> None:
    found = home(store, {chat(): [{"sessionId": A, "startTime": at(0)}, *TALK], chat(session=B): [*TALK, head(B)]})
    assert [name for name, one in found.items() if one["user"]] == [B]


def test_sub_agents_have_their_folder_for_a_parent(store: Store) -> None:
    def task(name: str, *more: Json) -> list[Json]:
        return [head(name, kind="subagent", directories=["/w"]), user(1, "task"), *more]

    found = home(
        store,
        {
            chat(): PLAIN,
            inner(A, "ag1"): task("ag1", answer(2, "r")),
            inner(A, "ag2"): task("ag2"),
            inner(C, "ag3"): task("ag3", answer(2, "r")),
            chat(minute="09-07"): task(A, answer(2, "r")),
            chat(minute="09-08"): task(A, answer(2, "r")),
        },
    )
    beside = ["session-2026-06-01T09-07-aaaaaaaa", "session-2026-06-01T09-08-aaaaaaaa"]
    parents = {name: one["parent"] for name, one in found.items()}
    assert parents == {A: None, "ag1": A, "ag2": A, "ag3": C, beside[0]: A, beside[1]: A}
    assert only(found["ag2"], ("user", "assistant", "usage", "cwd")) == (1, 0, None, "/w")
    assert only(found[A], ("user", "kinds")) == (2, ["orchestrator"])


def row(session: str, number: int, said: str) -> Json:
    return {"sessionId": session, "messageId": number, "type": "user", "message": said, "timestamp": at(number)}


def log(*rows: Json) -> bytes:
    return json.dumps(list(rows)).encode()


def test_the_prompt_log_counts_for_sessions_without_a_chat(store: Store) -> None:
    rows = [row(A, 1, "/help"), row(A, 2, "one"), row(A, 4, "two"), row(A, 5, "two"), row(A, 4, "two")]
    rows += [row(B, 3, "/quit"), row(C, 1, "one"), row(C, 9, "lost")]
    found = home(
        store,
        {
            ".gemini/tmp/shop/.project_root": ROOT.encode(),
            ".gemini/tmp/shop/logs.json": log(*rows),
            ".gemini/tmp/shop/logs.json.bad.1.bak": log(row(B, 3, "one")),
            chat(): b"",
            chat(HASH, C): [head(C), user(1, "one"), answer(2, "a")],
        },
    )
    assert sorted(found) == [A, C]
    assert only(found[A], ("user", "first_prompt", "assistant", "usage", "compactions")) == (3, "one", 0, None, None)
    assert only(found[A], ("cwd", "started", "last")) == (ROOT, at(1), at(5))
    assert only(found[C], ("user", "assistant", "compactions")) == (1, 1, 0)


def test_other_files_are_no_sessions(store: Store) -> None:
    other = [head(B), user(1, "x"), answer(2, "y")]
    found = home(
        store,
        {
            chat(): PLAIN,
            ".gemini/tmp/shop/checkpoint-a.json": log({"role": "user", "parts": []}),
            f".gemini/tmp/shop/logs/session-{B}.jsonl": other,
            ".gemini/tmp/shop/tool-outputs/session-x/y.json": b"{}",
            f"{chat(session=B)}.unreadable-123": other,
            f"{chat(session=B)}.tmp-99": other,
            f".gemini/tmp/shop/{B}/plans/x.json": b"{}",
            ".gemini/tmp/bin/rg": b"x",
        },
    )
    assert list(found) == [A]


def test_the_oldest_generation_is_one_document_in_any_encoding(store: Store) -> None:
    messages = [
        {"id": "1", "type": "user", "content": "hi \ud83d", "timestamp": at(1)},
        {"id": "2", "type": "model", "parts": [{"text": "yo\x00"}], "timestamp": at(2), "model": "m"},
        {"id": "3", "type": "info", "content": "i", "timestamp": at(3)},
    ]
    body = b"\xef\xbb\xbf" + json.dumps({**head(summary="S"), "messages": messages}, indent=2).encode()
    found = home(store, {chat(suffix="json"): body.replace(b"\n", b"\r\n")})[A]
    assert only(found, ("user", "assistant", "title", "models", "usage", "last")) == (1, 1, "S", ["m"], None, at(3))


def test_what_was_imported_stays_when_a_document_is_rewritten_or_goes(store: Store) -> None:
    path = put(store, chat(suffix="json"), document(*TALK[:2]))
    assert told(store)[A]["user"] == 1
    for messages in (TALK, TALK[2:]):
        path.write_bytes(document(*messages))
        assert told(store)[A]["user"] == 2
    path.unlink()
    assert told(store)[A]["user"] == 2


def test_damage_costs_only_what_is_damaged(store: Store) -> None:
    body = lines(head(), *TALK[:2]).replace(b"\n", b"\r\n") + b'junk\n\0\0\n[1]\n{"id":"u9","type":"us\n'
    more = json.dumps(user(5, "raw \u2028 inside"), ensure_ascii=False).encode() + b"\n"
    found = home(store, {chat(): b"\xef\xbb\xbf" + body + more + lines(answer(6, "a")) + b'{"id":"u7","ty'})[A]
    assert only(found, ("user", "assistant")) == (2, 2)
