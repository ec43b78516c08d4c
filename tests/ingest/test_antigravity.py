"""The Antigravity importer against the shared corpus, and against small conversations of its own for each promise."""

from __future__ import annotations

import json
import os
import sqlite3
from base64 import b64encode
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from folded import Folded, copied_home, differences, fold_bytes, is_empty, owned, reckon, snapshot
from hypothesis import given, settings
from hypothesis import strategies as st
from wire import field, varint

from prosa.events.facts import Compaction, Usage
from prosa.ingest.antigravity import importer as antigravity
from prosa.ingest.importer import Identity, Trouble

CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus" / "antigravity"
CASES = sorted(path.name for path in CORPUS.glob("*") if path.is_dir()) if CORPUS.is_dir() else []
needs_corpus = pytest.mark.skipif(not CASES, reason="the shared corpus is not beside this checkout")

CHAT = "11111111-2222-4333-8444-555555555555"
START = 1_787_227_200
"""2026-08-20T12:00:00Z."""
OTHER = "66666666-7777-4888-8999-aaaaaaaaaaaa"


# --- folding and reckoning


def fold(data: bytes, native: str = CHAT, cuts: Iterable[int] = (), surface: str = "") -> Folded:
    identity = Identity("antigravity", native)
    return Folded(identity, *fold_bytes(antigravity.fold, identity, data, cuts), surface)


def fold_home(user_home: Path, env: dict[str, str] | None = None) -> tuple[dict[str, Folded], list[Trouble]]:
    """Every session below a user's home; several copies of one are united by key, the latest one's header."""
    homes = antigravity.homes(env or {}, user_home)
    sessions: dict[str, Folded] = {}
    troubles: list[Trouble] = []
    found = [source for home in homes for source in antigravity.sources(home, troubles.append)]
    for source in sorted(found, key=lambda one: one.rank):
        for raw in antigravity.raws(source, troubles.append):
            data = b"".join(raw.chunks())
            assert data == b"".join(raw.chunks())
            assert all(len(piece) <= 1 << 20 for piece in raw.chunks())
            one = fold(data, raw.identity.id, surface=raw.surface)
            if raw.identity.id in sessions:
                one.facts = sessions[raw.identity.id].facts | one.facts
            sessions[raw.identity.id] = one
    known = {native: [one.identity] for native, one in sessions.items()}
    ranks: dict[tuple[str, str], int] = {}
    for home in homes:
        for aside in antigravity.asides(home, known, troubles.append):
            one, place = sessions[aside.identity.id], (aside.identity.id, aside.field)
            if aside.rank > ranks.get(place, 0 if getattr(one, aside.field) else -9):
                ranks[place] = aside.rank
                setattr(one, aside.field, aside.value)
    return sessions, troubles


@needs_corpus
@pytest.mark.parametrize("case", CASES)
def test_a_corpus_case_gives_the_numbers_a_person_worked_out(case: str, tmp_path: Path) -> None:
    want = json.loads((CORPUS / case / "expected.json").read_text())
    home = copied_home(CORPUS / case / "home", tmp_path, want)
    before = snapshot(home)
    sessions, troubles = fold_home(home)
    counted = owned(sessions)
    rows = {native: reckon(one, counted[native]) for native, one in sessions.items()}
    wrong = {}
    for session in want["sessions"]:
        native = session["session_id"]
        row = rows.pop(native, None)
        if row is None:
            assert session.get("optional"), native
        elif found := differences(session, row):
            wrong[native] = found
    assert wrong == {}
    never = set(want.get("not_sessions", ()))
    allowed = set(want.get("optional_sessions", ()))
    assert [native for native, row in rows.items() if native in never or not (native in allowed or is_empty(row))] == []
    said = "\n".join(f"{one.path}: {one.reason}" for one in troubles)
    assert all(name in said for name in want.get("expected_errors", ()))
    assert not troubles or want.get("damaged")
    assert snapshot(home) == before


# --- making conversations


def moment(second: int) -> bytes:
    return field(1, START + second)


def call(name: str, native: str = "", arguments: str = "{}") -> bytes:
    return (field(1, native) if native else b"") + field(2, name) + field(3, arguments)


