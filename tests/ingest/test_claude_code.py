"""The Claude Code importer against the shared corpus, and against small inputs of its own for each promise."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prosa.events.facts import Compaction, Facts, Header, Mark, Turn, Usage
from prosa.ingest.claude_code import importer as claude_code
from prosa.ingest.claude_code.prompts import unwrap
from prosa.ingest.importer import Identity, Trouble
from prosa.ingest.readable import readable

CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus" / "claude-code"
CASES = sorted(path.name for path in CORPUS.glob("*")) if CORPUS.is_dir() else []
needs_corpus = pytest.mark.skipif(not CASES, reason="the shared corpus is not beside this checkout")

Fact = Turn | Usage | Mark | Compaction


class Folded:
    """One session as an index would see it: facts by key, the later in place of the earlier, and the header."""

    def __init__(self, identity: Identity, header: Header, takes: Iterable[Facts]) -> None:
        self.identity, self.header = identity, header
        self.forked_from = header.forked_from
        self.bytes = b""
        self.facts: dict[tuple[str, int], Fact] = {}
        for facts in takes:
            for group in (facts.turns, facts.usage, facts.marks, facts.compactions):
                for fact in group:
                    assert fact.key is not None
                    self.facts[type(fact).__name__, fact.key] = fact

    def of(self, kind: type[Fact]) -> list[Any]:
        return [fact for fact in self.facts.values() if isinstance(fact, kind)]


def fold(data: bytes, identity: Identity, cuts: Iterable[int] = (), save: bool = False, end: bool = False) -> Folded:
    """Folds the bytes; at each cut the facts are taken, `save`: the fold is restored, `end`: a sync ends."""
    folding = claude_code.fold(identity)
    takes, place = [], 0
    for cut in (*cuts, len(data)):
        folding.feed(data[place:cut])
        if end:
            folding.end()
        takes.append(folding.take())
        place = cut
        if save:
            folding = claude_code.fold(identity, folding.state())
    folding.end()
    return Folded(identity, folding.header(), [*takes, folding.take()])


def found(home: Path) -> tuple[dict[str, Folded], list[Trouble]]:
    troubles: list[Trouble] = []
    sessions = {}
    for source in claude_code.sources(home, troubles.append):
        for raw in claude_code.raws(source, troubles.append):
            folding = claude_code.fold(raw.identity)
            takes = []
            for chunk in raw.chunks():
                folding.feed(chunk)
                takes.append(folding.take())
            folding.end()
            takes.append(folding.take())
            sessions[raw.identity.key] = session = Folded(raw.identity, folding.header(), takes)
            session.bytes = b"".join(raw.chunks())
    return sessions, troubles


def time_of(fact: Fact) -> int | None:
    return fact.first if isinstance(fact, Mark) else fact.at


def owned(sessions: dict[str, Folded]) -> dict[str, Folded]:
    """The ownership rule of the projections, in its simplest form."""
    claims: dict[tuple[str, int], list[str]] = {}
    for key, session in sessions.items():
        for fact in session.facts:
            claims.setdefault(fact, []).append(key)

    def place(session: str, fact: tuple[str, int]) -> tuple[Any, ...]:
        others = set(claims[fact]) - {session}
        unshared = [
            at
            for key, mine in sessions[session].facts.items()
            if not others & set(claims[key]) and (at := time_of(mine)) is not None
        ]
        return sessions[session].facts[fact].copied, min(unshared, default=0), session

    owners = {fact: min(who, key=lambda session: place(session, fact)) for fact, who in claims.items()}
    result = {}
    for key, session in sessions.items():
        result[key] = own = Folded(session.identity, session.header, ())
        own.facts = {name: fact for name, fact in session.facts.items() if owners[name] == key and fact.copied != 2}
        inherited = Counter(
            (fact.copied_from if fact.copied == 2 else None) or owners[name].rpartition("/")[2]
            for name, fact in session.facts.items()
            if name not in own.facts
        )
        own.forked_from = own.forked_from or next((name for name, _ in inherited.most_common(1)), None)
    return result


def iso(at: int | None) -> str | None:
    if at is None:
        return None
    when = datetime(1970, 1, 1) + timedelta(milliseconds=at // 1000)
    return when.isoformat(timespec="milliseconds") + "Z"


def numbers(session: Folded) -> dict[str, Any]:
    """What expected.json says of a session, as far as one session can know it."""
    turns = [turn for turn in session.of(Turn) if turn.counted]
    usage = session.of(Usage)
    header = session.header
    times = [at for fact in session.facts.values() if (at := time_of(fact)) is not None]
    times += [mark.last for mark in session.of(Mark)]
    times += [at for at in (header.started_at, header.last_activity_at) if at is not None]
    speech = Counter(turn.role for turn in turns if turn.kind == "message")
    kinds = Counter(turn.kind for turn in turns)
    models = dict.fromkeys(fact.model for fact in usage if fact.model)
    prompts = [turn.text for turn in turns if turn.kind == "message" and turn.role == "user"]
    reasoning = [fact.reasoning for fact in usage if fact.reasoning is not None]
    return {
        "session_id": session.identity.id,
        "parent_session_id": header.parent,
        "cwd": header.cwd,
        "git_branch": header.branch,
        "started_at": iso(min(times, default=None)),
        "last_activity_at": iso(max(times, default=None)),
        "title": header.title,
        "first_prompt": " ".join(prompts[0].split())[:200] if prompts else None,
        "models": list(models),
        "turns": {
            "user": speech["user"],
            "assistant": speech["assistant"],
            "thinking": kinds["thinking"],
            "tool_result": kinds["tool_result"],
        },
        "tools": dict(sorted(Counter(turn.tool for turn in turns if turn.kind == "tool_call").items())),
        "tool_errors": sum(turn.is_error for turn in turns),
        "usage": {
            "input": sum(fact.input for fact in usage),
            "output": sum(fact.output for fact in usage),
            "cache_read": sum(fact.cache_read for fact in usage),
            "cache_creation": sum(fact.cache_write_5m + fact.cache_write_1h for fact in usage),
            "reasoning": sum(reasoning) if reasoning else None,
        }
        if header.has_usage
        else None,
        "compactions": len(session.of(Compaction)),
        "compaction_ids": [fact.id for fact in session.of(Compaction)],
        "kinds": list(header.kinds),
        "forked_from": session.forked_from,
    }


def expected_numbers(session: dict[str, Any]) -> dict[str, Any]:
    named = {name: session[name] for name in numbers(Folded(Identity("", ""), Header(), ())) if name in session}
    named["kinds"] = [kind for kind in session["kinds"] if kind != "orchestrator"]
    named |= session["lineage"]
    if "compaction_ids" in session:
        named["compaction_ids"] = session["compaction_ids"]
    prompt = session["first_prompt"]
    named["first_prompt"] = None if prompt is None else " ".join(prompt.split())[:200]
    return named


def describe(home: Path, sessions: dict[str, Folded], by_id: dict[str, dict[str, Any]]) -> None:
    """What other files say of a session: sidecar titles, the prompt history, titles in another session's file."""
    known: dict[str, list[Identity]] = {}
    for session in sessions.values():
        known.setdefault(session.identity.id, []).append(session.identity)
        by_id[session.identity.id]["cleared_from"] = session.header.cleared_from
        for said in session.header.foreign_titles:
            for other in sessions.values():
                if f'"uuid":"{said.leaf}"'.encode() in other.bytes and by_id[other.identity.id]["title"] is None:
                    by_id[other.identity.id]["title"] = said.text
    for aside in claude_code.asides(home, known, lambda trouble: pytest.fail(str(trouble))):
        if aside.rank > 0 or by_id[aside.identity.id][aside.field] is None:
            by_id[aside.identity.id][aside.field] = aside.value


