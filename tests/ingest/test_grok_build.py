"""The Grok Build importer against the shared corpus, and against small inputs of its own for each promise."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from folded import Folded, assert_same, checked, checker, fold_bytes, owned, stamp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prosa.events.facts import PROVEN, Turn, Usage
from prosa.ingest.grok_build import importer as grok_build
from prosa.ingest.importer import Identity, Raw, Trouble

CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus"
CASES = sorted(path.parent.name for path in CORPUS.glob("grok-build/*/expected.json"))
needs_corpus = pytest.mark.skipif(not CASES, reason="the shared corpus is not beside this checkout")

Json = dict[str, Any]

ID = "01a20000-0000-7000-8000-00000000000a"
CHILD = "01a20000-0000-7000-8000-00000000000b"
THIRD = "01a20000-0000-7000-8000-00000000000c"
GROUP = "%2Fhome%2Fdev%2Fdemo"
START = 1_796_000_000_000


# --- folding and reckoning


def fold(data: bytes, native: str = ID, cuts: Iterable[int] = ()) -> Folded:
    identity = Identity("grok-build", native)
    header, takes = fold_bytes(grok_build.fold, identity, data, cuts)
    assert not any(facts.marks for facts in takes)
    return Folded(identity, header, takes)


def raws_of(home: Path) -> tuple[list[Raw], list[Trouble]]:
    troubles: list[Trouble] = []
    found = [
        raw for source in grok_build.sources(home, troubles.append) for raw in grok_build.raws(source, troubles.append)
    ]
    return found, troubles


def fold_home(home: Path) -> tuple[dict[str, Folded], list[Trouble]]:
    raws, troubles = raws_of(home)
    return {raw.identity.id: fold(b"".join(raw.chunks()), raw.identity.id) for raw in raws}, troubles


@needs_corpus
@pytest.mark.parametrize("case", CASES)
def test_a_corpus_case_gives_the_numbers_a_person_worked_out(case: str) -> None:
    folder = CORPUS / "grok-build" / case
    assert checked(folder, *fold_home(folder / "home" / ".grok")) == []


@needs_corpus
def test_compactions_have_the_ids_of_their_checkpoints() -> None:
    folder = CORPUS / "grok-build" / "compaction"
    want = json.loads((folder / "expected.json").read_text())["sessions"][0]
    sessions, _ = fold_home(folder / "home" / ".grok")
    found = sessions[want["session_id"]].compactions
    assert [one.id for one in found] == want["compaction_ids"]
    assert [(one.trigger, one.size_before) for one in found] == [("auto", 24802), ("manual", 3341)]


@needs_corpus
def test_no_record_of_the_corpus_is_of_an_unknown_kind() -> None:
    for case in CASES:
        for session in fold_home(CORPUS / "grok-build" / case / "home" / ".grok")[0].values():
            assert set(session.header.unknown) <= {"chat/hologram"}


@needs_corpus
@pytest.mark.parametrize("case", CASES)
def test_reading_in_pieces_gives_the_same_facts_and_header(case: str) -> None:
    for raw in raws_of(CORPUS / "grok-build" / case / "home" / ".grok")[0]:
        data = b"".join(raw.chunks())
        whole = fold(data, raw.identity.id)
        ends = [place + 1 for place, byte in enumerate(data) if byte == 10]
        for cuts in (ends, [place - 1 for place in ends], range(7, len(data), max(7, len(data) // 97))):
            assert_same(whole, fold(data, raw.identity.id, cuts))


# --- small inputs


class Log:
    """Writes updates.jsonl, a second apart."""

    def __init__(self, native: str = ID, at: int = START) -> None:
        self.native, self.at, self.number = native, at, 0
        self.lines: list[Json] = []

    def add(self, kind: str, tag: Json | None = None, prompt: str | None = None, **update: Any) -> Log:
        self.number += 1
        self.at += 1000
        meta: Json = {"eventId": f"{self.native}-{self.number}", "agentTimestampMs": self.at}
        if prompt:
            meta["promptId"] = prompt
        body = {"sessionUpdate": kind, **update} | ({"_meta": tag} if tag else {})
        params = {"sessionId": self.native, "update": body, "_meta": meta}
        self.lines.append({"timestamp": self.at // 1000, "method": "session/update", "params": params})
        return self

    def user(self, text: str, index: int | None = 0, **tag: Any) -> Log:
        return self.add("user_message_chunk", {"modelId": "asked", "promptIndex": index, **tag}, content=said(text))

    def answer(self, text: str, prompt: str | None = None) -> Log:
        return self.add("agent_message_chunk", prompt=prompt, content=said(text))

    def thought(self, text: str) -> Log:
        return self.add("agent_thought_chunk", content=said(text))

    def call(self, call: str, name: str = "read_file", prompt: str | None = None, **arguments: Any) -> Log:
        tag = {"x.ai/tool": {"name": name}}
        return self.add("tool_call", tag, prompt, toolCallId=call, title=name, rawInput=arguments)

    def result(self, call: str, text: str = "done", status: str = "completed", **update: Any) -> Log:
        content = [{"type": "content", "content": said(text)}]
        return self.add("tool_call_update", toolCallId=call, status=status, content=content, **update)

    def end(self, prompt: str = "p-1", tokens: Json | None = None) -> Log:
        more: Json = {"usage": tokens} if tokens else {}
        return self.add("turn_completed", None, None, prompt_id=prompt, stop_reason="end_turn", **more)

    def fork(self, native: str = CHILD) -> Log:
        """The child's log: the parent's lines, session id and time of the line rewritten."""
        child = Log(native, self.at + 5000)
        child.lines = json.loads(json.dumps(self.lines))
        for line in child.lines:
            line["timestamp"] = child.at // 1000
            line["params"]["sessionId"] = native
        return child

    @property
    def data(self) -> bytes:
        return b"".join(json.dumps(line).encode() + b"\n" for line in self.lines)

    @property
    def folded(self) -> Folded:
        return fold(b'{"prosa.file":"updates.jsonl"}\n' + self.data, self.native)


def said(text: str) -> Json:
    return {"type": "text", "text": text}


def spent(total: int, output: int = 10, cached: int = 0, model: str = "used", **more: Any) -> Json:
    counts = {"inputTokens": total, "outputTokens": output, "cachedReadTokens": cached, "reasoningTokens": 1}
    return counts | {"modelUsage": {model: counts}} | more


def chat(*rows: Json) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def summary_of(native: str, **more: Any) -> bytes:
    about = {"info": {"id": native, "cwd": "/home/dev/demo"}, "created_at": "2026-11-30T10:00:00Z"}
    return json.dumps(about | more, indent=2).encode()


def write(home: Path, native: str, files: dict[str, bytes], group: str = GROUP) -> Path:
    folder = home / "sessions" / group / native
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def talk() -> Log:
    log = Log().user("Read it").thought("First").thought(", look.").answer("Reading").call("c1", path="a.py")
    return log.result("c1").answer("It ").answer("is fine.").end(tokens=spent(100, cached=40))


def test_chunks_make_one_prompt_one_thought_and_one_answer() -> None:
    folded = talk().folded
    assert folded.texts("user") == ["Read it"]
    assert folded.texts("assistant", "thinking") == ["First, look."]
    assert folded.texts("assistant") == ["Reading", "It is fine."]
    assert [(turn.tool, turn.text) for turn in folded.turns if turn.kind == "tool_call"] == [("read_file", "a.py")]
    assert [(one.model, one.input, one.cache_read) for one in folded.usage] == [("used", 60, 40)]


def test_text_before_and_after_a_call_is_one_answer_until_a_call_has_ended() -> None:
    log = Log().user("Go").answer("One").call("c1").answer("Two").result("c1").answer("Three")
    assert log.folded.texts("assistant") == ["One\n\nTwo", "Three"]


def test_a_thought_after_a_call_is_another_thought() -> None:
    assert Log().user("Go").thought("One").call("c1").thought("Two").folded.texts("assistant", "thinking") == [
        "One",
        "Two",
    ]


def test_text_and_image_of_one_prompt_are_one_turn() -> None:
    log = Log().user("See this", 3)
    log.add(
        "user_message_chunk", {"promptIndex": 3}, content={"type": "image", "data": "QUJD", "mimeType": "image/png"}
    )
    log.answer("Seen").user("Next", 4)
    assert log.folded.texts("user") == ["See this", "Next"]


def test_a_prompt_of_an_image_alone_counts() -> None:
    log = Log().add("user_message_chunk", {"promptIndex": 0}, content={"type": "image", "data": "QUJD"}).answer("Seen")
    assert log.folded.texts("user") == ["[image]"]


def test_the_same_prompt_index_after_a_restart_or_a_rewind_is_another_prompt() -> None:
    log = Log().user("First try", 0)
    log.number = 0
    log.user("Second try", 0).answer("Yes").end().add("rewind_marker", target_prompt_index=0).user("Third try", 0)
    assert log.folded.texts("user") == ["First try", "Second try", "Third try"]


def test_interjections_count_and_wake_ups_and_host_commands_do_not() -> None:
    log = Log().user("Work")
    log.user("Also:\n<user_query>\nthe weather\n</user_query>\n(guidance)", None, interjection=True)
    log.user("and the news", None, interjection=True)
    log.user("<system-reminder>done</system-reminder>", 1, hideFromScrollback=True).user(
        "/compact", None, hostTurn=True
    )
    folded = log.folded
    assert folded.texts("user") == ["Work", "the weather", "and the news"]
    assert len(folded.texts("user", counted=False)) == 2


def test_a_doubled_line_is_one_record() -> None:
    log = talk()
    log.lines = [line for line in log.lines for _ in range(2)]
    assert log.folded.facts == talk().folded.facts


def test_failed_calls_and_exit_codes_are_errors_and_the_last_status_wins() -> None:
    log = Log().user("Run").call("c1").call("c2").call("c3").call("c4")
    log.result("c1", status="failed").result("c2", rawOutput={"type": "Bash", "exit_code": 1}).result("c3")
    log.result("c4", status="failed").result("c4", "better")
    errors = {turn.tool_call_id: turn.is_error for turn in log.folded.turns if turn.kind == "tool_result"}
    assert errors == {"c1": True, "c2": True, "c3": False, "c4": False}


def test_a_result_without_content_shows_the_raw_output() -> None:
    log = Log().user("List").call("c1")
    log.add(
        "tool_call_update",
        toolCallId="c1",
        status="completed",
        rawOutput={"type": "List", "Content": {"content": "a\nb"}},
    )
    assert [turn.text for turn in log.folded.turns if turn.kind == "tool_result"] == ["a\nb"]


def test_a_call_known_by_its_update_only_is_still_a_call() -> None:
    log = Log().user("Go").add("tool_call_update", {"x.ai/tool": {"name": "grep"}}, toolCallId="u1", status="failed")
    assert [(t.kind, t.tool, t.is_error) for t in log.folded.turns[1:]] == [
        ("tool_call", "grep", False),
        ("tool_result", "grep", True),
    ]


def test_a_call_id_that_comes_again_in_another_turn_is_another_call() -> None:
    log = Log().user("One").call("call_0", prompt="p1").result("call_0").end("p1")
    log.user("Two", 1).call("call_0", prompt="p2").result("call_0", "again").end("p2")
    assert [turn.text for turn in log.folded.turns if turn.kind == "tool_result"] == ["done", "again"]


def test_a_forks_own_call_with_an_inherited_id_is_its_own() -> None:
    child = Log().user("One").call("call_0").answer("Cut off").fork().user("Two", 1).call("call_0").result("call_0")
    own = [turn.kind for turn in child.folded.turns if not turn.copied]
    assert own == ["message", "tool_call", "tool_result"]


def test_call_ids_numbered_anew_in_each_turn_are_told_apart_without_prompt_ids() -> None:
    log = Log().user("One").call("0").result("0").end("p1").user("Two", 1).call("0").result("0").end("p2")
    assert sum(turn.kind == "tool_call" for turn in log.folded.turns) == 2


def test_usage_counts_once_for_a_prompt_and_by_model() -> None:
    both: Json = {"inputTokens": 300, "outputTokens": 30}
    both |= {
        "modelUsage": {
            "big": {"inputTokens": 200, "outputTokens": 20},
            "small": {"inputTokens": 100, "outputTokens": 10},
        }
    }
    log = (
        Log()
        .user("Go")
        .answer("Yes")
        .end("p", spent(100))
        .end("p", spent(100))
        .user("More", 1)
        .answer("Ok")
        .end("q", both)
    )
    assert [(one.model, one.input) for one in log.folded.usage] == [("used", 100), ("big", 200), ("small", 100)]


def test_usage_of_a_background_child_booked_again_is_left_out_and_a_wake_turn_counts() -> None:
    wake = f"subagent-completed-{CHILD}"
    log = Log().user("Go").answer("Yes").end("p", spent(100)).end(wake, spent(999))
    assert [one.input for one in log.folded.usage] == [100]
    log = Log().user("Go").answer("Yes").end("p", spent(100)).user("It is done", 1, hideFromScrollback=True)
    assert [one.input for one in log.answer("Fine", wake).end(wake, spent(7)).folded.usage] == [100, 7]
    log = Log().user("Go").answer("Not yet", "p").end(wake, spent(999)).answer("Now", "p").end("p", spent(5))
    assert [one.input for one in log.folded.usage] == [5]


def test_a_turn_without_usage_leaves_it_unknown() -> None:
    folded = Log().user("Go").answer("Yes").end().folded
    assert not folded.header.has_usage
    assert folded.header.models == ("asked",)


def test_a_fork_counts_only_what_it_added() -> None:
    child = talk().fork().user("In the fork", 1).answer("Forked").end("p-2", spent(7))
    sessions = {ID: talk().folded, CHILD: child.folded}
    counted = owned(sessions)
    assert [fact.text for fact in counted[CHILD] if isinstance(fact, Turn)] == ["In the fork", "Forked"]
    assert [fact.input for fact in counted[CHILD] if isinstance(fact, Usage)] == [7]
    assert len(counted[ID]) == len(sessions[ID].facts)
    assert set(sessions[ID].facts) < set(sessions[CHILD].facts)
    assert sessions[CHILD].header.forked_from == ID
    alone = owned({CHILD: child.folded})[CHILD]
    assert [fact.text for fact in alone if isinstance(fact, Turn)] == ["In the fork", "Forked"]


def test_a_fork_of_a_fork_inherits_from_both() -> None:
    child = talk().fork().user("Two", 1).answer("Second").end("p-2", spent(7))
    grandchild = child.fork(THIRD).user("Three", 2).answer("Third").end("p-3", spent(9))
    counted = owned({ID: talk().folded, CHILD: child.folded, THIRD: grandchild.folded})
    assert [fact.input for fact in counted[THIRD] if isinstance(fact, Usage)] == [9]
    assert {turn.copied_from for turn in grandchild.folded.turns} == {None, ID, CHILD}


def test_a_compaction_is_its_checkpoint_or_the_end_that_has_none() -> None:
    log = Log().user("Go").answer("Yes").end()
    log.add("auto_compact_started").add("auto_compact_failed", error="no")
    log.add("auto_compact_started").add("compaction_checkpoint", checkpoint_id="cp").add(
        "auto_compact_completed", tokens_before=9
    )
    log.add("auto_compact_completed", tokens_before=5)
    found = log.folded.compactions
    assert [(one.trigger, one.size_before) for one in found] == [("auto", 9), ("manual", 5)]
    assert found[0].id == "cp"
    assert found[1].id.startswith(f"{ID}-{log.number}")


def test_an_inherited_compaction_is_the_parents() -> None:
    parent = Log().user("Go").answer("Yes").add("compaction_checkpoint", checkpoint_id="cp").end()
    assert [one.copied for one in parent.fork().user("On", 1).folded.compactions] == [PROVEN]


def test_a_line_without_envelope_is_the_same_record() -> None:
    log = talk()
    bare = b"".join(json.dumps(line["params"]).encode() + b"\n\n" for line in log.lines)
    assert fold(b'{"prosa.file":"updates.jsonl"}\n' + bare).facts == log.folded.facts


def test_old_records_without_event_id_are_compared_with_the_parents_lines(tmp_path: Path) -> None:
    parent = talk()
    child = parent.fork().user("Own words", 1).answer("Own answer")
    for log in (parent, child):
        for line in log.lines:
            del line["params"]["_meta"]
    write(tmp_path, ID, {"summary.json": summary_of(ID), "updates.jsonl": parent.data})
    write(tmp_path, CHILD, {"summary.json": summary_of(CHILD, parent_session_id=ID), "updates.jsonl": child.data})
    sessions, _ = fold_home(tmp_path)
    own = [turn.text for turn in sessions[CHILD].turns if not turn.copied]
    assert own == ["Own words", "Own answer"]
    assert not any(turn.copied for turn in sessions[ID].turns)


def test_a_sub_agents_parent_stands_in_the_spawners_folder(tmp_path: Path) -> None:
    meta = {"child_session_id": CHILD, "parent_session_id": ID, "status": "completed"}
    about = summary_of(CHILD, session_kind="subagent_resume", parent_session_id=THIRD)
    write(tmp_path, ID, {"updates.jsonl": talk().data, f"subagents/{CHILD}/meta.json": json.dumps(meta).encode()})
    write(tmp_path, CHILD, {"summary.json": about, "updates.jsonl": Log(CHILD).user("Dig").data}, group="%2Ftmp")
    sessions, troubles = fold_home(tmp_path)
    assert not troubles
    assert (sessions[CHILD].header.parent, sessions[CHILD].header.forked_from) == (ID, THIRD)
    assert sessions[ID].header.parent is None


def test_a_meta_that_names_the_child_as_its_own_parent_is_no_edge(tmp_path: Path) -> None:
    meta = json.dumps({"child_session_id": ID, "parent_session_id": ID}).encode()
    write(tmp_path, ID, {"updates.jsonl": talk().data, f"subagents/{ID}/meta.json": meta})
    assert fold_home(tmp_path)[0][ID].header.parent is None


def test_a_field_of_a_wrong_type_costs_that_field_only() -> None:
    log = talk()
    for line in log.lines:
        update = line["params"]["update"]
        update.setdefault("_meta", {})["promptIndex"] = "zero"
        update["rawOutput" if "toolCallId" in update else "title"] = [1 << 200, "\ud800"]
    assert log.folded.texts("user") == talk().folded.texts("user")
    assert log.folded.texts("assistant") == talk().folded.texts("assistant")
    assert log.folded.usage == talk().folded.usage
    assert log.folded.header.malformed == 0


CHAT = chat(
    {"type": "system", "content": "You are"},
    {"type": "user", "content": [said("<user_info>\nOS\n</user_info>")]},
    {"type": "user", "content": [said("Do not")], "synthetic_reason": "auto_continue", "prompt_index": 1},
    {"type": "user", "content": [said("<user_query>\nDo it\n</user_query>")]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]},
    {"type": "reasoning", "summary": [], "encrypted_content": "x"},
    {"type": "backend_tool_call", "kind": {"tool_type": "web_search", "id": "ws", "action": {"query": "how"}}},
    {
        "type": "assistant",
        "content": "Done",
        "model_id": "m",
        "tool_calls": [{"id": "c", "name": "ls", "arguments": "{}"}],
    },
    {"type": "tool_result", "tool_call_id": "c", "content": "a b"},
    {"role": "user", "content": "Old style"},
    {
        "role": "assistant",
        "content": "Old answer",
        "reasoning_content": "Old thought",
        "tool_calls": [{"id": "d", "function": {"name": "cat", "arguments": '{"path":"x"}'}}],
    },
    {"role": "tool", "tool_call_id": "d", "content": "text"},
)


def test_a_chat_alone_serves_where_the_log_has_no_turn(tmp_path: Path) -> None:
    side = Log().add("available_commands_update").data
    write(tmp_path, ID, {"summary.json": summary_of(ID), "updates.jsonl": side, "chat_history.jsonl": CHAT})
    raws, _ = raws_of(tmp_path)
    assert [raw.surface for raw in raws] == ["chat"]
    folded = fold(b"".join(raws[0].chunks()))
    assert folded.texts("user") == ["Do it", "Old style"]
    assert folded.texts("assistant") == ["Done", "Old answer"]
    assert folded.texts("assistant", "thinking") == ["Hm", "Old thought"]
    assert [(t.tool, t.text) for t in folded.turns if t.kind == "tool_call"] == [
        ("web_search", "how"),
        ("ls", ""),
        ("cat", "x"),
    ]
    assert [turn.tool for turn in folded.turns if turn.kind == "tool_result"] == ["ls", "cat"]
    assert folded.header.models == ("m",)
    assert all(turn.at is None for turn in folded.turns)


def test_beside_a_log_the_chat_adds_only_calls_of_the_vendor(tmp_path: Path) -> None:
    write(tmp_path, ID, {"summary.json": summary_of(ID), "updates.jsonl": talk().data, "chat_history.jsonl": CHAT})
    sessions, _ = fold_home(tmp_path)
    new = [turn for turn in sessions[ID].turns if turn.key not in talk().folded.facts]
    assert [turn.tool for turn in new] == ["web_search"]


def test_rows_that_a_compaction_keeps_have_the_same_keys(tmp_path: Path) -> None:
    head = b'{"prosa.file":"chat_history.jsonl"}\n'
    kept = CHAT.split(b"\n", 3)[3]
    assert set(fold(head + kept).facts) < set(fold(head + CHAT).facts)


def test_leading_chat_rows_of_a_fork_are_the_parents(tmp_path: Path) -> None:
    about = summary_of(CHILD, parent_session_id=ID, inherited_prefix_len=9)
    write(tmp_path, CHILD, {"summary.json": about, "chat_history.jsonl": CHAT})
    sessions, _ = fold_home(tmp_path)
    assert [t.text for t in sessions[CHILD].turns if not t.copied and t.kind == "message"] == [
        "Old style",
        "Old answer",
    ]


def test_the_working_directory_comes_from_the_group_where_the_summary_has_none(tmp_path: Path) -> None:
    write(tmp_path, ID, {"updates.jsonl": talk().data}, group="%2Fhome%2Fdev%2Fmy%20dir")
    write(
        tmp_path, CHILD, {"updates.jsonl": Log(CHILD).user("Hi").data, "../.cwd": b"/very/long/path\n"}, group="slug-1f"
    )
    write(tmp_path, THIRD, {"updates.jsonl": Log(THIRD).user("Hi").data}, group="other-slug")
    sessions, _ = fold_home(tmp_path)
    assert [sessions[one].header.cwd for one in (ID, CHILD, THIRD)] == ["/home/dev/my dir", "/very/long/path", None]


def test_times_and_names_of_the_summary_in_both_spellings(tmp_path: Path) -> None:
    about = {"info": {"id": ID, "cwd": "/d"}, "createdAt": "2026-11-30T10:00:00.123456789Z", "headBranch": "main"}
    about |= {"generatedTitle": "  ", "sessionSummary": " <b>Title</b> ", "lastActiveAt": "2026-11-30T12:00:00Z"}
    write(tmp_path, ID, {"summary.json": json.dumps(about).encode(), "chat_history.jsonl": CHAT})
    header = fold_home(tmp_path)[0][ID].header
    assert (header.title, header.branch) == ("<b>Title</b>", "main")
    assert stamp(header.started_at) == "2026-11-30T10:00:00.123456+00:00"
    assert stamp(header.last_activity_at) == "2026-11-30T12:00:00+00:00"


def test_the_id_inside_wins_over_the_folders_name(tmp_path: Path) -> None:
    write(tmp_path, CHILD, {"summary.json": summary_of(ID), "updates.jsonl": talk().data})
    write(
        tmp_path,
        THIRD,
        {
            "summary.json": b'{"info":{"id":"01',
            "updates.jsonl": Log("01a20000-0000-7000-8000-00000000000d").user("Hi").data,
        },
    )
    sessions, troubles = fold_home(tmp_path)
    assert set(sessions) == {ID, "01a20000-0000-7000-8000-00000000000d"}
    assert all(not turn.copied for one in sessions.values() for turn in one.turns)
    assert [Path(trouble.path).name for trouble in troubles] == ["summary.json"]


def test_a_chat_that_never_started_is_no_session_and_no_trouble(tmp_path: Path) -> None:
    opened = chat(
        {"type": "system", "content": "You are"}, {"type": "user", "content": [said("<user_info>x</user_info>")]}
    )
    write(tmp_path, ID, {"summary.json": summary_of(ID), "chat_history.jsonl": opened})
    write(tmp_path, CHILD, {"summary.json": summary_of(CHILD), "updates.jsonl": b"", "chat_history.jsonl": b""})
    write(tmp_path, THIRD, {"summary.json": summary_of(THIRD)})
    assert raws_of(tmp_path) == ([], [])


def test_only_uuid_folders_are_sessions_and_links_are_followed_once(tmp_path: Path) -> None:
    folder = write(tmp_path, ID, {"updates.jsonl": talk().data})
    write(tmp_path, "notes", {"updates.jsonl": talk().data})
    (tmp_path / "sessions" / "again").symlink_to(folder.parent)
    (tmp_path / "sessions" / "loop").symlink_to("loop")
    (tmp_path / "sessions" / "session_search.sqlite").write_bytes(b"x")
    raws, troubles = raws_of(tmp_path)
    assert [raw.identity.id for raw in raws] == [ID]
    assert [Path(trouble.path).name for trouble in troubles] == ["loop"]
    assert [source.path for source in grok_build.sources(tmp_path / "sessions", troubles.append)] == [str(folder)]


def test_what_is_no_file_is_passed_over_and_takes_nothing_with_it(tmp_path: Path) -> None:
    write(tmp_path, ID, {"updates.jsonl": talk().data})
    folder = write(tmp_path, CHILD, {"chat_history.jsonl": CHAT})
    os.mkfifo(folder / "updates.jsonl")
    (folder / "summary.json").mkdir()
    write(tmp_path, THIRD, {"updates.jsonl": b"\xff\xfe\0\0 nothing \n{]\n"})
    sessions, troubles = fold_home(tmp_path)
    assert set(sessions) == {ID, CHILD}
    assert troubles == []


def test_a_vanished_log_is_tried_again(tmp_path: Path) -> None:
    folder = write(tmp_path, ID, {"updates.jsonl": talk().data})
    troubles: list[Trouble] = []
    [source] = grok_build.sources(tmp_path, troubles.append)
    (folder / "updates.jsonl").unlink()
    assert list(grok_build.raws(source, troubles.append)) == []
    assert [trouble.retry for trouble in troubles] == [True]


def test_the_raw_holds_every_line_as_it_stands_and_is_the_same_each_time(tmp_path: Path) -> None:
    torn = talk().data + b'{"timestamp":17'
    write(tmp_path, ID, {"summary.json": summary_of(ID), "updates.jsonl": torn, "chat_history.jsonl": CHAT})
    [raw] = raws_of(tmp_path)[0]
    data = b"".join(raw.chunks())
    assert not raw.verbatim
    assert torn in data
    assert CHAT in data
    assert data == b"".join(raw.chunks())
    assert fold(data).header.malformed == 1


def test_homes_are_the_agents_own(tmp_path: Path) -> None:
    assert grok_build.homes({}, tmp_path) == [tmp_path / ".grok"]
    assert grok_build.homes({"GROK_HOME": "/x/y"}, tmp_path) == [Path("/x/y")]
    assert grok_build.homes({"GROK_HOME": "~/g"}, tmp_path) == [tmp_path / "g"]
    assert grok_build.resume(Identity("grok-build", ID), "/d") == ["grok", "--resume", ID]


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


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_wrong_type_anywhere_costs_no_more_than_its_line(data: st.DataObject) -> None:
    log = talk().add("compaction_checkpoint", checkpoint_id="cp").add("auto_compact_completed", tokens_before=3)
    line = data.draw(st.integers(0, len(log.lines) - 1))
    put(log.lines[line], data.draw(st.sampled_from(places(log.lines[line])[1:])), data.draw(VALUES))
    log.user("Still here", 9)
    folded = log.folded
    assert "Still here" in folded.texts("user")[-1]
    msgspec.msgpack.encode([list(folded.facts.values()), folded.header])
    rows = [json.loads(row) for row in CHAT.splitlines()]
    row = data.draw(st.integers(0, len(rows) - 1))
    put(rows[row], data.draw(st.sampled_from(places(rows[row])[1:])), data.draw(VALUES))
    folded = fold(b'{"prosa.file":"chat_history.jsonl"}\n' + chat(*rows))
    msgspec.msgpack.encode([list(folded.facts.values()), folded.header])


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damaged_bytes_in_any_pieces_give_the_same_facts(data: st.DataObject) -> None:
    raw = b'{"prosa.file":"updates.jsonl"}\n' + talk().data + b'{"prosa.file":"chat_history.jsonl"}\n' + CHAT
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(raw)))
        length = data.draw(st.integers(0, 40))
        raw = raw[:place] + data.draw(st.binary(max_size=6) | st.just(b"\n")) + raw[place + length :]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    assert_same(fold(raw), fold(raw, cuts=cuts))


@needs_corpus
def test_nothing_below_the_home_changes(tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(CORPUS / "grok-build" / "fork" / "home", home)
    before = checker().snapshot(home)
    fold_home(home / ".grok")
    assert checker().snapshot(home) == before
