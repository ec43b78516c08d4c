"""The Hermes importer against the shared corpus, and against small stores of its own for each promise."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from folded import Folded, fold_bytes, matches, owned, reckon, told
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prosa.events.facts import Turn, Usage
from prosa.ingest import foreign_db
from prosa.ingest.hermes import importer as hermes
from prosa.ingest.importer import Identity, Raw, Trouble

CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus" / "hermes"
CASES = sorted(path.parent.name for path in CORPUS.glob("*/expected.json")) if CORPUS.is_dir() else []
needs_corpus = pytest.mark.skipif(not CASES, reason="the shared corpus is not beside this checkout")

Record = dict[str, Any]


# --- folding and reckoning


def fold(raw: Raw, cuts: Iterable[int] = ()) -> Folded:
    data = b"".join(raw.chunks())
    assert data == b"".join(raw.chunks())
    return folded(raw.identity, data, cuts)


def folded(identity: Identity, data: bytes, cuts: Iterable[int] = ()) -> Folded:
    header, takes = fold_bytes(hermes.fold, identity, data, cuts)
    session = Folded(identity, header, takes)
    assert len(session.facts) == len(told(takes)), "two facts of one parse have one key"
    return session


def read(home: Path) -> tuple[dict[str, Folded], list[Trouble]]:
    """Every session below a home by its key."""
    troubles: list[Trouble] = []
    sessions: dict[str, Folded] = {}
    for source in hermes.sources(home, troubles.append):
        for raw in hermes.raws(source, troubles.append):
            assert raw.identity.key not in sessions
            sessions[raw.identity.key] = fold(raw)
    return sessions, troubles


def copied_case(case: str, tmp_path: Path) -> Path:
    home = tmp_path / "home"
    shutil.copytree(CORPUS / case / "home", home)
    for path in (home, *home.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return home / ".hermes"


@needs_corpus
@pytest.mark.parametrize("case", CASES)
def test_a_corpus_case_gives_the_numbers_a_person_worked_out(case: str, tmp_path: Path) -> None:
    want = json.loads((CORPUS / case / "expected.json").read_text())
    home = copied_case(case, tmp_path)
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    sessions, troubles = read(home)
    after = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    assert before == after, [path.name for path in after if after[path] != before.get(path)]
    counted = owned(sessions)
    by_native = {one.identity.id: key for key, one in sessions.items()}
    assert sorted(by_native) == sorted(one["session_id"] for one in want["sessions"])
    for row in want["sessions"]:
        key = by_native[row["session_id"]]
        matches(reckon(sessions[key], counted[key]), row)
        assert sessions[key].header.unknown == {}
    assert not troubles or want.get("damaged")
    for name in want.get("expected_errors", ()):
        assert any(name in f"{trouble.path} {trouble.reason}" for trouble in troubles)


# --- small stores

SUMMARY = "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns were compacted.\n## Goal\n"
END = "\n\n--- END OF CONTEXT SUMMARY — respond to the message below, not the summary above ---"
T0 = 1_790_000_000.0
COLUMNS = [
    "role", "content", "tool_call_id", "tool_calls", "tool_name", "timestamp", "reasoning", "observed", "active",
    "compacted", "display_kind", "message_uid", "absorbed_message_uids",
]  # fmt: skip


class Db:
    """A state.db with the columns a test needs; rows a second apart."""

    def __init__(self, home: Path, profile: str | None = None) -> None:
        folder = home / "profiles" / profile if profile else home
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self.at = folder / "state.db", T0
        self.db = sqlite3.connect(self.path, isolation_level=None)
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS sessions (id TEXT PRIMARY KEY, source TEXT, model TEXT, model_config TEXT,"
            " parent_session_id TEXT, started_at REAL, ended_at REAL, end_reason TEXT, title TEXT, cwd TEXT,"
            " input_tokens INTEGER, output_tokens INTEGER, cache_read_tokens INTEGER, cache_write_tokens INTEGER,"
            " reasoning_tokens INTEGER)"
        )
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT,"
            f" {', '.join(COLUMNS)})"
        )
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS session_model_usage (session_id TEXT, model TEXT, task TEXT,"
            " input_tokens INTEGER, output_tokens INTEGER, first_seen REAL, last_seen REAL)"
        )

    def session(self, native: str, **fields: Any) -> str:
        fields = {"id": native, "source": "cli", "model": "m", "started_at": self.at} | fields
        self._insert("sessions", fields)
        return native

    def end(self, native: str, reason: str) -> None:
        self.db.execute("UPDATE sessions SET end_reason = ?, ended_at = ? WHERE id = ?", (reason, self.at, native))

    def add(self, native: str, role: str, content: object, step: float = 1.0, **fields: Any) -> None:
        self.at += step
        fields = {"session_id": native, "role": role, "content": content, "timestamp": self.at, "active": 1} | fields
        self._insert("messages", {"compacted": 0} | fields)

    def talk(self, native: str, *texts: str, step: float = 1.0) -> None:
        """Prompts and answers in turn."""
        for place, text in enumerate(texts):
            self.add(native, "assistant" if place % 2 else "user", text, step)

    def compact(self, native: str, *rows: tuple[str, str]) -> None:
        """What archive_and_compact does."""
        self.db.execute("UPDATE messages SET active = 0, compacted = 1 WHERE session_id = ? AND active = 1", (native,))
        self.at += 3
        for role, text in rows:
            self.add(native, role, text, 1e-6)

    def used(self, native: str, model: str, tokens: int, task: str = "", **fields: Any) -> None:
        told = {"session_id": native, "model": model, "task": task, "input_tokens": tokens, "output_tokens": 1}
        self._insert("session_model_usage", told | {"first_seen": self.at, "last_seen": self.at} | fields)

    def _insert(self, table: str, fields: Record) -> None:
        marks = ", ".join("?" * len(fields))
        self.db.execute(f"INSERT INTO {table} ({', '.join(fields)}) VALUES ({marks})", tuple(fields.values()))

    def done(self) -> None:
        self.db.close()


def prompts(home: Path) -> dict[str, list[str]]:
    """The counted prompts of every session, after ownership."""
    sessions, troubles = read(home)
    assert not troubles
    return {
        name: [
            fact.text
            for fact in facts
            if isinstance(fact, Turn) and fact.counted and (fact.kind, fact.role) == ("message", "user")
        ]
        for name, facts in owned(sessions).items()
    }


def test_a_prompt_typed_again_counts_and_its_copies_behind_a_compaction_do_not(tmp_path: Path) -> None:
    db = Db(tmp_path)
    db.session("a")
    db.talk("a", "go", "one", "continue", "two", "continue", "three")
    db.compact("a", ("user", "go"), ("assistant", SUMMARY + "x"), ("user", "continue"), ("assistant", "three"))
    db.talk("a", "continue", "four", "continue", "five")
    db.compact("a", ("user", "go"), ("assistant", SUMMARY + "y"), ("user", "continue"), ("assistant", "five"))
    db.talk("a", "continue", "six")
    db.done()
    sessions, _ = read(tmp_path)
    assert prompts(tmp_path) == {"hermes/a": ["go"] + ["continue"] * 5}
    assert sessions["hermes/a"].texts("assistant") == ["one", "two", "three", "four", "five", "six"]
    assert len(sessions["hermes/a"].compactions) == 2
    summaries = [one.text for one in sessions["hermes/a"].facts.values() if isinstance(one, Turn) and not one.counted]
    assert summaries == [f"{SUMMARY}x", f"{SUMMARY}y"]


def test_a_transcript_of_a_branch_repeats_its_source_too(tmp_path: Path) -> None:
    db = Db(tmp_path)
    db.session("a")
    db.talk("a", "go", "one")
    db.session("b", parent_session_id="a", model_config='{"_branched_from": "a"}')
    lines = [{"role": "user", "content": "go", "timestamp": db.at + 0.1}]
    lines.append({"role": "assistant", "content": "one", "timestamp": db.at + 0.2})
    lines.append({"role": "user", "content": "another way", "timestamp": db.at + 9})
    db.done()
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "b.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert prompts(tmp_path) == {"hermes/a": ["go"], "hermes/b": ["another way"]}


@pytest.mark.parametrize("kept", [(("user", "continue"), ("assistant", "two")), (("assistant", "two"),), ()])
def test_the_prompt_that_a_compaction_was_made_for_is_no_copy(
    tmp_path: Path, kept: tuple[tuple[str, str], ...]
) -> None:
    """A compaction before the turn writes the new prompt's first row itself."""
    db = Db(tmp_path)
    db.session("a")
    db.talk("a", "go", "one", "continue", "two")
    db.compact("a", ("user", "go"), ("assistant", SUMMARY), *kept, ("user", "continue"))
    db.add("a", "assistant", "three")
    db.done()
    assert prompts(tmp_path) == {"hermes/a": ["go", "continue", "continue"]}


