from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from prosa.events.errors import UsageError
from prosa.events.facts import fact_key
from prosa.projections import hits
from prosa.projections.local import LocalBackend
from prosa.projections.queries import Filters, Found, Search, SearchPage

if TYPE_CHECKING:
    from archive import Archive


def ask(backend: LocalBackend, query: str, *, limit: int = 20, all_hits: bool = False, **filters: Any) -> SearchPage:
    question = Search(query=query, filters=Filters(**filters), limit=limit, all_hits=all_hits, zone="UTC")
    return backend.search(question)


def places(page: SearchPage) -> list[tuple[str, int]]:
    return [(found.session.id, found.hit.ordinal) for found in page.found]


def sessions(page: SearchPage) -> list[str]:
    return [found.session.id for found in page.found]


def test_the_class_of_the_best_hit_decides_then_the_newest_session(archive: Archive) -> None:
    say, start = archive.say, archive.start
    archive.session("tool", say("user", "x", start), say("tool", "needle", start + 99, kind="tool_result", tool="Bash"))
    archive.session("thinking", say("user", "x", start), say("assistant", "needle", start + 98, kind="thinking"))
    archive.session("answer", say("user", "x", start), say("assistant", "needle", start + 97))
    archive.session("prompt", say("user", "needle", start), say("assistant", "needle", start + 96))
    archive.chat("title", "x", title="A needle", at=start + 95)
    archive.chat("newest", "needle", at=start + 500)
    archive.session("injected", say("user", "x", start), say("user", "needle", start + 600, counted=False))
    page = ask(archive.backend(), "needle")
    assert [(found.session.id, found.hit.score) for found in page.found] == [
        ("newest", 3), ("prompt", 3), ("title", 3), ("answer", 2), ("thinking", 1), ("injected", 0), ("tool", 0),
    ]  # fmt: skip
    assert (page.more, page.widened, page.searched) == (False, False, 7)


def test_a_hit_says_where_it_is_and_marks_its_words(archive: Archive) -> None:
    say, start = archive.say, archive.start
    key = archive.session(
        "s",
        say("user", "x", start),
        say("assistant", "cat it", start + 1_000, kind="tool_call", tool="Bash"),
        say("tool", "a\nNeedle\tin   a haystack", start + 2_000, kind="tool_result", tool="Bash"),
    )
    backend = archive.backend()
    hit = ask(backend, "needle").found[0].hit
    assert (hit.ordinal, hit.role, hit.kind, hit.tool, hit.score) == (2, "tool", "tool_result", "Bash", 0)
    assert hit.at == "2026-06-01T00:00:00.002Z"
    assert [hit.snippet[a:b] for a, b in hit.marks] == ["Needle"]
    assert list(backend.turns(key))[hit.ordinal].key == hit.key


def test_a_hit_in_the_title_has_no_turn(archive: Archive) -> None:
    archive.chat("s", "x", title="The needle")
    hit = ask(archive.backend(), "needle").found[0].hit
    assert (hit.key, hit.role, hit.kind, hit.snippet, hit.marks) == ("", "title", "title", "The needle", [(4, 10)])


def test_a_session_with_neither_prompt_nor_usage_is_found(archive: Archive) -> None:
    archive.session("s", archive.say("assistant", "needle", archive.start))
    assert sessions(ask(archive.backend(), "needle")) == ["s"]


def test_a_record_that_several_sessions_hold_is_found_in_its_owner(archive: Archive) -> None:
    shared = archive.say("user", "needle", archive.start, key=fact_key("codex", "turn", "shared"))
    own = archive.say("user", "more", archive.start + archive.minute)
    archive.session("fork", shared, own)
    archive.session("original", shared)
    assert sessions(ask(archive.backend(), "needle")) == ["original"]


def test_a_copy_whose_source_is_not_here_is_found(archive: Archive) -> None:
    copied = archive.say("user", "needle", archive.start, copied=2, copied_from="gone")
    archive.session("copy", copied, archive.say("user", "own", archive.start + archive.day))
    backend = archive.backend()
    assert places(ask(backend, "needle")) == [("copy", 0)]
    assert places(ask(backend, "needle before:2026-06-02")) == [("copy", 0)]


def test_words_must_stand_in_one_turn(archive: Archive) -> None:
    archive.chat("apart", "one", "two")
    archive.chat("together", "two and one")
    assert sessions(ask(archive.backend(), "one two")) == ["together"]