@needs_corpus
@pytest.mark.parametrize("case", CASES)
def test_the_corpus_gives_the_numbers_a_person_worked_out(case: str) -> None:
    expected = json.loads((CORPUS / case / "expected.json").read_text())
    home = CORPUS / case / "home" / ".claude"
    sessions, troubles = found(home)
    assert troubles == []
    by_id = {session.identity.id: numbers(session) for session in owned(sessions).values()}
    describe(home, sessions, by_id)
    for session in expected["sessions"]:
        want = expected_numbers(session)
        got = by_id.pop(session["session_id"])
        assert {name: got[name] for name in want} == want
    for left in by_id.values():
        assert not any(left["turns"].values())
        assert left["usage"] is None


@needs_corpus
@pytest.mark.parametrize(
    "case", ["compaction-variants", "corrupt-bytes-and-torn-lines", "streaming-usage-mcp-apierror"]
)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_pieces_give_what_the_whole_gives(case: str, data: st.DataObject) -> None:
    path = min((CORPUS / case / "home").rglob("*.jsonl"))
    raw = path.read_bytes()
    identity = Identity("claude-code", path.stem)
    whole = fold(raw, identity)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    same(fold(raw, identity, cuts, save=data.draw(st.booleans())), whole)


def same(one: Folded, other: Folded) -> None:
    for kind in (Turn, Usage, Mark, Compaction):
        assert one.of(kind) == other.of(kind)
    assert one.header == other.header


