"""The Gemini CLI importer against the shared corpus, and against small inputs of its own for each promise."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prosa.events import codec
from prosa.events.facts import PROVEN, Compaction, Facts, Header, Mark, Turn, Usage
from prosa.ingest.gemini import importer as gemini
from prosa.ingest.importer import Identity, Source, Trouble

CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus" / "gemini"
CASES = sorted(path.name for path in CORPUS.glob("*")) if CORPUS.is_dir() else []
needs_corpus = pytest.mark.skipif(not CASES, reason="the shared corpus is not beside this checkout")

Fact = Turn | Usage | Mark | Compaction
Json = dict[str, Any]


class Folded:
    """One session as an index would see it: facts by key, the later in place of the earlier, and the header."""

    def __init__(self, identity: Identity, header: Header, takes: Iterable[Facts]) -> None:
        self.identity, self.header = identity, header
        self.raw = b""
        self.facts: dict[tuple[str, int], Fact] = {}
        for facts in takes:
            for group in (facts.turns, facts.usage, facts.marks, facts.compactions):
                for fact in group:
                    assert fact.key is not None
                    codec.encode(fact)
                    self.facts[type(fact).__name__, fact.key] = fact

    def of(self, kind: type[Any]) -> list[Any]:
        return [fact for fact in self.facts.values() if isinstance(fact, kind)]

    def texts(self, kind: str = "message", role: str = "user", counted: bool = True) -> list[str]:
        turns: list[Turn] = self.of(Turn)
        return [turn.text for turn in turns if (turn.kind, turn.role, turn.counted) == (kind, role, counted)]


def fold(data: bytes, identity: Identity, cuts: Iterable[int] = (), save: bool = False, end: bool = False) -> Folded:
    """Folds the bytes; at each cut the facts are taken, `save`: the fold is restored, `end`: a sync ends."""
    folding = gemini.fold(identity)
    takes, place = [], 0
    for cut in (*cuts, len(data)):
        folding.feed(data[place:cut])
        if end:
            folding.end()
        takes.append(folding.take())
        place = cut
        if save:
            folding = gemini.fold(identity, folding.state())
    folding.end()
    return Folded(identity, folding.header(), [*takes, folding.take()])


def found(home: Path) -> tuple[dict[str, Folded], list[Trouble]]:
    troubles: list[Trouble] = []
    sessions: dict[str, Folded] = {}
    for source in gemini.sources(home, troubles.append):
        for raw in gemini.raws(source, troubles.append):
            chunks = list(raw.chunks())
            assert chunks == list(raw.chunks())
            assert all(len(chunk) <= 1 << 20 for chunk in chunks)
            session = fold(b"".join(chunks), raw.identity)
            session.raw = b"".join(chunks)
            assert raw.identity.key not in sessions
            sessions[raw.identity.key] = session
    return sessions, troubles


def time_of(fact: Fact) -> int | None:
    return fact.first if isinstance(fact, Mark) else fact.at


def iso(at: int | None) -> str | None:
    if at is None:
        return None
    return (datetime(1970, 1, 1) + timedelta(milliseconds=at // 1000)).isoformat(timespec="milliseconds") + "Z"


def numbers(session: Folded) -> Json:
    """What expected.json says of a session. No key is shared between sessions, so each owns all it has."""
    turns = [turn for turn in session.of(Turn) if turn.counted]
    usage = session.of(Usage)
    header = session.header
    assert not any(fact.copied == PROVEN for fact in session.facts.values())
    times = [at for fact in session.facts.values() if (at := time_of(fact)) is not None]
    times += [mark.last for mark in session.of(Mark)]
    times += [at for at in (header.started_at, header.last_activity_at) if at is not None]
    speech = Counter(turn.role for turn in turns if turn.kind == "message")
    kinds = Counter(turn.kind for turn in turns)
    models = list(dict.fromkeys(fact.model for fact in (*session.of(Turn), *usage) if fact.model))
    prompts = [turn.text for turn in turns if turn.kind == "message" and turn.role == "user"]
    reasoning = [fact.reasoning for fact in usage if fact.reasoning is not None]
    tokens = {
        "input": sum(fact.input for fact in usage),
        "output": sum(fact.output for fact in usage),
        "cache_read": sum(fact.cache_read for fact in usage),
        "cache_creation": sum(fact.cache_write_5m + fact.cache_write_1h for fact in usage),
        "reasoning": sum(reasoning) if reasoning else None,
    }
    return {
        "session_id": session.identity.id,
        "agent": session.identity.agent,
        "parent_session_id": header.parent,
        "lineage": {"forked_from": header.forked_from},
        "cwd": header.cwd,
        "git_branch": header.branch,
        "started_at": iso(min(times, default=None)),
        "last_activity_at": iso(max(times, default=None)),
        "title": header.title,
        "first_prompt": " ".join(prompts[0].split())[:200].rstrip() if prompts else None,
        "model": models[0] if models else None,
        "models": models,
        "turns": {name: speech[name] for name in ("user", "assistant")}
        | {name: kinds[name] for name in ("thinking", "tool_result")},
        "tools": dict(Counter(turn.tool for turn in turns if turn.kind == "tool_call")),
        "tool_errors": sum(turn.is_error for turn in turns),
        "usage": tokens if header.has_usage else None,
        "compactions": len(session.of(Compaction)) if header.compactions_known else None,
        "kinds": list(header.kinds),
    }


def expected_numbers(session: Json) -> Json:
    wanted = {name: session[name] for name in numbers(Folded(Identity("", ""), Header(), ())) if name in session}
    wanted["kinds"] = [kind for kind in session["kinds"] if kind != "orchestrator"]
    prompt = session["first_prompt"]
    wanted["first_prompt"] = None if prompt is None else " ".join(prompt.split())[:200].rstrip()
    return wanted


def check_case(case: Path, sessions: dict[str, Folded], troubles: list[Trouble]) -> None:
    expected = json.loads((case / "expected.json").read_text())
    got = {key: numbers(session) for key, session in sessions.items()}
    for wanted in expected["sessions"]:
        if wanted.get("any_id"):
            name = next(k for k, one in got.items() if one["parent_session_id"] == wanted["parent_session_id"])
            wanted["session_id"] = got[name]["session_id"]
        else:
            name = next((k for k, one in got.items() if one["session_id"] == wanted["session_id"]), "")
            if not name and wanted.get("optional"):
                continue
        one, want = got.pop(name), expected_numbers(wanted)
        for field, others in wanted.get("accept", {}).items():
            if one[field] in others:
                want[field] = one[field]
        assert {field: one[field] for field in want} == want
    for left in got.values():
        assert left["session_id"] not in expected.get("not_sessions", ())
        empty = not any(left["turns"].values()) and left["usage"] is None
        assert empty or left["session_id"] in expected.get("optional_sessions", ())
    said = " ".join(f"{trouble.path} {trouble.reason}" for trouble in troubles)
    assert [name for name in expected.get("expected_errors", ()) if name not in said] == []
    assert not troubles or expected.get("damaged") or expected.get("expected_errors")
    if secret := expected.get("secret_must_not_leak"):
        assert not any(secret.encode() in session.raw for session in sessions.values())


@needs_corpus
@pytest.mark.parametrize("case", CASES)
def test_the_corpus_gives_the_numbers_a_person_worked_out(case: str) -> None:
    sessions, troubles = found(CORPUS / case / "home" / ".gemini")
    check_case(CORPUS / case, sessions, troubles)


@needs_corpus
@pytest.mark.parametrize("case", [name for name in CASES if name != "damaged-files"])
def test_a_second_look_gives_the_same_raw_and_leaves_no_trace(case: str, tmp_path: Path) -> None:
    home = tmp_path / ".gemini"
    shutil.copytree(CORPUS / case / "home" / ".gemini", home)
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    one, two = found(home)[0], found(home)[0]
    assert {key: session.raw for key, session in one.items()} == {key: session.raw for key, session in two.items()}
    assert before == {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}


def same(one: Folded, other: Folded) -> None:
    for kind in (Turn, Usage, Mark, Compaction):
        assert one.of(kind) == other.of(kind)
    assert one.header == other.header


@needs_corpus
@pytest.mark.parametrize("case", CASES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_pieces_give_what_the_whole_gives(case: str, data: st.DataObject) -> None:
    sessions, _ = found(CORPUS / case / "home" / ".gemini")
    key = data.draw(st.sampled_from(sorted(sessions)))
    raw, identity = sessions[key].raw, sessions[key].identity
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    same(fold(raw, identity, cuts, save=data.draw(st.booleans()), end=data.draw(st.booleans())), sessions[key])


# small inputs

MAIN = Identity("gemini", "11111111-1111-4111-8111-111111111111")
PROJECT = "/home/dev/app"
HASH = hashlib.sha256(PROJECT.encode()).hexdigest()
HEADER = {"sessionId": MAIN.id, "projectHash": HASH, "startTime": "2026-08-20T09:00:00.000Z", "kind": "main"}


def lines(*records: Any) -> bytes:
    return b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)


def message(number: int, kind: str, content: Any, **fields: Any) -> Json:
    return {
        "id": f"m{number}",
        "timestamp": f"2026-08-20T09:00:{number % 60:02d}.000Z",
        "type": kind,
        "content": content,
        **fields,
    }


def user(number: int, text: str, **fields: Any) -> Json:
    return message(number, "user", [{"text": text}], **fields)


def answer(number: int, text: str, output: int = 5, **fields: Any) -> Json:
    tokens = {"input": 100, "output": output, "cached": 80, "thoughts": 2, "tool": 0, "total": 107}
    return message(number, "gemini", text, tokens=tokens, model="gemini-3-pro", **fields)


def called(call: str, status: str = "success", result: Any = "ok", **args: Any) -> Json:
    kind = "error" if status == "error" else "output"
    parts = None if result is None else [response(call, **{kind: result})]
    return {"id": call, "name": "read_file", "args": args, "status": status, "result": parts,
            "timestamp": "2026-08-20T09:30:00.000Z"}  # fmt: skip


def response(call: str | None, **said: Any) -> Json:
    return {"functionResponse": {"id": call, "name": "read_file", "response": said}}


def listed(*messages: Json, **fields: Any) -> Json:
    return {"$set": {"messages": list(messages), "lastUpdated": "2026-08-20T09:40:00.000Z", **fields}}


CONVERSATION = [
    {"$container": {"cwd": PROJECT, "evidence": ".project_root"}},
    HEADER,
    listed(user(1, "<session_context>\n- **Workspace Directories:**\n  - /home/dev/app\n</session_context>")),
    user(2, "Fix the ☃ parser"),
    message(3, "gemini", "Looking", thoughts=[{"subject": "Plan", "description": "look"}], model="gemini-3-pro"),
    answer(3, "Looking", thoughts=[{"subject": "Plan", "description": "look"}]),
    answer(3, "Looking", toolCalls=[called("read_1", path="a.py"), called("read_2", "error", "none", path="b.py")]),
    message(4, "user", [response("read_1", output="ok")]),
    {"$rewindTo": "m2"},
    listed(
        user(2, "Fix the ☃ parser"),
        message(3, "gemini", [{"text": "Looking"}, {"functionCall": {"id": "read_1", "name": "read_file"}}]),
        message(3, "user", [response("read_1", output="ok")]),
        message(13, "user", [{"text": "<state_snapshot>all of it</state_snapshot>"}]),
        message(14, "gemini", [{"text": "Got it. Thanks for the additional context!"}]),
        message(15, "user", [{"text": "Fix the ☃ parser"}]),
        message(16, "gemini", [{"text": "Looking"}]),
    ),
    message(17, "info", "Chat history compressed."),
    user(18, "/help"),
    answer(19, "Done", output=7),
    {"$set": {"summary": "The parser"}},
]


@pytest.mark.parametrize("end", [False, True])
def test_a_growing_file_gives_the_same_at_every_byte(end: bool) -> None:
    data = lines(*CONVERSATION)
    whole = fold(data, MAIN)
    assert whole.texts() == ["Fix the ☃ parser"]
    for cut in range(0, len(data) + 1, 3):
        same(fold(data, MAIN, [cut], save=True, end=end), whole)


def test_what_is_written_again_counts_once() -> None:
    session = fold(lines(*CONVERSATION), MAIN)
    assert session.texts(role="assistant") == ["Looking", "Done"]
    assert [(usage.input, usage.output, usage.cache_read, usage.reasoning) for usage in session.of(Usage)] == [
        (20, 7, 80, 2),
        (20, 9, 80, 2),
    ]
    assert session.texts("tool_call", "assistant") == ["a.py", "b.py"]
    assert [(turn.text, turn.is_error) for turn in session.of(Turn) if turn.kind == "tool_result"] == [
        ("ok", False),
        ("none", True),
    ]
    assert [compaction.id for compaction in session.of(Compaction)] == ["m13"]
    assert (session.header.title, session.header.cwd) == ("The parser", PROJECT)


def test_what_a_compression_keeps_is_a_copy_under_its_new_id() -> None:
    call = {"functionCall": {"id": "c", "name": "read_file", "args": {}}}
    thought = {"text": "hm", "thought": True}
    data = lines(
        HEADER,
        user(1, "Go"),
        answer(2, "", thoughts=[{"subject": "S", "description": "hm"}], toolCalls=[called("c")]),
        message(3, "user", [response("c", output="ok")]),
        answer(4, "Gone"),
        listed(
            message(90, "user", "<state_snapshot>"),
            message(91, "gemini", "Got it. Thanks for the additional context!"),
            user(92, "Go"),
            message(93, "gemini", [thought, call]),
            message(94, "user", [response("c", output="ok")]),
            message(95, "gemini", [{"text": "Gone"}], tokens={"input": 1}),
        ),
        message(95, "gemini", "Gone", model="gemini-3-pro"),
        user(96, "Go"),
    )
    session = fold(data, MAIN)
    assert session.texts() == ["Go", "Go"]
    assert session.texts(role="assistant") == ["Gone"]
    assert [len(session.texts(kind, role)) for kind, role in (("thinking", "assistant"), ("tool_result", "tool"))] == [
        1,
        1,
    ]
    assert len(session.of(Usage)) == 2


def test_the_state_keeps_no_text() -> None:
    folding = gemini.fold(MAIN)
    folding.feed(lines(HEADER, user(1, "a secret prompt"), answer(2, "a secret answer")))
    folding.take()
    assert b"secret" not in folding.state()


def test_a_list_that_was_stamped_anew_moves_no_time() -> None:
    late = {"timestamp": "2026-09-01T00:00:00.000Z"}
    session = fold(
        lines(HEADER, user(1, "Go"), answer(2, "Yes"), listed(user(1, "Go") | late, answer(2, "Yes") | late)), MAIN
    )
    assert {iso(turn.at) for turn in session.of(Turn)} == {"2026-08-20T09:00:01.000Z", "2026-08-20T09:00:02.000Z"}


def test_a_list_takes_nothing_back() -> None:
    masked = message(1, "gemini", [{"text": "(masked)"}], tokens={"input": 1, "output": 1})
    session = fold(lines(HEADER, answer(1, "All of it"), listed(masked)), MAIN)
    assert session.texts(role="assistant") == ["All of it"]
    assert [usage.output for usage in session.of(Usage)] == [7]


def test_a_record_behind_its_list_has_the_earlier_time_and_the_last_word() -> None:
    late = {"timestamp": "2026-09-01T00:00:00.000Z"}
    session = fold(lines(HEADER, listed(user(1, "Go") | late, answer(2, "(masked)") | late), answer(2, "Yes")), MAIN)
    assert session.texts(role="assistant") == ["Yes"]
    assert iso(next(turn.at for turn in session.of(Turn) if turn.text == "Yes")) == "2026-08-20T09:00:02.000Z"


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 1, 0)])
def test_a_call_among_the_parts_is_that_of_the_list_of_calls_whatever_its_id(order: tuple[int, ...]) -> None:
    part = message(1, "gemini", [{"functionCall": {"name": "read_file", "args": {"path": "a"}}}])
    records = [part, answer(1, "", toolCalls=[called("read_file-1", path="a")])]
    session = fold(lines(HEADER, *(records[number] for number in order)), MAIN)
    assert session.texts("tool_call", "assistant") == ["a"]
    assert session.texts("tool_result", "tool") == ["ok"]


def test_an_error_told_three_times_is_one() -> None:
    failed = answer(1, "", toolCalls=[called("c", "error", None)])
    session = fold(lines(HEADER, failed, message(2, "user", [response("c", error="no")]), failed), MAIN)
    assert sum(turn.is_error for turn in session.of(Turn)) == 1


def test_a_response_without_an_id_answers_the_last_open_call_of_its_tool() -> None:
    part = message(1, "gemini", [{"functionCall": {"name": "read_file", "args": {"path": "a"}}}])
    session = fold(lines(HEADER, part, message(2, "user", [response(None, output="ok")])), MAIN)
    assert session.texts("tool_result", "tool") == ["ok"]
    assert session.texts() == []


def test_calls_of_which_only_the_stripped_list_is_left_count() -> None:
    call = {"functionCall": {"id": "c", "name": "read_file", "args": {"path": "a"}}}
    session = fold(
        lines(HEADER, listed(message(1, "gemini", [call]), message(1, "user", [response("c", error="no such file")]))),
        MAIN,
    )
    assert session.texts("tool_call", "assistant") == ["a"]
    assert [turn.is_error for turn in session.of(Turn)] == [False, True]


def test_a_call_id_that_another_message_uses_again_is_another_call() -> None:
    records = [
        answer(1, "", toolCalls=[called("call_0", path="a")]),
        answer(2, "", toolCalls=[called("call_0", path="b")]),
    ]
    session = fold(lines(HEADER, *records), MAIN)
    assert session.texts("tool_call", "assistant") == ["a", "b"]
    assert len(session.texts("tool_result", "tool")) == 2


@pytest.mark.parametrize(
    ("status", "result", "errors", "results"),
    [("error", "no", 1, 1), ("error", None, 1, 0), ("cancelled", None, 0, 0), ("cancelled", "stopped", 0, 1)],
)
def test_a_failed_call_is_one_error_and_a_cancelled_one_none(
    status: str, result: str | None, errors: int, results: int
) -> None:
    records = [HEADER, answer(1, "", toolCalls=[called("c", status, result)])]
    records += [message(2, "user", [response("c", error="no")])] if status == "error" else []
    session = fold(lines(*records), MAIN)
    assert sum(turn.is_error for turn in session.of(Turn)) == errors
    assert len(session.texts("tool_result", "tool")) == max(results, status == "error")


@pytest.mark.parametrize(
    ("content", "display", "counted", "shown"),
    [
        ("hello", None, True, "hello"),
        ("/help", None, False, "/help"),
        ("? what", None, False, "? what"),
        ("@a.py look\n--- Content from referenced files ---", "@a.py look", True, "@a.py look"),
        ("Deploy to staging", "/deploy staging", True, "/deploy staging"),
        ([{"inlineData": {"mimeType": "image/png", "data": "AAAA"}}], None, True, "[image]"),
        ([{"text": "read this"}, {"fileData": {"mimeType": "application/pdf"}}], None, True, "read this"),
        (["one", {"text": "two"}], None, True, "one\ntwo"),
    ],
)
def test_a_prompt_is_what_was_typed(content: Any, display: str | None, counted: bool, shown: str) -> None:
    typed = {} if display is None else {"displayContent": [{"text": display}]}
    session = fold(lines(HEADER, message(1, "user", content, **typed)), MAIN)
    assert session.texts(counted=counted) == [shown]


@pytest.mark.parametrize(
    "text", ["<session_context>x", "<hook_context>x", "System: Potential loop detected. Details: y"]
)
def test_what_the_client_says_is_no_prompt(text: str) -> None:
    session = fold(lines(HEADER, message(1, "user", text, displayContent="Fix it")), MAIN)
    assert session.texts() == []
    assert session.texts(role="system", counted=False) == [text]


def test_thoughts_in_both_places_count_once() -> None:
    content = [{"text": "look", "thought": True}, {"text": "Looked"}]
    thoughts = [{"subject": "Plan", "description": "look"}, {"description": " "}]
    for record in (message(1, "gemini", content, thoughts=thoughts), message(1, "gemini", content)):
        session = fold(lines(HEADER, record, message(1, "gemini", content, thoughts=thoughts)), MAIN)
        assert len(session.texts("thinking", "assistant")) == 1
        assert session.texts(role="assistant") == ["Looked"]


# where it was


def home_with(tmp_path: Path, files: dict[str, bytes | str]) -> Path:
    home = tmp_path / ".gemini"
    for name, body in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body if isinstance(body, bytes) else body.encode())
    return home


CHAT = "chats/session-2026-08-20T09-00-11111111.jsonl"


@pytest.mark.parametrize(
    ("project", "files", "cwd"),
    [
        ("app", {"tmp/app/.project_root": "/srv/app\n"}, "/srv/app"),
        ("app", {"projects.json": '{"projects": {"/srv/app": "app"}}'}, "/srv/app"),
        (HASH, {"projects.json": json.dumps({"projects": {PROJECT: "app"}})}, PROJECT),
        (HASH, {"trustedFolders.json": json.dumps({PROJECT: "TRUST_FOLDER"})}, PROJECT),
        (HASH, {"tmp/other/.project_root": PROJECT}, PROJECT),
        (HASH, {"tmp/other/.project_root": "/another", "projects.json": "[1]"}, None),
        ("app", {"tmp/app/.project_root": "relative", "projects.json": '{"projects": {"/a": "b", "/c": 7}}'}, None),
    ],
)
def test_the_folder_says_which_project(tmp_path: Path, project: str, files: Json, cwd: str | None) -> None:
    home = home_with(tmp_path, {**files, f"tmp/{project}/{CHAT}": lines(HEADER, user(1, "Go"))})
    (session,) = found(home)[0].values()
    assert session.header.cwd == cwd


@pytest.mark.parametrize("path", [PROJECT, f"{PROJECT}/src/a.py", f"{PROJECT}/"])
def test_a_path_in_a_call_with_the_hash_of_the_project_is_its_folder(path: str) -> None:
    records = [HEADER, answer(1, "", toolCalls=[called("c", deep=[{"path": "/etc/passwd"}, {"path": path}])])]
    assert fold(lines(*records), MAIN).header.cwd == PROJECT
    assert fold(lines({**HEADER, "projectHash": "0" * 64}, records[1]), MAIN).header.cwd is None


def test_a_workspace_counts_only_with_the_right_hash() -> None:
    context = user(1, f"<session_context>\n- **Workspace Directories:**\n  - /x\n  - {PROJECT}\n- **Directory")
    assert fold(lines(HEADER, context), MAIN).header.cwd == PROJECT
    assert fold(lines({**HEADER, "projectHash": "0" * 64}, context), MAIN).header.cwd is None


def test_the_variable_replaces_the_home() -> None:
    assert gemini.homes({}, Path("/home/dev")) == [Path("/home/dev/.gemini")]
    assert gemini.homes({"GEMINI_CLI_HOME": "/srv/g"}, Path("/home/dev")) == [Path("/srv/g/.gemini")]


# several files


def test_files_of_one_session_are_one_raw_that_grows_at_its_end(tmp_path: Path) -> None:
    document = json.dumps({**HEADER, "messages": [user(1, "Go")]}, indent=2)
    stub = lines(HEADER, listed(user(9, "<session_context>")))
    home = home_with(
        tmp_path,
        {
            "tmp/app/chats/session-2026-08-20T09-00-11111111.json": document,
            f"tmp/app/{CHAT}": lines(HEADER, user(1, "Go"), user(2, "On")),
            "tmp/app/chats/session-2026-08-21T09-00-11111111.jsonl": stub,
        },
    )
    (before,) = found(home)[0].values()
    with (home / "tmp/app" / CHAT).open("ab") as file:
        file.write(lines(user(3, "And on")))
    (after,) = found(home)[0].values()
    assert after.raw.startswith(before.raw)
    assert after.texts() == ["Go", "On", "And on"]


def test_two_sessions_whose_ids_begin_alike_stay_two(tmp_path: Path) -> None:
    other = {**HEADER, "sessionId": MAIN.id[:-1] + "2"}
    name = "tmp/app/chats/session-2026-08-20T09-01-11111111.jsonl"
    home = home_with(tmp_path, {f"tmp/app/{CHAT}": lines(HEADER, user(1, "a")), name: lines(other, user(1, "b"))})
    assert sorted(session.texts()[0] for session in found(home)[0].values()) == ["a", "b"]


def test_a_session_in_two_project_folders_is_one(tmp_path: Path) -> None:
    files = {f"tmp/{name}/{CHAT}": lines(HEADER, user(1, "a")) for name in ("app", HASH)}
    home = home_with(tmp_path, {**files, "tmp/app/.project_root": PROJECT})
    (session,) = found(home)[0].values()
    assert (session.texts(), session.header.cwd) == (["a"], PROJECT)


def test_a_sub_agent_that_took_its_parents_id_has_its_own(tmp_path: Path) -> None:
    name = "session-2026-08-20T09-01-11111111"
    home = home_with(
        tmp_path,
        {
            f"tmp/app/{CHAT}": lines(HEADER, user(1, "a")),
            f"tmp/app/chats/{name}.jsonl": lines({**HEADER, "kind": "subagent"}, user(1, "b")),
            f"tmp/app/chats/{MAIN.id}/sub-1.jsonl": lines({**HEADER, "kind": "subagent"}, user(1, "c")),
        },
    )
    sessions = {s.identity.id: (s.header.parent, s.texts()) for s in found(home)[0].values()}
    assert sessions == {MAIN.id: (None, ["a"]), name: (MAIN.id, ["b"]), "sub-1": (MAIN.id, ["c"])}


def row(session: str, number: int, text: Any, **fields: Any) -> Json:
    stamp = f"2026-08-20T09:00:{number:02d}.000Z"
    return {"sessionId": session, "messageId": number, "type": "user", "message": text, "timestamp": stamp, **fields}


def test_the_prompt_log_serves_only_sessions_without_a_chat(tmp_path: Path) -> None:
    rows = [row(MAIN.id, 0, "a"), row("lost", 0, "/help"), row("lost", 1, "b"), row("idle", 0, "?"), {"message": 5}, 7]
    home = home_with(
        tmp_path,
        {
            f"tmp/app/{CHAT}": lines(HEADER, user(1, "a")),
            "tmp/app/logs.json": json.dumps(rows, indent=2),
            "tmp/app/chats/session-2026-08-20T09-05-lost.jsonl": b"",
        },
    )
    sessions, troubles = found(home)
    assert troubles == []
    lost = sessions["gemini/lost"]
    assert sorted(sessions) == [f"gemini/{MAIN.id}", "gemini/lost"]
    assert (lost.texts(), lost.header.compactions_known, lost.header.has_usage) == (["b"], False, False)


# damage


def test_damage_costs_only_what_is_damaged(tmp_path: Path) -> None:
    good = lines(user(1, "Go"), answer(2, "Yes"))
    bad = b'\xef\xbb\xbf{"id": "m3", "type": "user", "content": "lone \\ud83d"}\r\n' + b"\0\0\n{nonsense\n"
    odd = lines(
        {"id": 5, "type": 7}, {"id": "m4", "type": "alien", "content": [None, 3, {"text": 4}]}, {"some": "thing"},
        {"id": "m5", "type": "gemini", "content": {"text": "one"}, "tokens": {"input": "9", "output": -1},
         "toolCalls": [None, {"name": "x", "args": 5, "result": 3}], "thoughts": {"subject": "s"}},
        {"$set": {"messages": [None, {"id": "m6", "type": "user", "content": "last"}, 4], "summary": 5}},
    )  # fmt: skip
    home = home_with(tmp_path, {f"tmp/app/{CHAT}": lines(HEADER) + good + bad + odd + b'{"id": "torn'})
    (session,) = found(home)[0].values()
    assert session.texts() == ["Go", "lone \ufffd", "last"]
    assert session.texts(role="assistant") == ["Yes", "one"]
    assert session.texts("thinking", "assistant") == ["s"]
    assert session.header.malformed == 2
    assert set(session.header.unknown) == {"message/alien", ""}


@pytest.mark.parametrize("body", [b"\0" * 4096, b"PK\x03\x04", b'{"sessionId": "x"\n', b"\xff\xfe{\0", b"[" * 100_000])
@pytest.mark.parametrize("kind", ["json", "jsonl"])
def test_a_file_that_is_no_chat_is_named(tmp_path: Path, kind: str, body: bytes) -> None:
    home = home_with(tmp_path, {f"tmp/app/chats/session-2026-08-20T09-00-22222222.{kind}": body})
    sessions, troubles = found(home)
    assert sessions == {}
    assert [Path(trouble.path).name for trouble in troubles] == [f"session-2026-08-20T09-00-22222222.{kind}"]


@pytest.mark.parametrize("body", [b"", b"\n", b"[]", b"{}", b'{"$set":{"lastUpdated":"2026-04-01T09:12:00.000Z"}}\n'])
@pytest.mark.parametrize("kind", ["json", "jsonl"])
def test_a_chat_that_never_began_is_no_error(tmp_path: Path, kind: str, body: bytes) -> None:
    sessions, troubles = found(home_with(tmp_path, {f"tmp/app/chats/session-2026-08-20T09-00-2.{kind}": body}))
    assert sessions == {}
    assert troubles == [] or (kind, body) == ("jsonl", b"[]")


def test_a_header_that_is_just_being_written_is_no_error(tmp_path: Path) -> None:
    home = home_with(tmp_path, {f"tmp/app/{CHAT}": lines(HEADER)[:40]})
    assert found(home) == ({}, [])


def test_links_fifos_and_loops_are_passed_over(tmp_path: Path) -> None:
    home = home_with(tmp_path, {f"tmp/app/{CHAT}": lines(HEADER, user(1, "Go"))})
    chats = home / "tmp/app/chats"
    os.mkfifo(chats / "session-2026-08-20T09-00-fifo.jsonl")
    (chats / "session-2026-08-20T09-00-dangling.jsonl").symlink_to(tmp_path / "nowhere")
    (chats / "loop").symlink_to(chats)
    (home / "tmp/again").symlink_to(home / "tmp/app")
    (home / "tmp/round").symlink_to(home / "tmp/round")
    sessions, troubles = found(home)
    assert len(sessions) == 1
    assert [Path(trouble.path).name for trouble in troubles] == ["round"]


def mutated(data: st.DataObject, body: bytes) -> bytes:
    for _ in range(data.draw(st.integers(1, 4))):
        place, size = data.draw(st.integers(0, len(body))), data.draw(st.integers(0, 40))
        body = body[:place] + data.draw(st.binary(max_size=12)) + body[place + size :]
    return body


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_damage_ends_a_fold(data: st.DataObject) -> None:
    body = mutated(data, lines(*CONVERSATION))
    whole = fold(body, MAIN)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=4)))
    same(fold(body, MAIN, cuts, save=True), whole)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["id", "timestamp", "type", "content", "displayContent", "parts", "model", "thoughts", "tokens", "toolCalls",
     "sessionId", "projectHash", "startTime", "kind", "directories", "summary", "messages", "$set", "$rewindTo",
     "message", "messageId", "functionCall", "functionResponse", "text", "result", "args", "status", "name", "input"]
)  # fmt: skip
RECORDS = st.recursive(
    JSON | st.sampled_from(["user", "gemini", "m1", "m2", "c", "error", "<state_snapshot>"]),
    lambda inner: st.dictionaries(NAMES, inner, max_size=6) | st.lists(inner, max_size=3),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(records=st.lists(st.dictionaries(NAMES, RECORDS, max_size=8), max_size=6), data=st.data())
def test_no_type_in_any_field_ends_a_fold(records: list[Json], data: st.DataObject) -> None:
    body = lines(HEADER, *records)
    whole = fold(body, MAIN)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=4)))
    same(fold(body, MAIN, cuts, save=True), whole)
    codec.encode(whole.header)


TEXTS = st.sampled_from(["", "one", "two", "/help", "<state_snapshot>x", "<session_context>y"])
CALL_IDS = st.sampled_from(["c1", "c2", None])
PARTS = st.one_of(
    st.builds(lambda said, thought: {"text": said, "thought": thought}, TEXTS, st.booleans()),
    st.builds(lambda call: {"functionCall": {"id": call, "name": "read_file", "args": {}}}, CALL_IDS),
    st.builds(lambda call, kind: response(call, **{kind: "r"}), CALL_IDS, st.sampled_from(["output", "error"])),
)
MESSAGES = st.builds(
    lambda number, second, kind, content, more: message(number, kind, content) | {"timestamp": stamp(second)} | more,
    st.integers(0, 4),
    st.integers(0, 59),
    st.sampled_from(["user", "gemini", "info"]),
    TEXTS | st.lists(PARTS, max_size=3),
    st.fixed_dictionaries(
        {},
        optional={
            "model": st.sampled_from(["a", "b"]),
            "thoughts": st.lists(st.just({"description": "t"}), max_size=2),
            "tokens": st.none() | st.just({"input": 3, "output": 1}),
            "toolCalls": st.lists(
                st.builds(
                    called, CALL_IDS, st.sampled_from(["success", "error", "cancelled"]), st.none() | st.just("r")
                ),
                max_size=2,
            ),
        },
    ),
)


def stamp(second: int) -> str:
    return f"2026-08-20T09:00:{second:02d}.000Z"


@settings(max_examples=300, deadline=None)
@given(
    records=st.lists(MESSAGES | st.lists(MESSAGES, max_size=4).map(lambda some: listed(*some)), max_size=8),
    data=st.data(),
)
def test_any_order_of_records_and_lists_can_be_cut_anywhere(records: list[Json], data: st.DataObject) -> None:
    body = lines(HEADER, *records)
    whole = fold(body, MAIN)
    edges = [at + 1 for at, byte in enumerate(body) if byte == 10]
    cuts = sorted(data.draw(st.lists(st.sampled_from(edges), max_size=4)))
    same(fold(body, MAIN, cuts, save=True), whole)
    turns = whole.of(Turn)
    results = sum(turn.kind == "tool_result" and turn.counted for turn in turns)
    assert results <= sum(turn.kind == "tool_call" for turn in turns)
    assert len(whole.of(Usage)) <= 5


@settings(max_examples=200, deadline=None)
@given(records=st.lists(MESSAGES, max_size=6))
def test_a_list_of_what_is_known_adds_nothing(records: list[Json]) -> None:
    body = lines(HEADER, *records)
    stripped = [{name: one[name] for name in ("id", "type", "content")} | {"timestamp": stamp(59)} for one in records]
    before, after = fold(body, MAIN), fold(body + lines({"$set": {"messages": stripped}}), MAIN)
    # a result that stood before its call is found by the list
    kinds = [Counter(turn.kind for turn in one.of(Turn) if turn.kind != "tool_result") for one in (before, after)]
    assert kinds[0] == kinds[1]
    for kind in (Usage, Compaction):
        assert before.of(kind) == after.of(kind)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_damage_ends_a_scan(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    document = json.dumps({**HEADER, "messages": CONVERSATION[3:5]}, indent=1).encode()
    rows = json.dumps([row(MAIN.id, 0, "a"), row("lost", 1, "b")]).encode()
    home = home_with(
        tmp_path_factory.mktemp("home"),
        {
            "tmp/app/chats/session-2026-08-20T09-00-11111111.json": mutated(data, document),
            f"tmp/app/{CHAT}": mutated(data, lines(*CONVERSATION[1:])),
            "tmp/app/logs.json": mutated(data, rows),
            "tmp/app/.project_root": mutated(data, b"/home/dev/app"),
            "projects.json": mutated(data, b'{"projects": {"/home/dev/app": "app"}}'),
        },
    )
    found(home)


def test_names_of_a_source_are_its_files(tmp_path: Path) -> None:
    home = home_with(tmp_path, {f"tmp/app/{CHAT}": lines(HEADER), "tmp/app/.project_root": PROJECT})
    (source,) = gemini.sources(home, lambda trouble: pytest.fail(str(trouble)))
    assert isinstance(source, Source)
    assert [Path(file.path).name for file in source.files] == [Path(CHAT).name, ".project_root"]
    assert msgspec.json.decode(b"".join(next(gemini.raws(source, print)).chunks()).split(b"\n")[0]) == {
        "$container": {"cwd": PROJECT, "evidence": ".project_root"}
    }
    assert gemini.resume(MAIN, None) == ["gemini", "--resume", MAIN.id]
    assert gemini.resume(Identity("gemini", "a", "b"), None) is None
