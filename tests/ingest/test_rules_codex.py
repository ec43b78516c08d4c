"""The rules of the Codex format, each held end to end: small homes, and what prosa says of their sessions."""

from __future__ import annotations

import json
from typing import Any

import pytest
import zstandard
from store import Store
from told import Json, lines, only, put, told

A, B, C = (f"019d0000-0000-7000-8000-00000000000{letter}" for letter in "abc")
CWD = "/home/dev/svc"


def at(second: float) -> str:
    return f"2026-03-02T10:{int(second) // 60:02d}:{int(second) % 60:02d}.{round(second * 1000) % 1000:03d}Z"


def line(second: float, kind: str, payload: Json) -> Json:
    return {"timestamp": at(second), "type": kind, "payload": payload}


def meta(session: str, second: float = 1, **fields: Any) -> Json:
    about = {
        "id": session,
        "timestamp": at(second - 1),
        "cwd": CWD,
        "originator": "codex_cli_rs",
        "cli_version": "0.107.0",
        "source": "cli",
        "git": {"branch": "feat/x"},
    }
    return line(second, "session_meta", about | fields)


def event(second: float, kind: str, **fields: Any) -> Json:
    return line(second, "event_msg", {"type": kind, **fields})


def item(second: float, kind: str, **fields: Any) -> Json:
    return line(second, "response_item", {"type": kind, **fields})


def completed(second: float, turn: str, kind: str, **fields: Any) -> Json:
    return event(second, "item_completed", turn_id=turn, item={"type": kind, "id": "i", **fields})


def begin(second: float, turn: str, model: str = "m1") -> list[Json]:
    context = line(second, "turn_context", {"turn_id": turn, "cwd": CWD, "model": model})
    return [event(second, "task_started", turn_id=turn), context]


def asked(second: float, text: str) -> Json:
    return item(second, "message", role="user", content=[{"type": "input_text", "text": text}])


def heard(second: float, text: str) -> Json:
    return event(second, "user_message", message=text, images=[])


def prompt(second: float, text: str) -> list[Json]:
    return [asked(second, text), heard(second, text)]


def answered(second: float, text: str) -> Json:
    return item(second, "message", role="assistant", content=[{"type": "output_text", "text": text}])


def answer(second: float, text: str) -> list[Json]:
    return [event(second, "agent_message", message=text), answered(second, text)]


def spent(fresh: int, cached: int, output: int, reasoning: int = 0) -> Json:
    return {
        "input_tokens": fresh,
        "cached_input_tokens": cached,
        "output_tokens": output,
        "reasoning_output_tokens": reasoning,
        "total_tokens": fresh + output,
    }


def counted(second: float, total: Json, last: Json | None = None) -> Json:
    return event(second, "token_count", info={"total_token_usage": total, "last_token_usage": last or total})


def turn(second: float, name: str, text: str, *between: Json, model: str = "m1") -> list[Json]:
    head = [*begin(second, name, model), *prompt(second + 1, text), *between]
    return [*head, *answer(second + 4, f"answer to {text}"), event(second + 6, "task_complete", turn_id=name)]


def path(session: str, live: bool = True, suffix: str = "jsonl") -> str:
    folder = "sessions/2026/03/02" if live else "archived_sessions"
    return f".codex/{folder}/rollout-2026-03-02T10-00-00-{session}.{suffix}"


def home(store: Store, files: dict[str, list[Json]]) -> dict[str, Json]:
    for name, records in files.items():
        put(store, path(name), *records)
    return told(store)


def session(store: Store, *records: Json) -> Json:
    put(store, path(A), *records)
    return told(store)[A]


def replayed(records: list[Json], second: float) -> list[Json]:
    return [{**record, "timestamp": at(second + number / 1000)} for number, record in enumerate(records)]


# forks


