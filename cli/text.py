"""Transcript text made fit for a terminal: nothing that moves the cursor, and widths as a terminal counts them.

Every text that comes from a transcript, a path or an agent goes through `clean` or `one_line` before it is printed:
an escape sequence in a tool's output must not act again, and a bidi override must not show a command in another order.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

SEQUENCE = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI
    # OSC, DCS, SOS, PM, APC with their text, within a line: a torn one does not take the rest with it
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)"
    "|\x1b[ -/]*[0-~]?"
)
HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and newline
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks and overrides of direction
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff"  # byte order mark, annotations, invisible tags
    "]"
)
BREAKS = re.compile("\r\n|[\r\x85\u2028\u2029]")
LONE = re.compile("[\ud800-\udfff]")
SPACES = re.compile(r"\s+")
PLAIN = re.compile(r"[ -~]*")

ZWJ, EMOJI_STYLE = "\u200d", "\ufe0f"
SKIN_TONES = range(0x1F3FB, 0x1F400)


def clean(text: str) -> str:
    """The text without escape sequences and control characters; lines and tabs stay."""
    if PLAIN.fullmatch(text):
        return text
    if "\x1b" in text or not text.isascii():
        text = SEQUENCE.sub("", text)
    text = HARMFUL.sub("", BREAKS.sub("\n", text))
    return text if text.isascii() else LONE.sub("\ufffd", text)


def one_line(text: str) -> str:
    """`clean`, with each run of white space a single space."""
    return SPACES.sub(" ", clean(text)).strip()


def clusters(text: str) -> Iterator[tuple[str, int]]:
    """What a reader sees as one character, and its cells: a letter with its accents, an emoji with its parts."""
    place, end = 0, len(text)
    while place < end:
        start = place
        cells = _cells(text[place])
        place += 1
        while place < end:
            char = text[place]
            if char == ZWJ and place + 1 < end:
                place += 2
            elif char == EMOJI_STYLE:
                cells = max(cells, 2)
                place += 1
            elif _cells(char) == 0 or (cells == 2 and ord(char) in SKIN_TONES):
                place += 1
            else:
                break
        yield text[start:place], cells


def width(text: str) -> int:
    """Cells the text takes in a terminal."""
    if text.isascii():
        return len(text)
    return sum(cells for _, cells in clusters(text))


def cut(text: str, cells: int) -> str:
    """The text in at most so many cells, with `…` where it was cut. Clusters stay whole."""
    if width(text) <= cells:
        return text
    kept, used = [], 0
    for cluster, wide in clusters(text):
        if used + wide > cells - 1:
            break
        kept.append(cluster)
        used += wide
    return "".join(kept).rstrip() + "…" if cells > 0 else ""


def cut_left(text: str, cells: int) -> str:
    """The end of the text in at most so many cells: for paths."""
    if width(text) <= cells:
        return text
    kept: list[str] = []
    used = 0
    for cluster, wide in reversed(list(clusters(text))):
        if used + wide > cells - 1:
            break
        kept.append(cluster)
        used += wide
    return "…" + "".join(reversed(kept)) if cells > 0 else ""


def pad(text: str, cells: int, *, right: bool = False) -> str:
    """The text filled up with spaces; cut if it is too long."""
    text = cut(text, cells)
    gap = " " * (cells - width(text))
    return gap + text if right else text + gap


def wrap(line: str, cells: int) -> list[str]:
    """One line in pieces of at most so many cells, broken at spaces where there are any. Indentation is kept."""
    line = line.expandtabs(4)
    if width(line) <= cells:
        return [line]
    indent = line[: len(line) - len(line.lstrip(" "))]
    if len(indent) > cells // 2:
        indent = ""
    pieces: list[str] = []
    current, used = indent, len(indent)
    for word in re.findall(r"\S+\s*", line.lstrip(" ")):
        bare = width(word.rstrip())
        if used + bare > cells and current.strip():
            pieces.append(current.rstrip())
            current, used = indent, len(indent)
        if len(indent) + bare > cells:
            for cluster, wide in clusters(word):
                if used + wide > cells:
                    pieces.append(current)
                    current, used = indent, len(indent)
                current += cluster
                used += wide
        else:
            current += word
            used += width(word)
    if current.strip():
        pieces.append(current.rstrip())
    return pieces


def _cells(char: str) -> int:
    if " " <= char <= "~":
        return 1
    if unicodedata.category(char) in ("Mn", "Me", "Cf", "Cc"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
