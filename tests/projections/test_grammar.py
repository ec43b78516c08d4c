"""Any text is a query, none reaches FTS5 unquoted, and what is found is shown."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import apsw
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prosa.events.errors import UsageError
from prosa.projections import grammar, tokens, zones
from prosa.projections.grammar import Query, Term

UTC = zones.zone("UTC")
ANY = st.text(alphabet=st.characters(exclude_categories=()), max_size=60)
NASTY = st.lists(
    st.sampled_from(
        [
            '"', "*", "(", ")", ":", "-", "+", "^", "{", "}", "OR", "AND", "NOT", "NEAR(", " ", "  ", "foo", "bar", "a",
            "é", "e\u0301", "重", "跑", "テ", "한", "🚀", "\0", "\ud800", "\u200b", "_", "'", "don't", "c++", "a::b",
            "POL-358", "--", "-x", "text:", "foo:", 'agent:"', "is:error", "kind:message", "after:2026-01-01", "\n",
            ",", ";", "%", "\\", "\u0300",
        ]
    ),
    max_size=14,
).map("".join)  # fmt: skip


@cache
def table() -> apsw.Connection:
    db = apsw.Connection(":memory:")
    db.execute(
        f"CREATE VIRTUAL TABLE f USING fts5(text, content='', contentless_delete=1, tokenize='{tokens.TOKENIZER}')"
    )
    return db


def found(text: str, query: Query) -> bool:
    """Whether a document of this text is found by the query, by a real FTS5 table."""
    expression = grammar.match(query)
    if expression is None:
        return not query.nothing
    db = table()
    db.execute("INSERT OR REPLACE INTO f(rowid, text) VALUES (1, ?)", (tokens.spaced(text),))
    return db.execute("SELECT rowid FROM f WHERE f MATCH ?", (expression,)).fetchall() == [(1,)]


def parse(text: str) -> Query:
    return grammar.parse(text, UTC)


def terms(text: str) -> list[tuple[str, ...]]:
    return [tuple(term.text + "*" * term.prefix for term in group) for group in parse(text).groups]


def try_parse(text: str) -> Query | None:
    try:
        return parse(text)
    except UsageError as error:
        assert any(f"{name}:" in text for name in grammar.NAMES), error
        return None


@given(ANY | NASTY)
@example('"')
@example('""')
@example("a" * 10_000)
@example("a " * 5_000)
@example('"' + "a b " * 2_500)
@example("a OR " * 2_000)
@example("(" * 10_000)
@example("-" * 10_000)
def test_no_query_is_an_error_of_the_full_text_table(text: str) -> None:
    query = try_parse(text)
    if query is None:
        return
    for asked in (query, grammar.widened(query)):
        if asked is not None:
            found("foo bar 重 a", asked)
            excluded = grammar.excluded(asked)
            if excluded is not None:
                table().execute("SELECT rowid FROM f WHERE f MATCH ?", (excluded,)).fetchall()


@given(ANY | NASTY)
def test_a_document_is_found_by_its_own_text_as_a_phrase(text: str) -> None:
    query = parse('"' + text.replace('"', " ") + '"')
    assert found(text.replace('"', " "), query) == bool(tokens.words(text))


@given(st.lists(st.text(alphabet="abz09é重跑テ한_.:/+()'", min_size=1, max_size=8), min_size=1, max_size=6))
def test_a_document_is_found_by_all_its_words(parts: list[str]) -> None:
    query = parse(" ".join(parts))
    assert found(" ".join(parts), query) == bool(tokens.words(" ".join(parts)))
    assert not query.notes or query.nothing


@pytest.mark.parametrize(
    "word",
    [
        "foo_bar.baz", "a::b", "POL-358", "don't", "c++",
        "(x)", "/home/u/a.py", "a@b.org", "--zeta-fanout=17", "NEAR(a", "重", "重跑",
        "unknown:thing", "AND", "NOT", "NEAR", "x^2", "{a}", "50%", "C:\\Users", "naïve", "2026-01-01", "https://x.org/?q=1",
    ],
)  # fmt: skip
def test_everything_that_is_no_operator_is_literal(word: str) -> None:
    query = parse(word)
    assert query.groups == ((Term(word),),) and not query.filtered and not query.excluded and not query.notes
    assert found(f"before {word} after", query)
    assert not found("something else", query)


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("a b", [("a",), ("b",)]),
        ('"a b" c', [("a b",), ("c",)]),
        ('"runs to the end', [("runs to the end",)]),
        ("drain*", [("drain*",)]),
        ('"drain the pool"*', [("drain the pool*",)]),
        ("a OR b c", [("a", "b"), ("c",)]),
        ("a OR b OR c", [("a", "b", "c")]),
        ("x a OR b", [("x",), ("a", "b")]),
        ("a or b", [("a",), ("or",), ("b",)]),
        ("OR a", [("OR",), ("a",)]),
        ("a OR", [("a",), ("OR",)]),
        ("OR", [("OR",)]),
        ('a "OR" b', [("a",), ("OR",), ("b",)]),
        ("a OR -b", [("a",), ("OR",)]),
        ("x :: OR b", [("x",), ("b",)]),
        ("a a A", [("a",), ("A",)]),
        ("*", []),
        ("**", []),
        ("", []),
    ],
)
def test_words_phrases_prefixes_and_alternatives(text: str, groups: list[tuple[str, ...]]) -> None:
    assert terms(text) == groups


@pytest.mark.parametrize(
    ("text", "excluded"),
    [
        ("a -b", ["b"]),
        ('a -"b c"', ["b c"]),
        ("a -重", ["重"]),
        ("a - b", []),
        ("a --b", []),
        ("a -.5", []),
        ("a b-c", []),
    ],
)
def test_one_minus_before_a_word_leaves_it_out(text: str, excluded: list[str]) -> None:
    assert [term.text for term in parse(text).excluded] == excluded


def test_what_is_left_out_is_not_found() -> None:
    assert found("one two", parse("one -three"))
    assert not found("one two", parse("one -two"))
    assert not found("one two", parse('one -"ONE two" -x'))


@pytest.mark.parametrize(
    "text", ["-word", '-"a b"', "::", "🚀", "*", '""', "", " ", "\0", "tool:Bash -word", "tool:Bash ::"]
)
def test_without_a_word_to_look_for_nothing_is_found(text: str) -> None:
    query = parse(text)
    assert query.nothing and grammar.match(query) is None
    assert bool(query.notes) == bool(text.strip(' "\0'))


def test_words_without_a_letter_are_ignored_beside_others() -> None:
    assert grammar.match(parse("🚀 launch :: -!")) == '"launch"'


def test_filters_alone_are_all_turns_they_let_through() -> None:
    query = parse("tool:Bash is:error")
    assert not query.nothing and query.filtered and grammar.match(query) is None


def test_filters() -> None:
    query = parse(
        'agent:codex agent:pi project:"my repo" tool:Bash role:User kind:thinking kind:goal model:gpt-5 is:error '
        "after:2026-01-01 before:20260201 rest"
    )
    assert (query.agents, query.projects, query.tools, query.models) == (
        ("codex", "pi"),
        ("my repo",),
        ("Bash",),
        ("gpt-5",),
    )
    assert (query.roles, query.kinds, query.session_kinds, query.errors_only) == (
        ("user",),
        ("thinking",),
        ("goal",),
        True,
    )
    assert zones.rfc3339(query.since_us or 0) == "2026-01-01T00:00:00.000Z"
    assert zones.rfc3339(query.until_us or 0) == "2026-02-01T00:00:00.000Z"
    assert grammar.match(query) == '"rest"'


def test_alternatives_of_one_filter_may_be_written_with_or() -> None:
    query = parse("agent:codex OR agent:pi x")
    assert query.agents == ("codex", "pi") and terms("agent:codex OR agent:pi x") == [("x",)]


def test_dates_are_local() -> None:
    query = grammar.parse("after:2026-01-01", zones.zone("America/New_York"))
    assert zones.rfc3339(query.since_us or 0) == "2026-01-01T05:00:00.000Z"


@pytest.mark.parametrize(
    "text", ["agent:", "kind: x", 'kind:"kind" is', "Kind:foo", '"kind:foo"', 'agent:""', "xkind:foo"]
)
def test_what_only_looks_like_a_filter_is_literal(text: str) -> None:
    if text.startswith('kind:"kind"'):
        with pytest.raises(UsageError):
            parse(text)
    else:
        assert not parse(text).filtered


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind:foo", "tool_result"),
        ("role:boss", "assistant"),
        ("is:open", "error"),
        ("after:soon", "2026-01-31"),
        ("before:1", "before:"),
    ],
)
def test_a_value_that_cannot_be_is_an_error_naming_the_known(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert said in str(caught.value) and text.partition(":")[2] in str(caught.value)


def test_a_minus_before_a_filter_is_said_to_be_words() -> None:
    query = parse("x -tool:Bash")
    assert [term.text for term in query.excluded] == ["tool:Bash"] and "tool:Bash" in query.notes[0]


def test_a_prefix_needs_three_letters_and_says_so() -> None:
    query = parse("dr* drain*")
    assert grammar.match(query) == '"dr" AND "drain" *' and "dr*" in query.notes[0]
    assert grammar.match(parse("中文*")) == '"中 文"' and not parse("中文*").notes


def test_a_word_is_not_its_inflections_until_asked() -> None:
    assert not found("reaper.drained", parse("reaper.drain"))
    assert found("reaper.drained", parse("reaper.drain*"))


def test_widening_makes_plain_words_prefixes_and_nothing_else() -> None:
    wide = grammar.widened(parse('drain "the pool" of c OR cat -fish 重'))
    assert wide is not None
    assert grammar.match(wide) == '("drain" * AND "the pool" AND "of" AND ("c" OR "cat" *) AND "重") NOT "fish"'
    assert grammar.widened(wide) is None
    assert grammar.widened(parse('"only phrases" x')) is None


def test_a_query_that_is_too_long_is_cut_and_says_so() -> None:
    query = parse("word " * 10_000)
    assert query.groups == ((Term("word"),),) and "20,000" in query.notes[0]


@given(NASTY, ANY | NASTY)
def test_highlighting_never_fails_and_marks_are_within_the_snippet(text: str, asked: str) -> None:
    query = try_parse(asked)
    if query is None:
        return
    snippet, marks = grammar.highlight(text * 20, query)
    assert len(snippet) <= grammar.SNIPPET_WIDTH + 2
    assert snippet.isprintable() or not any(c.isspace() and c != " " for c in snippet)
    last = 0
    for start, end in marks:
        assert last <= start < end <= len(snippet)
        last = end
    snippet.encode()


def marked(text: str, query: str) -> Iterator[str]:
    snippet, marks = grammar.highlight(text, parse(query))
    return (snippet[start:end] for start, end in marks)


@given(
    st.lists(st.sampled_from(["foo", "Bar", "É", "e\u0301", "重", "跑", "x1"]), min_size=1, max_size=4),
    st.lists(st.sampled_from([" ", "-", "::", "\n", "_"]), min_size=4, max_size=4),
)
def test_what_is_found_is_marked(words: list[str], gaps: list[str]) -> None:
    text = "".join(word + gap for word, gap in zip(words, gaps, strict=False))
    query = '"' + " ".join(words) + '"'
    assert found(f"before {text} after", parse(query))
    (mark,) = marked(f"before {text} after", query)
    assert tokens.words(mark) == tokens.words(text)


@pytest.mark.parametrize(
    ("text", "query", "marks"),
    [
        ("The CAFÉ, the cafe\u0301.", "cafe", ["CAFÉ", "cafe\u0301"]),
        ("the cafe", "CAFÉ", ["cafe"]),
        ("decafe cafes cafe_1", "cafe", ["cafe"]),
        ("drained drains undrain", "drain*", ["drained", "drains"]),
        ("foo->bar", '"foo bar"', ["foo->bar"]),
        ("a.b::c", "b c", ["b", "c"]),
        ("重跑gen后", "gen", ["gen"]),
        ("我重跑了", "重跑", ["重跑"]),
        ("重 跑", "重跑", ["重 跑"]),
        ("ΣΊΣΥΦΟΣ Москва", "σίσυφοσ москва", ["ΣΊΣΥΦΟΣ", "Москва"]),
        ("İstanbul", "istanbul", ["İstanbul"]),
        ("one two", "one OR two -three", ["one", "two"]),
        ("one", "-one", []),
        ("", "one", []),
    ],
)
def test_marks(text: str, query: str, marks: list[str]) -> None:
    assert list(marked(text, query)) == marks


def test_the_snippet_is_where_most_of_the_words_stand_together() -> None:
    text = "alpha " * 3 + "filler " * 100 + "see alpha near beta here " + "filler " * 100 + "beta"
    snippet, marks = grammar.highlight(text, parse("alpha beta"))
    assert "alpha near beta" in snippet and len(marks) == 2
    assert snippet.startswith("…filler ") and snippet.endswith(" filler…")


def test_the_snippet_has_no_control_characters_and_no_runs_of_space() -> None:
    text = "\x1b[31mred\x1b[0m\n\n\t  alert \x1b]8;;http://x\x07link\x1b]8;;\x07\u202e end\0of \x9b it"
    assert grammar.highlight(text, parse("alert")) == ("red alert link end of it", [(4, 9)])


def test_without_a_hit_the_snippet_is_the_beginning() -> None:
    snippet, marks = grammar.highlight("word " * 100, parse("absent"))
    assert snippet.startswith("word word") and snippet.endswith("word…") and marks == []
    assert grammar.highlight("short", parse("is:error")) == ("short", [])


def test_a_hit_longer_than_the_snippet_is_cut() -> None:
    words = " ".join(f"w{n}" for n in range(30)) * 3
    snippet, marks = grammar.highlight(f"x {words} y", parse(f'"{words}"'))
    assert len(marks) == 1 and marks[0][1] <= len(snippet) <= grammar.SNIPPET_WIDTH + 2
