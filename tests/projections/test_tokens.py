"""One token function for the index and the query: FTS5's own, with CJK characters apart."""

from __future__ import annotations

import threading

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prosa.projections import tokens

ANY = st.text(alphabet=st.characters(exclude_categories=()), max_size=80)
MIXED = st.text(
    alphabet="abcXYZ09_-.'\"*:() \t\n\0éÉßıİñ\u0301重跑再がカﾊ한글ㄅＡ１々\u3099\u1112\u1161🚀\ufe0f\ud800", max_size=60
)


@pytest.fixture
def fts() -> apsw.Connection:
    db = apsw.Connection(":memory:")
    db.execute(
        f"CREATE VIRTUAL TABLE f USING fts5(text, content='', contentless_delete=1, tokenize='{tokens.TOKENIZER}')"
    )
    db.execute("CREATE VIRTUAL TABLE vocabulary USING fts5vocab(f, instance)")
    return db


@given(ANY | MIXED)
def test_words_are_what_the_full_text_index_stores(text: str) -> None:
    db = apsw.Connection(":memory:")
    db.execute(f"CREATE VIRTUAL TABLE f USING fts5(text, content='', tokenize='{tokens.TOKENIZER}')")
    db.execute("CREATE VIRTUAL TABLE vocabulary USING fts5vocab(f, instance)")
    db.execute("INSERT INTO f(rowid, text) VALUES (1, ?)", (tokens.spaced(text),))
    stored = [term for (term,) in db.execute("SELECT term FROM vocabulary ORDER BY offset")]
    assert stored == tokens.words(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("foo_bar.baz", ["foo", "bar", "baz"]),
        ("a::b", ["a", "b"]),
        ("don't", ["don", "t"]),
        ("c++", ["c"]),
        ("Café CAFE\u0301 cafe", ["cafe", "cafe", "cafe"]),
        ("重跑gen后", ["重", "跑", "gen", "后"]),
        ("テスト", ["テ", "ス", "ト"]),
        ("ﾃｽﾄ", ["ﾃ", "ｽ", "ﾄ"]),
        ("한국어", ["한", "국", "어"]),
        ("ㄅㄆ", ["ㄅ", "ㄆ"]),
        ("\U00020000\U00020001", ["\U00020000", "\U00020001"]),
        ("a\0b", ["a", "b"]),
        ("::", []),
        ("🚀", []),
        ("", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert tokens.words(text) == words


def test_decomposed_file_names_are_found_by_what_people_type() -> None:
    assert tokens.words("\u1112\u1161\u11ab\u1100\u1173\u11af") == tokens.words("한글")
    assert tokens.words("か\u3099") == tokens.words("が")


@given(ANY | MIXED)
def test_spacing_only_adds_spaces(text: str) -> None:
    spaced = tokens.spaced(text)
    assert spaced.replace(" ", "") == tokens.composed(text).replace(" ", "")
    assert tokens.spaced(spaced).split() == spaced.split()
    spaced.encode()


def test_ascii_text_is_returned_as_it_is() -> None:
    text = "plain text"
    assert tokens.spaced(text) is text


def test_words_may_be_asked_from_several_threads() -> None:
    found: list[list[str]] = []
    threads = [threading.Thread(target=lambda: found.extend(tokens.words("a b") for _ in range(200))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [["a", "b"]] * 800


@pytest.mark.parametrize("size", [1, tokens.PIECE_LIMIT - 1, tokens.PIECE_LIMIT])
def test_a_text_up_to_the_limit_is_one_piece(size: int) -> None:
    assert tokens.pieces("x" * size) == ["x" * size]


def test_an_empty_text_has_no_pieces() -> None:
    assert tokens.pieces("") == []


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@given(st.lists(st.sampled_from(["word ", "x" * 1000, "重" * 50_000, "a.b\n", "-" * 99_999, "\u3000"]), max_size=40))
def test_pieces_together_are_the_text_and_within_the_limit(parts: list[str]) -> None:
    text = "".join(parts) * 8
    cut = tokens.pieces(text)
    assert "".join(cut) == text
    assert all(0 < len(piece) <= tokens.PIECE_LIMIT for piece in cut)
    assert len(cut) <= 2 * len(text) // tokens.PIECE_LIMIT + 1


def test_pieces_are_cut_after_white_space_else_after_a_mark_else_at_the_limit() -> None:
    limit = tokens.PIECE_LIMIT
    assert [len(p) for p in tokens.pieces("x" * (limit - 10) + " " + "y.z" * 10)] == [limit - 9, 30]
    assert [len(p) for p in tokens.pieces("x" * (limit - 10) + "," + "y" * 20)] == [limit - 9, 20]
    assert [len(p) for p in tokens.pieces("x" * (limit + 5))] == [limit, 5]
    assert [len(p) for p in tokens.pieces(" " + "x" * limit)] == [limit, 1]
    assert [len(p) for p in tokens.pieces("x" * limit + " ")] == [limit, 1]