# small inputs

MAIN = Identity("claude-code", "11111111-1111-4111-8111-111111111111")
FORK = Identity("claude-code", "22222222-2222-4222-8222-222222222222")


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)


def record(number: int, kind: str, session: Identity = MAIN, **fields: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "uuid": f"00000000-0000-4000-8000-{number:012d}",
        "timestamp": f"2026-08-20T09:00:{number % 60:02d}.000Z",
        "sessionId": session.id,
        "cwd": "/home/dev/app",
        **fields,
    }


def user(number: int, content: Any, **fields: Any) -> dict[str, Any]:
    return record(number, "user", message={"role": "user", "content": content}, **fields)


def assistant(number: int, message: str, *content: dict[str, Any], output: int = 5, **fields: Any) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": output, "cache_read_input_tokens": 100}
    body = {"id": message, "model": "claude-opus-5", "content": list(content), "usage": usage}
    return record(number, "assistant", message=body, **fields)


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def tool(call: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": "Bash", "input": given}


def result(call: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": content, **fields}


CONVERSATION = [
    {"type": "summary", "summary": "Of this file", "leafUuid": "00000000-0000-4000-8000-000000000005"},
    record(1, "attachment", attachment={"type": "environment"}),
    record(2, "attachment", attachment={"type": "skill_listing"}),
    user(3, "Fix the ☃ parser"),
    assistant(4, "msg_1", text("Lo"), output=1),
    assistant(5, "msg_1", text("Looking"), output=9),
    assistant(6, "msg_1", tool("toolu_1", command="pytest --zeta-fanout=17"), output=40),
    record(7, "progress", parentToolUseID="toolu_1", data={"type": "bash_progress"}),
    record(8, "progress", parentToolUseID="toolu_1", data={"type": "bash_progress"}),
    user(9, [result("toolu_1", "1 failed", is_error=True)]),
    {"type": "ai-title", "aiTitle": "Parser", "sessionId": MAIN.id},
    record(10, "system", subtype="compact_boundary", compactMetadata={"trigger": "auto", "preTokens": 5000}),
    user(11, "Summary of it all", isCompactSummary=True),
    assistant(12, "msg_2", {"type": "thinking", "thinking": "why"}, text("Done.")),
]


@pytest.mark.parametrize("end", [False, True])
def test_a_growing_file_gives_the_same_at_every_byte(end: bool) -> None:
    data = lines(*CONVERSATION)
    whole = fold(data, MAIN)
    assert len(whole.of(Turn)) == 7
    for cut in range(len(data) + 1):
        same(fold(data, MAIN, [cut], save=True, end=end), whole)


def test_the_state_keeps_no_text() -> None:
    data = lines(user(1, "a secret prompt"), assistant(2, "msg_1", text("a secret answer")))
    folding = claude_code.fold(MAIN)
    folding.feed(data)
    folding.take()
    assert b"secret" not in folding.state()


def test_of_one_answer_the_largest_usage_counts_and_once() -> None:
    (usage,) = fold(lines(*CONVERSATION[:9]), MAIN).of(Usage)
    assert (usage.input, usage.output, usage.cache_read, usage.reasoning) == (10, 40, 100, None)


def test_usage_that_grows_after_it_was_taken_replaces_it() -> None:
    data = lines(assistant(1, "m", text("a"), output=1), assistant(2, "n", text("b")), assistant(3, "m", output=7))
    usage = fold(data, MAIN, range(len(data))).of(Usage)
    assert [fact.output for fact in usage] == [7, 5]


def test_cache_writes_come_from_the_flat_field_or_the_split() -> None:
    split = {"ephemeral_5m_input_tokens": 300, "ephemeral_1h_input_tokens": 40}
    taken = []
    for flat in (0, 340, 500):
        tokens = {"cache_creation_input_tokens": flat, "cache_creation": split, "output_tokens_details": None}
        one = record(1, "assistant", message={"id": "m", "content": [text("x")], "usage": tokens | {"speed": "fast"}})
        (usage,) = fold(lines(one), MAIN).of(Usage)
        taken.append((usage.cache_write_5m, usage.cache_write_1h, usage.tier))
    assert taken == [(300, 40, "fast"), (300, 40, "fast"), (460, 40, "fast")]


def test_a_growing_text_is_one_turn_and_a_second_text_of_the_answer_does_not_count() -> None:
    data = lines(
        assistant(1, "m", text("Hel")),
        assistant(2, "m", text("Hello")),
        assistant(3, "m", text("And more")),
        assistant(4, "m", text("Hello")),
    )
    turns = fold(data, MAIN).of(Turn)
    assert [(turn.text, turn.counted) for turn in turns] == [("Hello", True), ("And more", False)]


def copy_of(original: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A record as another session's file repeats it: re-serialised, re-stamped, its prompt in blocks."""
    copied = json.loads(json.dumps(original)) | {"sessionId": FORK.id, "timestamp": "2026-08-21T00:00:00Z"} | fields
    if isinstance(copied.get("message", {}).get("content"), str):
        copied["message"]["content"] = [text(copied["message"]["content"])]
    return dict(reversed(copied.items()))


def test_a_copied_record_has_the_key_of_the_original() -> None:
    original = fold(lines(*CONVERSATION), MAIN)
    fork = fold(lines(*(copy_of(one) for one in CONVERSATION)), FORK)
    assert set(fork.facts) == set(original.facts)
    assert not any(fact.copied for fact in fork.facts.values())


def test_a_copy_that_names_its_source_is_proven() -> None:
    origin = {"forkedFrom": {"sessionId": MAIN.id, "messageUuid": "x"}}
    fork = fold(lines(*(copy_of(one, **origin) for one in CONVERSATION), user(30, "my own", session=FORK)), FORK)
    assert fork.header.forked_from == MAIN.id
    assert [(fact.text, fact.copied) for fact in fork.of(Turn)][-1] == ("my own", 0)
    assert {(fact.copied, fact.copied_from) for fact in list(fork.facts.values())} == {(2, MAIN.id), (0, None)}


def test_marks_of_a_fork_begin_anew_after_its_copied_part() -> None:
    shared = [user(1, "hello"), record(2, "attachment"), record(3, "attachment")]
    later = [record(50, "attachment"), user(51, "on")]
    original = fold(lines(*shared), MAIN)
    fork = fold(lines(*shared, *later), FORK)
    (mark,) = [mark for mark in fork.of(Mark) if ("Mark", mark.key) not in original.facts]
    assert iso(mark.first) == "2026-08-20T09:00:50.000Z"


def test_progress_of_one_tool_is_one_mark() -> None:
    ticks = [record(number, "progress", toolUseID="toolu_1", data={}) for number in range(1, 50, 5)]
    (mark,) = fold(lines(*ticks), MAIN).of(Mark)
    assert (iso(mark.first), iso(mark.last)) == ("2026-08-20T09:00:01.000Z", "2026-08-20T09:00:46.000Z")


def test_a_resume_copy_names_the_session_of_its_first_lines_but_proves_no_copy() -> None:
    copied = user(1, "old", session=MAIN)
    fork = fold(lines(copied, user(2, "new", session=FORK)), FORK)
    assert fork.header.forked_from == MAIN.id
    assert [turn.copied for turn in fork.of(Turn)] == [0, 0]
    renamed = fold(lines(copied), FORK)
    assert renamed.header.forked_from is None


def test_tool_numbers_of_a_gateway_do_not_meet_across_answers() -> None:
    asked = [assistant(number, f"msg_{number}", tool("call_0", command="x")) for number in (1, 3)]
    told = [user(number, [result("call_0", "y")]) for number in (2, 4)]
    turns = fold(lines(asked[0], told[0], asked[1], told[1]), MAIN).of(Turn)
    assert Counter(turn.kind for turn in turns) == {"tool_call": 2, "tool_result": 2}
    assert {turn.tool for turn in turns} == {"Bash"}


def test_calls_without_any_id_are_told_apart_by_their_record() -> None:
    nameless = {"type": "tool_use", "name": "Bash", "input": {"command": "x"}}
    turns = fold(lines(assistant(1, "m", nameless), assistant(2, "m", nameless)), MAIN).of(Turn)
    assert [turn.kind for turn in turns] == ["tool_call", "tool_call"]


def test_records_without_ids_are_kept_apart_from_other_sessions() -> None:
    bare = {"type": "user", "message": {"content": "hi"}}
    answer = {"type": "assistant", "message": {"content": [text("ho")], "usage": {"output_tokens": 1}}}
    one, other = (fold(lines(bare, answer, answer), identity) for identity in (MAIN, FORK))
    assert len(one.of(Turn)) == 2
    assert len(one.of(Usage)) == 1
    assert not set(one.facts) & set(other.facts)


def test_tools_of_an_inline_sidechain_count_and_its_texts_do_not() -> None:
    data = lines(
        user(1, "Explore", isSidechain=True),
        assistant(2, "m", {"type": "thinking", "thinking": "hm"}, text("Looking"), tool("toolu_1"), isSidechain=True),
        user(3, [result("toolu_1", "x")], isSidechain=True),
    )
    counted = {turn.kind: turn.counted for turn in fold(data, MAIN).of(Turn)}
    assert counted == {"message": False, "thinking": False, "tool_call": True, "tool_result": True}
    agent = Identity("claude-code", "agent-1a2b3c4", MAIN.id)
    assert all(turn.counted for turn in fold(data, agent).of(Turn))


def test_a_replayed_sidechain_does_not_take_the_count_from_the_answer() -> None:
    replay = assistant(9, "m", text("said"), isSidechain=True)
    for data in (lines(assistant(1, "m", text("said")), replay), lines(replay, assistant(10, "m", text("said")))):
        (turn,) = fold(data, MAIN).of(Turn)
        assert turn.counted


def test_no_image_byte_becomes_text() -> None:
    image = {"type": "image", "source": {"type": "base64", "data": "QUJD" * 500_000}}
    data = lines(
        user(1, [image]),
        assistant(2, "m", tool("toolu_1", file_path="/a.png")),
        user(3, [result("toolu_1", [image, text("a caption")])]),
        record(4, "attachment", attachment={"type": "queued_command", "prompt": [image, text("look")]}),
    )
    turns = fold(data, MAIN).of(Turn)
    assert [turn.text for turn in turns] == ["[image]", "/a.png", "[image]\na caption", "look"]
    assert [turn.counted for turn in turns] == [True] * 4


def test_damaged_lines_give_what_they_hold_and_are_counted() -> None:
    whole = lines(user(1, "one"), user(2, "two"), user(3, "three"))
    one, two, three = whole.splitlines()
    surrogate = b'{"type":"user","uuid":"s","message":{"content":"cut \\ud83c here"}}'
    data = b"\n".join(
        [b"\xef\xbb\xbf" + one + b"\r", two + three, b"\0" * 40, b'{"type":"pr-l' + surrogate, b"null", b""]
    )
    folded = fold(data, MAIN)
    assert [turn.text for turn in folded.of(Turn)] == ["one", "two", "three", "cut \ufffd here"]
    assert folded.header.malformed == 3


def test_fields_of_a_wrong_type_do_not_take_the_record_with_them() -> None:
    odd = user(1, [text("kept"), {"type": "text", "text": 5}, 7, {"type": "image", "id": {}}], isMeta="no?", cwd=["x"])
    odd |= {"origin": "human", "content": 12, "forkedFrom": [], "version": 2.1, "attachment": True}
    (turn,) = fold(lines(odd), MAIN).of(Turn)
    assert turn.text == "kept"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "id"]), inner),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(CONVERSATION), st.data())
