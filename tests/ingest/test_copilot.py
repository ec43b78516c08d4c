"""The Copilot importer against the shared corpus, and against small inputs of its own for each promise."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from folded import Folded, assert_same, checked, checker, fold_bytes, stamp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prosa.ingest.copilot import importer as copilot
from prosa.ingest.importer import Identity, Raw, Trouble

CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus"
CASES = sorted(path.parent.name for path in CORPUS.glob("copilot/*/expected.json"))
needs_corpus = pytest.mark.skipif(not CASES, reason="the shared corpus is not beside this checkout")

Json = dict[str, Any]

ID = "b041186c-0000-4000-8000-00000000000a"
OTHER = "b041186c-0000-4000-8000-00000000000b"
START = datetime(2026, 9, 20, 10, 0, tzinfo=UTC)


# --- folding and reckoning


def fold(data: bytes, native: str = ID, cuts: Iterable[int] = (), save: bool = False) -> Folded:
    identity = Identity("copilot", native)
    header, takes = fold_bytes(copilot.fold, identity, data, cuts, save, whole=True)
    assert not any(facts.marks for facts in takes)
    return Folded(identity, header, takes)


def raws_of(home: Path) -> tuple[list[Raw], list[Trouble]]:
    troubles: list[Trouble] = []
    found = [raw for source in copilot.sources(home, troubles.append) for raw in copilot.raws(source, troubles.append)]
    return found, troubles


def fold_home(home: Path) -> tuple[dict[str, Folded], list[Trouble]]:
    """Every session below a home by native id, with what asides say where they win."""
    raws, troubles = raws_of(home)
    sessions = {raw.identity.id: fold(b"".join(raw.chunks()), raw.identity.id) for raw in raws}
    known = {native: [one.identity] for native, one in sessions.items()}
    for aside in copilot.asides(home, known, troubles.append):
        session = sessions[aside.identity.id]
        if aside.rank >= 0 or getattr(session, aside.field) is None:
            setattr(session, aside.field, aside.value)
    return sessions, troubles


@needs_corpus
@pytest.mark.parametrize("case", CASES)
def test_a_corpus_case_gives_the_numbers_a_person_worked_out(case: str) -> None:
    folder = CORPUS / "copilot" / case
    assert checked(folder, *fold_home(folder / "home" / ".copilot")) == []


@needs_corpus
def test_no_event_of_the_corpus_is_of_an_unknown_type() -> None:
    for case in CASES:
        for session in fold_home(CORPUS / "copilot" / case / "home" / ".copilot")[0].values():
            assert session.header.unknown == {}


@needs_corpus
@pytest.mark.parametrize("case", CASES)
def test_reading_in_pieces_gives_the_same_facts_and_header(case: str) -> None:
    for raw in raws_of(CORPUS / "copilot" / case / "home" / ".copilot")[0]:
        data = b"".join(raw.chunks())
        whole = fold(data, raw.identity.id)
        ends = [place + 1 for place, byte in enumerate(data) if byte == 10]
        for cuts in (ends, [place - 1 for place in ends], range(7, len(data), max(7, len(data) // 97))):
            for save in (False, True):
                assert_same(whole, fold(data, raw.identity.id, cuts, save))


# --- small inputs


class Events:
    """Writes events.jsonl, a second apart."""

    def __init__(self, native: str = ID, **start: Any) -> None:
        self.native, self.at, self.lines = native, START, list[Json]()
        self.add("session.start", sessionId=native, startTime=START.isoformat(), copilotVersion="1.0.80", **start)

    def add(self, kind: str, agent: str | None = None, **data: Any) -> Events:
        self.at += timedelta(seconds=1)
        event: Json = {"type": kind, "id": f"e{len(self.lines)}", "timestamp": self.at.isoformat(), "data": data}
        self.lines.append(event | ({"agentId": agent} if agent else {}))
        return self

    def user(self, text: str, **data: Any) -> Events:
        return self.add("user.message", content=text, **data)

    def answer(self, message: str, text: str = "", *calls: tuple[str, str], **data: Any) -> Events:
        requests = [{"toolCallId": id_, "name": name, "arguments": {"path": "x"}} for id_, name in calls]
        return self.add("assistant.message", messageId=message, content=text, toolRequests=requests, **data)

    def done(self, call: str, text: str = "ok", success: bool = True, **data: Any) -> Events:
        return self.add("tool.execution_complete", toolCallId=call, success=success, result={"content": text}, **data)

    def shutdown(self, **models: tuple[int, int]) -> Events:
        metrics = {
            name: {"usage": {"inputTokens": total, "outputTokens": out}} for name, (total, out) in models.items()
        }
        return self.add("session.shutdown", modelMetrics=metrics)

    @property
    def data(self) -> bytes:
        return b"".join(json.dumps(line).encode() + b"\n" for line in self.lines)

    @property
    def folded(self) -> Folded:
        return fold(self.data, self.native)


def write(home: Path, name: str, data: bytes) -> Path:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def talk() -> Events:
    log = Events(selectedModel="picked", context={"cwd": "/d", "branch": "main"}).user("Do it")
    log.answer("m1", "", ("t1", "bash"), ("t2", "view"), reasoningText="Hm", model="used")
    log.add("tool.execution_start", toolCallId="t1", toolName="bash", arguments={"path": "x"}).done("t1")
    return log.done("t2", "text").answer("m2", "Done", model="used")


def test_an_answer_gives_its_thought_text_and_calls() -> None:
    folded = talk().folded
    assert folded.texts("user") == ["Do it"]
    assert folded.texts("assistant") == ["Done"]
    assert folded.texts("assistant", "thinking") == ["Hm"]
    assert [(turn.tool, turn.text) for turn in folded.turns if turn.kind == "tool_call"] == [
        ("bash", "x"),
        ("view", "x"),
    ]
    assert [(turn.tool, turn.text) for turn in folded.turns if turn.kind == "tool_result"] == [
        ("bash", "ok"),
        ("view", "text"),
    ]
    assert {turn.model for turn in folded.turns if turn.role == "assistant" and turn.model} == {"used"}
    assert folded.header.models == ("picked",)
    assert not folded.header.has_usage


def test_refusals_and_exit_codes_are_errors() -> None:
    log = Events().user("Run").answer("m", "", ("a", "bash"), ("b", "bash"), ("c", "bash"))
    log.done("a", shellExecution={"exitCode": 3}).done("b", shellExecution={"exitCode": 0})
    log.add("tool.execution_complete", toolCallId="c", success=False, error={"message": "denied"})
    results = [(turn.text, turn.is_error) for turn in log.folded.turns if turn.kind == "tool_result"]
    assert results == [("ok", True), ("ok", False), ("denied", True)]


def test_a_call_whose_request_is_lost_is_known_by_its_start() -> None:
    log = Events().add("tool.execution_start", toolCallId="a", toolName="grep", arguments={"q": "x"}).done("a")
    assert [(turn.kind, turn.tool) for turn in log.folded.turns] == [("tool_call", "grep"), ("tool_result", "grep")]


def test_a_call_id_that_another_message_uses_again_is_another_call() -> None:
    log = Events().answer("m1", "", ("c0", "bash")).done("c0", "one").answer("m2", "", ("c0", "view")).done("c0", "two")
    assert [(turn.tool, turn.text) for turn in log.folded.turns if turn.kind == "tool_result"] == [
        ("bash", "one"),
        ("view", "two"),
    ]


def test_skills_agents_and_sub_agents_are_shown_and_not_counted() -> None:
    log = talk().user("skill text", source="skill-api").user("task", source="agent-1")
    log.add("user.message", "a1", content="Look").add(
        "assistant.message", "a1", messageId="s", content="Looked", model="other"
    )
    log.add("assistant.message", messageId="old", content="Before agentId", parentToolCallId="t1")
    log.add("session.usage_record", "a1", usage={"model": "other", "inputTokens": 5, "outputTokens": 1})
    folded = log.folded
    assert folded.texts("user") == ["Do it"]
    assert folded.texts("assistant") == ["Done"]
    assert folded.texts("user", counted=False) == ["skill text", "task", "Look"]
    assert [(one.model, one.input) for one in folded.usage] == [("other", 5)]


def test_a_prompt_of_files_alone_counts() -> None:
    log = Events().user("", attachments=[{"type": "image", "displayName": "a.png"}, {"type": "file", "path": "/x"}])
    assert log.folded.texts("user") == ["[image]\n[/x]"]


def test_requests_are_preferred_to_the_sum_at_the_end() -> None:
    usage = {"model": "m", "inputTokens": 100, "outputTokens": 9, "cacheReadTokens": 40, "cacheWriteTokens": 10}
    log = talk().add("session.usage_record", usage=usage | {"reasoningTokens": 4}).shutdown(m=(100, 9))
    [one] = log.folded.usage
    assert (one.input, one.output, one.cache_read, one.cache_write_5m, one.reasoning) == (50, 9, 40, 10, 4)


def test_cumulative_sums_count_what_was_added_and_others_as_they_are() -> None:
    log = Events().user("Go").shutdown(a=(100, 10)).add("session.resume").shutdown(a=(150, 15), b=(7, 1))
    assert [(one.model, one.input) for one in log.folded.usage] == [("a", 100), ("a", 50), ("b", 7)]
    log = Events().user("Go").shutdown(a=(100, 10)).add("session.resume").shutdown(a=(50, 5))
    assert [(one.model, one.input) for one in log.folded.usage] == [("a", 100), ("a", 50)]
    log = Events().user("Go").shutdown(a=(100, 10)).add("session.resume").shutdown(b=(150, 15))
    assert [(one.model, one.input) for one in log.folded.usage] == [("a", 100), ("b", 150)]


def test_a_session_that_a_newer_client_went_on_with_counts_each_run_once() -> None:
    log = Events().user("Go").shutdown(a=(100, 10)).add("session.resume")
    log.add("session.usage_record", usage={"model": "a", "inputTokens": 50, "outputTokens": 5}).shutdown(a=(150, 15))
    assert sum(one.input for one in log.folded.usage) == 150


def test_only_completed_compactions_of_the_session_itself_count() -> None:
    log = (
        talk()
        .add("session.compaction_complete", success=False, error="429")
        .add("session.compaction_complete", "a1", success=True)
    )
    log.add("session.compaction_complete", success=True, trigger="manual", preCompactionTokens=9, summaryContent="Sum")
    [one] = log.folded.compactions
    assert (one.trigger, one.size_before) == ("manual", 9)
    assert one.id == log.lines[-1]["id"]
    assert log.folded.texts("system", "compaction", counted=False) == ["Sum"]


def test_an_event_that_comes_again_is_the_same() -> None:
    log = talk().shutdown(a=(100, 10))
    once = log.folded
    log.lines = [line for line in log.lines for _ in range(2)]
    assert log.folded.facts == once.facts


def test_equal_event_ids_of_two_sessions_are_two_events() -> None:
    other = talk()
    assert not set(talk().folded.facts) & set(fold(other.data, OTHER).facts)


def test_a_field_of_a_wrong_type_costs_that_field_only() -> None:
    log = Events(context={"cwd": 5, "branch": "main"}).user("Do it", attachments=5, source=["x"])
    log.answer("m", "Done", ("t", "bash"), model={"no": "model"}, outputTokens="many").done("t", shellExecution="none")
    folded = log.folded
    assert (folded.header.cwd, folded.header.branch) == (None, "main")
    assert folded.texts("user") == ["Do it"]
    assert folded.texts("assistant") == ["Done"]
    assert [(turn.tool, turn.is_error) for turn in folded.turns if turn.kind == "tool_result"] == [("bash", False)]
    assert folded.header.malformed == 0


def test_a_line_separator_inside_a_text_ends_no_line() -> None:
    data = Events().data + '{"type":"user.message","id":"u","data":{"content":"a\u2028b"}}\n'.encode()
    assert fold(data).texts("user") == ["a\u2028b"]


YAML = """\
id: {id}
cwd: /from/workspace
branch: null
name: "A \\"quoted\\" name: with colon"
nested:
  name: no
  cwd: no
