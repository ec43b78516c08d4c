"""A text as Postgres searches it: the row of full text with its words, and how the index of words reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from prosa.projections.tokens import words_of_spaced
from prosa.server.following import followers

LEXEME_BYTES: Final = 1_000
"""Longer words are cut in the index of words: a tsvector takes none above 2,046 bytes, an index entry 2,704."""
VECTOR_BYTES: Final = 1_000_000
"""A tsvector takes 1 MiB. 200,000 characters stay below it unless composing made three of one."""

COLUMNS: Final = {
    "rowid": "bigint NOT NULL",
    "words": "text NOT NULL",
    "cut": "text",
    "followers": "bytea STORAGE EXTERNAL NOT NULL",
}
"""`cut`: the words for the index, where those of the text are too long or too many."""
FUNCTION: Final = """
CREATE FUNCTION {}.lexemes(words text, cut text) RETURNS tsvector LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE COST 1000
AS $$ BEGIN RETURN array_to_tsvector(string_to_array(btrim(coalesce(cut, words)), ' ')); END $$"""
"""What the index of words is of; nothing else is to be worked out from it, says its cost."""
INDEX: Final = "CREATE INDEX ON {0}.{1} USING gin ({0}.lexemes(words, cut)) WITH (fastupdate = off)"

PLAIN: Final = bytes(ord(chr(byte).lower()) if byte < 128 and chr(byte).isalnum() else 32 for byte in range(256))
"""What FTS5 makes of the bytes of an ASCII text: small letters, digits, and what parts words."""


def text_row(rowid: int, spaced: str) -> tuple[Any, ...]:
    """The row of a text that went through `tokens.spaced`."""
    words = words_of(spaced)
    joined = b" ".join(words)
    return rowid, f" {joined.decode()} ", cut(words, joined), followers(words)


def words_of(spaced: str) -> list[bytes]:
    """The words FTS5 sees."""
    if spaced.isascii():
        return spaced.encode().translate(PLAIN).split()
    return [word.encode() for word in words_of_spaced(spaced)]


def cut(words: Sequence[bytes], joined: bytes) -> str | None:
    """The distinct words as the index is to have them; None where it can have them as they are."""
    if len(joined) <= VECTOR_BYTES and not _has_long(joined):
        return None
    lexemes = sorted({lexeme(word) for word in words})
    size = sum(map(len, lexemes))
    while size > VECTOR_BYTES:
        size -= len(lexemes.pop())
    return b" ".join(lexemes).decode()


def lexeme(word: bytes) -> bytes:
    """A word as the index of words has it: cut between characters where it is very long."""
    return word if len(word) <= LEXEME_BYTES else word[:LEXEME_BYTES].decode("utf-8", "ignore").encode()


def _has_long(joined: bytes) -> bool:
    """Whether a word is longer than the index takes: then there is no space where one would end at the latest."""
    start, end = 0, len(joined)
    while end - start > LEXEME_BYTES:
        space = joined.rfind(b" ", start, start + LEXEME_BYTES + 1)
        if space < 0:
            return True
        start = space + 1
    return False