def test_a_prompt_repeated_after_an_interrupted_turn_is_not_its_earlier_self(tmp_path: Path) -> None:
    db = Db(tmp_path)
    db.session("a")
    db.talk("a", "go", "one", "continue", "two", "continue")
    db.compact("a", ("user", "go"), ("assistant", SUMMARY), ("user", "continue"), ("user", "continue"))
    db.done()
    assert prompts(tmp_path) == {"hermes/a": ["go", "continue", "continue", "continue"]}


def test_a_summary_merged_into_a_row_hides_neither_the_row_nor_the_prompt_behind_it(tmp_path: Path) -> None:
    db = Db(tmp_path)
    db.session("a")
    db.talk("a", "go", "one")
    prior = "[PRIOR CONTEXT — for reference only; not a new message]\none\n\n"
    merged = f"{prior}[END OF PRIOR CONTEXT — COMPACTION SUMMARY BELOW]\n\n{SUMMARY}x{END}"
    db.compact("a", ("user", "go"), ("assistant", merged))
    db.talk("a", "next", "two")
    db.compact("a", ("user", f"{SUMMARY}y{END}\n\nask me anew"))
    db.done()
    sessions, _ = read(tmp_path)
    assert prompts(tmp_path) == {"hermes/a": ["go", "next", "ask me anew"]}
    assert sessions["hermes/a"].texts("assistant") == ["one", "two"]
    assert [one.id for one in sessions["hermes/a"].compactions] == ["a#4", "a#7"]