class Conversation:
    """A database under construction."""

    def __init__(self, native: str = CHAT) -> None:
        self.native = native
        self.steps: list[tuple[Any, ...]] = []
        self.generations: list[bytes] = []
        self.executors: list[bytes] = []
        self.blob = field(1, field(1, "file:///home/dev/app")) + field(2, moment(0)) + field(6, native)

    def step(
        self, kind: int, body: bytes, *, status: int = 3, answers: bytes = b"", metadata: bytes | None = None
    ) -> int:
        number = len(self.steps)
        about = field(1, moment(number)) + (field(4, answers) if answers else b"")
        about = about if metadata is None else metadata
        payload = field(1, kind) + field(4, status) + body
        self.steps.append((number, kind, status, about or None, payload))
        return number

    def prompt(self, text: str) -> int:
        return self.step(14, field(19, field(2, text)))

    def answer(self, text: str = "", *calls: bytes, thinking: str = "", metadata: bytes | None = None) -> int:
        body = field(8, text) + (field(3, thinking) if thinking else b"") + b"".join(field(7, one) for one in calls)
        return self.step(15, field(20, body), metadata=metadata)

    def generation(self, usage: bytes, *steps: int, alias: str = "") -> None:
        chat = field(4, usage) + (field(19, alias) if alias else b"")
        self.generations.append(field(1, chat) + field(2, b"".join(map(varint, steps))))

    def write(self, home: Path, instance: str = "antigravity-cli") -> Path:
        path = home / ".gemini" / instance / "conversations" / f"{self.native}.db"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE steps (idx, step_type, status, metadata, step_payload)")
            db.execute("CREATE TABLE gen_metadata (idx, data)")
            db.execute("CREATE TABLE executor_metadata (idx, data)")
            db.execute("CREATE TABLE trajectory_metadata_blob (id, data)")
            db.executemany("INSERT INTO steps VALUES (?, ?, ?, ?, ?)", self.steps)
            db.executemany("INSERT INTO gen_metadata VALUES (?, ?)", list(enumerate(self.generations)))
            db.executemany("INSERT INTO executor_metadata VALUES (?, ?)", list(enumerate(self.executors)))
            db.execute("INSERT INTO trajectory_metadata_blob VALUES ('main', ?)", (self.blob,))
        db.close()
        return path


def tokens(spent: int, made: int, read: int = 0, thought: int = 0, response: str = "") -> bytes:
    stats = field(2, spent) + field(3, made) + field(5, read) + field(9, thought) + field(10, made - thought)
    return stats + (field(11, response) if response else b"")


def log(
    home: Path, *lines: Any, native: str = CHAT, name: str = "transcript_full.jsonl", instance: str = "antigravity-cli"
) -> Path:
    path = home / ".gemini" / instance / "brain" / native / ".system_generated" / "logs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def line(idx: int, kind: str, content: str | None = None, **more: Any) -> dict[str, Any]:
    when = f"2026-08-20T12:00:{idx % 60:02}Z"
    said = {"step_index": idx, "type": kind, "status": "DONE", "created_at": when, **more}
    return said if content is None else said | {"content": content}


def one(home: Path) -> Folded:
    return fold_home(home)[0][CHAT]


def results(session: Folded) -> list[tuple[str | None, bool]]:
    return [(turn.tool, turn.is_error) for turn in session.turns if turn.kind == "tool_result"]


def usage_of(session: Folded) -> list[Usage]:
    return [fact for fact in session.facts.values() if isinstance(fact, Usage)]


# --- database and logs


def test_database_and_logs_of_one_conversation_are_one_session(tmp_path: Path) -> None:
    talk = Conversation()
    talk.prompt("find it")
    talk.answer("", call("grep_search", "q1"))
    talk.step(7, field(13, field(2, "it")), answers=call("grep_search", "q1"))
    talk.answer("found")
    talk.write(tmp_path)
    log(
        tmp_path,
        line(0, "USER_INPUT", "<USER_REQUEST>\nfind it\n</USER_REQUEST>"),
        line(1, "PLANNER_RESPONSE", thinking="grep", tool_calls=[{"name": "grep_search", "args": {}}]),
        line(2, "GREP_SEARCH", "a longer text of the result"),
        line(3, "PLANNER_RESPONSE", "found"),
        line(4, "USER_INPUT", "<USER_REQUEST>\nonly in the log\n</USER_REQUEST>"),
    )
    session = one(tmp_path)
    assert session.texts("user") == ["find it", "only in the log"]
    assert session.texts("assistant", "thinking") == ["grep"]
    assert session.texts("assistant") == ["found"]
    assert [turn.text for turn in session.turns if turn.kind == "tool_result"] == ["a longer text of the result"]


