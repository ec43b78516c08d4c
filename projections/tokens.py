"""What a word is in full-text search, the same for the index and for a query, here and on the server.

FTS5's own `unicode61 remove_diacritics 2` decides; it takes a run of Chinese, Japanese or Korean characters for one
word, so `spaced` parts them first. Every text that is indexed and every text that is asked goes through it.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Final, cast

import apsw

TOKENIZER: Final = "unicode61 remove_diacritics 2"
"""As it stands in `tokenize=` of every FTS5 table."""

PIECE_LIMIT: Final = 200_000
"""Characters of a turn that are one row of full text. More distinct words overflow a tsvector (buglog 58)."""

CJK: Final = (
    "\u1100-\u11ff"  # Hangul jamo
    "\u2e80-\u2fdf"  # radicals
    "\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c"  # iteration marks, Hangzhou numerals
    "\u3041-\u30ff\u31f0-\u31ff"  # hiragana, katakana
    "\u3100-\u312f\u31a0-\u31bf"  # bopomofo
    "\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff"  # Hangul jamo and syllables
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han
    "\uff01-\uffdc"  # full- and half-width forms
    "\U0001aff0-\U0001b16f"  # kana supplements
    "\U00020000-\U0003ffff"  # Han, extensions B and later
)
"""The inside of a regex class: characters that are a word each."""
RUN: Final = re.compile(f"[{CJK}]+")
APART: Final = re.compile("[\u1100-\u11ff\u3099\u309a]")
"""Parts of Hangul syllables and kana as macOS writes them in file names; composed they are what people type."""
ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\))")
"""Colours and links of terminals: `ESC[31merror` would be the word `31merror`."""
SURROGATE: Final = re.compile("[\ud800-\udfff]")


def spaced(text: str) -> str:
    """The text as FTS5 is to read it: without terminal escapes, with spaces around every CJK character, encodable."""
    if "\x1b" in text:
        text = ESCAPES.sub(" ", text)
    if text.isascii():
        return text
    return RUN.sub(_part, composed(text))


def composed(text: str) -> str:
    """The text as `spaced` reads it, still without spaces: what offsets of hits count in."""
    if text.isascii():
        return text
    if SURROGATE.search(text):
        text = SURROGATE.sub("\ufffd", text)
    if APART.search(text):
        text = unicodedata.normalize("NFC", text)
    return text


def words(text: str) -> list[str]:
    """The words FTS5 sees in the text, folded; none for `::` or an emoji."""
    return words_of_spaced(spaced(text))


def words_of_spaced(text: str) -> list[str]:
    """The same for a text that went through `spaced`."""
    found = _tokenizer()(text.encode(), apsw.FTS5_TOKENIZE_QUERY, None, include_offsets=False, include_colocated=False)
    return cast("list[str]", found)


def pieces(text: str) -> list[str]:
    """The text in pieces of at most PIECE_LIMIT characters that together are the text; none for an empty one.

    Cut after the last white space of a piece's second half, else after its last character that is no letter or
    digit, else at the limit.
    """
    if len(text) <= PIECE_LIMIT:
        return [text] if text else []
    cut = []
    start = 0
    while len(text) - start > PIECE_LIMIT:
        end = start + PIECE_LIMIT
        for is_end in (str.isspace, _is_mark):
            found = next((i for i in range(end, start + PIECE_LIMIT // 2, -1) if is_end(text[i - 1])), None)
            if found is not None:
                end = found
                break
        cut.append(text[start:end])
        start = end
    cut.append(text[start:])
    return cut


def _is_mark(character: str) -> bool:
    return not character.isalnum()


def _part(run: re.Match[str]) -> str:
    return f" {' '.join(run[0])} "


@cache
def _tokenizer() -> apsw.FTS5Tokenizer:
    name, *arguments = TOKENIZER.split()
    return apsw.Connection(":memory:").fts5_tokenizer(name, arguments)
