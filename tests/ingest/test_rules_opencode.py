"""Rules of the shared opencode document and of the corpus' definitions, each on small inputs and end to end."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rules_home import Listed, brief
from test_opencode import Db, text, tool

A, B, C, D = (f"ses_dd3d0{n}be3ffe7qWitJ7RfcB4x{n}" for n in "abcd")


@pytest.fixture
def home(tmp_path: Path) -> Listed:
    return Listed(tmp_path)


def data(home: Listed) -> Path:
    return home.user / ".local" / "share" / "opencode"


@pytest.fixture
def db(home: Listed) -> Db:
    return Db(data(home))


def turns(one: dict[str, Any]) -> tuple[int, int]:
    return one["turns"]["user"], one["turns"]["assistant"]


def fork(db: Db, source: str, native: str, title: str, **fields: Any) -> None:
    """What /fork does: the messages again under new ids, with their times and tokens."""
    rows = db.db.execute(
        "SELECT id, time_created, data FROM message WHERE session_id = ? ORDER BY time_created, id", (source,)
    ).fetchall()
    db.at += 5000
    db.session(native, title, **fields)
    for old, at, told in rows:
        new = f"msg_{db.next()}"
        db.insert("message", {"id": new, "session_id": native, "time_created": at, "data": told})
        for (part,) in db.db.execute("SELECT data FROM part WHERE message_id = ? ORDER BY id", (old,)).fetchall():
            db.insert("part", {"id": f"prt_{db.next()}", "message_id": new, "session_id": native, "data": part})


# --- forks


def test_two_forks_and_a_fork_of_a_fork(home: Listed, db: Db) -> None:
    db.session(A, "Work")
    db.talk(A, "one", "re one", "two", "re two")
    fork(db, A, B, "Work (fork #1)")
    db.talk(B, "first", "re first")
    fork(db, A, C, "Work (fork #1)")
    db.talk(C, "second", "re second")
    fork(db, B, D, "Work (fork #2)")
    db.talk(D, "third", "re third")
    db.done()
    found = home.sessions()
    assert [turns(found[n]) for n in (A, B, C, D)] == [(2, 2), (1, 1), (1, 1), (1, 1)]
    assert [found[n]["lineage"]["forked_from"] for n in (A, B, C, D)] == [None, A, A, B]
    assert [found[n]["usage"]["input"] for n in (A, B, C, D)] == [20, 10, 10, 10]
    assert {one["parent_id"] for one in found.values()} == {None}


def test_a_renamed_fork_within_the_minute_is_still_one(home: Listed, db: Db) -> None:
    db.session(A, "Work")
    db.talk(A, "one", "re one")
    fork(db, A, B, "Other name")
    db.talk(B, "own")
    db.done()
    one = home.sessions()[B]
    assert (turns(one), one["lineage"]["forked_from"], one["first_prompt"]) == ((1, 0), A, "own")


def test_a_fork_whose_source_was_deleted_counts_its_own(home: Listed, db: Db) -> None:
    db.session(A, "Work")
    db.talk(A, "one", "re one")
    fork(db, A, B, "Work (fork #1)")
    db.talk(B, "own", "re own")
    for table in ("message", "part"):
        db.db.execute(f"DELETE FROM {table} WHERE session_id = ?", (A,))
    db.db.execute("DELETE FROM session WHERE id = ?", (A,))
    db.done()
    one = home.sessions()[B]
    assert (turns(one), one["usage"]["input"], one["lineage"]["forked_from"]) == ((1, 1), 10, None)


def test_a_compaction_before_the_fork_is_the_sources(home: Listed, db: Db) -> None:
    db.session(A, "Work")
    db.talk(A, "one", "re one")
    db.message(A, {"type": "compaction", "auto": True})
    db.answer(A, text("they spoke"), summary=True, finish="stop")
    db.message(A, text("Continue if you have next steps", synthetic=True))
    fork(db, A, B, "Work (fork #1)")
    db.talk(B, "own", "re own")
    db.message(B, {"type": "compaction", "auto": False})
    db.answer(B, text("they spoke more"), summary=True, finish="stop")
    db.done()
    found = home.sessions()
    assert [brief(found[n])["compactions"] for n in (A, B)] == [1, 1]
    assert [turns(found[n]) for n in (A, B)] == [(1, 1), (1, 1)]


def test_a_source_that_went_on_after_its_fork_keeps_its_own(home: Listed, db: Db) -> None:
    db.session(A, "Work")
    db.talk(A, "one", "re one")
    fork(db, A, B, "Work (fork #1)")
    db.talk(B, "own", "re own")
    db.talk(A, "more", "re more")
    db.done()
    found = home.sessions()
    assert [turns(found[n]) for n in (A, B)] == [(2, 2), (1, 1)]


# --- prompts, answers, tools


@pytest.mark.parametrize(
    ("parts", "counted"),
    [
        ([text("hi")], True),
        ([text('"quoted"')], True),
        ([text("injected", synthetic=True)], False),
        ([text("ignored", ignored=True)], False),
        ([{"type": "file", "mime": "image/png", "filename": "a.png", "url": "data:"}], True),
        ([text("hi"), text("Called the Read tool", synthetic=True), {"type": "file", "mime": "text/plain"}], True),
        ([{"type": "compaction", "auto": True}], False),
        ([{"type": "compaction", "auto": False}, text("with text")], False),
        ([], False),
    ],
)
def test_what_is_a_user_turn(home: Listed, db: Db, parts: list[dict[str, Any]], counted: bool) -> None:
    db.session(A)
    db.talk(A, "first", "re first")
    db.message(A, *parts)
    db.done()
    assert turns(home.sessions()[A])[0] == 1 + counted


@pytest.mark.parametrize(
    ("state", "result", "error"),
    [
        ({"status": "completed", "output": "x"}, 1, 0),
        ({"status": "completed", "output": "x", "metadata": {"exit": 1}}, 1, 1),
        ({"status": "completed", "output": "x", "metadata": {"exit": 0}}, 1, 0),
        ({"status": "completed", "output": "x", "metadata": {"exit": None}}, 1, 0),
        ({"status": "error", "error": "no such file"}, 1, 1),
        ({"status": "error", "error": "The user rejected permission to use this specific tool call."}, 1, 1),
        ({"status": "error", "error": "Tool execution aborted"}, 1, 0),
        ({"status": "running"}, 0, 0),
        ({"status": "pending"}, 0, 0),
    ],
)
def test_calls_results_and_errors(home: Listed, db: Db, state: dict[str, Any], result: int, error: int) -> None:
    db.session(A)
    db.talk(A, "first")
    db.answer(A, tool(**state))
    db.done()
    one = brief(home.sessions()[A])
    assert (one["tools"], one["tool_result"], one["tool_errors"], one["assistant"]) == ({"bash": 1}, result, error, 0)


def test_thoughts_are_parts_and_blank_ones_none(home: Listed, db: Db) -> None:
    db.session(A)
    db.talk(A, "first")
    db.answer(
        A, {"type": "reasoning", "text": "hm"}, {"type": "reasoning", "text": " "}, text(" "), {"type": "step-finish"}
    )
    db.answer(A, {"type": "reasoning", "text": "hm"}, text("a"), text("b"))
    db.done()
    one = brief(home.sessions()[A])
    assert (one["thinking"], one["assistant"]) == (2, 1)


# --- usage


def test_output_has_the_reasoning_added_and_a_summary_is_apart(home: Listed, db: Db) -> None:
    db.session(A)
    db.talk(A, "one", "re one")
    db.message(A, {"type": "compaction", "auto": True})
    db.answer(A, text("they spoke"), summary=True, finish="stop")
    db.done()
    usage = brief(home.sessions()[A])["usage"]
    assert usage == {"input": 10, "output": 3, "cache_read": 3, "cache_creation": 4, "reasoning": 1}


def test_a_killed_answer_with_zero_tokens_is_no_record(home: Listed, db: Db) -> None:
    db.session(A)
    db.talk(A, "one")
    zero = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    db.message(A, text("part"), role="assistant", modelID="m", tokens=zero, time={"created": db.at + 1000})
    db.done()
    one = home.sessions()[A]
    assert (one["usage"], turns(one)) == (None, (1, 1))


@pytest.mark.parametrize(
    ("told", "count"),
    [
        ({"summary": True, "finish": "stop"}, 1),
        ({"summary": True, "finish": None, "time": {"created": 1_790_000_009_000}}, 0),
        ({"summary": True, "error": {"name": "APIError", "data": {}}, "finish": "stop"}, 0),
    ],
)
def test_only_a_completed_summary_is_a_compaction(home: Listed, db: Db, told: dict[str, Any], count: int) -> None:
    db.session(A)
    db.talk(A, "one", "re one")
    db.message(A, {"type": "compaction", "auto": True})
    db.answer(A, text("they spoke"), **told)
    db.done()
    one = brief(home.sessions()[A])
    assert (one["compactions"], one["user"], one["assistant"]) == (count, 1, 1)


def test_models_in_order_of_first_use(home: Listed, db: Db) -> None:
    db.session(A, model=json.dumps({"id": "last", "providerID": "p"}))
    db.talk(A, "one")
    for model in ("m-b", "m-a", "m-b"):
        db.answer(A, text(model), modelID=model)
    db.done()
    assert brief(home.sessions()[A])["models"] == ["m-b", "m-a"]


# --- the session


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("New session - 2026-11-30T10:00:00.000Z", None),
        ("Child session - 2026-11-30T10:00:00.000Z", None),
        ("New session - notes", "New session - notes"),
        ("", None),
        ("Work (fork #1)", "Work (fork #1)"),
    ],
)
def test_placeholders_are_no_titles(home: Listed, db: Db, title: str, shown: str | None) -> None:
    db.session(A, title)
    db.talk(A, "one")
    db.done()
    assert home.sessions()[A]["title"] == shown


def test_a_sub_agent_has_its_parent_and_its_own_prompt(home: Listed, db: Db) -> None:
    db.session(A)
    db.talk(A, "one")
    db.answer(A, tool("completed", output="x", metadata={"sessionId": B}))
    db.session(B, parent_id=A, directory="/home/dev/app")
    db.talk(B, "look", "looked")
    db.session(C, parent_id=B)
    db.talk(C, "deeper", "deep")
    db.done()
    found = home.sessions()
    assert [(found[n]["parent_id"], turns(found[n])) for n in (A, B, C)] == [(None, (1, 0)), (A, (1, 1)), (B, (1, 1))]
    assert brief(found[B])["cwd"] == "/home/dev/app"


def test_last_activity_is_the_last_message_and_not_time_updated(home: Listed, db: Db) -> None:
    db.session(A, time_updated=1_799_000_000_000)
    db.talk(A, "one", "re one")
    last = db.at + 9
    db.done()
    one = brief(home.sessions()[A])
    assert one["last"].endswith(f".{last % 1000:03}Z")
    assert one["last"] < "2027"


def test_messages_are_ordered_by_time_then_id(home: Listed, db: Db) -> None:
    db.session(A)
    at = db.at + 60_000
    db.message(A, text("later"), at=at)
    db.message(A, text("earlier"), at=at - 1000)
    db.done()
    assert home.sessions()[A]["first_prompt"] == "earlier"


# --- stores


def filed(home: Listed, native: str, *messages: dict[str, Any], project: str = "global", **session: Any) -> None:
    base = data(home) / "storage"
    about = {
        "id": native,
        "title": "Filed",
        "directory": "/home/dev/app",
        "time": {"created": 1_760_000_000_000},
    } | session
    (base / "session" / project).mkdir(parents=True, exist_ok=True)
    (base / "session" / project / f"{native}.json").write_text(json.dumps(about))
    for number, message in enumerate(messages):
        parts = message.pop("parts")
        message_id = f"msg_{native[-3:]}{number:03}"
        told = {"id": message_id, "sessionID": native, "time": {"created": 1_760_000_001_000 + number * 1000}} | message
        (base / "message" / native).mkdir(parents=True, exist_ok=True)
        (base / "message" / native / f"{message_id}.json").write_text(json.dumps(told))
        for place, part in enumerate(parts):
            (base / "part" / message_id).mkdir(parents=True, exist_ok=True)
            (base / "part" / message_id / f"prt_{place}.json").write_text(json.dumps(part))


def said(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts), **more}


def replied(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    tokens = {"input": 10, "output": 2, "reasoning": 1, "cache": {"read": 3, "write": 4}}
    return {"role": "assistant", "modelID": "m", "tokens": tokens, "parts": list(parts), **more}


def test_the_database_wins_over_the_files_and_files_alone_are_read(home: Listed, db: Db) -> None:
    db.session(A, "Db")
    db.talk(A, "one")
    db.done()
    filed(home, A, said(text("file one")), replied(text("x")), said(text("file two")))
    filed(
        home,
        B,
        said(text("only file")),
        replied(text("x"), tool("completed", output="x", metadata={"exit": 2})),
        parentID=A,
    )
    found = home.sessions()
    assert (turns(found[A]), found[A]["title"], found[A]["first_prompt"]) == ((1, 0), "Db", "one")
    one = brief(found[B])
    assert (one["user"], one["assistant"], one["tool_errors"], one["parent"], one["cwd"]) == (
        1,
        1,
        1,
        A,
        "/home/dev/app",
    )


def test_a_fork_among_files_counts_its_own(home: Listed) -> None:
    filed(home, A, said(text("one")), replied(text("re one")), title="Work")
    again = {"time": {"created": 1_760_000_001_000}}, {"time": {"created": 1_760_000_002_000}}
    later = {"time": {"created": 1_760_000_900_000}}
    filed(
        home,
        B,
        said(text("one"), **again[0]),
        replied(text("re one"), **again[1]),
        said(text("own"), **later),
        title="Work (fork #1)",
        time={"created": 1_760_000_800_000},
    )
    found = home.sessions()
    assert (turns(found[B]), found[B]["lineage"]["forked_from"]) == ((1, 0), A)


def test_half_files_are_passed_over(home: Listed) -> None:
    filed(home, A, said(text("one")), replied(text("re one")))
    (data(home) / "storage" / "message" / A / "msg_zzz.json").write_text('{"id": "msg_zzz", "ro')
    home.store.sync()
    assert turns(home.listing()[A]) == (1, 1)


def test_a_database_of_another_channel_is_read_too(home: Listed, db: Db) -> None:
    db.session(A)
    db.talk(A, "one")
    db.done()
    other = Db(data(home), "opencode-beta.db")
    other.session(A)
    other.talk(A, "one", "re one")
    other.session(B)
    other.talk(B, "one", "re one")
    other.done()
    found = home.sessions()
    assert (sorted(found), turns(found[A])) == ([A, B], (1, 0))


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_growing_store_gives_what_a_fresh_import_gives(home: Listed, tmp_path: Path, mode: str) -> None:
    db = Db(data(home))
    db.db.execute(f"PRAGMA journal_mode = {mode}")
    db.session(A, "New session - 2026-11-30T10:00:00.000Z")

    def killed() -> None:
        db.message(A, tool("running"), role="assistant", modelID="m", time={"created": db.at + 1000})

    def finished() -> None:
        ((part, told),) = db.db.execute("SELECT id, data FROM part WHERE data LIKE '%running%'").fetchall()
        db.db.execute("UPDATE part SET data = ? WHERE id = ?", (told.replace("running", "completed"), part))

    steps: list[Callable[[], object]] = [
        lambda: db.talk(A, "one", "re one"),
        lambda: db.db.execute("UPDATE session SET title = 'Work'"),
        killed,
        finished,
        lambda: fork(db, A, B, "Work (fork #1)"),
        lambda: db.talk(B, "own", "re own"),
        lambda: db.talk(A, "more", "re more"),
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
    db.talk(A, "one", "re one", "two", "re two")
    home.store.sync()
    db.db.execute("DELETE FROM message WHERE rowid > 2")
    db.done()
    home.store.sync()
    assert turns(home.listing()[A]) == (2, 2)


def test_accounts_and_credentials_are_kept_nowhere(home: Listed, db: Db) -> None:
    db.db.execute("CREATE TABLE credential (id, value)")
    db.db.execute("INSERT INTO credential VALUES (1, 'sk-canary-4242')")
    db.db.execute("ALTER TABLE session ADD COLUMN share_secret TEXT")
    db.session(A, share_secret="sk-canary-4242")
    db.talk(A, "one")
    db.done()
    (data(home) / "auth.json").write_text('{"anthropic": {"key": "sk-canary-4242"}}')
    home.sessions()
    assert home.leaks("sk-canary-4242") == []


@pytest.mark.parametrize("form", ["column", "table"])
def test_a_fork_of_a_later_client_names_its_source(home: Listed, db: Db, form: str) -> None:
    if form == "column":
        db.db.execute("ALTER TABLE session ADD COLUMN fork_session_id TEXT")
    db.session(A, "Work")
    db.talk(A, "one", "re one")
    fork(db, A, B, "Other", **({"fork_session_id": A} if form == "column" else {}))
    db.talk(B, "own")
    if form == "table":
        db.db.execute("CREATE TABLE session_v2 (id, fork_session_id, fork_boundary)")
        db.db.execute("INSERT INTO session_v2 VALUES (?, ?, 'x')", (B, A))
    db.done()
    one = home.sessions()[B]
    assert (turns(one), one["lineage"]["forked_from"]) == ((1, 0), A)


def test_a_broken_database_leaves_the_files(home: Listed) -> None:
    data(home).mkdir(parents=True)
    (data(home) / "opencode.db").write_bytes(b"garbage" * 900)
    filed(home, A, said(text("one")), replied(text("re one")))
    assert any("opencode.db" in one for one in home.troubles())
    home.store.sync()
    assert turns(home.listing()[A]) == (1, 1)
    assert sqlite3.sqlite_version