def test_the_whole_copy_of_a_step_is_read_before_a_cleared_one(tmp_path: Path) -> None:
    log(tmp_path, line(0, "USER_INPUT", "whole"), name="transcript.jsonl")
    log(tmp_path, line(0, "USER_INPUT", status="CLEARED"), line(1, "USER_INPUT", "old"), line(1, "USER_INPUT", "new"))
    assert one(tmp_path).texts("user") == ["whole", "new"]


def test_chunks_hold_what_the_log_has_lost(tmp_path: Path) -> None:
    log(tmp_path, line(7, "USER_INPUT", "late"))
    log(tmp_path, line(0, "USER_INPUT", "early"), name="chunks/transcript_full/00000000.jsonl")
    assert one(tmp_path).texts("user") == ["early", "late"]


def test_an_empty_request_is_no_prompt_and_a_cleared_one_is(tmp_path: Path) -> None:
    log(
        tmp_path,
        line(0, "USER_INPUT", "<USER_REQUEST>\n\n</USER_REQUEST>"),
        line(1, "USER_INPUT", status="CLEARED"),
        line(2, "USER_INPUT", "<USER_REQUEST>\na </USER_REQUEST> b\n</USER_REQUEST>\n<ADDITIONAL_METADATA>x"),
    )
    assert one(tmp_path).texts("user") == ["", "a </USER_REQUEST> b"]


def test_a_result_answers_its_call_by_id_and_else_in_order(tmp_path: Path) -> None:
    talk = Conversation()
    talk.prompt("go")
    talk.answer("", call("view_file", "a"), call("run_command", "b"), call("list_dir"))
    talk.step(21, field(28, field(6, 3) + field(21, field(1, "boom"))), answers=call("run_command", "b"))
    talk.step(8, field(14, field(4, "text")), answers=call("view_file", "a"))
    talk.step(9, field(15, field(1, "x")), metadata=b"")
    talk.step(9, field(15, field(1, "nobody asked")), metadata=b"")
    talk.write(tmp_path)
    assert results(one(tmp_path)) == [("run_command", True), ("view_file", False), ("list_dir", False)]


def test_the_same_call_answered_twice_is_one_result(tmp_path: Path) -> None:
    talk = Conversation()
    talk.answer("", call("run_command", "a"))
    for text in ("part", "whole"):
        talk.step(21, field(28, field(21, field(1, text))), answers=call("run_command", "a"))
    talk.write(tmp_path)
    assert [turn.text for turn in one(tmp_path).turns if turn.kind == "tool_result"] == ["whole"]


@pytest.mark.parametrize(
    ("more", "failed"),
    [
        ({"content": "ok"}, False),
        ({"content": "The command failed with exit code: 2"}, True),
        ({"content": "The command failed with exit code: 2", "exit_code": 0}, False),
        ({"content": "fine", "exit_code": 1}, True),
        ({"content": "Permission denied", "status": "ERROR"}, True),
    ],
)
def test_a_failed_tool_is_told_by_status_code_or_words(tmp_path: Path, more: dict[str, Any], failed: bool) -> None:
    calls = [{"name": "run_command", "args": {}}]
    log(tmp_path, line(0, "PLANNER_RESPONSE", tool_calls=calls), line(1, "RUN_COMMAND", **more))
    assert results(one(tmp_path)) == [("run_command", failed)]


def test_arguments_of_a_capped_log_are_decoded_once_more(tmp_path: Path) -> None:
    args = {"DirectoryPath": '"C:\\\\Users"', "N": "5000"}
    log(tmp_path, line(0, "PLANNER_RESPONSE", tool_calls=[{"name": "list_dir", "args": args}]))
    assert [turn.text for turn in one(tmp_path).turns] == ["DirectoryPath: C:\\Users\nN: 5000"]


def test_unknown_steps_are_shown_and_counted_as_unknown(tmp_path: Path) -> None:
    talk = Conversation()
    talk.prompt("go")
    talk.step(250, field(900, field(1, "future")))
    talk.write(tmp_path)
    session = one(tmp_path)
    assert list(session.header.unknown) == ["step 250"]
    assert session.texts("system", counted=False) == ["future"]