user_named: true
"""


def test_the_workspace_gives_the_name_and_what_the_events_do_not_say(tmp_path: Path) -> None:
    write(tmp_path, f"session-state/{ID}/events.jsonl", talk().data)
    write(tmp_path, f"session-state/{ID}/workspace.yaml", YAML.format(id=ID).encode())
    write(tmp_path, f"session-state/{OTHER}/events.jsonl", Events(OTHER).user("Hi").data)
    write(tmp_path, f"session-state/{OTHER}/workspace.yaml", YAML.format(id=OTHER).encode())
    sessions, troubles = fold_home(tmp_path)
    assert not troubles
    assert [(one.title, one.cwd, one.branch) for one in sessions.values()] == [
        ('A "quoted" name: with colon', "/d", "main"),
        ('A "quoted" name: with colon', "/from/workspace", None),
    ]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("name: plain # no comment: x", "plain # no comment: x"),
        ("name: 'it''s'", "it's"),
        ("name: >-\n  folded\n  text\ncwd: /x", "folded text"),
        ("name: |\n  two\n  lines\n", "two\nlines"),
        ("name: a long\n  plain one\n", "a long plain one"),
        ('name: "\\ud800 odd"', "? odd"),
        ("name: ~", None),
        ("name:", None),
        ("name: ''", None),
        ("name: [1, 2]", None),
        ("\ufeffname: bom\r\nid: x\r\n", "bom"),
    ],
)
def test_scalars_of_a_workspace_file(text: str, name: str | None) -> None:
    assert copilot.workspace(text).get("name") == name


@given(st.text(max_size=60))
def test_no_workspace_file_is_too_strange(text: str) -> None:
    for value in copilot.workspace(f"name: {text}").values():
        assert value == value.strip() != ""


def test_the_folder_wins_over_the_older_generations(tmp_path: Path) -> None:
    old = json.dumps([{"role": "user", "content": "Old"}]).encode()
    write(tmp_path, f"session-state/{ID}/events.jsonl", talk().data)
    write(tmp_path, f"session-state/{ID}.jsonl", Events().user("Flat").data)
    write(tmp_path, f"history-session-state/session_{ID}_1750000000000.json", old)
    write(tmp_path, f"session-state/{OTHER}.jsonl", Events(OTHER).user("Only flat").data)
    write(tmp_path, f"history-session-state/session_{OTHER}_1750000000000.json", old)
    sessions, troubles = fold_home(tmp_path)
    assert not troubles
    assert {native: one.texts("user") for native, one in sessions.items()} == {ID: ["Do it"], OTHER: ["Only flat"]}
    assert len(list(copilot.sources(tmp_path, troubles.append))) == 5


DOCUMENT: Json = {
    "sessionId": ID,
    "chatMessages": [
        {"role": "system", "content": "You are"},
        {"role": "user", "content": "<current_datetime>now</current_datetime>\n\nFix it"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]},
        {"role": "user", "content": "<reminder>\nnothing\n</reminder>"},
        {
            "role": "assistant",
            "content": "Yes",
            "tool_calls": [{"id": "c", "function": {"name": "ls", "arguments": '{"p":"/"}'}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "a"},
    ],
}


@pytest.mark.parametrize("document", [DOCUMENT, DOCUMENT["chatMessages"]])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_document_of_the_first_generation(tmp_path: Path, document: Any, indent: int | None) -> None:
    data = json.dumps(document, indent=indent).encode()
    write(tmp_path, f"history-session-state/session_{ID}_1750000000000.json", data)
    [raw] = raws_of(tmp_path)[0]
    assert (raw.identity.id, raw.verbatim, raw.surface) == (ID, False, "history")
    whole = b"".join(raw.chunks())
    assert data in whole
    folded = fold(whole)
    assert folded.texts("user") == ["Fix it", "[image]"]
    assert folded.texts("assistant") == ["Yes"]
    assert [(turn.kind, turn.tool, turn.text) for turn in folded.turns[-2:]] == [
        ("tool_call", "ls", "/"),
        ("tool_result", "ls", "a"),
    ]
    assert stamp(folded.header.started_at) == "2025-06-15T15:06:40+00:00"
    assert_same(folded, fold(whole, cuts=range(1, len(whole), 7), save=True))


def test_the_id_in_the_events_wins_over_the_folders_name(tmp_path: Path) -> None:
    write(tmp_path, "session-state/renamed/events.jsonl", talk().data)
    write(tmp_path, f"session-state/{OTHER}/events.jsonl", b'{"type":"session.st\n' + talk().data.split(b"\n", 1)[1])
    sessions, _ = fold_home(tmp_path)
    assert set(sessions) == {ID, OTHER}
    assert sessions[OTHER].header.malformed == 1


def test_what_is_no_session_or_cannot_be_read_takes_nothing_with_it(tmp_path: Path) -> None:
    write(tmp_path, f"session-state/{ID}/events.jsonl", talk().data)
    write(tmp_path, "session-state/empty/events.jsonl", b"")
    write(tmp_path, "session-state/.session-operation-locks/x.lock", b"")
    (tmp_path / "session-state" / "bare").mkdir()
    (tmp_path / "session-state" / "again").symlink_to(tmp_path / "session-state" / ID)
    (tmp_path / "session-state" / "loop").symlink_to("loop")
    fifo = tmp_path / "session-state" / "fifo"
    fifo.mkdir()
    os.mkfifo(fifo / "events.jsonl")
    os.mkfifo(fifo / "workspace.yaml")
    sessions, troubles = fold_home(tmp_path)
    assert list(sessions) == [ID]
    assert [Path(trouble.path).name for trouble in troubles] == ["loop"]


def test_a_vanished_file_is_tried_again(tmp_path: Path) -> None:
    path = write(tmp_path, f"session-state/{ID}/events.jsonl", talk().data)
    troubles: list[Trouble] = []
    [source] = copilot.sources(tmp_path, troubles.append)
    path.unlink()
    assert list(copilot.raws(source, troubles.append)) == []
    assert [trouble.retry for trouble in troubles] == [True]


def test_homes_are_the_agents_own(tmp_path: Path) -> None:
    assert copilot.homes({}, tmp_path) == [tmp_path / ".copilot"]
    assert copilot.homes({"COPILOT_HOME": "/x/y"}, tmp_path) == [Path("/x/y")]
    assert copilot.resume(Identity("copilot", ID), "/d") == ["copilot", f"--resume={ID}"]


# --- hostile inputs

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.just("\ud800")
    | st.just(1 << 200)
)
VALUES = st.recursive(
    SCALARS, lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=4), one, max_size=3), max_leaves=6
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for name, one in inner for found in places(one, (*path, name)))]


def put(holder: Any, path: tuple[Any, ...], value: Any) -> None:
    for name in path[:-1]:
        holder = holder[name]
    holder[path[-1]] = value


def full() -> Events:
    log = talk().add("session.usage_record", usage={"model": "m", "inputTokens": 5, "accounting": {"usageId": "u"}})
    log.add("session.compaction_complete", success=True, preCompactionTokens=5).add("session.resume").shutdown(a=(1, 2))
    return log.user("", attachments=[{"type": "file", "path": "/x"}])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_wrong_type_anywhere_costs_no_more_than_its_line(data: st.DataObject) -> None:
    log = full()
    line = data.draw(st.integers(0, len(log.lines) - 1))
    put(log.lines[line], data.draw(st.sampled_from(places(log.lines[line])[1:])), data.draw(VALUES))
    folded = log.user("Still here").folded
    assert folded.texts("user")[-1] == "Still here"
    msgspec.msgpack.encode([list(folded.facts.values()), folded.header])
    document = json.loads(json.dumps(DOCUMENT))
    put(document, data.draw(st.sampled_from(places(document)[1:])), data.draw(VALUES))
    session = fold(b'{"prosa.file":"session_x_1.json"}\n' + json.dumps(document).encode())
    msgspec.msgpack.encode([list(session.facts.values()), session.header])


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damaged_bytes_in_any_pieces_give_the_same_facts(data: st.DataObject) -> None:
    raw = full().data
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(raw)))
        length = data.draw(st.integers(0, 40))
        raw = raw[:place] + data.draw(st.binary(max_size=6) | st.just(b"\n")) + raw[place + length :]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    assert_same(fold(raw), fold(raw, cuts=cuts, save=data.draw(st.booleans())))


@needs_corpus
def test_nothing_below_the_home_changes(tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(CORPUS / "copilot" / "session-state-real" / "home", home)
    before = checker().snapshot(home)
    fold_home(home / ".copilot")
    assert checker().snapshot(home) == before
