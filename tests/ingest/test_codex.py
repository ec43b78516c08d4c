"""The Codex importer against the shared corpus, and against small inputs of its own for each promise."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import zstandard
from folded import Folded, assert_same, fold_bytes, matches, owned, reckon
from hypothesis import given, settings
from hypothesis import strategies as st

from prosa.events.facts import NOT_COPIED, PROVEN, SUGGESTED, TEXT_LIMIT, Mark, Usage
from prosa.ingest.clock import parse_iso
from prosa.ingest.codex import importer as codex
from prosa.ingest.importer import Identity, Trouble

CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus" / "codex"
CASES = sorted(path.name for path in CORPUS.glob("*")) if CORPUS.is_dir() else []
needs_corpus = pytest.mark.skipif(not CASES, reason="the shared corpus is not beside this checkout")

Record = dict[str, Any]

PARENT = "019d0000-0000-7000-8000-00000000aaaa"
CHILD = "019d0000-1000-7000-8000-00000000bbbb"
SIBLING = "019d0000-1001-7000-8000-00000000cccc"
OLD_TURN = "019d0000-0001-7000-8000-000000000001"
NEW_TURN = "019d0000-2000-7000-8000-000000000002"
OTHER_TURN = "019d0000-2001-7000-8000-000000000003"


# --- folding and reckoning


def fold(data: bytes, native: str = PARENT, cuts: Iterable[int] = (), save: bool = False) -> Folded:
    identity = Identity("codex", native)
    return Folded(identity, *fold_bytes(codex.fold, identity, data, cuts, save))


def fold_home(home: Path) -> tuple[dict[str, Folded], list[Trouble]]:
    """Every session below a home by native id; of several sources the one of the highest rank."""
    troubles: list[Trouble] = []
    sessions: dict[str, Folded] = {}
    for source in sorted(codex.sources(home, troubles.append), key=lambda one: one.rank):
        for raw in codex.raws(source, troubles.append):
            sessions[raw.identity.id] = fold(b"".join(raw.chunks()), raw.identity.id)
    known = {native: [one.identity] for native, one in sessions.items()}
    for aside in codex.asides(home, known, troubles.append):
        sessions[aside.identity.id].title = aside.value
    return sessions, troubles


def rollouts() -> list[Path]:
    return sorted(path for path in CORPUS.glob("*/home/.codex/**/rollout-*.json*") if path.suffix != ".zst")


@needs_corpus
@pytest.mark.parametrize("case", CASES)
def test_a_corpus_case_gives_the_numbers_a_person_worked_out(case: str) -> None:
    want = json.loads((CORPUS / case / "expected.json").read_text())
    sessions, troubles = fold_home(CORPUS / case / "home" / ".codex")
    counted = owned(sessions)
    allowed = {one["session_id"] for one in want["sessions"]} | set(want.get("optional_sessions", ()))
    assert set(sessions) <= allowed
    for row in want["sessions"]:
        native = row["session_id"]
        matches(reckon(sessions[native], counted[native]), row, ids=False)
    assert not troubles or want.get("damaged")


@needs_corpus
def test_no_record_of_the_corpus_is_of_an_unknown_kind() -> None:
    for path in rollouts():
        folded = fold(path.read_bytes(), path.stem[-36:])
        assert folded.header.unknown == {}, path.name


@needs_corpus
@pytest.mark.parametrize("path", rollouts(), ids=lambda path: path.stem[-12:])
def test_reading_in_pieces_gives_the_same_facts_and_header(path: Path) -> None:
    data = path.read_bytes()
    if len(data) > 300_000:
        data = data[: data.rindex(b"\n", 0, 300_000)]
    whole = fold(data, path.stem[-36:])
    ends = [place + 1 for place, byte in enumerate(data) if byte == 10]
    step = max(1, len(data) // 97)
    for cuts in (ends, range(step, len(data), step), [place - 1 for place in ends[1:]]):
        assert_same(whole, fold(data, path.stem[-36:], cuts, save=path.suffix == ".jsonl"))


# --- small inputs

START = datetime(2026, 3, 2, 10, 0, 0, tzinfo=UTC)


class Rollout:
    """Writes lines a second apart."""

    def __init__(self, native: str = PARENT, at: datetime = START, **meta: Any) -> None:
        self.lines: list[Record] = []
        self.at, self.step = at, timedelta(seconds=1)
        self.native = native
        self.meta(id=native, timestamp=stamp(at), **meta)

    def meta(self, **payload: Any) -> Rollout:
        return self.add("session_meta", payload)

    def add(self, kind: str, payload: Record) -> Rollout:
        self.lines.append({"timestamp": stamp(self.at), "type": kind, "payload": payload})
        self.at += self.step
        return self

    def event(self, kind: str, **payload: Any) -> Rollout:
        return self.add("event_msg", {"type": kind, **payload})

    def item(self, kind: str, **payload: Any) -> Rollout:
        return self.add("response_item", {"type": kind, **payload})

    def turn(self, turn_id: str, model: str = "gpt-x") -> Rollout:
        return self.event("task_started", turn_id=turn_id).add("turn_context", {"turn_id": turn_id, "model": model})

    def prompt(self, text: str) -> Rollout:
        return self.item("message", role="user", content=[text_block(text)]).event("user_message", message=text)

    def answer(self, text: str) -> Rollout:
        block = {"type": "output_text", "text": text}
        return self.event("agent_message", message=text).item("message", role="assistant", content=[block])

    def tokens(self, total: int, last: int | None = None, cached: int = 0, output: int = 1) -> Rollout:
        info = {"total_token_usage": counts(total, cached, output)}
        if last is not None:
            info["last_token_usage"] = counts(last, 0, 1)
        return self.event("token_count", info=info)

    def call(self, call_id: str, name: str = "exec_command", arguments: str = '{"cmd":"ls"}') -> Rollout:
        return self.item("function_call", name=name, call_id=call_id, arguments=arguments)

    def output(self, call_id: str, output: Any) -> Rollout:
        return self.item("function_call_output", call_id=call_id, output=output)

    def replay(self, other: Rollout) -> Rollout:
        """Everything of another rollout, stamped with the instant of the own session_meta."""
        self.at -= self.step
        step, self.step = self.step, timedelta(microseconds=50)
        for line in other.lines:
            self.add(line["type"], line["payload"])
        self.step = step
        return self

    @property
    def data(self) -> bytes:
        return b"".join(json.dumps(line).encode() + b"\n" for line in self.lines)

    @property
    def folded(self) -> Folded:
        return fold(self.data, self.native)


def stamp(at: datetime) -> str:
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def text_block(text: str) -> Record:
    return {"type": "input_text", "text": text}


def counts(total: int, cached: int, output: int) -> Record:
    return {
        "input_tokens": total,
        "cached_input_tokens": cached,
        "output_tokens": output,
        "total_tokens": total + output,
    }


def parent(turn: str = OLD_TURN) -> Rollout:
    return (
        Rollout(PARENT)
        .turn(turn, "big")
        .prompt("Build it")
        .answer("Built.")
        .tokens(100, last=100, output=10)
        .add("compacted", {"message": "", "window_id": "w-1"})
        .event("context_compacted")
    )


def fork(of: Rollout, native: str = CHILD, turn: str = NEW_TURN, **meta: Any) -> Rollout:
    child = Rollout(native, START + timedelta(hours=1), forked_from_id=of.native, **meta)
    child.replay(of)
    return child.turn(turn, "small").prompt("Go on").answer("Done.").tokens(160, last=60, output=15)


def usage_of(folded: Folded) -> list[tuple[int, int, int]]:
    return [(one.input, one.cache_read, one.output) for one in folded.usage]


def test_a_prompt_in_two_records_counts_once() -> None:
    folded = Rollout().turn(OLD_TURN).prompt("hello").folded
    assert folded.texts("user") == ["hello"]


def test_a_prompt_given_ten_times_counts_ten_times() -> None:
    rollout = Rollout().turn(OLD_TURN)
    for _ in range(5):
        rollout.prompt("continue")
    rollout.turn(NEW_TURN)
    for _ in range(5):
        rollout.prompt("continue")
    assert rollout.folded.texts("user") == ["continue"] * 10


def test_prompts_are_response_items_where_a_file_has_no_event() -> None:
    rollout = Rollout().turn(OLD_TURN)
    for text in ("one", "<environment_context>\n<cwd>/x</cwd>\n</environment_context>", "two"):
        rollout.item("message", role="user", content=[text_block(text)])
    folded = rollout.folded
    assert folded.texts("user") == ["one", "two"]
    assert len(folded.texts("user", counted=False)) == 1


def test_an_item_that_no_event_confirmed_stops_counting_with_the_first_event() -> None:
    rollout = Rollout().turn(OLD_TURN)
    rollout.item("message", role="user", content=[text_block("<a_new_kind_of_block>")])
    assert rollout.folded.texts("user") == ["<a_new_kind_of_block>"]
    rollout.prompt("hello").item("message", role="user", content=[text_block("<a_new_kind_of_block> 2")])
    folded = rollout.folded
    assert folded.texts("user") == ["hello"]
    assert folded.texts("user", counted=False) == ["<a_new_kind_of_block>", "<a_new_kind_of_block> 2"]


def test_an_event_before_its_item_still_counts() -> None:
    rollout = Rollout().turn(OLD_TURN).event("user_message", message="hello")
    rollout.item("message", role="user", content=[text_block("hello")])
    assert rollout.folded.texts("user") == ["hello"]


def test_two_kinds_of_event_in_one_file_count_each_prompt_once() -> None:
    item = {"type": "UserMessage", "id": "u", "content": [{"type": "text", "text": "again"}]}
    rollout = Rollout().turn(OLD_TURN).prompt("first").event("item_completed", turn_id=OLD_TURN, item=item)
    rollout.turn(NEW_TURN).event("item_completed", turn_id=NEW_TURN, item=item)
    assert rollout.folded.texts("user") == ["first", "again"]


def test_an_image_alone_is_a_prompt_without_its_bytes() -> None:
    rollout = Rollout().turn(OLD_TURN)
    image = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 5000}
    rollout.item("message", role="user", content=[image]).event("user_message", message="", images=["data:AAAA"])
    assert rollout.folded.texts("user") == ["[image]"]
    assert b"AAAA" not in b"".join(turn.text.encode() for turn in rollout.folded.turns)


def test_an_editors_context_is_taken_off_a_prompt() -> None:
    text = "# Context from my IDE setup:\n\n## Open tabs:\n- a.py\n\n## My request for Codex:\nfix it\n"
    assert Rollout().turn(OLD_TURN).prompt(text).folded.texts("user") == ["fix it"]


def test_named_blocks_tell_prompts_from_injected_text() -> None:
    blocks = [text_block("<environment_context> I typed this"), text_block("no tag, but injected")]
    named = {"turn_id": OLD_TURN, "content_item_kinds": ["user.text", "host_skills.instructions"]}
    rollout = Rollout().turn(OLD_TURN)
    rollout.item("message", role="user", content=blocks, internal_chat_message_metadata_passthrough=named)
    assert rollout.folded.texts("user") == ["<environment_context> I typed this"]


def test_a_goal_gives_a_kind_and_an_objective_and_no_prompt() -> None:
    text = '<codex_internal_context source="goal">\n<objective>\nMove it\n</objective>\n</codex_internal_context>'
    folded = Rollout().turn(OLD_TURN).item("message", role="user", content=[text_block(text)]).folded
    assert (folded.header.kinds, folded.header.objective) == (("goal",), "Move it")
    assert folded.texts("user") == []


def test_null_info_is_no_usage() -> None:
    rollout = Rollout().turn(OLD_TURN).event("token_count", info=None, rate_limits={})
    assert rollout.folded.header.has_usage is False
    assert rollout.folded.usage == []


def test_an_unchanged_total_is_the_same_news_again() -> None:
    folded = Rollout().turn(OLD_TURN).tokens(100, cached=40).tokens(100, cached=40).tokens(250, cached=40).folded
    assert usage_of(folded) == [(60, 40, 1), (150, 0, 0)]


def test_a_counter_that_goes_down_starts_again() -> None:
    folded = Rollout().turn(OLD_TURN).tokens(100, output=9).tokens(30, output=2).tokens(70, output=4).folded
    assert usage_of(folded) == [(100, 0, 9), (30, 0, 2), (40, 0, 2)]


def test_exact_records_take_the_place_of_deltas() -> None:
    rollout = Rollout().turn(OLD_TURN).tokens(100, output=10)
    record = {"turn_id": OLD_TURN, "thread_id": PARENT, "response_id": "r1", "usage": counts(50, 20, 5)}
    rollout.add("token_usage_record", record).tokens(150, cached=20, output=15)
    assert usage_of(rollout.folded) == [(100, 0, 10), (30, 20, 5)]


def test_a_cache_write_is_part_of_the_input_only_where_the_total_says_so() -> None:
    def spent(total: int) -> tuple[int, int]:
        usage = {"input_tokens": 100, "cache_write_input_tokens": 30, "output_tokens": 5, "total_tokens": total}
        record = {"turn_id": OLD_TURN, "response_id": "r", "usage": usage}
        (one,) = Rollout().turn(OLD_TURN).add("token_usage_record", record).folded.usage
        return one.input, one.cache_write_5m

    assert spent(105) == (70, 30)
    assert spent(135) == (100, 30)


def test_usage_has_the_model_in_force() -> None:
    folded = Rollout().turn(OLD_TURN, "one").tokens(10).turn(NEW_TURN, "two").tokens(30).folded
    assert [one.model for one in folded.usage] == ["one", "two"]
    assert folded.header.models == ("one", "two")


def test_a_replayed_record_has_the_key_it_has_in_the_parent() -> None:
    of = parent()
    original, copy = of.folded, fork(of).folded
    for key, fact in original.facts.items():
        if not isinstance(fact, Mark):
            assert copy.facts[key].copied == PROVEN
            assert copy.facts[key].copied_from == PARENT
    own = [fact for key, fact in copy.facts.items() if key not in original.facts]
    assert all(fact.copied == NOT_COPIED for fact in own)


def test_a_fork_counts_only_what_it_added() -> None:
    of = parent()
    sessions = {PARENT: of.folded, CHILD: fork(of).folded}
    counted = owned(sessions)
    rows = {native: reckon(session, counted[native]) for native, session in sessions.items()}
    assert rows[PARENT]["turns"]["user"] == rows[CHILD]["turns"]["user"] == 1
    assert (rows[PARENT]["usage"]["input"], rows[CHILD]["usage"]["input"]) == (100, 60)
    assert (rows[PARENT]["compactions"], rows[CHILD]["compactions"]) == (1, 0)
    assert (rows[PARENT]["models"], rows[CHILD]["models"]) == (["big"], ["small"])
    assert rows[CHILD]["first_prompt"] == "Go on"
    assert rows[CHILD]["started_at"] == (parse_iso(stamp(START + timedelta(hours=1))) or 0) // 1000


def test_a_fork_counts_the_same_without_its_parent() -> None:
    of = parent()
    alone = {CHILD: fork(of).folded}
    row = reckon(alone[CHILD], owned(alone)[CHILD])
    assert (row["turns"]["user"], row["usage"]["input"], row["first_prompt"]) == (1, 60, "Go on")


def test_a_thinned_out_replay_still_has_the_parents_keys() -> None:
    of = Rollout(PARENT).turn(OLD_TURN).prompt("Build it").answer("First I look.").answer("Built.").tokens(9, last=9)
    thin = Rollout(PARENT)
    thin.lines = [line for line in of.lines if "First I look." not in json.dumps(line)]
    original, copy = of.folded, fork(thin).folded
    assert {turn.text for turn in copy.turns if turn.key in original.facts} == {"Build it", "Built."}


def test_equal_token_vectors_of_siblings_and_of_parent_and_fork_all_count() -> None:
    of = parent()
    first, second = fork(of, CHILD, NEW_TURN), fork(of, SIBLING, OTHER_TURN)
    of.turn("019d0000-2002-7000-8000-000000000004").tokens(160, last=60, output=15)
    sessions = {one.native: one.folded for one in (of, first, second)}
    spent = {native: sum(f.input for f in facts if isinstance(f, Usage)) for native, facts in owned(sessions).items()}
    assert spent == {PARENT: 160, CHILD: 60, SIBLING: 60}


def test_a_fork_of_a_fork_owns_only_its_last_part() -> None:
    of = parent()
    middle = fork(of)
    last = fork(middle, SIBLING, OTHER_TURN)
    last.lines = [
        *last.lines[:-1],
        {**last.lines[-1], "payload": {"type": "token_count", "info": {"total_token_usage": counts(200, 0, 20)}}},
    ]
    sessions = {one.native: one.folded for one in (of, middle, last)}
    rows = {native: reckon(sessions[native], facts) for native, facts in owned(sessions).items()}
    assert [rows[one]["turns"]["user"] for one in (PARENT, CHILD, SIBLING)] == [1, 1, 1]
    assert [rows[one]["usage"]["input"] for one in (PARENT, CHILD, SIBLING)] == [100, 60, 40]


def test_without_dated_turn_ids_the_leading_burst_is_only_suggested() -> None:
    of = parent("turn-1")
    child = fork(of, turn="turn-2")
    copy = child.folded
    copied = [turn for turn in copy.turns if turn.copied]
    assert {turn.copied for turn in copied} == {SUGGESTED}
    assert {turn.key for turn in copied} <= set(of.folded.facts)
    assert {turn.text for turn in copied} == {"Build it", "Built."}


def test_a_pause_ends_a_replay_without_dated_turn_ids() -> None:
    child = Rollout(CHILD, forked_from_id=PARENT).replay(parent("turn-1"))
    child.at += timedelta(minutes=5)
    child.turn("turn-2").prompt("Own").tokens(130, last=30, output=12)
    folded = child.folded
    assert [(turn.text, turn.copied) for turn in folded.turns if turn.text == "Own"] == [("Own", NOT_COPIED)]
    assert [one.input for one in folded.usage if not one.copied] == [30]


def test_turn_ids_that_are_no_uuid_do_not_join_sessions() -> None:
    one, other = parent("turn-1").folded, fold(parent("turn-1").data.replace(b"aaaa", b"dddd"), PARENT[:-4] + "dddd")
    assert not set(one.facts) & set(other.facts)


def test_a_2025_fork_is_known_by_its_parents_meta() -> None:
    child = Rollout(CHILD).replay(parent())
    assert child.folded.header.forked_from == PARENT
    assert {turn.copied for turn in child.folded.turns} == {PROVEN}


def test_the_parents_model_is_not_the_forks() -> None:
    child = Rollout(CHILD, forked_from_id=PARENT).replay(parent()).event("task_started", turn_id=NEW_TURN).answer("Own")
    assert [turn.model for turn in child.folded.turns if turn.text == "Own"] == [None]
    assert child.folded.header.models == ()


def test_a_paginated_fork_begins_with_its_own_first_request() -> None:
    child = Rollout(CHILD, forked_from_id=PARENT, history_mode="paginated").turn(NEW_TURN)
    folded = child.tokens(500, last=70, output=3).tokens(600, last=100, output=4).folded
    assert [one.input for one in folded.usage] == [70, 100]
    assert {one.copied for one in folded.usage} == {NOT_COPIED}


def test_a_record_that_names_another_thread_proves_its_copy() -> None:
    record = {"turn_id": "t", "thread_id": PARENT, "response_id": "r1", "usage": counts(50, 0, 5)}
    child = Rollout(CHILD, forked_from_id=PARENT).add("token_usage_record", record)
    assert [(one.copied, one.copied_from) for one in child.folded.usage] == [(PROVEN, PARENT)]


def test_a_sub_agent_names_its_parent() -> None:
    spawned = {"subagent": {"thread_spawn": {"parent_thread_id": PARENT, "depth": 1}}}
    assert Rollout(CHILD, source=spawned).folded.header.parent == PARENT
    assert Rollout(CHILD, source={"subagent": "review"}).folded.header.parent is None
    assert Rollout(CHILD, source=["odd"], parent_thread_id=SIBLING).folded.header.parent == SIBLING


def errors(folded: Folded) -> list[tuple[str, bool]]:
    return [(turn.text, turn.is_error) for turn in folded.turns if turn.kind == "tool_result"]


@pytest.mark.parametrize(
    ("output", "text", "failed"),
    [
        ("Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code 2\nOutput:\nno", None, True),
        ("Chunk ID: 1\nProcess exited with code 0\nOutput:\nProcess exited with code 1", None, False),
        ("Exit code: 1\nWall time: 0 seconds\nOutput:\nInvalid patch", None, True),
        ("the docs say\nExit code: 1", None, False),
        ("Wall time: 0.1 seconds\nOutput:\nExit code: 1", None, False),
        ('{"output":"boom","metadata":{"exit_code":2}}', "boom", True),
        ('{"output":"fine","metadata":{"exit_code":0}}', "fine", False),
        ('{"metadata":', None, False),
        ({"content": "boom", "success": False}, "boom", True),
        ([{"type": "input_text", "text": "Script failed\nOutput:\n"}, {"type": "input_image"}], None, True),
        ("", None, False),
    ],
)
def test_a_result_says_whether_its_call_failed(output: Any, text: str | None, failed: bool) -> None:
    ((found, is_error),) = errors(Rollout().turn(OLD_TURN).call("c").output("c", output).folded)
    assert is_error is failed
    assert text is None or found == text


def test_a_failure_counts_once_wherever_its_event_stands() -> None:
    def end(rollout: Rollout) -> Rollout:
        return rollout.event("exec_command_end", call_id="c", exit_code=3, aggregated_output="all of it")

    before = end(Rollout().turn(OLD_TURN)).call("c").output("c", "text")
    between = end(Rollout().turn(OLD_TURN).call("c")).output("c", "text")
    late = end(Rollout().turn(OLD_TURN).call("c").output("c", "Process running"))
    alone = end(Rollout().turn(OLD_TURN).call("c"))
    assert errors(before.folded) == errors(between.folded) == [("text", True)]
    first = end(Rollout().turn(OLD_TURN)).call("c")
    known = end(Rollout().turn(OLD_TURN).call("c").output("c", "Exit code: 3\nOutput:\nno"))
    assert errors(late.folded) == errors(alone.folded) == [("all of it", True)]
    assert errors(first.folded) == [("failed", True)]
    assert errors(known.folded) == [("Exit code: 3\nOutput:\nno", True)]


def test_the_end_of_a_command_in_code_mode_is_no_call_of_its_own() -> None:
    item = {"type": "CommandExecution", "id": "exec-1", "status": "failed", "exit_code": 1, "aggregated_output": "x"}
    rollout = Rollout().turn(OLD_TURN).item("custom_tool_call", name="exec", call_id="c", input="run()")
    folded = rollout.event("item_completed", item=item).item("custom_tool_call_output", call_id="c", output="ok").folded
    assert errors(folded) == [("ok", False)]


def test_a_failed_mcp_call_and_patch_are_errors() -> None:
    rollout = Rollout().turn(OLD_TURN).call("m").output("m", "err").call("p").output("p", "err")
    rollout.event("mcp_tool_call_end", call_id="m", result={"Ok": {"content": [], "isError": True}})
    rollout.event("patch_apply_end", call_id="p", success=False, stderr="bad hunk", stdout="")
    assert errors(rollout.folded) == [("failed", True), ("bad hunk", True)]


def test_an_id_used_again_behind_its_result_is_another_call() -> None:
    rollout = Rollout().turn(OLD_TURN)
    for text in ("a", "b"):
        rollout.call("call_0").output("call_0", text)
    rollout.turn(NEW_TURN).call("call_0").call("call_0").output("call_0", "c")
    folded = rollout.folded
    assert len(folded.texts("assistant", "tool_call")) == 3
    assert folded.texts("tool", "tool_result") == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"cmd":"ls -1","workdir":"/x"}', "ls -1"),
        ('{"command":["bash","-lc","ls | wc"],"timeout_ms":5}', "ls | wc"),
        ('{"command":["rg","a b"]}', "rg 'a b'"),
        ('{"path":"/a.png"}', "/a.png"),
        ('{"plan":[{"step":"one"}],"note":"a\\nb"}', 'plan: [{"step": "one"}]\nnote: a\nb'),
        ("not json", "not json"),
        ('{"cmd":', '{"cmd":'),
        ("{}", ""),
    ],
)
def test_a_call_is_shown_as_people_would_write_it(arguments: str, text: str) -> None:
    assert Rollout().turn(OLD_TURN).call("c", arguments=arguments).folded.texts("assistant", "tool_call") == [text]


def test_a_compaction_line_and_its_event_are_one_in_either_order() -> None:
    line, event = {"message": "", "window_id": "w-7"}, "context_compacted"
    after = Rollout().turn(OLD_TURN).add("compacted", line).event(event).folded
    before = Rollout().turn(OLD_TURN).event(event).add("compacted", line).folded
    assert [one.id for one in after.compactions] == [one.id for one in before.compactions] == ["w-7"]
    twice = Rollout().turn(OLD_TURN).event(event).event(event).folded
    assert len(twice.compactions) == 2


def test_a_local_compactions_summary_is_no_answer() -> None:
    rollout = (
        Rollout()
        .turn(OLD_TURN)
        .answer("Real answer")
        .item("message", role="assistant", content=[{"type": "output_text", "text": "What was done so far."}])
    )
    assert rollout.folded.texts("assistant") == ["Real answer", "What was done so far."]
    rollout.add("compacted", {"message": "Another model wrote:\nWhat was done so far.", "replacement_history": []})
    folded = rollout.folded
    assert folded.texts("assistant") == ["Real answer"]
    assert folded.texts("system", "compaction", counted=False) == ["Another model wrote:\nWhat was done so far."]


def test_a_summary_that_says_so_is_no_answer_before_its_compaction() -> None:
    rollout = Rollout().turn(OLD_TURN).answer("What was done so far.")
    rollout.lines[-1]["metadata"] = {"compaction_output": True}
    assert rollout.folded.texts("assistant") == []


def test_a_huge_result_is_cut_and_knows_its_size() -> None:
    folded = Rollout().turn(OLD_TURN).call("c").output("c", "x" * (TEXT_LIMIT + 500_000)).folded
    (result,) = [turn for turn in folded.turns if turn.kind == "tool_result"]
    assert result.size == TEXT_LIMIT + 500_000
    assert len(result.text) < 1_200_000


def test_lone_surrogates_and_bad_utf8_cost_only_their_character() -> None:
    rollout = Rollout().turn(OLD_TURN).prompt("a\ud800b")
    folded = rollout.folded
    assert folded.texts("user") == ["a\ufffdb"]
    assert folded.header.malformed == 0
    damaged = Rollout().turn(OLD_TURN).prompt("smile").data.replace(b"smile", b"sm\xffle")
    assert fold(damaged).texts("user") == ["sm\ufffdle"]


def test_wrong_types_cost_their_field_and_nothing_else() -> None:
    rollout = Rollout(cwd=["no"], git="none", cli_version=3)
    rollout.add("turn_context", {"turn_id": 5, "model": "m", "cwd": {"x": 1}}).prompt("hello")
    rollout.item("message", role="assistant", content=[{"type": "output_text", "text": 7}, "odd"])
    rollout.event("token_count", info={"total_token_usage": {"input_tokens": "many"}}).event("user_message", message=4)
    rollout.add("event_msg", {}).add("response_item", {"type": None})
    rollout.lines.append({"timestamp": 12, "type": "event_msg", "payload": "text"})
    rollout.lines.append({"type": ["x"]})
    folded = rollout.folded
    assert folded.header.cwd is None
    assert folded.header.models == ("m",)
    assert folded.texts("user") == ["hello", "4"]


@pytest.mark.parametrize("depth", [600, 900, 200_000])
def test_deep_nesting_is_one_malformed_line(depth: int) -> None:
    data = Rollout().turn(OLD_TURN).data + b'{"a":"\\ud800","b":' + b"[" * depth + b"]" * depth + b"}\n"
    folded = fold(data + Rollout().turn(NEW_TURN).prompt("after").data)
    assert folded.header.malformed == 1
    assert folded.texts("user") == ["after"]


def test_a_torn_line_waits_and_a_whole_one_without_newline_does_not() -> None:
    data = Rollout().turn(OLD_TURN).prompt("hello").data
    assert fold(data[:-1]).texts("user") == ["hello"]
    last = data.rindex(b"\n", 0, len(data) - 1) + 1
    torn = codex.fold(Identity("codex", PARENT))
    torn.feed(data[: last + 40])
    torn.end()
    state = torn.state()
    assert state is not None
    assert torn.header().malformed == 0
    again = codex.fold(Identity("codex", PARENT), state)
    again.feed(data[last + 40 :])
    assert [turn.text for turn in again.take().turns] == ["hello"]


def test_going_on_behind_a_line_that_got_its_newline_later_tells_it_once() -> None:
    data = Rollout().turn(OLD_TURN).prompt("one").data
    folding = codex.fold(Identity("codex", PARENT))
    folding.feed(data[:-1])
    folding.end()
    takes = [folding.take()]
    folding = codex.fold(Identity("codex", PARENT), folding.state())
    folding.feed(data[-1:] + Rollout().turn(NEW_TURN).prompt("two").data)
    takes.append(folding.take())
    assert Folded(Identity("codex", PARENT), folding.header(), takes).texts("user") == ["one", "two"]


def test_state_stays_small_whatever_was_read() -> None:
    rollout = Rollout()
    for number in range(300):
        rollout.turn(f"019d0000-2000-7000-8000-{number:012d}").prompt(f"prompt {number}" * 50).answer("y" * 5000)
        rollout.call(f"call_{number}").output(f"call_{number}", "z" * 5000)
    folding = codex.fold(Identity("codex", PARENT))
    folding.feed(rollout.data)
    folding.take()
    assert len(folding.state() or b"") < 40_000


def test_unknown_kinds_are_counted_with_their_bytes() -> None:
    rollout = Rollout().event("brand_new").item("brand_new").add("brand_new", {})
    assert {kind: count for kind, (count, size) in rollout.folded.header.unknown.items() if size > 50} == {
        "event_msg/brand_new": 1,
        "response_item/brand_new": 1,
        "brand_new": 1,
    }


def test_a_flat_file_keeps_its_keys_to_itself() -> None:
    lines = [
        {"id": PARENT, "timestamp": "2025-07-15T09:00:00.000Z", "git": {"branch": "dev"}},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [text_block("hi")]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yes"}]},
    ]
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    one, other = fold(data, PARENT), fold(data, CHILD)
    assert one.texts("user") == ["hi"]
    assert not set(one.facts) & set(other.facts)
    assert one.header.compactions_known is False
    assert one.header.started_at == one.header.last_activity_at == parse_iso("2025-07-15T09:00:00Z")


@pytest.mark.parametrize("indent", [None, 2])
def test_the_document_of_april_2025_is_read_at_its_end(indent: int | None) -> None:
    items = [
        {"type": "message", "role": "user", "content": [text_block("hi")]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yes"}]},
    ]
    session = {"timestamp": "2025-04-20T09:00:00.000Z", "id": PARENT, "instructions": ""}
    data = json.dumps({"session": session, "items": items}, indent=indent).encode()
    for cuts in ((), range(7, len(data), 7)):
        folded = fold(data, PARENT, cuts)
        assert (folded.texts("user"), folded.texts("assistant")) == (["hi"], ["yes"])


# --- sources


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def name(native: str, suffix: str = "jsonl") -> str:
    return f"rollout-2026-03-02T10-00-00-{native}.{suffix}"


def found(home: Path) -> tuple[list[str], list[Trouble]]:
    troubles: list[Trouble] = []
    return [str(Path(one.path).relative_to(home)) for one in codex.sources(home, troubles.append)], troubles


def test_rollouts_are_found_in_dated_folders_flat_and_archived(tmp_path: Path) -> None:
    paths = (
        f"sessions/2026/03/02/{name(PARENT)}",
        f"sessions/{name(CHILD, 'json')}",
        f"archived_sessions/{name(SIBLING, 'jsonl.zst')}",
    )
    for path in (*paths, "sessions/notes.jsonl", "sessions/2026/rollout-x.txt", "log/rollout-a.jsonl"):
        write(tmp_path / path, b"x\n")
    listed, troubles = found(tmp_path)
    assert sorted(listed) == sorted(paths)
    assert troubles == []
    assert found(tmp_path / "absent") == ([], [])


def test_links_are_followed_once_and_bad_entries_reported(tmp_path: Path) -> None:
    real = write(tmp_path / "elsewhere" / name(PARENT), b"x\n")
    sessions = tmp_path / "sessions"
    sessions.mkdir()
    (sessions / "linked").symlink_to(real.parent)
    (sessions / "again").symlink_to(real.parent)
    (sessions / "loop").symlink_to(sessions)
    (sessions / name(CHILD)).symlink_to(tmp_path / "gone")
    (sessions / name(SIBLING)).symlink_to(real)
    os.mkfifo(sessions / name(OLD_TURN))
    listed, troubles = found(tmp_path)
    assert len(listed) == 1
    assert troubles == []  # a link to nothing holds nothing to lose


def test_the_longer_plain_file_ranks_first_and_a_compressed_one_last(tmp_path: Path) -> None:
    write(tmp_path / "sessions" / name(PARENT), b"x" * 10)
    write(tmp_path / "archived_sessions" / name(PARENT), b"x" * 10)
    write(tmp_path / "archived_sessions" / "more" / name(PARENT), b"x" * 20)
    write(tmp_path / "sessions" / name(PARENT, "jsonl.zst"), b"x" * 99)
    ranked = sorted(codex.sources(tmp_path, print), key=lambda one: -one.rank)
    assert [str(Path(one.path).parent.relative_to(tmp_path)) for one in ranked] == [
        "archived_sessions/more",
        "sessions",
        "archived_sessions",
        "sessions",
    ]


def only_raw(home: Path) -> tuple[list[Identity], bytes, list[Trouble]]:
    troubles: list[Trouble] = []
    raws = [raw for one in codex.sources(home, troubles.append) for raw in codex.raws(one, troubles.append)]
    return [raw.identity for raw in raws], b"".join(b"".join(raw.chunks()) for raw in raws), troubles


def test_a_compressed_rollout_of_several_frames_is_read_through(tmp_path: Path) -> None:
    data = Rollout().turn(OLD_TURN).prompt("hello").data
    packed = zstandard.compress(data[:100]) + zstandard.compress(data[100:])
    write(tmp_path / "sessions" / name(PARENT, "jsonl.zst"), packed)
    identities, plain, troubles = only_raw(tmp_path)
    assert (identities, plain, troubles) == ([Identity("codex", PARENT)], data, [])


def test_a_damaged_compressed_rollout_is_reported_and_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "sessions" / name(PARENT, "jsonl.zst"), b"no zstd at all")
    identities, _, troubles = only_raw(tmp_path)
    assert identities == []
    assert [trouble.retry for trouble in troubles] == [False]


def test_the_id_is_that_of_the_first_session_meta(tmp_path: Path) -> None:
    data = Rollout(CHILD, session_id=PARENT, base_instructions={"text": "x" * 100_000}).replay(parent()).data
    write(tmp_path / "sessions" / name(SIBLING), data)
    assert only_raw(tmp_path)[0] == [Identity("codex", CHILD)]


def test_a_damaged_first_line_leaves_the_id_to_the_name(tmp_path: Path) -> None:
    data = b'{"timestamp":"2026-0\n' + Rollout(PARENT).turn(OLD_TURN).prompt("hello").data
    write(tmp_path / "sessions" / name(CHILD), data)
    assert only_raw(tmp_path)[0] == [Identity("codex", CHILD)]


def test_an_empty_file_is_no_session_yet(tmp_path: Path) -> None:
    write(tmp_path / "sessions" / name(CHILD), b"")
    identities, _, troubles = only_raw(tmp_path)
    assert (identities, troubles) == ([], [])


def test_a_file_that_vanished_after_listing_is_tried_again(tmp_path: Path) -> None:
    path = write(tmp_path / "sessions" / name(CHILD), b"{}\n")
    (source,) = codex.sources(tmp_path, print)
    path.unlink()
    troubles: list[Trouble] = []
    assert list(codex.raws(source, troubles.append)) == []
    assert [trouble.retry for trouble in troubles] == [True]


def test_the_last_name_of_a_known_id_is_its_title(tmp_path: Path) -> None:
    index = [(PARENT, "old"), (CHILD, "stale"), (PARENT, "new")]
    lines = [json.dumps({"id": native, "thread_name": title}) for native, title in index]
    write(tmp_path / "session_index.jsonl", "\n".join([*lines, "torn{", '{"id":5}', ""]).encode())
    known = {PARENT: [Identity("codex", PARENT)]}
    assert [(one.value, one.rank) for one in codex.asides(tmp_path, known, print)] == [("new", 1)]
    assert list(codex.asides(tmp_path / "absent", known, print)) == []


def test_the_home_is_the_agents_own_variable_or_the_default(tmp_path: Path) -> None:
    assert codex.homes({}, tmp_path) == [tmp_path / ".codex"]
    assert codex.homes({"CODEX_HOME": "/x/codex"}, tmp_path) == [Path("/x/codex")]


def test_a_session_is_resumed_by_its_id() -> None:
    assert codex.resume(Identity("codex", PARENT), "/home/dev") == ["codex", "resume", PARENT]


def busy() -> bytes:
    of = parent()
    child = fork(of)
    child.call("c1").output("c1", "Exit code: 1\nOutput:\nno").event("exec_command_end", call_id="c1", exit_code=1)
    child.item("reasoning", summary=[{"type": "summary_text", "text": "Hm."}]).prompt("Go on").prompt("Go on")
    child.add("compacted", {"message": "so far: Done."}).event("context_compacted")
    return child.data + b"\0\0garbage\n" + Rollout(CHILD).turn(OTHER_TURN).prompt("a\ud800").tokens(5).data[:-1]


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(0, len(busy())), max_size=12), save=st.booleans())
def test_any_pieces_give_the_same_facts_and_header(cuts: list[int], save: bool) -> None:
    assert_same(fold(busy(), CHILD), fold(busy(), CHILD, sorted(cuts), save))


def test_every_byte_boundary_gives_the_same_facts() -> None:
    data = Rollout().turn(OLD_TURN).prompt("größer ✓").answer("ja").tokens(10).data
    whole = fold(data)
    for cut in range(len(data)):
        assert_same(whole, fold(data, cuts=[cut], save=True))