def test_a_rotation_counts_on_the_parent_and_its_copies_count_once(tmp_path: Path) -> None:
    db = Db(tmp_path)
    db.session("a")
    db.talk("a", "go", "one", "continue", "two")
    db.end("a", "compression")
    db.session("empty", parent_session_id="a", started_at=db.at + 0.1)
    db.end("empty", "compression")
    db.session("b", parent_session_id="empty", started_at=db.at + 0.2)
    db.at += 0.2
    for role, text in (("user", "go"), ("assistant", SUMMARY), ("user", "continue"), ("assistant", "two")):
        db.add("b", role, text, 0.003)
    db.add("b", "user", "continue", 0.003)
    db.add("b", "assistant", "three")
    db.done()
    sessions, _ = read(tmp_path)
    assert prompts(tmp_path) == {"hermes/a": ["go", "continue"], "hermes/b": ["continue"]}
    assert [one.id for one in sessions["hermes/a"].compactions] == ["a>empty"]
    assert [one.id for one in sessions["hermes/b"].compactions] == []
    assert sessions["hermes/b"].header.forked_from == "empty"
    assert sessions["hermes/b"].header.parent is None


def test_of_two_sessions_behind_a_rotation_the_stale_one_names_no_compaction(tmp_path: Path) -> None:
    db = Db(tmp_path)
    db.session("a")
    db.talk("a", "go", "one")
    db.end("a", "compression")
    for native in ("b", "c"):
        db.session(native, parent_session_id="a")
        db.talk(native, "go", step=0.001)
        db.talk(native, f"more {native}")
    db.end("b", "ws_orphan_reap")
    db.done()
    sessions, _ = read(tmp_path)
    assert [one.id for one in sessions["hermes/a"].compactions] == ["a>c"]
    assert prompts(tmp_path) == {"hermes/a": ["go"], "hermes/b": ["more b"], "hermes/c": ["more c"]}


def test_a_branch_whose_source_is_deleted_still_does_not_count_its_copies(tmp_path: Path) -> None:
    db = Db(tmp_path)
    db.session("a")
    db.talk("a", "go", "one")
    db.session("b", parent_session_id="a", model_config='{"_branched_from": "a"}')
    db.talk("b", "go", "one", step=0.001)
    db.talk("b", "another way", "ok")
    before = read(tmp_path)[0]
    db.db.execute("DELETE FROM messages WHERE session_id = 'a'")
    db.db.execute("DELETE FROM sessions WHERE id = 'a'")
    db.db.execute("UPDATE sessions SET parent_session_id = NULL")
    db.done()
    after = read(tmp_path)[0]
    assert prompts(tmp_path) == {"hermes/b": ["another way"]}
    assert after["hermes/b"].header.forked_from == "a"
    assert set(before["hermes/b"].facts) == set(after["hermes/b"].facts)