def test_checkpoints_are_compactions_unless_they_only_hold_an_intent(tmp_path: Path) -> None:
    talk = Conversation()
    talk.step(23, field(30, field(9, 1)))
    talk.step(23, field(30, field(5, "summary") + field(10, "A title")))
    talk.step(23, field(30, field(5, "half")), status=2)
    talk.write(tmp_path)
    session = one(tmp_path)
    assert [fact.id for fact in session.facts.values() if isinstance(fact, Compaction)] == [f"{CHAT}#1"]
    assert session.header.title == "A title"


# --- usage and models


def test_usage_stands_in_two_tables_and_counts_once(tmp_path: Path) -> None:
    talk = Conversation()
    number = talk.answer("hi", metadata=field(1, moment(0)) + field(9, tokens(10, 5, response="r")))
    talk.generation(tokens(10, 5, 3, 2, "r"), number, alias="gemini-x-a")
    talk.generation(tokens(10, 5, 3, 2, "r"), number, alias="gemini-x-a")
    talk.generation(b"", number)
    talk.generation(tokens(1, 1), alias="gemini-x-a")
    talk.executors.append(field(3, 0) + field(10, field(1, field(28, "gemini-x-high"))))
    talk.write(tmp_path)
    found = usage_of(one(tmp_path))
    assert [(u.input, u.output, u.cache_read, u.reasoning, u.model) for u in found] == [
        (10, 5, 3, 2, "gemini-x-high"),
        (1, 1, 0, 0, "gemini-x-high"),
    ]


def test_usage_of_the_steps_serves_where_the_table_has_none(tmp_path: Path) -> None:
    talk = Conversation()
    for _ in range(2):
        talk.answer("hi", metadata=field(1, moment(len(talk.steps))) + field(9, tokens(10, 5)))
    talk.write(tmp_path)
    assert [usage.input for usage in usage_of(one(tmp_path))] == [10, 10]


def test_usage_keeps_its_key_when_the_table_comes_later(tmp_path: Path) -> None:
    for response in ("", "r1"):
        talk = Conversation()
        number = talk.answer("hi", metadata=field(1, moment(0)) + field(9, tokens(10, 5, response=response)))
        talk.write(tmp_path)
        before = usage_of(one(tmp_path))
        talk.generation(tokens(10, 5, response=response), number)
        talk.write(tmp_path)
        assert [usage.key for usage in usage_of(one(tmp_path))] == [usage.key for usage in before]


def test_a_drifted_layout_is_not_taken_for_tokens(tmp_path: Path) -> None:
    talk = Conversation()
    talk.answer("hi")
    talk.generation(field(2, 10) + field(3, 50) + field(9, 1) + field(10, 1), 0)
    talk.generation(field(2, 1 << 60) + field(3, 5), 0)
    talk.write(tmp_path)
    assert (usage_of(one(tmp_path)), one(tmp_path).header.has_usage) == ([], False)


def test_the_model_of_a_log_is_the_one_the_user_chose(tmp_path: Path) -> None:
    change = "<USER_SETTINGS_CHANGE>\nThe user changed setting `Model Selection` from None to {}. No need to comment."
    log(
        tmp_path,
        line(0, "USER_INPUT", "<USER_REQUEST>a</USER_REQUEST>" + change.format("Gemini 3.6 Flash (High)")),
        line(1, "PLANNER_RESPONSE", "one"),
        line(2, "USER_INPUT", "<USER_REQUEST>b</USER_REQUEST>" + change.format("Claude Opus 4.6")),
        line(3, "PLANNER_RESPONSE", "two"),
    )
    models = [turn.model for turn in one(tmp_path).turns if turn.role == "assistant"]
    assert models == ["Gemini 3.6 Flash (High)", "Claude Opus 4.6"]


# --- around the conversation


def test_the_same_conversation_in_two_instances_counts_once(tmp_path: Path) -> None:
    for instance in ("antigravity", "antigravity-backup"):
        talk = Conversation()
        talk.prompt("hello")
        if instance == "antigravity":
            talk.answer("hi")
        talk.write(tmp_path, instance)
    talk.write(tmp_path, "antigravity-history")
    sessions, _ = fold_home(tmp_path)
    assert [len(session.turns) for session in sessions.values()] == [2]