def test_words_that_find_nothing_are_asked_as_beginnings(archive: Archive) -> None:
    archive.chat("s", "the reaper.drained it")
    backend = archive.backend()
    page = ask(backend, "reap")
    assert (sessions(page), page.widened) == (["s"], True)
    assert [page.found[0].hit.snippet[a:b] for a, b in page.found[0].hit.marks] == ["reaper"]
    nothing = ask(backend, "zebra")
    assert (nothing.found, nothing.widened, nothing.searched) == ([], False, 1)
    assert not ask(backend, "reaper").widened


@pytest.mark.parametrize("query", ["", "   ", "-needle", "::", '"', "*", "NEAR(", "(((", "\0"])
def test_a_query_of_nothing_finds_nothing(archive: Archive, query: str) -> None:
    archive.chat("s", "needle")
    page = ask(archive.backend(), query)
    assert (page.found, page.more) == ([], False)


def test_filters_of_turns_and_sessions(archive: Archive) -> None:
    say, start, day = archive.say, archive.start, archive.day
    archive.session(
        "s",
        say("user", "needle", start),
        say("assistant", "needle", start + day, model="m1"),
        say("assistant", "needle", start + 2 * day, kind="tool_call", tool="Bash", model="m2"),
        say("tool", "needle", start + 3 * day, kind="tool_result", tool="Bash", is_error=True),
        say("tool", "needle", start + 4 * day, kind="tool_result", tool="Read"),
        say("system", "needle", start + 5 * day, kind="compaction", counted=False),
        cwd="/home/dev/here",
        title="needle",
    )
    archive.chat("other", "needle", agent="pi", at=start - day, parent="s")
    backend = archive.backend()

    def found(filters: str, **more: Any) -> list[tuple[str, int]]:
        return sorted(places(ask(backend, f"needle {filters}", all_hits=True, **more)))

    assert found("tool:bash") == [("s", 2), ("s", 3)]
    assert found("tool:bash tool:read") == [("s", 2), ("s", 3), ("s", 4)]
    assert found("is:error") == [("s", 3)]
    assert found("role:user") == [("other", 0), ("s", 0)]
    assert found("role:tool") == [("s", 3), ("s", 4)]
    assert found("role:assistant kind:message") == [("s", 1)]
    assert found("kind:compaction") == [("s", 5)]
    assert found("model:m1 model:m2") == [("s", 1), ("s", 2)]
    assert found("agent:pi") == [("other", 0)]
    assert found("project:here kind:tool_call") == [("s", 2)]
    assert found("after:2026-06-04") == [("s", 0), ("s", 3), ("s", 4), ("s", 5)]  # 0: the title
    assert found("before:2026-06-02") == [("other", 0), ("s", 0), ("s", 0)]
    assert found("after:2026-06-02 before:2026-06-03 kind:message") == [("s", 1)]
    assert found("", agent="pi") == [("other", 0)]
    assert found("", until_us=start) == [("other", 0)]
    assert ask(backend, "needle", until_us=start).searched == 1


def test_filters_alone_find_the_turns_they_let_through(archive: Archive) -> None:
    say, start = archive.say, archive.start
    for number in range(4):
        failed = say("tool", "no", start + number, kind="tool_result", tool="Bash", is_error=number % 2 == 0)
        archive.session(f"s{number}", say("user", "x", start), failed)
    backend = archive.backend()
    assert places(ask(backend, "is:error")) == [("s2", 1), ("s0", 1)]
    assert sessions(ask(backend, "is:error tool:bash", limit=1)) == ["s2"]
    assert places(ask(backend, "agent:codex", limit=1)) == [("s3", 0)]


def test_filters_and_turns_without_times_go_by_the_sessions_start(archive: Archive) -> None:
    archive.session("s", archive.say("user", "needle"), started_at=archive.start)
    archive.session("unknown", archive.say("user", "needle"))
    backend = archive.backend()
    assert sessions(ask(backend, "needle after:2026-06-01")) == ["s"]
    assert sessions(ask(backend, "needle before:2026-06-01")) == []
    assert sessions(ask(backend, "needle")) == ["s", "unknown"]


@pytest.mark.parametrize("query", ["agent:cobol x", "tool:nothing x", "model:nothing x", "project:nothing x", "kind:x"])
def test_an_unknown_value_of_a_filter_names_the_known_ones(archive: Archive, query: str) -> None:
    archive.chat("s", "x")
    with pytest.raises(UsageError, match="Known"):
        ask(archive.backend(), query)