def test_a_continuation_whose_source_was_pruned_does_not_count_its_copies(tmp_path: Path) -> None:
    """The client deletes old sessions and takes the link out of those that go on."""
    db = Db(tmp_path)
    db.session("b")
    for role, text in (("user", "go"), ("assistant", SUMMARY), ("user", "continue"), ("assistant", "two")):
        db.add("b", role, text, 0.003)
    db.talk("b", "continue", "three")
    db.at += 50
    db.session("own")
    db.talk("own", "hello", "hi", step=0.1)
    db.compact("own", ("assistant", SUMMARY), ("assistant", "hi"))
    db.done()
    assert prompts(tmp_path) == {"hermes/b": ["continue"], "hermes/own": ["hello"]}


def test_what_stands_behind_a_rewritten_compaction_is_new(tmp_path: Path) -> None:
    """/retry writes all live rows anew, the summary's and the later ones at once."""
    db = Db(tmp_path)
    db.session("a")
    db.talk("a", "go", "ok", "continue", "ok")
    kept = (("user", "go"), ("assistant", SUMMARY), ("user", "continue"), ("assistant", "ok"))
    db.compact("a", *kept, ("user", "continue"), ("assistant", "ok"), ("user", "continue"))
    db.done()
    sessions, _ = read(tmp_path)
    assert prompts(tmp_path) == {"hermes/a": ["go", "continue", "continue", "continue"]}
    assert sessions["hermes/a"].texts("assistant") == ["ok"] * 3


def test_rows_that_are_written_anew_or_given_uids_keep_their_keys(tmp_path: Path) -> None:
    """/undo and /retry delete and insert all rows; the migration to schema 31 gives every old row a random uid."""
    db = Db(tmp_path)
    db.session("a", input_tokens=5)
    db.talk("a", "go", "one", "continue", "two", "continue", "three")
    db.compact("a", ("assistant", SUMMARY), ("user", "continue"), ("assistant", "three"))
    first = read(tmp_path)[0]["hermes/a"]
    db.db.execute("UPDATE messages SET message_uid = 'u' || id")
    db.used("a", "m", 5)
    second = read(tmp_path)[0]["hermes/a"]
    db.db.execute("UPDATE messages SET id = id + 100, timestamp = timestamp + 7")
    db.done()
    third = read(tmp_path)[0]["hermes/a"]
    assert set(first.facts) == set(second.facts) == set(third.facts)


def test_a_uid_says_that_two_rows_are_one_message(tmp_path: Path) -> None:
    db = Db(tmp_path)
    db.session("a")
    db.add("a", "user", "go", message_uid="u1", active=0)
    db.add("a", "user", "go", message_uid="u1")
    db.add("a", "user", "go", message_uid="u2")
    db.add("a", "user", "go\n\ngo", message_uid="u3", absorbed_message_uids='["u1", "u2"]')
    db.add("a", "user", "of rows that are gone", message_uid="u4", absorbed_message_uids='["u8", "u9"]')
    db.done()
    assert prompts(tmp_path) == {"hermes/a": ["go", "go", "of rows that are gone"]}


def test_a_transcript_beside_the_database_has_the_same_keys(tmp_path: Path) -> None:
    db = Db(tmp_path)
    db.session("a", input_tokens=7, cwd="/p")
    call = [{"id": "c", "type": "function", "function": {"name": "terminal", "arguments": '{"command": "ls"}'}}]
    db.add("a", "user", "go")
    db.add("a", "assistant", "", tool_calls=json.dumps(call))
    db.done()
    rows = read(tmp_path)[0]["hermes/a"]
    lines = [
        {"role": "session_meta", "model": "m"},
        {"role": "user", "content": "go", "timestamp": T0 + 1},
        {"role": "assistant", "content": None, "tool_calls": call, "timestamp": T0 + 2},
        {"role": "tool", "content": "Error: no", "tool_call_id": "c", "timestamp": "2026-09-21T15:33:29"},
    ]
    (tmp_path / "sessions").mkdir()
    path = tmp_path / "sessions" / "a.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    both = read(tmp_path)[0]["hermes/a"]
    assert set(rows.facts) < set(both.facts)
    assert both.header.cwd == "/p"
    (tmp_path / "state.db").unlink()
    alone = read(tmp_path)[0]["hermes/a"]
    assert {key for key, fact in alone.facts.items() if isinstance(fact, Turn)} == {
        key for key, fact in both.facts.items() if isinstance(fact, Turn)
    }