def test_an_undone_step_stays_beside_the_one_that_took_its_index(tmp_path: Path) -> None:
    talk = Conversation()
    talk.prompt("first try")
    talk.write(tmp_path)
    before = set(one(tmp_path).facts)
    talk = Conversation()
    talk.step(14, field(19, field(2, "second try")), metadata=field(1, moment(60)))
    talk.write(tmp_path)
    assert not before & set(one(tmp_path).facts)


def index(home: Path, *rows: tuple[str, str, str, str]) -> None:
    path = home / ".gemini" / "antigravity-cli" / "conversation_summaries.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE TABLE conversation_summaries (conversation_id, title, workspace_uris, parent_conversation_id)"
        )
        db.executemany("INSERT INTO conversation_summaries VALUES (?, ?, ?, ?)", rows)
    db.close()


def test_title_and_parent_come_from_the_index_and_the_folder_only_where_nothing_else_says(tmp_path: Path) -> None:
    for native in (CHAT, OTHER):
        talk = Conversation(native)
        talk.prompt("hello")
        if native == OTHER:
            talk.blob = b""
        talk.write(tmp_path)
    index(tmp_path, (CHAT, "One", '["file:///else"]', ""), (OTHER, "Two", '["file:///home/dev/it%20is"]', CHAT))
    sessions, troubles = fold_home(tmp_path)
    assert {native: (one.cwd, one.title, one.parent) for native, one in sessions.items()} == {
        CHAT: ("/home/dev/app", "One", None),
        OTHER: ("/home/dev/it is", "Two", CHAT),
    }
    assert troubles == []


def test_a_sub_agent_is_known_by_the_call_that_made_it(tmp_path: Path) -> None:
    talk = Conversation()
    talk.answer("", call("invoke_subagent", "i"))
    made = field(10, field(1, OTHER) + field(3, "file:///home/dev/sub"))
    talk.step(127, field(143, made), answers=call("invoke_subagent", "i"))
    talk.write(tmp_path)
    log(tmp_path, line(0, "PLANNER_RESPONSE", "done", input_tokens=5, output_tokens=2), native=OTHER)
    sessions, _ = fold_home(tmp_path)
    assert sessions[OTHER].parent == CHAT
    assert sessions[OTHER].cwd == "/home/dev/sub"
    assert [(usage.input, usage.reasoning) for usage in usage_of(sessions[OTHER])] == [(5, None)]


def test_a_prompt_without_conversation_in_the_history_is_matched_by_text_and_minute(tmp_path: Path) -> None:
    log(tmp_path, line(0, "USER_INPUT", "<USER_REQUEST>hello</USER_REQUEST>"))
    history = tmp_path / ".gemini" / "antigravity-cli" / "history.jsonl"
    row = {"display": "hello", "timestamp": START * 1000 + 5_000, "workspace": "/home/dev/app"}
    history.write_text(json.dumps(row) + "\n[]\nbad\n" + json.dumps(row | {"timestamp": 0, "workspace": "/x"}))
    assert one(tmp_path).header.cwd == "/home/dev/app"
    history.write_text(json.dumps(row) + "\n" + json.dumps(row | {"workspace": "/home/dev/b"}))
    assert one(tmp_path).header.cwd is None


def test_an_encrypted_file_gives_a_session_of_which_only_the_frame_is_known(tmp_path: Path) -> None:
    folder = tmp_path / ".gemini" / "antigravity" / "conversations"
    folder.mkdir(parents=True)
    (folder / f"{CHAT}.pb").write_bytes(os.urandom(5000))
    os.utime(folder / f"{CHAT}.pb", (START, START))
    (folder / f"{OTHER}.pb").write_bytes(bytes(200_000))
    sessions, troubles = fold_home(tmp_path)
    assert (list(sessions), troubles) == ([CHAT], [])
    header = sessions[CHAT].header
    assert (header.state, header.compactions_known, header.started_at) == ("encrypted", False, START * 1_000_000)


def test_a_broken_database_is_reported_and_its_logs_are_read(tmp_path: Path) -> None:
    talk = Conversation()
    path = talk.write(tmp_path)
    path.write_bytes(b"garbage" * 100)
    log(tmp_path, line(0, "USER_INPUT", "hello"))
    sessions, troubles = fold_home(tmp_path)
    assert [Path(one.path).name for one in troubles] == [path.name]
    assert (sessions[CHAT].texts("user"), sessions[CHAT].header.state) == (["hello"], "partial")