class Family:
    """A session, its fork and the fork's fork, with turn ids of one kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.a, self.b, self.c = (A, B, C) if kind != "v7" else (self.id(0, 1), self.id(60, 2), self.id(120, 3))
        first = turn(2, self.id(2, 1), "one", counted(4, spent(100, 10, 5)))
        self.parent = [meta(self.a), *first, *turn(12, self.id(12, 2), "two", counted(14, spent(250, 20, 12)))]
        own = turn(70, self.id(70, 51), "own b", counted(73, spent(400, 30, 20)), model="m2")
        self.fork = [meta(self.b, 60, forked_from_id=self.a), *replayed(self.parent, 60.1), *own]
        self.last = turn(130, self.id(130, 61), "own c", counted(133, spent(600, 40, 30)), model="m3")

    def id(self, second: int, number: int) -> str:
        if self.kind == "plain":
            return f"019d0000-t{number:03d}"
        if self.kind == "v4":
            return f"{number:08d}-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
        born = f"{1772445600000 + second * 1000:012x}"
        return f"{born[:8]}-{born[8:]}-7000-8000-{number:012d}"

    def fork_of_fork(self, **fields: Any) -> list[Json]:
        head = meta(self.c, 120, forked_from_id=self.b, **fields)
        return [head, *replayed(self.fork, 120.1), *self.last]

    def files(self, names: str) -> dict[str, list[Json]]:
        every = {"a": (self.a, self.parent), "b": (self.b, self.fork), "c": (self.c, self.fork_of_fork())}
        return dict(every[name] for name in names)

    def expected(self, name: str) -> tuple[Any, ...]:
        return {
            "a": (None, 2, 2, ["m1"], at(0), "one"),
            "b": (self.a, 1, 1, ["m2"], at(59), "own b"),
            "c": (self.b, 1, 1, ["m3"], at(119), "own c"),
        }[name]


INPUT = {"a": 230, "b": 140, "c": 190}
FORK_FIELDS = ("forked_from", "user", "assistant", "models", "started", "first_prompt")


@pytest.mark.parametrize(
    ("kind", "here"),
    [(kind, here) for kind in ("plain", "v4", "v7") for here in ("ab", "b", "abc", "bc", "ac", "c")],
)
def test_what_a_fork_replays_of_its_ancestors_counts_for_none_of_it(store: Store, kind: str, here: str) -> None:
    family = Family(kind)
    found = home(store, family.files(here))
    by_letter = {"a": family.a, "b": family.b, "c": family.c}
    assert [only(found[by_letter[name]], FORK_FIELDS) for name in here] == [family.expected(name) for name in here]
    assert [found[by_letter[name]]["usage"]["input"] for name in here] == [INPUT[name] for name in here]


@pytest.mark.parametrize("kind", ["plain", "v4", "v7"])
def test_a_sub_agent_forked_from_a_fork_has_both_edges(store: Store, kind: str) -> None:
    family = Family(kind)
    source = {"subagent": {"thread_spawn": {"parent_thread_id": family.b, "depth": 1}}}
    files = family.files("ab") | {family.c: family.fork_of_fork(source=source, session_id=family.a)}
    found = home(store, files)[family.c]
    assert (found["parent"], *only(found, FORK_FIELDS)) == (family.b, *family.expected("c"))


@pytest.mark.parametrize("kind", ["plain", "v4"])
def test_two_forks_and_the_parent_go_on_with_equal_counters_and_each_counts(store: Store, kind: str) -> None:
    family = Family(kind)
    total = counted(83, spent(400, 30, 20))
    other = [meta(C, 62, forked_from_id=A), *replayed(family.parent, 62.1)]
    other += turn(70, family.id(70, 52), "own b", counted(73, spent(400, 30, 20)), model="m2")
    more = turn(80, family.id(80, 3), "three", total)
    found = home(store, {A: [*family.parent, *more], B: family.fork, C: other})
    assert [only(found[name], ("user", "models")) for name in (A, B, C)] == [(3, ["m1"]), (1, ["m2"]), (1, ["m2"])]
    assert [found[name]["usage"]["input"] for name in (A, B, C)] == [370, 140, 140]


@pytest.mark.parametrize("kind", ["plain", "v4", "v7"])
def test_an_own_turn_that_begins_within_the_burst_is_own_while_the_parent_is_here(store: Store, kind: str) -> None:
    family = Family(kind)
    own = [
        {**record, "timestamp": at(60.4 + number / 100)}
        for number, record in enumerate(family.fork[-len(family.last) :])
    ]
    found = home(store, {family.a: family.parent, family.b: [*family.fork[: -len(own)], *own]})
    assert only(found[family.b], ("user", "assistant")) == (1, 1)


def test_a_fork_that_grows_and_a_parent_that_comes_later_give_the_same(store: Store) -> None:
    family = Family("plain")
    for size in (3, 9, 14, len(family.fork)):
        found = home(store, {B: family.fork[:size]})
    assert only(found[B], FORK_FIELDS) == family.expected("b")
    found = home(store, {A: family.parent})
    assert [only(found[name], FORK_FIELDS) for name in (A, B)] == [family.expected("a"), family.expected("b")]


def test_a_paginated_fork_holds_its_own_part_only_and_its_counter_goes_on(store: Store) -> None:
    def file(name: str, second: int, number: int, total: int, last: int, **fields: Any) -> list[Json]:
        tid = f"019d0000-t{number:03d}"
        said = completed(second + 3, tid, "UserMessage", content=[{"type": "text", "text": "same"}])
        head = [meta(name, second, history_mode="paginated", **fields), *begin(second + 2, tid, f"m{number}")]
        return [*head, said, answered(second + 4, "same"), counted(second + 5, spent(total, 0, 9), spent(last, 0, 9))]

    files = {
        A: file(A, 1, 1, 100, 100),
        B: file(B, 20, 2, 300, 200, forked_from_id=A, history_base={"thread_id": A}),
        C: file(C, 40, 3, 700, 400, history_base={"thread_id": B}),
    }
    found = home(store, files)
    assert [found[name]["forked_from"] for name in (A, B, C)] == [None, A, B]
    assert [found[name]["usage"]["input"] for name in (A, B, C)] == [100, 200, 400]
    assert [only(found[name], ("user", "models")) for name in (A, B, C)] == [(1, ["m1"]), (1, ["m2"]), (1, ["m3"])]


# identity and edges


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"source": {"subagent": {"thread_spawn": {"parent_thread_id": B}}}, "session_id": C}, (B, None)),
        ({"source": {"subagent": {"thread_spawn": {"parent_thread_id": B}}}, "parent_thread_id": C}, (B, None)),
        ({"source": {"subagent": "review"}, "parent_thread_id": B}, (B, None)),
        ({"source": {"subagent": "compact"}}, (None, None)),
        ({"source": {"subagent": {"other": "guardian"}}}, (None, None)),
        ({"source": [1]}, (None, None)),
        ({"git": "no object"}, (None, None)),
        ({"source": {"subagent": {"thread_spawn": {"parent_thread_id": B}}}, "forked_from_id": C}, (B, C)),
    ],
)
def test_edges_are_those_of_the_first_session_meta(store: Store, fields: Json, expected: tuple[Any, ...]) -> None:
    found = session(store, meta(A, **fields), *turn(10, "t", "x"))
    assert only(found, ("parent", "forked_from")) == expected
    assert found["user"] == 1


def test_the_id_is_the_first_metas_and_the_names_where_that_is_lost(store: Store) -> None:
    put(store, path(B), meta(A), *turn(2, "t", "x"))
    put(store, path(C), b'{"timestamp":"2026-03-02T10:00:01.250Z","type":"session_me\n', *turn(2, "t", "x"))
    found = told(store)
    assert sorted(found) == [A, C]
    assert only(found[C], ("cwd", "started", "user")) == (CWD, at(2), 1)


def test_a_meta_that_comes_again_changes_nothing(store: Store) -> None:
    again = meta(A, 20, timestamp="2026-03-01T00:00:00Z", cwd="/other")
    found = session(store, meta(A), *turn(2, "t1", "x"), again, *turn(22, "t2", "y"))
    assert only(found, ("cwd", "user", "started")) == (CWD, 2, at(0))


# prompts

ENVIRONMENT = f"<environment_context>\n  <cwd>{CWD}</cwd>\n</environment_context>"
IDE = "# Context from my IDE setup:\n\n## Open tabs:\n- a.py\n\n## My request for Codex:\ndo it\n"
INJECTED = [
    "# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>\n</INSTRUCTIONS>",
    "<user_instructions>\nx</user_instructions>",
    ENVIRONMENT,
    "<recommended_plugins>x</recommended_plugins>",
    "<turn_aborted>\nx</turn_aborted>",
    "<user_shell_command>\nls</user_shell_command>",
    "<skill>\n<name>a</name></skill>",
    "<subagent_notification>{}</subagent_notification>",
    "<model_switch>x</model_switch>",
    '<hook_prompt id="1">x</hook_prompt>',
    "You are Codex, a coding agent",
]


@pytest.mark.parametrize("source", [asked, heard])
def test_what_the_client_put_there_is_no_prompt(store: Store, source: Any) -> None:
    found = session(store, meta(A), *begin(2, "t"), *(source(3, text) for text in INJECTED), source(4, "do it"))
    assert only(found, ("user", "first_prompt")) == (1, "do it")


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([asked(4, IDE)], (1, "do it")),
        ([heard(4, IDE)], (1, "do it")),
        (
            [item(4, "message", role="developer", content=[{"type": "input_text", "text": "x"}]), asked(5, "do it")],
            (1, "do it"),
        ),
        ([asked(4, "leaked"), *prompt(5, "do it")], (1, "do it")),
        (
            [completed(4, "t", "UserMessage", content=[{"type": "text", "text": "do it"}]), asked(4, "do it")],
            (1, "do it"),
        ),
        (
            [completed(4, "t", "UserMessage", content=[{"type": "text", "text": "do it"}]), *prompt(4, "do it")],
            (1, "do it"),
        ),
        ([completed(4, "t", "UserMessage", content=[{"type": "image", "image_url": "x"}])], (1, "[image]")),
        ([event(4, "user_message", message="", images=["data:image/png;base64,AA"])], (1, "[image]")),
        ([event(4, "user_message", message="", images=None, local_images=["/tmp/a.png"])], (1, "[image]")),
        (
            [
                item(
                    4,
                    "message",
                    role="user",
                    content=[{"type": "input_image", "image_url": "x"}, {"type": "input_text", "text": "do it"}],
                )
            ],
            (1, "do it"),
        ),
        ([asked(4, "<goal_context>\n<objective>\nmake it\n</objective>\n</goal_context>")], (0, "make it")),
        ([*prompt(4, "do it"), event(5, "turn_aborted", reason="interrupted"), asked(5, "do it")], (1, "do it")),
        ([heard(4, "Open tabs:\n- a\n\n## My request for Codex:\ndo it")], (1, "do it")),
        ([asked(4, f"{ENVIRONMENT}\n\ndo it")], (1, "do it")),
        ([asked(4, f"{ENVIRONMENT}\n\ndo it"), heard(4, "do it")], (1, "do it")),
        ([heard(4, f"{ENVIRONMENT}\n<turn_aborted>\nx</turn_aborted>\ndo it")], (1, "do it")),
        ([asked(4, f"{ENVIRONMENT}\n"), asked(5, "do it")], (1, "do it")),
    ],
)
def test_a_prompt_counts_once_and_unwrapped(store: Store, records: list[Json], expected: tuple[int, str]) -> None:
    found = session(store, meta(A), *begin(2, "t"), *records, *answer(8, "x"))
    assert only(found, ("user", "first_prompt")) == expected


# calls and errors


def called(second: float, call: str = "c1") -> Json:
    return item(second, "function_call", name="shell", call_id=call, arguments='{"command":["ls"]}')


def output(second: float, said: Any, call: str = "c1") -> Json:
    return item(second, "function_call_output", call_id=call, output=said)


PACKED = {"output": "x", "metadata": {"exit_code": 1}}


@pytest.mark.parametrize(
    ("said", "errors"),
    [
        ("Exit code: 1\nWall time: 0 seconds\nOutput:\nx", 1),
        ("\nExit code: 1\nWall time: 0 seconds\nOutput:\nx", 1),
        ("Exit code: 0\nWall time: 0 seconds\nOutput:\nExit code: 1\nProcess exited with code 2", 0),
        ("Exit code: 0\r\nWall time: 0\r\nOutput:\r\nx", 0),
        ("Chunk ID: a\nWall time: 0.1 seconds\nProcess exited with code 2\nOutput:\nx", 1),
        ("Process exited with code -1\nOutput:\n", 1),
        ("Chunk ID: a\nWall time: 9 seconds\nProcess running with session ID 5\nOutput:\nExit code: 1", 0),
        ("Script failed\nWall time 0.1 seconds\nOutput:\n\nx", 1),
        ("Script completed\nWall time 0.1 seconds\nOutput:\n\nExit code: 1", 0),
        ([{"type": "input_text", "text": "Script failed\nWall time 1"}, {"type": "input_text", "text": "boom"}], 1),
        (json.dumps(PACKED), 1),
        (json.dumps({"metadata": {"exit_code": 1}, "output": "x"}), 1),
        (json.dumps({"output": "Exit code: 1", "metadata": {"exit_code": 0}}), 0),
        (json.dumps({"output": "x", "metadata": {"exit_code": None}}), 0),
        ({"content": "boom", "success": False}, 1),
        ({"content": "it says Exit code: 1", "success": True}, 0),
        ({"output": "x", "metadata": {"exit_code": 3}}, 1),
        ("The test says: Process exited with code 1", 0),
        ("aborted by user after 1.0s", 0),
        (None, 0),
        (json.dumps(PACKED, indent=2), 1),
        (" " + json.dumps(PACKED), 1),
        (json.dumps({"metadata": {"exit_code": 1}}), 1),
        ({"content": json.dumps(PACKED)}, 1),
        ({"content": json.dumps({"output": "Exit code: 1", "metadata": {"exit_code": 0}})}, 0),
        ({"content": "x", "metadata": {"exit_code": 1}}, 1),
        (json.dumps({"kind": "Pod", "metadata": {"name": "a"}, "success": False}), 0),
        (json.dumps({"content": "x", "success": False}), 1),
    ],
)
def test_a_result_says_whether_its_call_failed(store: Store, said: Any, errors: int) -> None:
    found = session(store, meta(A), *begin(2, "t"), *prompt(3, "x"), called(4), output(5, said), *answer(6, "y"))
    assert only(found, ("errors", "result", "tools")) == (errors, 1, {"shell": 1})


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    ("said", "errors"),
    [
        (event(5, "exec_command_end", call_id="c1", exit_code=1), 1),
        (event(5, "exec_command_end", call_id="c1", exit_code=0), 0),
        (event(5, "patch_apply_end", call_id="c1", success=False, stdout="", stderr="e"), 1),
        (event(5, "mcp_tool_call_end", call_id="c1", result={"Err": "timeout"}), 1),
        (event(5, "mcp_tool_call_end", call_id="c1", result={"Err": {"message": "timeout"}}), 1),
        (event(5, "mcp_tool_call_end", call_id="c1", result={"Ok": {"content": [], "isError": True}}), 1),
        (event(5, "mcp_tool_call_end", call_id="c1", result={"Ok": {"content": []}}), 0),
        (completed(5, "t", "CommandExecution") | {}, 0),
        (event(5, "item_completed", turn_id="t", item={"type": "McpToolCall", "id": "c1", "status": "failed"}), 1),
        (event(5, "item_completed", turn_id="t", item={"type": "FileChange", "id": "no", "status": "failed"}), 0),
    ],
)
def test_an_event_that_says_so_makes_a_call_fail_wherever_it_stands(
    store: Store, said: Json, errors: int, place: int
) -> None:
    records = [called(4), output(6, "ok")]
    records.insert(place, said)
    found = session(store, meta(A), *begin(2, "t"), *prompt(3, "x"), *records, *answer(8, "y"))
    assert only(found, ("errors", "result", "tools")) == (errors, 1, {"shell": 1})


def test_a_call_that_was_cut_off_has_no_result(store: Store) -> None:
    cut = event(6, "turn_aborted", turn_id="t", reason="interrupted")
    found = session(store, meta(A), *begin(2, "t"), *prompt(3, "x"), called(5), cut)
    assert only(found, ("tools", "result", "errors", "usage")) == ({"shell": 1}, 0, 0, None)


# usage


def recorded(second: float, fresh: int, response: str | None) -> Json:
    about = {"thread_id": A, "turn_id": "t", "response_id": response, "usage": spent(fresh, 0, 1)}
    return line(second, "token_usage_record", about)


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([event(5, "token_count", info=None, rate_limits={})], None),
        (
            [
                counted(5, spent(100, 40, 10, 3)),
                counted(6, spent(100, 40, 10, 3)),
                event(7, "token_count", info=None),
                counted(9, spent(250, 40, 30, 4)),
            ],
            (210, 40, 30, 4),
        ),
        ([counted(5, spent(100, 40, 10, 3)), counted(6, spent(50, 10, 4, 1))], (100, 50, 14, 4)),
        ([counted(5, spent(100, 40, 10, 3)), counted(6, spent(100, 40, 4, 1))], (120, 80, 14, 4)),
        (
            [
                event(
                    5,
                    "token_count",
                    info={
                        "total_token_usage": {"input_tokens": 100, "cache_read_input_tokens": 40, "output_tokens": 1}
                    },
                )
            ],
            (60, 40, 1, 0),
        ),
        (
            [
                recorded(5, 10, "r1"),
                counted(5, spent(10, 0, 1)),
                recorded(6, 20, "r2"),
                recorded(6, 20, "r2"),
                counted(7, spent(999, 0, 1)),
            ],
            (30, 0, 2, 0),
        ),
        ([recorded(5, 10, None), recorded(6, 10, None)], (20, 0, 2, 0)),
    ],
)
def test_usage_is_the_records_or_what_the_total_grew_by(
    store: Store, records: list[Json], expected: tuple[int, ...] | None
) -> None:
    found = session(store, meta(A), *begin(2, "t"), *prompt(3, "x"), *records, *answer(20, "y"))["usage"]
    assert (only(found, ("input", "cache_read", "output", "reasoning")) if found else None) == expected


# models


@pytest.mark.parametrize(
    "records",
    [
        [*turn(2, "t1", "x", model="m1"), *turn(12, "t2", "y", model="m2"), *turn(22, "t3", "z", model="m1")],
        [
            *begin(2, "t1", "m1"),
            *prompt(3, "x"),
            event(4, "turn_aborted", reason="i"),
            *turn(12, "t2", "y", model="m2"),
        ],
        [*turn(2, "t1", "x"), *begin(12, "t2", "m2"), *prompt(13, "y")],
        [
            event(2, "thread_settings_applied", thread_settings={"model": "m1"}),
            *prompt(3, "x"),
            *answer(4, "y"),
            *turn(12, "t2", "y", model="m2"),
        ],
    ],
)
def test_models_are_those_of_the_turns_in_their_order(store: Store, records: list[Json]) -> None:
    assert session(store, meta(A), *records)["models"] == ["m1", "m2"]


# compactions


def compacted(second: float, window: str | None = None, text: str = "") -> Json:
    return line(
        second, "compacted", {"message": text, "replacement_history": []} | ({"window_id": window} if window else {})
    )


def noted(second: float) -> Json:
    return event(second, "context_compacted")


LOCAL = "Another language model started to solve this problem and produced a summary:\nthe summary"


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([compacted(11, "w1"), noted(12)], 1),
        ([noted(11), compacted(12, "w1")], 1),
        ([compacted(11, "w1"), completed(12, "t2", "ContextCompaction")], 1),
        ([compacted(11, "w1"), noted(12), compacted(13, "w2"), noted(14)], 2),
        ([compacted(11, text="s1"), compacted(13, text="s2")], 2),
        ([noted(12), event(13, "task_started", turn_id="t3"), completed(14, "t3", "ContextCompaction")], 2),
        ([event(11, "turn_aborted", reason="interrupted")], 0),
        (
            [
                item(11, "compaction", encrypted_content="x"),
                item(12, "context_compaction"),
                item(12, "compaction_trigger"),
            ],
            0,
        ),
        ([answered(11, "the summary"), compacted(12, "w1", LOCAL), noted(13)], 1),
        ([answered(11, "the summary\n"), compacted(12, "w1", LOCAL), noted(13)], 1),
        ([answered(11, "the summary"), compacted(12, "w1", LOCAL + "\n"), noted(13)], 1),
        ([compacted(11, "w1"), compacted(11, "w1"), noted(12)], 1),
        ([compacted(11, "w1"), noted(12), event(14, "task_started", turn_id="t3"), compacted(15, "w1")], 1),
        ([compacted(11, "w1"), event(12, "task_started", turn_id="t3"), noted(13)], 1),
        ([compacted(11, "w1"), event(12, "task_started", turn_id="t3"), completed(13, "t2", "ContextCompaction")], 1),
    ],
)
def test_a_compaction_counts_once_and_its_summary_is_no_answer(
    store: Store, records: list[Json], expected: int
) -> None:
    found = session(store, meta(A), *turn(2, "t1", "x"), *begin(10, "t2"), *records, *turn(50, "t9", "y"))
    assert only(found, ("compactions", "assistant")) == (expected, 2)


# files, titles, eras

SHORT = [meta(A), *turn(2, "t1", "one")]
LONG = [*SHORT, *turn(12, "t2", "two")]


def packed(*records: Json) -> bytes:
    return zstandard.compress(lines(*records))


@pytest.mark.parametrize(
    "files",
    [
        {path(A, suffix="jsonl.zst"): packed(*LONG)},
        {path(A): LONG, path(A, suffix="jsonl.zst"): packed(*SHORT)},
        {path(A): LONG, path(A, live=False, suffix="jsonl.zst"): packed(*LONG)[:-20]},
        {path(A): SHORT, path(A, live=False): LONG},
        {path(A): LONG, path(A, live=False): SHORT},
        {path(A, suffix="jsonl.zst"): packed(*SHORT), path(A, live=False, suffix="jsonl.zst"): packed(*LONG)},
        {path(A, suffix="jsonl.zst"): packed(*LONG), path(A, live=False): LONG},
        {path(A): SHORT, path(A).replace("03/02", "03/09"): LONG},
    ],
)
def test_copies_of_a_thread_are_one_and_the_longer_counts(store: Store, files: dict[str, Any]) -> None:
    for name, body in files.items():
        put(store, name, *([body] if isinstance(body, bytes) else body))
    found = told(store)
    assert {name: one["user"] for name, one in found.items()} == {A: 2}


def test_a_thread_that_moves_is_compressed_or_is_cut_stays_what_it_was(store: Store) -> None:
    plain = put(store, path(A), *LONG)
    told(store)
    plain.write_bytes(lines(*SHORT))
    assert told(store)[A]["user"] == 2
    plain.unlink()
    put(store, path(A, live=False, suffix="jsonl.zst"), packed(*LONG, *turn(22, "t3", "three")))
    assert told(store)[A]["user"] == 3


def test_the_last_line_of_the_index_wins_over_the_last_name_in_the_rollout(store: Store) -> None:
    names = [event(9, "thread_name_updated", thread_id=A, thread_name=name) for name in ("n1", "n2")]
    assert session(store, *SHORT, *names)["title"] == "n2"
    rows = [{"id": one, "thread_name": name, "updated_at": at(0)} for one, name in ((A, "x"), (B, "stale"), (A, "y"))]
    put(store, ".codex/session_index.jsonl", *rows, b'{"id": 5}\nnot json\n')
    assert told(store)[A]["title"] == "y"


def test_times_reach_from_the_metas_own_time_to_the_last_own_line(store: Store) -> None:
    head = meta(A, timestamp="2026-03-02T09:58:00Z")
    found = session(store, head, *turn(2, "t1", "x"), line(300, "world_state", {}))
    assert only(found, ("started", "last")) == ("2026-03-02T09:58:00.000Z", at(300))


def test_the_flat_era_has_a_header_no_times_and_no_known_compactions(store: Store) -> None:
    environment = (
        f"<environment_context>\nCurrent working directory: {CWD}\nApproval policy: never\n</environment_context>"
    )
    records = [
        {"id": A, "timestamp": at(0), "instructions": None, "git": {"branch": "main"}},
        {"record_type": "state"},
        asked(0, environment)["payload"],
        asked(0, "do it")["payload"],
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "t"}]},
        called(0)["payload"],
        output(0, json.dumps(PACKED))["payload"],
        answered(0, "ok")["payload"],
    ]
    found = session(store, *records)
    assert only(found, ("user", "first_prompt", "assistant", "thinking", "result", "errors")) == (
        1,
        "do it",
        1,
        1,
        1,
        1,
    )
    assert only(found, ("compactions", "usage", "cwd", "branch")) == (None, None, CWD, "main")
    assert only(found, ("started", "last")) == (at(0), at(0))


def test_thinking_is_one_for_each_item_with_readable_text(store: Store) -> None:
    items: list[Json] = [
        {"summary": "text"},
        {"summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]},
        {"summary": [], "encrypted_content": "x"},
        {"summary": [], "content": [{"type": "reasoning_text", "text": "c"}]},
        {"summary": [{"type": "summary_text", "text": " "}]},
    ]
    reasons = [item(5, "reasoning", **fields) for fields in items]
    found = session(store, meta(A), *begin(2, "t"), *prompt(3, "x"), *reasons, event(6, "agent_reasoning", text="a"))
    assert found["thinking"] == 3