@pytest.mark.parametrize(
    ("text", "display", "shown", "counted"),
    [
        ("hello", None, "hello", True),
        ("left!", "steer", "left!", True),
        ("done", "process_complete", "done", False),
        ("[IMPORTANT: Background process p completed]", None, None, False),
        ("[ASYNC DELEGATION BATCH COMPLETE — d]\nx", None, None, False),
        ("A background subagent you dispatched earlier has finished.", None, None, False),
        ("[System note: The previous turn was interrupted.]\n\ngo on", None, "go on", True),
        ('[IMPORTANT: The user has invoked the "w" skill. It is loaded below.]\nb', None, "[Skill: w]", True),
        (
            '[SYSTEM: The user has invoked the "w" skill, x]\nThe user has provided the following instruction alongside'
            " the skill invocation: quoted\nThe user has provided the following instruction alongside the skill"
            " invocation: fix it\n\n[Runtime note: y]",
            None,
            "fix it",
            True,
        ),
        (
            '[IMPORTANT: The "w" skill is auto-loaded. Follow it.]\nbody\n[Skill directory: /s]\nResolve any paths'
            " against that directory, then run them with the terminal tool using the absolute path.\n\nfix it",
            None,
            "fix it",
            True,
        ),
    ],
)  # fmt: skip
def test_what_a_person_typed(tmp_path: Path, text: str, display: str | None, shown: str | None, counted: bool) -> None:
    db = Db(tmp_path)
    db.session("a")
    db.add("a", "user", text, display_kind=display)
    db.done()
    session = read(tmp_path)[0]["hermes/a"]
    assert session.texts(counted=counted) == [shown or text]
    assert session.texts(counted=not counted) == []


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        ('{"error": "no"}', True), ('{"error": null, "exit_code": 0}', False), ('{"exit_code": 2}', True),
        ('{"success": false}', True), ('{"success": false, "guardrail_refusal": true}', False), ("Error: x", True),
        ("fine", False), ("[1]", False), ('{"torn', False), ("", False), ('{"exit_code": true}', False),
    ],
)  # fmt: skip
def test_a_failed_tool_is_told_by_its_result(tmp_path: Path, text: str, failed: bool) -> None:
    db = Db(tmp_path)
    db.session("a")
    db.add("a", "tool", text, tool_call_id="c")
    db.done()
    facts = read(tmp_path)[0]["hermes/a"].facts.values()
    assert [fact.is_error for fact in facts if isinstance(fact, Turn)] == [failed]


def test_tokens_stand_for_each_model_and_never_twice(tmp_path: Path) -> None:
    db = Db(tmp_path)
    db.session("a", model="m2", input_tokens=30, output_tokens=3, reasoning_tokens=1)
    db.talk("a", "go", "one")
    first = read(tmp_path)[0]["hermes/a"]
    db.used("a", "m1", 10)
    db.used("a", "m2", 12, first_seen=db.at + 1)
    db.used("a", "small", 99, task="title_generation")
    db.done()
    second = read(tmp_path)[0]["hermes/a"]
    told = {fact.key: fact for fact in (*first.facts.values(), *second.facts.values()) if isinstance(fact, Usage)}
    assert sorted((one.model, one.input, one.output) for one in told.values()) == [
        ("m1", 10, 1),
        ("m2", 8, 1),
        ("m2", 12, 1),
    ]


def test_a_named_profile_is_a_scope_and_the_default_one_has_none(tmp_path: Path) -> None:
    for profile in (None, "coder"):
        db = Db(tmp_path, profile)
        db.session("a")
        db.talk("a", "go")
        db.done()
    sessions, _ = read(tmp_path)
    assert sorted(sessions) == ["hermes/a", "hermes/coder/a"]
    assert not set(sessions["hermes/a"].facts) & set(sessions["hermes/coder/a"].facts)
    assert sorted(read(tmp_path / "profiles" / "coder")[0]) == ["hermes/coder/a"]
    assert hermes.homes({"HERMES_HOME": str(tmp_path / "profiles" / "coder")}, Path("/u")) == [tmp_path]
    assert hermes.homes({}, Path("/u")) == [Path("/u/.hermes")]
    assert hermes.resume(Identity("hermes", "a", "coder"), None) == ["hermes", "-p", "coder", "--resume", "a"]


def test_a_busy_database_says_nothing_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db = Db(tmp_path)
    db.session("a")
    db.talk("a", "go")
    db.done()
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "b.jsonl").write_text('{"role": "user", "content": "x"}\n')
    assert sorted(read(tmp_path)[0]) == ["hermes/a", "hermes/b"]

    def busy(path: Path, work: object) -> None:
        raise foreign_db.BusyError("database is locked")

    monkeypatch.setattr(foreign_db, "read", busy)
    sessions, troubles = read(tmp_path)
    assert sessions == {}
    assert [trouble.retry for trouble in troubles] == [True]


