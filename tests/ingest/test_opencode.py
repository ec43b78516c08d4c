"""The opencode importer against the shared corpus, and against small stores of its own for each promise."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from folded import Folded, fold_bytes, matches, owned, reckon, told
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from prosa.events.facts import Compaction, Turn, Usage
from prosa.ingest import foreign_db
from prosa.ingest.importer import Identity, Raw, Trouble
from prosa.ingest.opencode import importer as opencode

CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus" / "opencode"
CASES = sorted(path.parent.name for path in CORPUS.glob("*/expected.json")) if CORPUS.is_dir() else []
needs_corpus = pytest.mark.skipif(not CASES, reason="the shared corpus is not beside this checkout")

Record = dict[str, Any]


# --- folding and reckoning


def fold(raw: Raw, cuts: Iterable[int] = ()) -> Folded:
    data = b"".join(raw.chunks())
    assert data == b"".join(raw.chunks())
    return folded(raw.identity, data, cuts)


def folded(identity: Identity, data: bytes, cuts: Iterable[int] = ()) -> Folded:
    header, takes = fold_bytes(opencode.fold, identity, data, cuts)
    session = Folded(identity, header, takes)
    assert len(session.facts) == len(told(takes)), "two facts of one parse have one key"
    return session


def read(home: Path) -> tuple[dict[str, Folded], list[Trouble]]:
    """Every session below a home by its key."""
    troubles: list[Trouble] = []
    sessions: dict[str, Folded] = {}
    for source in opencode.sources(home, troubles.append):
        for raw in opencode.raws(source, troubles.append):
            assert raw.identity.key not in sessions
            sessions[raw.identity.key] = fold(raw)
    return sessions, troubles


@needs_corpus
@pytest.mark.parametrize("case", CASES)
def test_a_corpus_case_gives_the_numbers_a_person_worked_out(case: str, tmp_path: Path) -> None:
    want = json.loads((CORPUS / case / "expected.json").read_text())
    home = tmp_path / "home"
    shutil.copytree(CORPUS / case / "home", home)
    for path in (home, *home.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    sessions, troubles = read(opencode.homes({}, home)[0])
    assert before == {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    counted = owned(sessions)
    by_native = {one.identity.id: key for key, one in sessions.items()}
    assert sorted(by_native) == sorted(one["session_id"] for one in want["sessions"])
    for row in want["sessions"]:
        key = by_native[row["session_id"]]
        matches(reckon(sessions[key], counted[key]), row)
        assert sessions[key].header.unknown == {}
    assert not troubles or want.get("damaged")


# --- small stores

T0 = 1_790_000_000_000
SECRET = "sk-canary-77"


class Db:
    """An opencode.db with what a test needs; messages a second apart."""

    def __init__(self, home: Path, name: str = "opencode.db") -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.at, self.count = T0, 0
        self.db = sqlite3.connect(home / name, isolation_level=None)
        self.db.execute(
            "CREATE TABLE session (id TEXT PRIMARY KEY, project_id, parent_id, directory, title, version, model,"
            " time_created, time_updated)"
        )
        self.db.execute("CREATE TABLE message (id TEXT PRIMARY KEY, session_id, time_created, data)")
        self.db.execute("CREATE TABLE part (id TEXT PRIMARY KEY, message_id, session_id, time_created, data)")
        self.db.execute("CREATE TABLE account (id, access_token)")
        self.db.execute("INSERT INTO account VALUES ('a', ?)", (SECRET,))
        self.db.execute("CREATE TABLE session_share (session_id, secret)")
        self.db.execute("INSERT INTO session_share VALUES ('s', ?)", (SECRET,))

    def session(self, native: str, title: str = "t", **fields: Any) -> str:
        self.at += 1000
        self.insert("session", {"id": native, "project_id": "p", "title": title, "time_created": self.at} | fields)
        return native

    def message(self, session: str, *parts: Record, at: int | None = None, **data: Any) -> str:
        self.at += 1000
        at = at or self.at
        native = f"msg_{self.next()}"
        data = {"role": "user", "time": {"created": at}} | data
        self.insert("message", {"id": native, "session_id": session, "time_created": at, "data": json.dumps(data)})
        for part in parts:
            self.insert(
                "part",
                {"id": f"prt_{self.next()}", "message_id": native, "session_id": session, "data": json.dumps(part)},
            )
        return native

    def next(self) -> str:
        self.count += 1
        return f"{self.count:04}"

    def talk(self, session: str, *texts: str, at: int | None = None) -> None:
        for place, said in enumerate(texts):
            when = None if at is None else at + place * 1000
            if place % 2:
                self.answer(session, text(said), at=when)
            else:
                self.message(session, text(said), at=when)

    def answer(self, session: str, *parts: Record, at: int | None = None, **data: Any) -> str:
        when = at or self.at + 1000
        tokens = {"input": 10, "output": 2, "reasoning": 1, "cache": {"read": 3, "write": 4}}
        told = {"role": "assistant", "modelID": "m", "tokens": tokens, "time": {"created": when, "completed": when + 9}}
        return self.message(session, *parts, at=at, **(told | data))

    def insert(self, table: str, fields: Record) -> None:
        marks = ", ".join("?" * len(fields))
        self.db.execute(f"INSERT INTO {table} ({', '.join(fields)}) VALUES ({marks})", tuple(fields.values()))

    def done(self) -> None:
        self.db.close()


def text(said: str, **fields: Any) -> Record:
    return {"type": "text", "text": said} | fields


def tool(status: str, **state: Any) -> Record:
    return {"type": "tool", "tool": "bash", "callID": "c", "state": {"status": status, "input": {"a": 1}} | state}


def prompts(sessions: dict[str, Folded]) -> dict[str, list[str]]:
    """The counted prompts of every session, after ownership."""
    return {
        name: [
            fact.text
            for fact in facts
            if isinstance(fact, Turn) and fact.counted and (fact.kind, fact.role) == ("message", "user")
        ]
        for name, facts in owned(sessions).items()
    }


def test_forks_of_forks_count_each_message_once(tmp_path: Path) -> None:
    db = Db(tmp_path)
    db.session("a", "T")
    start = db.at + 1000
    db.talk("a", "one", "1")
    db.session("b", "T (fork #1)")
    db.talk("b", "one", "1", at=start)
    later = db.at + 1000
    db.talk("b", "two", "2")
    db.session("c", "T (fork #2)")
    db.talk("c", "one", "1", at=start)
    db.talk("c", "two", "2", at=later)
    db.talk("c", "three", "3")
    db.session("d", "T (fork #1)")
    db.talk("d", "one", "1", at=start)
    db.talk("d", "four", "4")
    db.session("e", "T (fork #2)")
    db.talk("e", "one", "1", at=start)
    db.talk("e", "five", "5")
    sessions, _ = read(tmp_path)
    assert prompts(sessions) == {
        "opencode/a": ["one"],
        "opencode/b": ["two"],
        "opencode/c": ["three"],
        "opencode/d": ["four"],
        "opencode/e": ["five"],
    }
    assert [sessions[f"opencode/{one}"].header.forked_from for one in "abcde"] == [None, "a", "b", "a", "b"]
    assert set(sessions["opencode/a"].facts) < set(sessions["opencode/c"].facts)
    spent = [fact for facts in owned(sessions).values() for fact in facts if isinstance(fact, Usage)]
    assert len(spent) == 5
    db.db.execute("DELETE FROM session WHERE id IN ('a', 'b')")
    db.db.execute("DELETE FROM message WHERE session_id IN ('a', 'b')")
    db.done()
    left = {"opencode/c": ["three"], "opencode/d": ["four"], "opencode/e": ["five"]}
    assert prompts(read(tmp_path)[0]) == left


def test_a_clock_that_was_set_back_makes_no_fork(tmp_path: Path) -> None:
    db = Db(tmp_path)
    db.session("a")
    db.talk("a", "one", "1", at=db.at - 5000)
    db.done()
    sessions, _ = read(tmp_path)
    assert prompts(sessions) == {"opencode/a": ["one"]}


def test_what_a_person_typed(tmp_path: Path) -> None:
    db = Db(tmp_path)
    db.session("a", "New session - 2026-11-30T10:00:00.000Z")
    db.message("a", text("typed"), text("injected", synthetic=True), {"type": "file", "mime": "image/png"})
    db.message("a", {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AAAA"})
    db.message("a", text("only for the eyes", ignored=True))
    db.message("a", {"type": "compaction", "auto": True})
    db.message("a", text("continue", synthetic=True))
    db.message("a", {"type": "subtask", "command": "review", "prompt": "Review it"})
    db.message("a", text("  "))
    db.done()
    session = read(tmp_path)[0]["opencode/a"]
    assert session.texts() == ["typed", "[image]", "/review"]
    assert session.texts(counted=False) == ["injected", "only for the eyes", "continue"]
    assert session.header.title is None


@pytest.mark.parametrize(
    ("state", "results", "errors"),
    [
        (tool("completed", output="x"), 1, 0),
        (tool("completed", output="x", metadata={"exit": 3}), 1, 1),
        (tool("completed", output="x", metadata={"exit": 0}), 1, 0),
        (tool("error", error="denied"), 1, 1),
        (tool("error", error="Tool execution aborted", metadata={"interrupted": True}), 1, 0),
        (tool("running"), 0, 0),
        (tool("pending"), 0, 0),
        ({"type": "tool", "tool": 3, "state": "odd"}, 0, 0),
    ],
)
def test_a_call_its_result_and_its_failure(tmp_path: Path, state: Record, results: int, errors: int) -> None:
    db = Db(tmp_path)
    db.session("a")
    db.answer("a", state)
    db.done()
    turns = [fact for fact in read(tmp_path)[0]["opencode/a"].facts.values() if isinstance(fact, Turn)]
    assert Counter(turn.kind for turn in turns) == Counter(tool_call=1, tool_result=results)
    assert sum(turn.is_error for turn in turns) == errors


def test_only_a_finished_summary_is_a_compaction(tmp_path: Path) -> None:
    db = Db(tmp_path)
    db.session("a")
    db.message("a", {"type": "compaction", "auto": False})
    db.answer("a", text("S"), summary=True, error={"name": "x"})
    db.message("a", {"type": "compaction", "auto": True})
    db.answer("a", text("S"), summary=True, time={"created": db.at})
    db.message("a", {"type": "compaction", "auto": True})
    done = db.answer("a", text("S"), summary=True)
    db.done()
    session = read(tmp_path)[0]["opencode/a"]
    assert [(fact.id, fact.trigger) for fact in session.facts.values() if isinstance(fact, Compaction)] == [
        (done, "auto")
    ]
    assert session.texts("assistant") == []
    assert not session.header.has_usage


def test_an_answer_counts_once_and_reasoning_is_part_of_its_output(tmp_path: Path) -> None:
    db = Db(tmp_path)
    db.session("a")
    db.answer("a", text("one"), text("two"), {"type": "reasoning", "text": "r"}, {"type": "reasoning", "text": ""})
    db.answer("a", text(""), tokens={"input": 0, "output": 0}, time={"created": db.at})
    db.done()
    session = read(tmp_path)[0]["opencode/a"]
    assert session.texts("assistant") == ["one"]
    (usage,) = [fact for fact in session.facts.values() if isinstance(fact, Usage)]
    assert (usage.input, usage.output, usage.cache_read, usage.cache_write_5m, usage.reasoning) == (10, 3, 3, 4, 1)


def test_a_damaged_message_is_counted_and_takes_only_its_own_parts(tmp_path: Path) -> None:
    db = Db(tmp_path)
    db.session("a")
    db.talk("a", "one", "1")
    torn = db.message("a", text("lost"))
    db.db.execute("UPDATE message SET data = '{\"role\": ' WHERE id = ?", (torn,))
    db.talk("a", "two", "2")
    db.db.execute("UPDATE part SET data = x'00ff' WHERE data LIKE '%\"2\"%'")
    db.done()
    session = read(tmp_path)[0]["opencode/a"]
    assert (session.texts(), session.texts("assistant")) == (["one", "two"], ["1"])
    assert session.header.malformed == 2


def test_no_secret_of_the_store_is_read(tmp_path: Path) -> None:
    db = Db(tmp_path)
    db.session("s")
    db.talk("s", "one", "1")
    db.done()
    troubles: list[Trouble] = []
    for source in opencode.sources(tmp_path, troubles.append):
        for raw in opencode.raws(source, troubles.append):
            assert SECRET.encode() not in b"".join(raw.chunks())


def store_files(home: Path, native: str = "a", *, old: bool = False, inline: bool = False) -> None:
    """One session as the clients of 2025 wrote it."""
    if old:
        top = home / "project" / "slug" / "storage" / "session"
        info, messages, parts = top / "info", top / "message" / native, top / "part" / native
    else:
        top = home / "storage"
        info, messages, parts = top / "session" / "p", top / "message" / native, top / "part"
    for folder in (info, messages, parts):
        folder.mkdir(parents=True, exist_ok=True)
    (info / f"{native}.json").write_text(
        json.dumps({"id": native, "title": "T", "directory": "/p", "time": {"created": T0}})
    )
    for place, (role, said) in enumerate((("user", "one"), ("assistant", "1"))):
        name, part = f"msg_{place}", {"type": "text", "text": said}
        data: Record = {"id": name, "role": role, "time": {"created": T0 + place}}
        if inline:
            data |= {"parts": [part], "metadata": {"time": data.pop("time")}}
        else:
            (parts / name).mkdir(exist_ok=True)
            (parts / name / "prt_0.json").write_text(json.dumps(part))
        (messages / f"{name}.json").write_text(json.dumps(data))


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("inline", [False, True])
def test_both_file_storages_are_read(tmp_path: Path, old: bool, inline: bool) -> None:
    store_files(tmp_path, old=old, inline=inline)
    sessions, troubles = read(tmp_path)
    assert not troubles
    session = sessions["opencode/a"]
    assert (session.texts(), session.texts("assistant")) == (["one"], ["1"])
    assert (session.header.cwd, session.header.started_at) == ("/p", T0 * 1000)


def test_the_database_wins_over_the_files_of_the_same_session(tmp_path: Path) -> None:
    store_files(tmp_path, "a")
    store_files(tmp_path, "b")
    db = Db(tmp_path)
    db.session("a")
    db.talk("a", "from the database")
    db.done()
    beside = Db(tmp_path, "opencode-dev.db")
    for native in ("a", "z"):
        beside.session(native)
        beside.talk(native, "channel")
    beside.done()
    sessions, _ = read(tmp_path)
    assert prompts(sessions) == {
        "opencode/a": ["from the database"], "opencode/b": ["one"], "opencode/z": ["channel"],
    }  # fmt: skip


@pytest.mark.parametrize("bad", [b"", b"SQLite format 3\0 but no more", b"junk" * 300])
def test_without_a_readable_database_the_files_are_read(tmp_path: Path, bad: bytes) -> None:
    store_files(tmp_path)
    (tmp_path / "opencode.db").write_bytes(bad)
    (tmp_path / "storage" / "session" / "loop").symlink_to(tmp_path / "storage" / "session")
    (tmp_path / "storage" / "session" / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "storage" / "message" / "a" / "msg_2.json").write_bytes(b"\xff{")
    os.mkfifo(tmp_path / "storage" / "message" / "a" / "msg_3.json")
    (tmp_path / "storage" / "session" / "p" / "never.json").write_text("{}")
    sessions, troubles = read(tmp_path)
    assert sessions["opencode/a"].texts() == ["one"]
    assert sessions["opencode/a"].header.malformed == 1
    assert sorted(sessions) == ["opencode/a"]
    assert bool(bad) == any(trouble.path.endswith("opencode.db") for trouble in troubles)


def test_a_busy_database_says_nothing_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_files(tmp_path)
    Db(tmp_path).done()

    def busy(path: Path, work: object) -> None:
        raise foreign_db.BusyError("database is locked")

    monkeypatch.setattr(foreign_db, "read", busy)
    sessions, troubles = read(tmp_path)
    assert sessions == {}
    assert [trouble.retry for trouble in troubles] == [True]


def test_homes_follow_the_agents_variables() -> None:
    user = Path("/u")
    assert opencode.homes({}, user) == [Path("/u/.local/share/opencode")]
    assert opencode.homes({"XDG_DATA_HOME": "/x"}, user) == [Path("/x/opencode")]
    assert opencode.homes({"OPENCODE_DATA_DIR": "~/d"}, user) == [Path("/u/d")]
    assert opencode.homes({"OPENCODE_DB": "/e/my.db"}, user) == [Path("/e"), Path("/u/.local/share/opencode")]
    assert opencode.homes({"OPENCODE_DB": "my.db"}, user) == [Path("/u/.local/share/opencode")]


CELLS = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=8), st.binary(max_size=8),
    st.sampled_from(["a", "b", T0, T0 + 1, "{}", "[]", "null", '{"role": "user"}', "T (fork #99999999999999999999)",
                     '{"role": "assistant", "tokens": {"input": "x", "cache": 3}, "time": 3, "parts": [1, {"x": 3}]}',
                     '{"role": "assistant", "summary": true, "time": {"completed": 1e99}, "metadata": []}',
                     '{"type": "tool", "state": {"status": "error", "metadata": {"exit": true}, "time": []}}',
                     '{"type": "text", "text": "\\udcb2", "synthetic": 3}', '{"type": "reasoning", "text": 3}']),
)  # fmt: skip
ROWS = st.lists(
    st.tuples(st.sampled_from(["session", "message", "part"]), st.dictionaries(st.integers(0, 9), CELLS)), max_size=12
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(rows=[("message", {0: "b", 1: 0}), ("session", {0: b""})])
@given(rows=ROWS)
def test_any_cell_may_hold_anything(tmp_path: Path, rows: list[tuple[str, dict[int, Any]]]) -> None:
    (tmp_path / "opencode.db").unlink(missing_ok=True)
    db = Db(tmp_path)
    for native in "ab":
        db.session(native)
        db.talk(native, "one", "1")
    for place, (table, cells) in enumerate(rows):
        names = [row[1] for row in db.db.execute(f"PRAGMA table_info({table})")][1:]
        fields = {names[index % len(names)]: cell for index, cell in cells.items()}
        try:
            if fields and place % 2:
                told = ", ".join(f"{name} = ?" for name in fields)
                db.db.execute(f"UPDATE {table} SET {told} WHERE rowid = ?", (*fields.values(), place % 4 + 1))
            else:
                db.insert(table, {"id": f"x{place}"} | fields)
        except (OverflowError, UnicodeEncodeError):
            continue
    db.done()
    sessions, troubles = read(tmp_path)
    assert set(sessions) <= {"opencode/a", "opencode/b", *(f"opencode/x{place}" for place in range(12))}
    assert not troubles
    for session in sessions.values():
        json.dumps([str(fact) for fact in session.facts.values()]).encode()
        str(session.header).encode()


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=60) | st.text(alphabet='{}[]":,sesionmagprtdw\\ud8\n', max_size=80).map(str.encode))
def test_any_bytes_are_folded(data: bytes) -> None:
    for head in (b"", b'{"opencode": 1, "session": {"id": 3}}\n', b'{"message": {"data": "{}"}}\n{"part": {"data": '):
        whole = folded(Identity("opencode", "a"), head + data)
        cut = folded(Identity("opencode", "a"), head + data, range(0, len(head + data), 3))
        assert (whole.facts, whole.header) == (cut.facts, cut.header)


@needs_corpus
@pytest.mark.parametrize("case", ["real-fork-killed-v1.18.33", "sqlite-subagent"])
def test_a_damaged_database_loses_no_more_than_its_damage(case: str, tmp_path: Path) -> None:
    whole = (CORPUS / case / "home" / ".local" / "share" / "opencode" / "opencode.db").read_bytes()
    chance = random.Random(5)
    for _ in range(12):
        data = bytearray(whole)
        if chance.random() < 0.3:
            del data[chance.randrange(len(data)) :]
        for _ in range(chance.choice([1, 5, 400])):
            if data:
                data[chance.randrange(len(data))] = chance.randrange(256)
        (tmp_path / "opencode.db").write_bytes(data)
        read(tmp_path)
