"""The rules of the Pi format, each held end to end: small homes, and what prosa says of their sessions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from store import Store
from told import Json, lines, only, put, told

A, B, C = (f"019e0000-0000-7000-8000-00000000000{letter}" for letter in "abc")
FOLDER = ".pi/agent/sessions/--home-dev-app--/"
APP = "/home/dev/app"
USE: Json = {"input": 10, "output": 5, "cacheRead": 2, "cacheWrite": 3, "totalTokens": 20, "cost": {"total": 0}}
NONE = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "totalTokens"), 0)


def at(second: int) -> str:
    return f"2026-04-01T08:{second // 60:02d}:{second % 60:02d}.000Z"


def file(session: str, second: int = 0) -> str:
    return f"{at(second).replace(':', '-').replace('.', '-')}_{session}.jsonl"


def header(session: str = A, second: int = 0, **fields: Any) -> Json:
    return {"type": "session", "version": 3, "id": session, "timestamp": at(second), "cwd": APP, **fields}


def forked(session: str, second: int, parent: str, born: int = 0) -> Json:
    return header(session, second, parentSession=f"/home/dev/.pi/agent/sessions/--home-dev-app--/{file(parent, born)}")


def entry(number: int, kind: str, second: int | None = None, **fields: Any) -> Json:
    above = None if number == 1 else f"{number - 1:08x}"
    stamp = at(number if second is None else second)
    return {"type": kind, "id": f"{number:08x}", "parentId": above, "timestamp": stamp, **fields}


def message(number: int, role: str, content: Any, second: int | None = None, **fields: Any) -> Json:
    stamp = 1775030400000 + (number if second is None else second) * 1000
    said = {"role": role, "content": content, "timestamp": stamp, **fields}
    return entry(number, "message", second, message=said)


def user(number: int, content: Any, second: int | None = None) -> Json:
    return message(number, "user", content, second)


def text(said: str) -> Json:
    return {"type": "text", "text": said}


def answer(number: int, *blocks: Json, second: int | None = None, **fields: Any) -> Json:
    about = {"model": "m1", "provider": "p", "usage": USE, "stopReason": "stop"} | fields
    content = [] if about["stopReason"] == "error" else list(blocks) or [text("a")]
    return message(number, "assistant", content, second, **about)


def compaction(number: int, second: int | None = None, **fields: Any) -> Json:
    return entry(number, "compaction", second, summary="S", firstKeptEntryId="00000001", tokensBefore=9) | fields


def home(store: Store, files: dict[str, list[Any]]) -> dict[str, Json]:
    for name, records in files.items():
        put(store, name if name.startswith(".") else FOLDER + name, *records)
    return told(store)


def session(store: Store, *records: Json) -> Json:
    return home(store, {file(A): [header(), *records]})[A]


TALK = [user(1, "one"), answer(2), user(3, "two"), answer(4)]

# forks

PARENT = [header(), *TALK[:2], compaction(9, 3), *TALK[2:]]
FORK = [forked(B, 20, A), *PARENT[1:], user(11, "own b", 21), answer(12, second=22, model="m2")]
FORK_OF_FORK = [forked(C, 40, B, 20), *FORK[1:], user(21, "own c", 41), answer(22, second=42, model="m3")]
FILES = {A: (file(A), PARENT), B: (file(B, 20), FORK), C: (file(C, 40), FORK_OF_FORK)}
FIELDS = ("forked_from", "user", "assistant", "compactions", "started", "last", "models", "first_prompt")
OWN = {
    A: (None, 2, 2, 1, at(0), at(4), ["m1"], "one"),
    B: (A, 1, 1, 0, at(20), at(22), ["m2"], "own b"),
    C: (B, 1, 1, 0, at(40), at(42), ["m3"], "own c"),
}


@pytest.mark.parametrize("here", [(A, B), (B,), (A, B, C), (B, C), (A, C), (C,)])
def test_what_a_fork_inherits_counts_for_none_of_it(store: Store, here: tuple[str, ...]) -> None:
    found = home(store, dict(FILES[name] for name in here))
    assert {name: only(found[name], FIELDS) for name in here} == {name: OWN[name] for name in here}
    assert [found[name]["usage"]["input"] for name in here] == [20 if name == A else 10 for name in here]


def test_two_forks_of_a_parent_that_goes_on_count_each_their_own(store: Store) -> None:
    more = [user(31, "three", 30), answer(32, second=31)]
    other = [forked(C, 21, A), *PARENT[1:], user(13, "own c", 25), answer(14, second=26, model="m3")]
    found = home(store, {file(A): [*PARENT, *more], file(B, 20): FORK, file(C, 21): other})
    assert [only(found[name], ("user", "assistant", "compactions")) for name in (A, B, C)] == [
        (3, 3, 1),
        (1, 1, 0),
        (1, 1, 0),
    ]


def test_a_clone_without_a_word_of_its_own_has_nothing(store: Store) -> None:
    found = home(store, {file(A): PARENT, file(B, 20): [forked(B, 20, A), *PARENT[1:]]})
    assert only(found[B], ("forked_from", "user", "assistant", "usage")) == (A, 0, 0, None)


def test_an_entry_that_the_parent_has_is_inherited_whatever_its_time(store: Store) -> None:
    late = [*TALK[:2], {**TALK[2], "timestamp": at(25)}, {**TALK[3], "timestamp": at(26)}]
    own = [user(11, "own", 30), answer(12, second=31, model="m2")]
    found = home(store, {file(A): [header(), *late], file(B, 20): [forked(B, 20, A), *late, *own]})
    assert only(found[B], ("user", "assistant", "models")) == (1, 1, ["m2"])


@pytest.mark.parametrize(
    ("name", "session_id", "path"),
    [
        (file("my_id_x"), "my_id_x", f"/home/dev/.pi/agent/sessions/--home-dev-app--/{file('my_id_x')}"),
        (file(A), A, f"C:\\Users\\d\\.pi\\agent\\sessions\\--C--x--\\{file(A)}"),
    ],
)
def test_the_parent_is_the_id_in_the_header_of_the_file_named(
    store: Store, name: str, session_id: str, path: str
) -> None:
    fork = [header(B, 20, parentSession=path), *FORK[1:]]
    found = home(store, {name: [header(session_id), *PARENT[1:]], file(B, 20): fork})
    assert only(found[B], ("forked_from", "user")) == (session_id, 1)


def test_version_1_has_no_ids_and_a_fork_of_it_is_told_by_the_lines(store: Store) -> None:
    def old(record: Json) -> Json:
        return {name: value for name, value in record.items() if name not in ("id", "parentId")}

    first = {**header(), "version": 1, "provider": "p", "modelId": "m"}
    squeezed = {"type": "compaction", "timestamp": at(5), "summary": "s", "firstKeptEntryIndex": 1, "tokensBefore": 5}
    talk = [*map(old, TALK), squeezed]
    fork = {**header(B, 20), "branchedFrom": f"/x/{file(A)}"}
    del fork["version"]
    own = [old(user(11, "own", 21)), old(answer(12, second=22))]
    found = home(store, {file(A): [first, *talk], file(B, 20): [fork, *talk, *own]})
    assert only(found[A], ("user", "assistant", "compactions", "models")) == (2, 2, 1, ["m1"])
    assert only(found[B], ("forked_from", "user", "assistant", "compactions")) == (A, 1, 1, 0)


# turns


def test_of_the_roles_only_user_is_a_prompt(store: Store) -> None:
    found = session(
        store,
        user(1, "one"),
        user(2, "  "),
        user(3, [{"type": "image", "data": "A", "mimeType": "image/png"}]),
        user(4, [text("")]),
        message(5, "bashExecution", None, command="ls", output="x", exitCode=1),
        message(6, "custom", "x", customType="a"),
        message(7, "hookMessage", "x"),
        message(8, "branchSummary", None, summary="s"),
        message(9, "compactionSummary", None, summary="s"),
        message(10, "system", "x"),
        entry(11, "custom_message", customType="a", content="x"),
        answer(12),
    )
    assert only(found, ("user", "first_prompt", "assistant", "tools", "compactions")) == (2, "one", 1, {}, 0)


def test_an_answer_is_its_text_its_readable_thoughts_and_its_calls(store: Store) -> None:
    blocks: list[Json] = [
        {"type": "thinking", "thinking": "t"},
        {"type": "thinking", "thinking": "", "redacted": True},
        {"type": "thinking", "thinking": " "},
        text("a"),
        text("b"),
        {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {}},
    ]
    result = message(4, "toolResult", [text("x")], toolCallId="c1", toolName="bash", isError=True, usage=USE)
    found = session(store, user(1, "x"), answer(2, text(" ")), answer(3, *blocks), result)
    assert only(found, ("assistant", "thinking", "tools", "result", "errors")) == (1, 1, {"bash": 1}, 1, 1)
    assert found["usage"] == {"input": 20, "output": 10, "cache_read": 4, "cache_creation": 6, "reasoning": None}


def test_every_branch_counts(store: Store) -> None:
    branch = [{**user(5, "three"), "parentId": "00000002"}, answer(6), {**user(7, "root"), "parentId": None}, answer(8)]
    assert only(session(store, *TALK, *branch), ("user", "assistant")) == (4, 4)


def test_a_failed_answer_is_none_and_its_model_was_used(store: Store) -> None:
    failed = answer(2, stopReason="error", errorMessage="e", model="m1", usage=NONE)
    found = session(store, user(1, "x"), failed, answer(3, model="m2"))
    assert only(found, ("user", "assistant", "models")) == (1, 1, ["m1", "m2"])


def test_a_compaction_before_a_forks_first_answer_names_no_model(store: Store) -> None:
    own = [compaction(10, 21, usage=USE), *FORK[-2:]]
    found = home(store, {file(A): PARENT, file(B, 20): [forked(B, 20, A), *PARENT[1:], *own]})
    assert found[B]["models"] == ["m2"]


def test_what_was_spent_beside_the_conversation_names_no_model(store: Store) -> None:
    beside = {**entry(3, "usage", model="m9", usage=USE), "kind": "cache_warm"}
    found = session(store, user(1, "x"), answer(2), beside, answer(4, model="m2"))
    assert found["models"] == ["m1", "m2"]
    assert found["usage"]["input"] == 30


def test_reasoning_is_unknown_until_it_is_recorded(store: Store) -> None:
    found = session(store, user(1, "x"), answer(2), answer(3, usage=USE | {"reasoning": 4}), answer(4, usage=None))
    assert found["usage"] == {"input": 20, "output": 10, "cache_read": 4, "cache_creation": 6, "reasoning": 4}


# what stands between messages


@pytest.mark.parametrize(
    ("names", "title"),
    [(["a", "b"], "b"), (["a", ""], None), (["a", "  "], None), (["a", "", "c"], "c"), ([], None)],
)
def test_the_last_name_is_the_title_and_a_blank_one_clears_it(
    store: Store, names: list[str], title: str | None
) -> None:
    said = [entry(20 + number, "session_info", name=name) for number, name in enumerate(names)]
    assert session(store, *TALK, *said)["title"] == title


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([compaction(5), compaction(6), compaction(7, summary="")], 3),
        ([compaction(5), {**compaction(6), "parentId": "00000004"}], 2),
        ([compaction(5), compaction(5)], 1),
        ([compaction(5), compaction(5, summary="T")], 2),
        ([compaction(5, firstKeptEntryId="00000005")], 1),
        ([entry(5, "branch_summary", fromId="x", summary="s"), message(6, "compactionSummary", None, summary="s")], 0),
    ],
)
def test_each_compaction_entry_is_one(store: Store, records: list[Json], expected: int) -> None:
    assert session(store, *TALK, *records)["compactions"] == expected


def test_only_messages_are_activity(store: Store) -> None:
    later = [entry(5, "session_info", 500, name="n"), entry(6, "label", 600, targetId="x"), compaction(7, 700)]
    found = session(store, *TALK, *later)
    assert only(found, ("started", "last")) == (at(0), at(4))


@pytest.mark.parametrize("stamp", [None, "1970-01-01T00:00:00Z", "no time"])
def test_a_message_has_a_time_of_its_own_where_the_entry_has_none(store: Store, stamp: str | None) -> None:
    found = session(store, user(1, "x"), {**answer(2), "timestamp": stamp})
    assert found["last"] == at(2)


def test_the_later_of_entry_and_message_time_is_the_last_activity(store: Store) -> None:
    late = answer(2)
    late["message"]["timestamp"] += 7000
    assert session(store, user(1, "x"), late)["last"] == at(9)


# files


def test_the_first_header_counts_wherever_it_stands(store: Store) -> None:
    head = [b"\n", {"type": "title", "title": "x"}, header(), header(A, 3, cwd="/other")]
    found = home(store, {file(A): [*head, *TALK, header(B, 9), user(9, "z"), answer(10)]})
    assert list(found) == [A]
    assert only(found[A], ("cwd", "user", "started")) == (APP, 3, at(0))


def test_files_without_a_header_are_no_sessions(store: Store) -> None:
    other: dict[str, list[Any]] = {
        "x.background-late.jsonl": [{"type": "custom"}],
        ".pi/agent/auth.jsonl": [{"a": 1}],
        file(B): TALK,
    }
    assert list(home(store, {file(A): [header(), *TALK], **other})) == [A]


@pytest.mark.parametrize(("root", "sorted_in"), [(4, 2), (2, 4), (4, 4)])
def test_a_session_in_two_places_is_one(store: Store, root: int, sorted_in: int) -> None:
    files = {f".pi/agent/{file(A)}": [header(), *TALK[:root]], file(A): [header(), *TALK[:sorted_in]]}
    found = home(store, files)
    assert {name: one["user"] for name, one in found.items()} == {A: 2}


def test_a_migration_gives_new_ids_and_adds_nothing(store: Store) -> None:
    old = [{name: value for name, value in record.items() if name not in ("id", "parentId")} for record in TALK]
    path = put(store, FOLDER + file(A), {**header(), "version": 1}, *old)
    assert told(store)[A]["user"] == 2
    path.write_bytes(lines(header(), *TALK, user(8, "new"), answer(9)))
    assert only(told(store)[A], ("user", "assistant")) == (3, 3)


def test_files_in_a_folder_named_like_a_session_are_its_sub_agents(store: Store) -> None:
    below = f"{file(A).removesuffix('.jsonl')}/{file(B, 3)}"
    found = home(store, {file(A): [header(), *TALK], below: [header(B, 3), user(1, "t", 4), answer(2, second=5)]})
    assert (found[B]["parent"], found[A]["kinds"]) == (A, ["orchestrator"])


def test_damage_costs_only_what_is_damaged(store: Store) -> None:
    raw = json.dumps(user(5, "a\u2028b\u0085c"), ensure_ascii=False).encode() + b"\n"
    body = [
        lines(header()).replace(b"\n", b"\r\n"),
        TALK[0],
        b"junk\n\0\0\n",
        TALK[1],
        b'{"type":"message","id":"a\n',
        raw,
    ]
    found = home(store, {file(A): [b"\xef\xbb\xbf", *body, b'{"type":"mess']})[A]
    assert only(found, ("user", "assistant")) == (2, 1)