@pytest.mark.parametrize("bad", [b"", b"SQLite format 3\0 but no more", b"junk" * 300])
def test_without_a_readable_database_the_files_are_read(tmp_path: Path, bad: bytes) -> None:
    (tmp_path / "state.db").write_bytes(bad)
    folder = tmp_path / "sessions"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"role": "user", "content": "x \\udcb2"}\n{"role": "us')
    (folder / "saved").mkdir()
    os.mkfifo(folder / "b.jsonl")
    (folder / "c.jsonl").symlink_to(folder / "nowhere")
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "loop").symlink_to(tmp_path / "profiles")
    sessions, troubles = read(tmp_path)
    assert sessions["hermes/a"].texts() == ["x \ufffd"]
    assert bool(bad) == any(trouble.path.endswith("state.db") for trouble in troubles)


CELLS = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=8), st.binary(max_size=8),
    st.sampled_from(["a", "b", SUMMARY, f"{SUMMARY}{END} x", "user", "assistant", "tool", "\0json:[{", "\0json:[1]",
                     '{"_branched_from": "a"}', '{"_delegate_from": 1}', "compression", "branched", T0, T0 + 1, "[]",
                     '[{"id": "c", "function": {"name": "n", "arguments": {"x": 1}}}, 3, {"function": 3}]', "u"]),
)  # fmt: skip


ROWS = st.lists(
    st.tuples(st.booleans(), st.sampled_from("abc"), st.dictionaries(st.integers(0, 20), CELLS)), max_size=12
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(st.booleans(), st.sampled_from("abc"), st.dictionaries(st.integers(0, 20), CELLS)), max_size=12
    )
)
def test_any_cell_may_hold_anything(tmp_path: Path, rows: list[tuple[bool, str, dict[int, Any]]]) -> None:
    (tmp_path / "state.db").unlink(missing_ok=True)
    db = Db(tmp_path)
    names = {
        table: [row[1] for row in db.db.execute(f"PRAGMA table_info({table})")] for table in ("sessions", "messages")
    }
    for native in "abc":
        db.session(native)
        db.talk(native, "go", "one")
    for is_session, native, cells in rows:
        table = "sessions" if is_session else "messages"
        fields = {names[table][2:][place % len(names[table][2:])]: cell for place, cell in cells.items()}
        try:
            if is_session and fields:
                told = ", ".join(f"{name} = ?" for name in fields)
                db.db.execute(f"UPDATE sessions SET {told} WHERE id = ?", (*fields.values(), native))
            elif not is_session:
                db._insert("messages", {"session_id": native, "role": "user"} | fields)
        except (OverflowError, UnicodeEncodeError):
            continue
    db.done()
    sessions, troubles = read(tmp_path)
    assert sorted(sessions) == ["hermes/a", "hermes/b", "hermes/c"]
    assert not troubles
    for session in sessions.values():
        json.dumps([str(fact) for fact in session.facts.values()]).encode()
        str(session.header).encode()


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=60) | st.text(alphabet='{}[]":,rolecontent\\ud8u\n', max_size=80).map(str.encode))
def test_any_bytes_are_folded(data: bytes) -> None:
    for head in (b"", b'{"hermes": 1, "session": {"started_at": 3, "model": 4}, "usage": [3]}\n', b'{"messages": [{'):
        whole = folded(Identity("hermes", "a"), head + data)
        cut = folded(Identity("hermes", "a"), head + data, range(0, len(head + data), 3))
        assert (whole.facts, whole.header) == (cut.facts, cut.header)


@needs_corpus
@pytest.mark.parametrize("case", ["compression-rotation", "state-db-basic", "inplace-compaction-v31"])
def test_a_damaged_database_loses_no_more_than_its_damage(case: str, tmp_path: Path) -> None:
    home = copied_case(case, tmp_path)
    whole = (home / "state.db").read_bytes()
    chance = random.Random(5)
    for _ in range(12):
        data = bytearray(whole)
        if chance.random() < 0.3:
            del data[chance.randrange(len(data)) :]
        for _ in range(chance.choice([1, 5, 400])):
            if data:
                data[chance.randrange(len(data))] = chance.randrange(256)
        (home / "state.db").write_bytes(data)
        read(home)