def test_no_value_in_any_field_breaks_the_fold(original: dict[str, Any], data: st.DataObject) -> None:
    odd = json.loads(json.dumps(original))
    place: Any = odd
    while True:
        name = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if isinstance(place[name], (dict, list)) and place[name] and data.draw(st.booleans()):
            place = place[name]
            continue
        place[name] = data.draw(JSON)
        break
    folded = fold(lines(odd, *CONVERSATION), MAIN)
    assert msgspec.msgpack.encode(list(folded.facts.values()))


def test_a_deep_line_ends_nothing() -> None:
    deep = (
        b'{"type":"assistant","message":{"content":[{"type":"tool_use","input":' + b'{"a":[' * 600 + b"1" + b"]}" * 600
    )
    data = deep + b"}]}}\n" + deep + b'}]},"bad":NaN}\n' + b"[" * 100_000 + b"\n" + lines(user(1, "after"))
    assert fold(data, MAIN).of(Turn)[-1].text == "after"


def test_an_api_error_is_neither_turn_nor_usage() -> None:
    data = lines(
        record(
            1, "assistant", message={"id": "e", "model": "<synthetic>", "content": [text("API Error")], "usage": {}}
        ),
        assistant(2, "m", text("Overloaded"), isApiErrorMessage=True),
    )
    folded = fold(data, MAIN)
    assert not folded.of(Turn)
    assert not folded.of(Usage)
    assert not folded.header.has_usage
    assert len(folded.of(Mark)) == 2