def test_all_hits_are_grouped_by_session_the_best_and_newest_first(archive: Archive) -> None:
    say, start = archive.say, archive.start
    turns = [say("user", "needle", start), say("assistant", "needle", start + 1), say("user", "needle", start + 2)]
    archive.session("a", *turns)
    archive.chat("b", "needle", at=start + 9)
    backend = archive.backend()
    assert places(ask(backend, "needle", all_hits=True)) == [("b", 0), ("a", 2), ("a", 0), ("a", 1)]
    page = ask(backend, "needle", all_hits=True, limit=3)
    assert (len(page.found), page.more) == (3, True)
    assert not ask(backend, "needle", all_hits=True, limit=4).more
    assert [hit.score for hit in (found.hit for found in page.found)] == [3, 3, 3]


def test_ordinals_are_those_of_the_turns_shown_however_many_are_asked(archive: Archive) -> None:
    say = archive.say
    turns = [say("user" if n % 3 else "assistant", f"needle {n}", archive.start + n) for n in range(30)]
    key = archive.session("s", *turns)
    backend = archive.backend()
    shown = [turn.key for turn in backend.turns(key)]
    for limit in (1, 0):
        for found in ask(backend, "needle", all_hits=True, limit=limit).found:
            assert shown[found.hit.ordinal] == found.hit.key


def test_the_limit_and_whether_there_are_more(archive: Archive) -> None:
    for number in range(5):
        archive.chat(f"s{number}", "needle", at=archive.start + number)
    backend = archive.backend()
    page = ask(backend, "needle", limit=4)
    assert (sessions(page), page.more) == (["s4", "s3", "s2", "s1"], True)
    assert not ask(backend, "needle", limit=5).more
    assert len(ask(backend, "needle", limit=0).found) == 5


def test_a_word_in_a_later_piece_of_a_long_turn_is_found_and_shown(archive: Archive) -> None:
    text = "filler words " * 40_000 + "needle at the end " + "filler words " * 10
    key = archive.session(
        "s", archive.say("user", "x", 1), archive.say("tool", text, 2, kind="tool_result", tool="Bash")
    )
    backend = archive.backend()
    page = ask(backend, "needle tool:bash")
    assert places(page) == [("s", 1)]
    hit = page.found[0].hit
    assert [hit.snippet[a:b] for a, b in hit.marks] == ["needle"]
    assert list(backend.turns(key))[1].key == hit.key
    assert places(ask(backend, "filler", all_hits=True)) == [("s", 1)]


def test_an_erased_body_leaves_a_hit_without_words(archive: Archive) -> None:
    archive.chat("s", "needle")
    backend = archive.backend()
    archive.log.erase([event for event in archive.log.read() if event.type == "session_parsed"], "test", "test")
    hit = ask(backend, "needle").found[0].hit
    assert (hit.snippet, hit.key) == ("", "")
    assert [turn.text for turn in backend.turns("codex/s")] == [""]


def test_every_way_to_look_finds_the_same(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hits read whole, sessions tried one by one, and all hits read after too many were tried."""
    chance = random.Random(7)
    kinds: list[dict[str, Any]] = [
        {"role": "user"},
        {"role": "assistant"},
        {"role": "assistant", "kind": "thinking"},
        {"role": "tool", "kind": "tool_result", "tool": "Bash"},
    ]
    for number in range(40):
        turns = []
        for _ in range(chance.randrange(1, 8)):
            words = chance.choices(["common", "other", "rare", "error"], [6, 6, 1, 3], k=3)
            kind = dict(chance.choice(kinds))
            failed = kind.get("tool") is not None and chance.random() < 0.5
            at = archive.start + chance.randrange(archive.day)
            turns.append(archive.say(kind.pop("role"), " ".join(words), at, is_error=failed, **kind))
        archive.session(f"s{number:02}", *turns)
    backend = archive.backend()
    queries = [
        "common",
        "rare",
        "common -error",
        "common is:error",
        "error kind:thinking",
        "comm*",
        "is:error",
        "rare OR other",
    ]

    def answers(limit: int) -> list[list[Found]]:
        return [ask(backend, query, limit=limit).found for query in queries]

    expected = {limit: answers(limit) for limit in (1, 5, 0)}
    assert all(found[:5] == some for found, some in zip(expected[0], expected[5], strict=True))
    for few, probes in ((0, 200), (0, 3), (3, 5), (0, 0)):
        monkeypatch.setattr(hits, "FEW", few)
        monkeypatch.setattr(hits, "PROBES", probes)
        for limit, found in expected.items():
            assert answers(limit) == found, (few, probes, limit)
