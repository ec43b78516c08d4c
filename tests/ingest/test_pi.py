"""The Pi importer against the shared corpus, and against small inputs of its own for each promise."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prosa.events import codec
from prosa.events.facts import NOT_COPIED, PROVEN, Compaction, Facts, Header, Mark, Turn, Usage
from prosa.ingest.importer import Identity, Trouble
from prosa.ingest.pi import importer as pi
from prosa.ingest.pi.names import id_of_path

CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus" / "pi"
CASES = sorted(path.name for path in CORPUS.glob("*")) if CORPUS.is_dir() else []
needs_corpus = pytest.mark.skipif(not CASES, reason="the shared corpus is not beside this checkout")

Fact = Turn | Usage | Mark | Compaction
Json = dict[str, Any]


class Folded:
    """One session as an index would see it: facts by key, the later in place of the earlier, and the header."""

    def __init__(self, identity: Identity, header: Header, takes: Iterable[Facts]) -> None:
        self.identity, self.header = identity, header
        self.surface, self.raw = "main", b""
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
    folding = pi.fold(identity)
    takes, place = [], 0
    for cut in (*cuts, len(data)):
        folding.feed(data[place:cut])
        if end:
            folding.end()
        takes.append(folding.take())
        place = cut
        if save:
            folding = pi.fold(identity, folding.state())
    folding.end()
    return Folded(identity, folding.header(), [*takes, folding.take()])


def found(home: Path) -> tuple[dict[str, Folded], list[Trouble]]:
    """Sessions by key; one that lies in several files is the union of them, the one of the highest rank first."""
    troubles: list[Trouble] = []
    sessions: dict[str, Folded] = {}
    for source in sorted(pi.sources(home, troubles.append), key=lambda source: (source.rank, source.path)):
        for raw in pi.raws(source, troubles.append):
            chunks = list(raw.chunks())
            assert chunks == list(raw.chunks())
            session = fold(b"".join(chunks), raw.identity)
            session.raw, session.surface = b"".join(chunks), raw.surface
            before = sessions.get(raw.identity.key)
            if before is not None and before.surface == session.surface:
                session.facts = before.facts | session.facts
            sessions[raw.identity.key] = session
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
        own.facts = {n: f for n, f in session.facts.items() if owners[n] == key and f.copied != PROVEN}
    return result


def iso(at: int | None) -> str | None:
    if at is None:
        return None
    return (datetime(1970, 1, 1) + timedelta(milliseconds=at // 1000)).isoformat(timespec="milliseconds") + "Z"


def numbers(session: Folded) -> Json:
    """What expected.json says of a session, from the facts it owns."""
    turns = [turn for turn in session.of(Turn) if turn.counted]
    usage = session.of(Usage)
    header = session.header
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
        "compactions": len(session.of(Compaction)),
        "compaction_ids": [fact.id for fact in session.of(Compaction)],
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
    got = {one["session_id"]: one for one in map(numbers, owned(sessions).values())}
    for wanted in expected["sessions"]:
        if wanted.get("optional") and wanted["session_id"] not in got:
            continue
        one, want = got.pop(wanted["session_id"]), expected_numbers(wanted)
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


@needs_corpus
@pytest.mark.parametrize("case", CASES)
def test_the_corpus_gives_the_numbers_a_person_worked_out(case: str) -> None:
    sessions, troubles = found(CORPUS / case / "home" / ".pi" / "agent")
    check_case(CORPUS / case, sessions, troubles)


def same(one: Folded, other: Folded) -> None:
    for kind in (Turn, Usage, Mark, Compaction):
        assert one.of(kind) == other.of(kind)
    assert one.header == other.header


@needs_corpus
@pytest.mark.parametrize("case", CASES)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_any_pieces_give_what_the_whole_gives(case: str, data: st.DataObject) -> None:
    sessions, _ = found(CORPUS / case / "home" / ".pi" / "agent")
    key = data.draw(st.sampled_from(sorted(sessions)))
    raw, identity = sessions[key].raw, sessions[key].identity
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    same(fold(raw, identity, cuts, save=data.draw(st.booleans()), end=data.draw(st.booleans())), sessions[key])


@needs_corpus
@pytest.mark.parametrize("case", [name for name in CASES if "fork" in name])
def test_copies_count_for_nobody_when_their_parent_is_gone(case: str, tmp_path: Path) -> None:
    home = tmp_path / "agent"
    shutil.copytree(CORPUS / case / "home" / ".pi" / "agent", home)
    whole = {key: numbers(session) for key, session in owned(found(home)[0]).items()}
    parents = {one["lineage"]["forked_from"] for one in whole.values()} - {None}
    for file in list(home.rglob("*.jsonl")):
        if any(file.stem.endswith(parent) for parent in parents):
            file.unlink()
    left = {key: numbers(session) for key, session in owned(found(home)[0]).items()}
    assert left == {key: whole[key] for key in left}
    assert left


# small inputs

MAIN = Identity("pi", "11111111-1111-7111-8111-111111111111")
FORK = Identity("pi", "22222222-2222-7222-8222-222222222222")
FOLDER = "/home/dev/.pi/agent/sessions/--home-dev-app--"


def lines(*records: Any) -> bytes:
    return b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)


def stamp(second: int) -> str:
    return f"2026-08-20T09:{second // 60:02d}:{second % 60:02d}.000Z"


def header(identity: Identity = MAIN, second: int = 0, **fields: Any) -> Json:
    return {
        "type": "session",
        "version": 3,
        "id": identity.id,
        "timestamp": stamp(second),
        "cwd": "/home/dev/app",
        **fields,
    }


def entry(second: int, kind: str, **fields: Any) -> Json:
    return {"type": kind, "id": f"{second:08x}", "parentId": None, "timestamp": stamp(second), **fields}


def message(second: int, role: str, content: Any, **fields: Any) -> Json:
    return entry(second, "message", message={"role": role, "content": content, **fields})


def text(said: str) -> Json:
    return {"type": "text", "text": said}


USAGE = {"input": 10, "output": 5, "cacheRead": 100, "cacheWrite": 30, "totalTokens": 145}


def answer(second: int, *content: Json, **fields: Any) -> Json:
    return message(second, "assistant", list(content), **{"model": "claude-sonnet-4-5", "usage": USAGE, **fields})


def tool(call: str, **given: Any) -> Json:
    return {"type": "toolCall", "id": call, "name": "bash", "arguments": given}


CONVERSATION = [
    {"type": "title", "title": "of another program"},
    header(),
    header(FORK, 5),
    entry(1, "model_change", modelId="m"),
    message(2, "system", "", sections={}),
    message(3, "user", [text("Fix the ☃ parser"), {"type": "image", "data": "AAAA"}]),
    answer(4, {"type": "thinking", "thinking": "why"}, text("Look"), tool("c1", command="pytest"), text("ing")),
    message(5, "toolResult", [text("1 failed"), {"type": "image"}], toolCallId="c1", toolName="bash", isError=True),
    message(6, "bashExecution", None, command="ls", output="a.py", exitCode=1),
    entry(7, "compaction", summary="all of it", tokensBefore=5000, usage=USAGE | {"reasoning": 2}),
    entry(8, "custom_message", content="remember", customType="x"),
    message(9, "user", "On"),
    message(9, "user", "On"),
    message(9, "user", "And on"),
    answer(10, text("Done"), stopReason="aborted"),
    answer(11, stopReason="error", usage={"input": 0, "output": 0}),
    entry(12, "session_info", name=" Parser "),
    entry(13, "compaction", summary="", tokensBefore=0),
    entry(14, "alien"),
]


@pytest.mark.parametrize("end", [False, True])
def test_a_growing_file_gives_the_same_at_every_byte(end: bool) -> None:
    data = lines(*CONVERSATION)
    whole = fold(data, MAIN)
    for cut in range(0, len(data) + 1, 2):
        same(fold(data, MAIN, [cut], save=True, end=end), whole)


def test_each_entry_counts_once_and_as_what_it_is() -> None:
    session = fold(lines(*CONVERSATION), MAIN)
    assert session.texts() == ["Fix the ☃ parser", "On", "And on"]
    assert session.texts(role="assistant") == ["Look\ning", "Done"]
    assert session.texts("tool_call", "assistant") == ["pytest"]
    assert session.texts("tool_result", "tool") == ["1 failed\n[image]"]
    assert session.texts(counted=False) == ["!ls\na.py"]
    assert session.texts(role="system", counted=False) == ["remember"]
    assert session.texts("compaction", "system", counted=False) == ["all of it"]
    assert [(c.id, c.size_before) for c in session.of(Compaction)] == [("00000007", 5000), ("0000000d", None)]
    assert (session.header.title, session.header.cwd) == ("Parser", "/home/dev/app")
    assert session.header.unknown == {"alien": (1, len(lines(CONVERSATION[-1])) - 1)}


def test_usage_counts_the_requests_beside_the_answers_too() -> None:
    usage = fold(lines(*CONVERSATION), MAIN).of(Usage)
    assert [(one.input, one.cache_write_5m, one.reasoning, one.model) for one in usage] == [
        (10, 30, None, "claude-sonnet-4-5"),
        (10, 30, 2, "claude-sonnet-4-5"),
        (10, 30, None, "claude-sonnet-4-5"),
        (0, 0, None, "claude-sonnet-4-5"),
    ]


@pytest.mark.parametrize(("hour", "split"), [(0, (30, 0)), (20, (10, 20)), (40, (30, 40))])
def test_an_hour_of_cache_is_a_part_of_what_was_written(hour: int, split: tuple[int, int]) -> None:
    data = lines(header(), answer(1, text("x"), usage=USAGE | {"cacheWrite1h": hour}))
    (usage,) = fold(data, MAIN).of(Usage)
    assert (usage.cache_write_5m, usage.cache_write_1h) == split


def test_only_messages_are_activity_and_what_lies_between_them_has_its_time() -> None:
    compactions = [(iso(c.at)) for c in fold(lines(*CONVERSATION), MAIN).of(Compaction)]
    assert compactions == ["2026-08-20T09:00:07.000Z", None]
    assert numbers(fold(lines(*CONVERSATION), MAIN))["last_activity_at"] == "2026-08-20T09:00:11.000Z"


def test_a_name_that_is_cleared_is_no_title() -> None:
    data = lines(header(), entry(1, "session_info", name="A"), entry(2, "session_info", name=" "))
    assert fold(data, MAIN).header.title is None


def forked(*records: Json, key: str = "parentSession", second: int = 30) -> bytes:
    path = f"{FOLDER}/2026-08-20T09-00-00-000Z_{MAIN.id}.jsonl"
    return lines(header(FORK, second, **{key: path}), *records)


@pytest.mark.parametrize("key", ["parentSession", "branchedFrom"])
def test_a_fork_has_what_came_after_its_header(key: str) -> None:
    own = [message(31, "user", "Another way"), answer(32, text("Yes"))]
    session = fold(forked(*CONVERSATION[3:], *own, key=key), FORK)
    assert session.header.forked_from == MAIN.id
    copied = {fact.copied_from for fact in session.facts.values() if fact.copied == PROVEN}
    assert copied == {MAIN.id}
    assert [turn.text for turn in session.of(Turn) if turn.copied == NOT_COPIED] == ["Another way", "Yes"]
    parent = fold(lines(*CONVERSATION), MAIN)
    assert set(parent.facts) <= set(session.facts)


def test_a_fork_without_an_answer_of_its_own_has_no_usage() -> None:
    assert not fold(forked(*CONVERSATION[3:]), FORK).header.has_usage


def test_a_fork_whose_clock_was_behind_shares_the_keys_all_the_same() -> None:
    sessions = {
        MAIN.key: fold(lines(*CONVERSATION, message(20, "user", "Own")), MAIN),
        FORK.key: fold(forked(*CONVERSATION[3:], message(40, "user", "Another"), second=1), FORK),
    }
    assert owned(sessions)[FORK.key].texts() == ["Another"]
    assert owned(sessions)[MAIN.key].texts() == ["Fix the ☃ parser", "On", "And on", "Own"]


def test_equal_ids_of_two_sessions_are_two_entries() -> None:
    one = fold(lines(header(), message(1, "user", "a")), MAIN)
    other = fold(lines(header(FORK), message(1, "user", "b") | {"timestamp": stamp(2)}), FORK)
    assert not set(one.facts) & set(other.facts)


@pytest.mark.parametrize(
    ("path", "native"),
    [
        (f"{FOLDER}/2026-08-20T09-00-00-000Z_{MAIN.id}.jsonl", MAIN.id),
        ("C:\\Users\\d\\2026-08-20T09-00-00-000Z_my_own_name.jsonl", "my_own_name"),
        ("old_0195.jsonl", "0195"),
        (MAIN.id, MAIN.id),
    ],
)
def test_the_name_of_a_file_has_the_id(path: str, native: str) -> None:
    assert id_of_path(path) == native


# files


def home_with(tmp_path: Path, files: dict[str, bytes]) -> Path:
    home = tmp_path / "agent"
    for name, body in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    return home


NAME = f"2026-08-20T09-00-00-000Z_{MAIN.id}.jsonl"
CHAT = f"sessions/--home-dev-app--/{NAME}"


def test_a_misplaced_file_and_its_longer_copy_are_one_session(tmp_path: Path) -> None:
    short = lines(header(), message(1, "user", "a"))
    home = home_with(tmp_path, {NAME: short, CHAT: short + lines(message(2, "user", "b"))})
    (session,) = found(home)[0].values()
    assert session.texts() == ["a", "b"]


@pytest.mark.parametrize("name", [NAME, f"--home-dev-app--/{NAME}"])
def test_a_folder_of_sessions_is_a_home_too(tmp_path: Path, name: str) -> None:
    assert list(found(home_with(tmp_path, {name: lines(header())}))[0]) == [MAIN.key]


def test_the_variables_name_the_homes(tmp_path: Path) -> None:
    agent = tmp_path / ".pi" / "agent"
    assert pi.homes({}, tmp_path) == [agent]
    env = {"PI_CODING_AGENT_DIR": "~/p", "PI_CODING_AGENT_SESSION_DIR": "/srv/s"}
    assert pi.homes(env, tmp_path) == [tmp_path / "p", Path("/srv/s")]
    agent.mkdir(parents=True)
    (agent / "settings.json").write_text('{"sessionDir": "~/mine", "theme": 5}')
    assert pi.homes({}, tmp_path) == [agent, tmp_path / "mine"]
    (agent / "settings.json").write_text('{"sessionDir": 5')
    assert pi.homes({}, tmp_path) == [agent]


def test_a_linear_file_has_a_surface_of_its_own(tmp_path: Path) -> None:
    old = {**header(), "version": 1}
    sessions, _ = found(home_with(tmp_path, {CHAT: lines(old, {**message(1, "user", "a"), "id": None})}))
    assert sessions[MAIN.key].surface == "v1"
    assert sessions[MAIN.key].texts() == ["a"]


def test_files_of_sub_agents_in_a_folder_named_like_a_session_have_a_parent(tmp_path: Path) -> None:
    inner = f"{CHAT.removesuffix('.jsonl')}/2026-08-20T09-00-30-000Z_{FORK.id}.jsonl"
    sessions, _ = found(home_with(tmp_path, {CHAT: lines(header()), inner: lines(header(FORK))}))
    assert {s.identity.id: s.header.parent for s in sessions.values()} == {MAIN.id: None, FORK.id: MAIN.id}


@pytest.mark.parametrize("body", [b"", b"\n", b'{"todo": "x"}\n', b"\0" * 100])
def test_other_files_are_no_sessions(tmp_path: Path, body: bytes) -> None:
    late = CHAT.replace(".jsonl", ".background-late.jsonl")
    sessions, troubles = found(home_with(tmp_path, {"sessions/--a--/notes.jsonl": body, late: body}))
    assert (sessions, troubles) == ({}, [])


@pytest.mark.parametrize("body", [b"\0" * 4096, lines(message(1, "user", "a")), b"[" * 100_000, b"\xff\xfe{"])
def test_a_session_file_without_a_header_is_named(tmp_path: Path, body: bytes) -> None:
    sessions, troubles = found(home_with(tmp_path, {CHAT: body}))
    assert sessions == {}
    assert [Path(trouble.path).name for trouble in troubles] == [NAME]


def test_damage_costs_only_what_is_damaged(tmp_path: Path) -> None:
    bad = (
        b"\xef\xbb\xbf"
        + lines(header())
        + b"not json\n\0\0\r\n"
        + lines(message(1, "user", "one\u2028two"))[:-1]
        + b"\r\n"
    )
    lone = b'{"type":"message","id":"z","timestamp":"2026-08-20","message":{"role":"user","content":"\\ud83d"}}\n'
    odd = lines(
        entry(3, "message", message=5), {"type": 7, "id": []}, message(4, "assistant", [None, 5, "text", text("ok")]),
        message(5, "assistant", {"type": "text", "text": "one"}, usage={"input": "9", "output": -4}),
        message(6, "alien", "x"), message(7, "toolResult", None, toolCallId=5, isError="true"),
    )  # fmt: skip
    (session,) = found(home_with(tmp_path, {CHAT: bad + lone + odd + b'{"type":"mess'}))[0].values()
    assert session.texts() == ["one\u2028two", "\ufffd"]
    assert session.texts(role="assistant") == ["text\nok", "one"]
    assert session.header.malformed == 2
    assert [(one.input, one.output, one.cache_read) for one in session.of(Usage)] == [(9, 0, 0)]


def test_a_header_that_is_just_being_written_is_no_error(tmp_path: Path) -> None:
    assert found(home_with(tmp_path, {CHAT: lines(header())[:40]})) == ({}, [])


def test_links_fifos_and_loops_are_passed_over(tmp_path: Path) -> None:
    home = home_with(tmp_path, {CHAT: lines(header())})
    project = home / "sessions/--home-dev-app--"
    os.mkfifo(project / "fifo.jsonl")
    (project / "dangling.jsonl").symlink_to(tmp_path / "nowhere")
    (project / "loop").symlink_to(project)
    (home / "sessions/again").symlink_to(project)
    (home / "sessions/round").symlink_to(home / "sessions/round")
    sessions, troubles = found(home)
    assert list(sessions) == [MAIN.key]
    assert sorted(Path(trouble.path).name for trouble in troubles) == ["round"]


def mutated(data: st.DataObject, body: bytes) -> bytes:
    for _ in range(data.draw(st.integers(1, 4))):
        place, size = data.draw(st.integers(0, len(body))), data.draw(st.integers(0, 40))
        body = body[:place] + data.draw(st.binary(max_size=12)) + body[place + size :]
    return body


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_damage_ends_a_fold(data: st.DataObject) -> None:
    body = mutated(data, lines(*CONVERSATION))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=4)))
    same(fold(body, MAIN, cuts, save=True), fold(body, MAIN))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["type", "id", "timestamp", "message", "content", "summary", "tokensBefore", "usage", "model", "name", "cwd",
     "version", "parentSession", "role", "toolCallId", "toolName", "isError", "text", "thinking", "arguments", "input"]
)  # fmt: skip
WORDS = ["message", "session", "compaction", "usage", "user", "assistant", "toolResult", "text", "thinking", stamp(1)]
RECORDS = st.recursive(
    JSON | st.sampled_from(WORDS),
    lambda inner: st.dictionaries(NAMES, inner, max_size=6) | st.lists(inner, max_size=3),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(records=st.lists(st.dictionaries(NAMES, RECORDS, max_size=8), max_size=6), data=st.data())
def test_no_type_in_any_field_ends_a_fold(records: list[Json], data: st.DataObject) -> None:
    body = lines(header(), *records)
    whole = fold(body, MAIN)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=4)))
    same(fold(body, MAIN, cuts, save=True), whole)
    codec.encode(whole.header)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_damage_ends_a_scan(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    files = {CHAT: mutated(data, lines(*CONVERSATION)), NAME: mutated(data, lines(header(), message(1, "user", "a")))}
    found(home_with(tmp_path_factory.mktemp("home"), files))


def test_a_session_goes_on_by_its_id_and_a_sub_agent_does_not() -> None:
    assert pi.resume(MAIN, None) == ["pi", "--session", MAIN.id]
    assert pi.resume(Identity("pi", "a", "b"), None) is None
