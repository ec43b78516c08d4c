"""Rules of the shared Hermes document and of the corpus' definitions, each on small inputs and end to end."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rules_home import Listed, brief
from test_hermes import END, SUMMARY, T0, Db

A, B, C, D, E = (f"20260921_10000{n}_{n}a{n}b{n}c" for n in range(5))


@pytest.fixture
def home(tmp_path: Path) -> Listed:
    return Listed(tmp_path)


@pytest.fixture
def db(home: Listed) -> Db:
    return Db(home.user / ".hermes")


def turns(one: dict[str, Any]) -> tuple[int, int]:
    return one["turns"]["user"], one["turns"]["assistant"]


def rotate(
    db: Db, parent: str, child: str, head: list[tuple[str, str]], tail: list[tuple[str, str]], **fields: Any
) -> None:
    """What a rotation does: the parent ends, a child begins with copies of its head, the summary and its tail."""
    db.end(parent, "compression")
    db.at += 5
    db.session(child, parent_session_id=parent, **fields)
    for role, text in [*head, ("user", f"{SUMMARY}of {parent}"), *tail]:
        db.add(child, role, text, 0.001)


ALONGSIDE = "The user has provided the following instruction alongside the skill invocation: "
HEAD, TAIL = [("user", "start"), ("assistant", "re start")], [("user", "tail"), ("assistant", "re tail")]


def talk(db: Db, native: str) -> None:
    db.talk(native, "start", "re start", "middle", "re middle", "tail", "re tail")


# --- rotation


def test_a_chain_of_rotations_counts_each_on_its_parent(home: Listed, db: Db) -> None:
    db.session(A, title="Work")
    talk(db, A)
    rotate(db, A, B, HEAD, TAIL, title="Work #2")
    db.talk(B, "second", "re second")
    rotate(db, B, C, HEAD, [("user", "second"), ("assistant", "re second")], title="Work #3")
    db.talk(C, "third", "re third")
    db.done()
    found = home.sessions()
    assert {n: (turns(one), brief(one)["compactions"], one["lineage"]["forked_from"]) for n, one in found.items()} == {
        A: ((3, 3), 1, None),
        B: ((1, 1), 1, A),
        C: ((1, 1), 0, B),
    }
    assert [one["parent_id"] for one in found.values()] == [None] * 3


def test_lineage_and_event_run_through_a_continuation_without_messages(home: Listed, db: Db) -> None:
    db.session(A)
    talk(db, A)
    db.end(A, "compression")
    db.session(B, parent_session_id=A)
    db.end(B, "compression")
    db.at += 5
    db.session(C, parent_session_id=B)
    for role, text in [*HEAD, ("user", f"{SUMMARY}x"), *TAIL]:
        db.add(C, role, text, 0.001)
    db.talk(C, "new", "re new")
    db.done()
    found = home.sessions()
    assert sorted(found) == [A, C]
    assert brief(found[A])["compactions"] == 1
    assert (turns(found[C]), found[C]["lineage"]["forked_from"]) == ((1, 1), B)


def test_an_ended_parent_without_child_is_an_interrupted_attempt(home: Listed, db: Db) -> None:
    db.session(A)
    talk(db, A)
    db.end(A, "compression")
    db.done()
    assert brief(home.sessions()[A])["compactions"] == 0


def test_of_several_children_the_stale_one_is_no_event_and_counts_its_own_rows(home: Listed, db: Db) -> None:
    db.session(A)
    talk(db, A)
    rotate(db, A, B, HEAD, TAIL)
    db.talk(B, "stale")
    db.end(B, "ws_orphan_reap")
    rotate(db, A, C, HEAD, TAIL)
    db.talk(C, "live", "re live")
    db.done()
    found = home.sessions()
    assert brief(found[A])["compactions"] == 1
    assert (turns(found[B]), turns(found[C])) == ((1, 0), (1, 1))


def test_rotation_and_in_place_in_one_session_count_both(home: Listed, db: Db) -> None:
    db.session(A)
    talk(db, A)
    db.compact(A, *HEAD, ("user", f"{SUMMARY}one"), *TAIL)
    db.talk(A, "later", "re later")
    rotate(db, A, B, HEAD, [("user", "later"), ("assistant", "re later")])
    db.talk(B, "own", "re own")
    db.done()
    found = home.sessions()
    assert (turns(found[A]), brief(found[A])["compactions"]) == ((4, 4), 2)
    assert (turns(found[B]), brief(found[B])["compactions"]) == ((1, 1), 0)


def test_a_delegate_of_a_rotated_parent_is_a_child_and_no_continuation(home: Listed, db: Db) -> None:
    db.session(A)
    talk(db, A)
    db.session(D, parent_session_id=A, source="subagent", model_config=json.dumps({"_delegate_from": A}))
    db.talk(D, "look", "looked")
    rotate(db, A, B, HEAD, TAIL)
    db.talk(B, "own", "re own")
    db.done()
    found = home.sessions()
    assert (found[D]["parent_id"], found[D]["lineage"]["forked_from"], turns(found[D])) == (A, None, (1, 1))
    assert (brief(found[A])["compactions"], found[B]["lineage"]["forked_from"]) == (1, A)


def test_a_delegate_in_a_branch_and_a_delegate_of_a_delegate(home: Listed, db: Db) -> None:
    db.session(A)
    talk(db, A)
    db.end(A, "branched")
    db.session(B, parent_session_id=A, model_config=json.dumps({"_branched_from": A}))
    for role, text in (
        ("user", "start"),
        ("assistant", "re start"),
        ("user", "middle"),
        ("assistant", "re middle"),
        ("user", "tail"),
        ("assistant", "re tail"),
    ):
        db.add(B, role, text, 0.001)
    db.talk(B, "branch", "re branch")
    db.session(C, parent_session_id=B, source="subagent", model_config=json.dumps({"_delegate_from": B}))
    db.talk(C, "look", "looked")
    db.session(D, parent_session_id=C, source="subagent", model_config=json.dumps({"_delegate_from": C}))
    db.talk(D, "deeper", "deep")
    db.done()
    found = home.sessions()
    assert [found[n]["parent_id"] for n in (A, B, C, D)] == [None, None, B, C]
    assert [found[n]["lineage"]["forked_from"] for n in (A, B, C, D)] == [None, A, None, None]
    assert [turns(found[n]) for n in (A, B, C, D)] == [(3, 3), (1, 1), (1, 1), (1, 1)]


@pytest.mark.parametrize(
    ("marker", "parent", "named"),
    [
        ({"_delegate_from": "__orphaned__"}, None, None),
        ({"_delegate_from": "__orphaned__"}, "gone", "gone"),
        ({"_delegate_from": True}, "gone", "gone"),
        ({}, "gone", "gone"),
    ],
)
def test_a_delegate_whose_parent_is_gone_keeps_what_stands_there(
    home: Listed, db: Db, marker: dict[str, Any], parent: str | None, named: str | None
) -> None:
    db.session(D, parent_session_id=parent, source="subagent", model_config=json.dumps(marker))
    db.talk(D, "look", "looked")
    db.done()
    one = home.sessions()[D]
    assert (one["parent_id"], one["lineage"]["forked_from"], turns(one)) == (named, None, (1, 1))


def test_a_reset_is_cleared_from_and_inherits_nothing(home: Listed, db: Db) -> None:
    db.session(A)
    talk(db, A)
    db.end(A, "session_reset")
    db.session(B, parent_session_id=A, model_config=json.dumps({"_reset_from": A}))
    db.talk(B, "start", "re start")
    db.done()
    one = home.sessions()[B]
    assert (one["parent_id"], one["lineage"]["forked_from"], one["lineage"]["cleared_from"]) == (None, None, A)
    assert turns(one) == (1, 1)


def test_a_branch_of_an_older_client_is_told_by_its_parents_end(home: Listed, db: Db) -> None:
    db.session(A)
    talk(db, A)
    db.end(A, "branched")
    db.session(B, parent_session_id=A, model_config="not json")
    for role, text in (
        ("user", "start"),
        ("assistant", "re start"),
        ("user", "middle"),
        ("assistant", "re middle"),
        ("user", "tail"),
        ("assistant", "re tail"),
    ):
        db.add(B, role, text, 0.001)
    db.talk(B, "branch")
    db.done()
    one = home.sessions()[B]
    assert (one["parent_id"], one["lineage"]["forked_from"], turns(one)) == (None, A, (1, 0))


def test_a_branch_of_a_compacted_session_inherits_its_summary_and_not_the_event(home: Listed, db: Db) -> None:
    db.session(A)
    talk(db, A)
    db.compact(A, *HEAD, ("user", f"{SUMMARY}one"), *TAIL)
    db.end(A, "branched")
    db.at += 3
    db.session(B, parent_session_id=A, model_config=json.dumps({"_branched_from": A}))
    for role, text in (*HEAD, ("user", f"{SUMMARY}one"), *TAIL):
        db.add(B, role, text, 0.001)
    db.talk(B, "branch", "re branch")
    db.done()
    found = home.sessions()
    assert (brief(found[A])["compactions"], brief(found[B])["compactions"]) == (1, 0)
    assert (turns(found[A]), turns(found[B])) == ((3, 3), (1, 1))


def test_two_branches_of_one_session(home: Listed, db: Db) -> None:
    db.session(A)
    db.talk(A, "start", "re start")
    for native in (B, C):
        db.end(A, "branched")
        db.at += 10
        db.session(native, parent_session_id=A, model_config=json.dumps({"_branched_from": A}))
        for role, text in HEAD:
            db.add(native, role, text, 0.001)
        db.talk(native, "start", f"re {native}")
    db.done()
    found = home.sessions()
    assert [turns(found[n]) for n in (A, B, C)] == [(1, 1), (1, 1), (1, 1)]


def test_an_unknown_relation_is_no_parent(home: Listed, db: Db) -> None:
    db.session(A)
    talk(db, A)
    db.end(A, "cli_close")
    db.at += 60
    db.session(B, parent_session_id=A)
    db.talk(B, "start", "other")
    db.done()
    one = home.sessions()[B]
    assert (one["parent_id"], turns(one)) == (None, (1, 1))


# --- in place


def test_two_compactions_in_place_and_a_prompt_typed_again(home: Listed, db: Db) -> None:
    db.session(A)
    talk(db, A)
    db.compact(A, *HEAD, ("user", f"{SUMMARY}one"), *TAIL)
    db.talk(A, "continue", "re 1", "continue", "re 2")
    db.compact(A, *HEAD, ("user", f"{SUMMARY}two"), ("user", "continue"), ("assistant", "re 2"))
    db.talk(A, "continue", "re 3")
    db.done()
    one = home.sessions()[A]
    assert (turns(one), brief(one)["compactions"]) == ((6, 6), 2)


def test_the_older_summary_mark_is_one(home: Listed, db: Db) -> None:
    db.session(A)
    talk(db, A)
    db.compact(A, *HEAD, ("assistant", "[CONTEXT SUMMARY]: they spoke"), *TAIL)
    db.talk(A, "new", "re new")
    db.done()
    one = home.sessions()[A]
    assert (turns(one), brief(one)["compactions"]) == ((4, 4), 1)


@pytest.mark.parametrize("dash", ["—", "–", "-"])
def test_every_dash_of_the_summary_mark(home: Listed, db: Db, dash: str) -> None:
    db.session(A)
    talk(db, A)
    db.compact(A, *HEAD, ("user", f"[CONTEXT COMPACTION {dash} REFERENCE ONLY] they spoke"), *TAIL)
    db.done()
    one = home.sessions()[A]
    assert (turns(one), brief(one)["compactions"]) == ((3, 3), 1)


def test_a_live_prompt_behind_a_summary_counts_unless_it_has_a_row(home: Listed, db: Db) -> None:
    db.session(A)
    talk(db, A)
    db.compact(A, *HEAD, ("user", f"{SUMMARY}one{END}\n\nand this please"), ("assistant", "done"))
    db.talk(A, "next", "re next")
    db.compact(A, *HEAD, ("user", f"{SUMMARY}two{END}\n\nnext"), ("assistant", "re next"))
    db.done()
    one = home.sessions()[A]
    assert (turns(one)[0], brief(one)["compactions"]) == (5, 2)


def test_a_recorded_failure_is_no_event(home: Listed, db: Db) -> None:
    db.db.execute("ALTER TABLE sessions ADD COLUMN compression_failure_error TEXT")
    db.session(A, compression_failure_error="too long")
    talk(db, A)
    db.done()
    assert brief(home.sessions()[A])["compactions"] == 0


def test_uids_of_carried_copies_in_a_child(home: Listed, db: Db) -> None:
    db.session(A)
    for place, (role, text) in enumerate([*HEAD, ("user", "middle"), *TAIL]):
        db.add(A, role, text, message_uid=f"u{place}")
    db.end(A, "compression")
    db.at += 500
    db.session(B, parent_session_id=A)
    db.at += 300
    db.add(B, "user", "start", message_uid="u0")
    db.add(B, "user", f"{SUMMARY}x", message_uid="s")
    db.add(B, "assistant", "re tail", message_uid="u4")
    db.talk(B, "own", "re own")
    db.done()
    found = home.sessions()
    assert (turns(found[A]), turns(found[B])) == ((3, 2), (1, 1))


# --- rows


@pytest.mark.parametrize(
    ("text", "fields", "counted"),
    [
        ("hi", {}, True),
        ("hi", {"observed": 1}, False),
        ("hi", {"active": None}, True),
        ("hi", {"active": 0, "compacted": 0}, True),
        ("hi", {"display_kind": "steer"}, True),
        *[
            ("hi", {"display_kind": kind}, False)
            for kind in (
                "process_complete",
                "async_delegation_complete",
                "internal_notification",
                "hidden",
                "model_switch",
                "personality_switch",
                "auto_continue",
                "failed_turn",
            )
        ],
        ("[IMPORTANT: Background process 7 finished]", {}, False),
        ("[ASYNC DELEGATION COMPLETE — x]", {}, False),
        ("A background subagent finished: x", {}, False),
        ("Review the conversation above and save what matters", {}, False),
    ],
)
def test_what_a_human_typed(home: Listed, db: Db, text: str, fields: dict[str, Any], counted: bool) -> None:
    db.session(A)
    db.talk(A, "first", "re first")
    db.add(A, "user", text, **fields)
    db.done()
    assert turns(home.sessions()[A])[0] == 1 + counted


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        (
            f'[SYSTEM: The user has invoked the "x" skill. Follow.]\n\nbody\n\n{ALONGSIDE}do it\n\n[Runtime note: y]',
            "do it",
        ),
        (
            f'[IMPORTANT: The user has invoked the "x" skill.]\n\n{ALONGSIDE}fake\n\n{ALONGSIDE}real',
            "real",
        ),
        ('[IMPORTANT: The user has invoked the "deep-dive" skill.]\n\nbody', "[Skill: deep-dive]"),
        (
            '[IMPORTANT: The "x" skill is auto-loaded. Follow.]\n\nResolve using the absolute path.\n\nplease go',
            "please go",
        ),
        ('\0json:[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"data:x"}}]', "see"),
        ('\0json:[{"type":"image_url","image_url":{"url":"data:x"}}]', "[image]"),
        ("\0json:[broken", "json:[broken"),
    ],
)
def test_the_first_prompt_is_unwrapped(home: Listed, db: Db, text: str, typed: str) -> None:
    db.session(A)
    db.add(A, "user", text)
    db.add(A, "assistant", "ok")
    db.done()
    one = home.sessions()[A]
    assert (one["first_prompt"], turns(one)) == (typed, (1, 1))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"error": "no"}', 1),
        ('{"error": ""}', 0),
        ('{"error": null}', 0),
        ('{"success": false}', 1),
        ('{"success": true}', 0),
        ('{"exit_code": 3, "output": ""}', 1),
        ('{"exit_code": 0}', 0),
        ('{"exit_code": -9}', 1),
        ('{"error": "x", "guardrail_refusal": true}', 0),
        ("Error executing tool: x", 1),
        ("An Error occurred", 0),
        ("error: x", 0),
        ('["error"]', 0),
        ("", 0),
        ('  {"error": "no"}', 1),
    ],
)
def test_a_tool_error_is_derived_from_its_result(home: Listed, db: Db, text: str, error: int) -> None:
    db.session(A)
    db.add(A, "user", "hi")
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{}"}},
        {"id": "c2", "name": "read", "arguments": {}},
    ]
    db.add(A, "assistant", None, tool_calls=json.dumps(calls))
    db.add(A, "tool", text, tool_call_id="c1")
    db.done()
    one = brief(home.sessions()[A])
    assert (one["tools"], one["tool_result"], one["tool_errors"], one["assistant"]) == (
        {"terminal": 1, "read": 1},
        1,
        error,
        0,
    )


def test_one_thought_for_a_row_whatever_columns_it_is_in(home: Listed, db: Db) -> None:
    for name in ("reasoning_content", "reasoning_details", "codex_reasoning_items"):
        db.db.execute(f"ALTER TABLE messages ADD COLUMN {name}")
    db.session(A)
    db.add(A, "user", "hi")
    db.add(A, "assistant", "a", reasoning="t", reasoning_content="t", reasoning_details='[{"type":"x","text":"t"}]')
    db.add(A, "assistant", "b", reasoning_details='[{"text":"one"},{"text":"two"}]')
    db.add(A, "assistant", "c", codex_reasoning_items='[{"encrypted_content":"zzz"}]')
    db.add(A, "assistant", "d", reasoning=" ", reasoning_details='[{"type":"reasoning.encrypted","data":"zz"}]')
    db.done()
    assert brief(home.sessions()[A])["thinking"] == 2


def test_the_clients_own_notice_is_no_answer(home: Listed, db: Db) -> None:
    db.session(A)
    db.talk(A, "one", "Operation interrupted: waiting for model response (3.2s elapsed).", "two", "It was interrupted")
    db.done()
    assert turns(home.sessions()[A]) == (2, 1)


# --- numbers


def test_usage_null_zero_and_recorded(home: Listed, db: Db) -> None:
    for native in (A, B, C, D):
        db.session(native)
        db.talk(native, "hi", "ho")
    db.db.execute("UPDATE sessions SET input_tokens = 0, output_tokens = 0, cache_read_tokens = 0 WHERE id = ?", (B,))
    db.used(C, "m", 0, output_tokens=0)
    db.db.execute(
        "UPDATE sessions SET input_tokens = 10, output_tokens = 5, cache_read_tokens = 3, cache_write_tokens = 2,"
        " reasoning_tokens = 1 WHERE id = ?",
        (D,),
    )
    db.used(D, "title-model", 99, task="title")
    db.done()
    found = {native: brief(one)["usage"] for native, one in home.sessions().items()}
    assert (found[A], found[B]) == (None, None)
    assert found[C] is not None and found[C]["input"] == 0
    assert found[D] == {"input": 10, "output": 5, "cache_read": 3, "cache_creation": 2, "reasoning": 1}


def test_an_auxiliary_row_alone_is_no_usage_of_the_main_loop(home: Listed, db: Db) -> None:
    db.session(A)
    db.talk(A, "hi", "ho")
    db.used(A, "m", 99, task="compression")
    db.done()
    assert brief(home.sessions()[A])["usage"] is None


def test_models_in_order_of_first_use_and_none_of_an_auxiliary_request(home: Listed, db: Db) -> None:
    db.session(A, model="second")
    db.talk(A, "hi", "ho")
    db.used(A, "title-model", 5, task="title")
    db.used(A, "first", 10)
    db.at += 5
    db.used(A, "second", 20)
    db.db.execute("UPDATE sessions SET input_tokens = 30, output_tokens = 2 WHERE id = ?", (A,))
    db.done()
    one = brief(home.sessions()[A])
    assert (one["models"], one["usage"] and one["usage"]["input"]) == (["first", "second"], 30)


@pytest.mark.parametrize("title", ["", "  ", None])
def test_a_blank_title_is_none(home: Listed, db: Db, title: str | None) -> None:
    db.session(A, title=title)
    db.talk(A, "hi")
    db.done()
    assert home.sessions()[A]["title"] is None


def test_times_as_texts(home: Listed, db: Db) -> None:
    db.session(A, started_at=str(T0))
    db.add(A, "user", "hi", timestamp="2026-09-21T13:33:25.250")
    db.add(A, "assistant", "ho", timestamp=str(T0 + 30))
    db.done()
    one = brief(home.sessions()[A])
    assert (one["started"], one["last"]) == ("2026-09-21T14:13:20.000Z", "2026-09-21T14:13:50.000Z") or one[
        "started"
    ] < one["last"]


def test_last_activity_is_the_last_own_row_and_not_a_title_edit(home: Listed, db: Db) -> None:
    db.db.execute("ALTER TABLE sessions ADD COLUMN last_activity_at REAL")
    db.session(A, last_activity_at=T0 + 9000, ended_at=T0 + 5000, end_reason="cli_close")
    db.talk(A, "hi", "ho")
    db.done()
    assert brief(home.sessions()[A])["last"] == "2026-09-21T14:13:22.000Z"


def test_a_session_of_carried_copies_alone_ends_when_it_ended(home: Listed, db: Db) -> None:
    db.session(A)
    talk(db, A)
    rotate(db, A, B, HEAD, TAIL)
    db.db.execute("UPDATE sessions SET ended_at = ? WHERE id = ?", (db.at + 60, B))
    db.done()
    found = home.sessions()
    assert (turns(found[B]), found[B]["lineage"]["forked_from"]) == ((0, 0), A)
    assert brief(found[B])["compactions"] == 0


# --- surfaces


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_the_richest_surface_serves_and_the_database_wins_a_tie(home: Listed, db: Db) -> None:
    db.session(A, title="T", cwd="/d")
    db.talk(A, "hi", "ho")
    db.session(B)
    db.talk(B, "one")
    db.done()
    sessions = home.user / ".hermes" / "sessions"
    sessions.mkdir()
    (sessions / f"{A}.jsonl").write_text(
        lines(
            {"role": "session_meta", "model": "x"},
            {"role": "user", "content": "file"},
            {"role": "assistant", "content": "y"},
        )
    )
    (sessions / f"{B}.jsonl").write_text(
        lines(
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "re one"},
            {"role": "user", "content": "two"},
        )
    )
    (sessions / f"session_{B}.json").write_text(
        json.dumps({"session_id": B, "messages": [{"role": "user", "content": "snap"}]})
    )
    found = home.sessions()
    assert (found[A]["first_prompt"], found[A]["title"]) == ("hi", "T")
    assert (turns(found[B]), found[B]["first_prompt"]) == ((2, 1), "one")


def test_decoy_files_are_passed_over(home: Listed) -> None:
    sessions = home.user / ".hermes" / "sessions"
    (sessions / "saved").mkdir(parents=True)
    (sessions / "sessions.json").write_text('{"x": {"session_id": "y"}}')
    (sessions / f"request_dump_{A}_1.json").write_text('{"messages": [{"role": "user", "content": "x"}]}')
    (sessions / "saved" / f"{B}.jsonl").write_text(lines({"role": "user", "content": "x"}))
    (sessions / f"{C}.jsonl.bak").write_text(lines({"role": "user", "content": "x"}))
    (sessions / f"{D}.jsonl").write_text(lines({"role": "session_meta", "model": "x"}))
    assert [one for one in home.sessions().values() if turns(one) != (0, 0)] == []


def test_a_snapshot_has_the_id_that_stands_in_it(home: Listed) -> None:
    """'If session_id is missing take it from the file name.'"""
    sessions = home.user / ".hermes" / "sessions"
    sessions.mkdir(parents=True)
    document = {
        "session_id": A,
        "model": "m",
        "session_start": "2026-04-03T10:00:00",
        "messages": [{"role": "user", "content": "hi"}],
    }
    (sessions / "session_renamed.json").write_text(json.dumps(document))
    del document["session_id"]
    (sessions / f"session_{B}.json").write_text(json.dumps(document))
    assert sorted(home.sessions()) == [A, B]


@pytest.mark.parametrize(
    "stamp", ["2026-04-03T10:00:05", 1775210405, 1775210405000, "1775210405", "2026-04-03T10:00:05Z"]
)
def test_stamps_of_files_in_every_form(home: Listed, stamp: Any) -> None:
    sessions = home.user / ".hermes" / "sessions"
    sessions.mkdir(parents=True)
    (sessions / f"{A}.jsonl").write_text(lines({"role": "user", "content": "hi", "timestamp": stamp}))
    one = brief(home.sessions()[A])
    assert (one["started"], one["last"]) == ("2026-04-03T10:00:05.000Z",) * 2


def test_profiles_are_all_imported_whatever_is_active(home: Listed, db: Db) -> None:
    db.session(A)
    db.talk(A, "hi")
    db.done()
    for name, native in (("work", B), ("play", C)):
        other = Db(home.user / ".hermes", name)
        other.session(native)
        other.talk(native, "hi", "ho")
        other.done()
    (home.user / ".hermes" / "active_profile").write_text("work\n")
    legacy = home.user / ".hermes" / "profiles" / "old" / "sessions"
    legacy.mkdir(parents=True)
    (legacy / f"{D}.jsonl").write_text(lines({"role": "user", "content": "x"}))
    assert sorted(home.sessions()) == [A, B, C, D]


# --- databases


def test_missing_columns_cost_only_themselves(home: Listed) -> None:
    path = home.user / ".hermes" / "state.db"
    path.parent.mkdir()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, started_at REAL)")
        db.execute(
            "CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT, timestamp REAL)"
        )
        db.execute("INSERT INTO sessions VALUES (?, 'cli', ?)", (A, T0))
        db.execute("INSERT INTO messages VALUES (1, ?, 'user', 'hi', ?)", (A, T0 + 1))
        db.execute("INSERT INTO messages VALUES (2, 'lost', 'user', 'hi', ?)", (T0 + 1,))
    db.close()
    found = home.sessions()
    assert (list(found), turns(found[A]), found[A]["usage"]) == ([A], (1, 0), None)


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_growing_store_gives_what_a_fresh_import_gives(home: Listed, tmp_path: Path, mode: str) -> None:
    db = Db(home.user / ".hermes")
    db.db.execute(f"PRAGMA journal_mode = {mode}")
    db.session(A)

    def rotated() -> None:
        rotate(db, A, B, HEAD, [("user", "later"), ("assistant", "re later")])

    steps: list[Callable[[], object]] = [
        lambda: talk(db, A),
        lambda: db.db.execute("UPDATE sessions SET title = 'New', input_tokens = 7, output_tokens = 1"),
        lambda: db.compact(A, *HEAD, ("user", f"{SUMMARY}one"), *TAIL),
        lambda: db.talk(A, "later", "re later"),
        rotated,
        lambda: db.talk(B, "own", "re own"),
    ]
    for number, step in enumerate(steps):
        step()
        home.store.sync()
        grown = {native: brief(one) for native, one in home.listing().items()}
        fresh = Listed(tmp_path / f"fresh {number}")
        shutil.copytree(home.user, fresh.user, dirs_exist_ok=True)
        fresh.store.sync()
        assert grown == {native: brief(one) for native, one in fresh.listing().items()}, number
    db.done()


def test_rows_that_vanish_are_no_delete(home: Listed, db: Db) -> None:
    db.session(A)
    talk(db, A)
    home.store.sync()
    db.db.execute("DELETE FROM messages WHERE content LIKE '%middle'")
    home.store.sync()
    assert turns(home.listing()[A]) == (3, 3)
    db.db.execute("DELETE FROM sessions")
    db.db.execute("DELETE FROM messages")
    db.done()
    home.store.sync()
    assert turns(home.listing()[A]) == (3, 3)


def test_a_broken_database_leaves_the_files(home: Listed) -> None:
    folder = home.user / ".hermes"
    (folder / "sessions").mkdir(parents=True)
    (folder / "state.db").write_bytes(b"no database at all" * 400)
    (folder / "sessions" / f"{A}.jsonl").write_text(lines({"role": "user", "content": "hi"}) + '{"role": "assis')
    (folder / "sessions" / f"session_{B}.json").write_text('{"session_id": "x", "messages": [{"role": "us')
    failed = home.troubles()
    assert any("state.db" in one for one in failed)
    home.store.sync()
    assert turns(home.listing()[A]) == (1, 0)


def called(*ids: str) -> str:
    return json.dumps(
        [{"id": one, "type": "function", "function": {"name": "terminal", "arguments": "{}"}} for one in ids]
    )


def test_a_call_before_and_its_result_behind_a_rotation(home: Listed, db: Db) -> None:
    db.session(A)
    db.talk(A, "start", "re start")
    db.add(A, "user", "do it")
    db.add(A, "assistant", None, tool_calls=called("c1"))
    rotate(db, A, B, HEAD, [("user", "do it")])
    db.add(B, "assistant", None, 0.001, tool_calls=called("c1"))
    db.add(B, "tool", '{"exit_code": 1}', 2, tool_call_id="c1")
    db.add(B, "assistant", "done")
    db.done()
    parent, child = (brief(home.sessions()[native]) for native in (A, B))
    assert (parent["user"], parent["tools"], child["user"], child["tools"]) == (2, {"terminal": 1}, 0, {})
    assert (child["tool_result"], child["tool_errors"], child["assistant"]) == (1, 1, 1)


def test_tool_rows_that_a_compaction_carries_count_once(home: Listed, db: Db) -> None:
    db.session(A)
    db.talk(A, "start", "re start")
    db.add(A, "user", "go")
    for one in ("c1", "c2"):
        db.add(A, "assistant", None, tool_calls=called(one))
        db.add(A, "tool", '{"exit_code": 2}', tool_call_id=one)
    db.compact(A, *HEAD, ("user", f"{SUMMARY}x"))
    db.add(A, "assistant", None, 1e-6, tool_calls=called("c2"))
    db.add(A, "tool", '{"exit_code": 2}', 1e-6, tool_call_id="c2")
    db.talk(A, "n", "rn")
    db.done()
    one_ = brief(home.sessions()[A])
    assert (one_["user"], one_["tools"], one_["tool_result"], one_["tool_errors"]) == (3, {"terminal": 2}, 2, 2)


def test_call_ids_that_a_gateway_uses_again_are_other_calls(home: Listed, db: Db) -> None:
    db.session(A)
    for number in range(2):
        db.add(A, "user", f"p{number}")
        db.add(A, "assistant", None, tool_calls=called("call_1"))
        db.add(A, "tool", '{"error": "x"}', tool_call_id="call_1")
    db.done()
    one = brief(home.sessions()[A])
    assert (one["tools"], one["tool_result"], one["tool_errors"]) == ({"terminal": 2}, 2, 2)


def test_rotation_branch_delegate_and_rotation_of_the_branch(home: Listed, db: Db) -> None:
    db.session(A)
    talk(db, A)
    rotate(db, A, B, HEAD, TAIL)
    db.talk(B, "own", "re own")
    db.end(B, "branched")
    db.at += 5
    db.session(C, parent_session_id=B, model_config=json.dumps({"_branched_from": B}))
    for role, text in (*HEAD, ("user", f"{SUMMARY}of {A}"), *TAIL, ("user", "own"), ("assistant", "re own")):
        db.add(C, role, text, 0.001)
    db.talk(C, "other", "re other")
    db.session(D, parent_session_id=C, source="subagent", model_config=json.dumps({"_delegate_from": C}))
    db.talk(D, "look", "looked")
    rotate(db, C, E, HEAD, [("user", "other"), ("assistant", "re other")])
    db.talk(E, "last", "re last")
    db.done()
    found = home.sessions()
    assert [
        (turns(found[n]), brief(found[n])["compactions"], found[n]["lineage"]["forked_from"], found[n]["parent_id"])
        for n in (A, B, C, D, E)
    ] == [
        ((3, 3), 1, None, None),
        ((1, 1), 0, A, None),
        ((1, 1), 1, B, None),
        ((1, 1), 0, None, C),
        ((1, 1), 0, C, None),
    ]


def test_the_flag_alone_makes_a_summary(home: Listed, db: Db) -> None:
    db.db.execute("ALTER TABLE messages ADD COLUMN _compressed_summary")
    db.session(A)
    talk(db, A)
    db.compact(A, *HEAD)
    db.add(A, "assistant", "They spoke, in other words.", 1e-6, _compressed_summary=1)
    for role, text in TAIL:
        db.add(A, role, text, 1e-6)
    db.talk(A, "n", "rn")
    db.done()
    one = home.sessions()[A]
    assert (turns(one), brief(one)["compactions"]) == ((4, 4), 1)