def test_side_records_alone_make_no_turn_and_move_only_the_header() -> None:
    data = lines(
        {"type": "queue-operation", "timestamp": "2026-08-20T09:00:01Z", "sessionId": MAIN.id},
        {"type": "file-history-snapshot", "snapshot": {"timestamp": "2026-08-20T08:00:00Z"}},
        {"type": "api-request-blob", "message": {"role": "user", "content": [text("not a turn")]}},
        {"type": "mode", "mode": "normal"},
    )
    folded = fold(data, MAIN)
    assert folded.facts == {}
    assert iso(folded.header.started_at) == "2026-08-20T09:00:01.000Z"
    assert folded.header.unknown == {}


def test_an_unknown_record_is_counted() -> None:
    data = lines({"type": "hologram", "x": 1}, {"type": "hologram", "x": 22}, {"no": "type"})
    assert fold(data, MAIN).header.unknown == {"hologram": (2, len(data) - 17), "": (1, 14)}


@pytest.mark.parametrize(
    ("written", "shown", "counted", "role"),
    [
        ("plain <b>text</b>", "plain <b>text</b>", True, "user"),
        ("<ide_selection>x</ide_selection>\nFix \x1b[1mit\x1b[0m", "Fix it", True, "user"),
        (
            '<teammate-message id="a">x</teammate-message>',
            '<teammate-message id="a">x</teammate-message>',
            False,
            "system",
        ),
        ("<system-reminder>left open", "<system-reminder>left open", True, "user"),
        ("<command-name>/model</command-name><command-args>opus</command-args>", "/model opus", False, "user"),
        ("<command-message>x</command-message>\n<command-name>/do-it</command-name>", "/do-it", True, "user"),
        ("<command-name>init</command-name>", "/init", True, "user"),
        ("<bash-input>git status</bash-input>", "! git status", False, "user"),
        ("<bash-stdout>clean</bash-stdout>", "<bash-stdout>clean</bash-stdout>", False, "system"),
        ("[Request interrupted by user for tool use]", "[Request interrupted by user for tool use]", False, "system"),
        ("Caveat: The messages below were generated by the user while", None, False, "system"),
    ],
)
def test_a_prompt_is_what_a_person_typed(written: str, shown: str | None, counted: bool, role: str) -> None:
    assert unwrap(written)[:3] == (written if shown is None else shown, counted, role)