def test_missing_tables_and_columns_cost_only_themselves(tmp_path: Path) -> None:
    talk = Conversation()
    talk.prompt("hello")
    path = talk.write(tmp_path)
    for change in ("DROP TABLE gen_metadata", "ALTER TABLE executor_metadata RENAME COLUMN data TO x"):
        with sqlite3.connect(path) as db:
            db.execute(change)
        db.close()
        assert one(tmp_path).texts("user") == ["hello"]
    with sqlite3.connect(path) as db:
        db.execute("UPDATE steps SET metadata = 5, status = 'x'")
    db.close()
    assert one(tmp_path).texts("user") == ["hello"]


def test_folders_fifos_and_loops_in_the_way_do_not_stop_the_rest(tmp_path: Path) -> None:
    talk = Conversation()
    talk.prompt("hello")
    folder = talk.write(tmp_path).parent
    os.mkfifo(folder / f"{OTHER}.db")
    (folder / "abcdefgh.db").mkdir()
    for name in ("history.jsonl", "conversation_summaries.db"):
        os.mkfifo(folder.parent / name)
    brain = folder.parent / "brain"
    logs = brain / CHAT / ".system_generated" / "logs"
    logs.mkdir(parents=True)
    os.mkfifo(logs / "transcript.jsonl")
    (brain / "looplooploop").symlink_to(brain)
    (brain / "nowhere-at-all").symlink_to("nowhere")
    sessions, troubles = fold_home(tmp_path)
    assert list(sessions) == [CHAT]
    assert troubles == []


def test_a_variable_moves_the_home_and_a_folder_of_instances_is_one_too(tmp_path: Path) -> None:
    talk = Conversation()
    talk.prompt("hello")
    talk.write(tmp_path, "antigravity-next")
    assert tmp_path / ".gemini" / "antigravity-next" in antigravity.homes({}, tmp_path)
    assert antigravity.homes({"ANTIGRAVITY_DATA_DIR": "/x"}, tmp_path) == [Path("/x")]
    assert [source.id for source in antigravity.sources(tmp_path / ".gemini", lambda trouble: None)] == [CHAT]


@cache
def corpus_raws() -> list[bytes]:
    found = []
    for case in CASES:
        for home in antigravity.homes({}, CORPUS / case / "home"):
            for source in antigravity.sources(home, lambda trouble: None):
                found += [b"".join(raw.chunks()) for raw in antigravity.raws(source, lambda trouble: None)]
    return found


@needs_corpus
def test_reading_in_pieces_gives_the_same_facts_and_header() -> None:
    for data in corpus_raws():
        whole = fold(data)
        for step in (1 + len(data) // 5, 997):
            pieces = fold(data, cuts=range(step, len(data), step))
            assert (pieces.facts, pieces.header) == (whole.facts, whole.header)
    assert antigravity.fold(Identity("antigravity", CHAT)).state() is None


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_damaged_raw_never_breaks_the_fold(data: st.DataObject) -> None:
    own = b'{"idx":0,"row":{"type":14,"payload":"CA4="},"log":"{}"}\n{"antigravity":"steps/1","blob":"CA4="}\n'
    frame = b'{"antigravity":"pb/1","mtime_ms":1787227200000,"sidebar":{"title":"x","times_ms":[1]},"artifacts":[{}]}\n'
    body = bytearray(data.draw(st.sampled_from([*corpus_raws()[:5], own, frame])))
    for _ in range(data.draw(st.integers(0, 6))):
        place = data.draw(st.integers(0, len(body) - 1))
        body[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=6))
        body = body or bytearray(b"x")
    for turn in fold(bytes(body)).turns:
        turn.text.encode()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 300), st.binary(max_size=60), st.binary(max_size=40)), max_size=6))
def test_any_bytes_in_the_columns_are_survived(rows: list[tuple[int, bytes, bytes]]) -> None:
    lines = [
        {"idx": number, "row": {"type": kind, "status": 3, "payload": pack(payload), "metadata": pack(metadata)}}
        for number, (kind, payload, metadata) in enumerate(rows)
    ]
    head = {"antigravity": "steps/1"}
    for turn in fold("".join(json.dumps(one) + "\n" for one in [*lines, head]).encode()).turns:
        turn.text.encode()


def pack(data: bytes) -> str:
    return b64encode(data).decode()