def test_wrappers_that_nobody_closes_cost_no_time() -> None:
    pasted = "<system-reminder>" * 60_000 + "go"
    assert unwrap(pasted).text == pasted


def test_tool_input_reads_as_it_was_meant() -> None:
    assert readable({"command": "a\nb"}) == "a\nb"
    assert readable({"file_path": "/x/y.py", "edits": [{"old": 'a"\n', "all": True}]}) == (
        "/x/y.py\n".join(["file_path: ", 'edits: - old: a"\n\nall: true'])
    )
    assert readable({}) == ""
    assert readable(None) == ""


# files

UUID = MAIN.id


@pytest.fixture
def home(tmp_path: Path) -> Path:
    project = tmp_path / ".claude" / "projects" / "-home-dev-app"
    for name in (
        f"{UUID}.jsonl",
        "agent-1a2b3c4.jsonl",
        f"{UUID}/subagents/agent-acompact-77.jsonl",
        f"{UUID}/subagents/agent-acompact-77.meta.json",
        f"{UUID}/subagents/workflows/wf_1/agent-b1.jsonl",
        f"{UUID}/subagents/workflows/wf_1/journal.jsonl",
        f"{UUID}/subagents/agent-b2/subagents/agent-b3.jsonl",
        f"{UUID}/tool-results/agent-no.jsonl",
        "notes.jsonl",
        "memory/agent-no.jsonl",
        "sessions-index.json",
        f"{UUID}.jsonl.bak",
    ):
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lines(user(1, "hi")))
    return tmp_path / ".claude"


def ids(home: Path, troubles: list[Trouble] | None = None) -> list[tuple[str | None, str | None]]:
    report = (troubles if troubles is not None else []).append
    return sorted(
        (raw.identity.id, raw.identity.scope)
        for source in claude_code.sources(home, report)
        for raw in claude_code.raws(source, report)
    )


EVERY = [
    (UUID, None),
    ("agent-1a2b3c4", UUID),
    ("agent-acompact-77", UUID),
    ("agent-b1", UUID),
    ("agent-b3", "agent-b2"),
]


def test_sessions_and_sub_agents_are_found_and_nothing_else(home: Path) -> None:
    assert ids(home) == EVERY
    assert ids(home / "projects") == EVERY


def test_links_are_followed_once_and_bad_entries_are_reported(home: Path) -> None:
    project = home / "projects" / "-home-dev-app"
    (home / "projects" / "again").symlink_to(project)
    (project / UUID / "subagents" / "loop").symlink_to(project / UUID / "subagents")
    (home / "projects" / "gone").symlink_to(home / "nowhere")
    (home / "projects" / "self").symlink_to(home / "projects" / "self")
    (project / f"{FORK.id}.jsonl").symlink_to(home / "nowhere")
    os.mkfifo(project / f"{UUID[:-1]}2.jsonl")
    troubles: list[Trouble] = []
    assert ids(home, troubles) == EVERY
    assert [Path(trouble.path).name for trouble in troubles] == ["self"]  # links to nothing hold nothing to lose


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_folder_ends_nothing(home: Path) -> None:
    closed = home / "projects" / "a-closed"
    closed.mkdir(mode=0)
    troubles: list[Trouble] = []
    assert ids(home, troubles) == EVERY
    assert [trouble.path for trouble in troubles] == [str(closed)]


def test_homes_follow_the_agents_own_variables(tmp_path: Path) -> None:
    assert claude_code.homes({}, tmp_path) == [tmp_path / ".claude"]
    (tmp_path / "xdg" / "claude").mkdir(parents=True)
    assert claude_code.homes({"XDG_CONFIG_HOME": str(tmp_path / "xdg")}, tmp_path)[1] == tmp_path / "xdg" / "claude"
    named = claude_code.homes({"CLAUDE_CONFIG_DIR": "/a, ~/b/projects,"}, tmp_path)
    assert named == [Path("/a"), tmp_path / "b" / "projects"]


def test_asides_say_titles_and_what_was_cleared(home: Path) -> None:
    (home / "projects" / "-home-dev-app" / UUID / "custom-title.json").write_text('{"customTitle":"mine","by":"user"}')
    typed = [
        ("/clear", "/p", UUID),
        ("elsewhere", "/q", "other"),
        ("hello", "/p", FORK.id),
        ("/clear", "/p", FORK.id),
        ("back", "/p", UUID),
        ("third", "/p", "third"),
    ]
    (home / "history.jsonl").write_bytes(
        lines(*({"display": said, "project": where, "sessionId": who} for said, where, who in typed))
        + b'{"display":"to'
    )
    known = {UUID: [MAIN], FORK.id: [FORK], "third": [Identity("claude-code", "third")]}
    said = [
        (a.identity.id, a.field, a.value) for a in claude_code.asides(home, known, lambda _: pytest.fail("trouble"))
    ]
    assert said == [(UUID, "title", "mine"), (FORK.id, "cleared_from", UUID), ("third", "cleared_from", FORK.id)]


def test_a_broken_sidecar_is_reported(home: Path) -> None:
    (home / "projects" / "-home-dev-app" / UUID / "custom-title.json").write_text("{")
    troubles: list[Trouble] = []
    assert list(claude_code.asides(home, {UUID: [MAIN]}, troubles.append)) == []
    assert [Path(trouble.path).name for trouble in troubles] == ["custom-title.json"]


def test_a_main_session_is_resumed_by_its_id_and_a_sub_agent_not_at_all() -> None:
    assert claude_code.resume(MAIN, "/x") == ["claude", "--resume", UUID]
    assert claude_code.resume(Identity("claude-code", "agent-1", UUID), None) is None
