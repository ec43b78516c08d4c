"""Tables that fit the terminal: numbers to the right, and the widest text gives way first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from prosa.cli.terminal import Paint
from prosa.cli.text import cut_left, pad, width

GAP = 2
ROOMY_TEXT, NARROWEST_TEXT = 20, 8


class Column(NamedTuple):
    title: str
    right: bool = False
    path: bool = False
    """Cut at its beginning, where paths are alike."""
    optional: bool = False
    """Left out before any text becomes hard to read."""


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], cells: int, paint: Paint) -> Iterator[str]:
    """A dim head and one line a row. Rows are clean text already."""
    widths = fit(columns, rows, cells)
    shown = [n for n, wide in enumerate(widths) if wide]
    heads = [pad(columns[n].title, widths[n], right=columns[n].right) for n in shown]
    yield paint((" " * GAP).join(heads).rstrip(), "dim")
    for row in rows:
        yield (" " * GAP).join(_cell(columns[n], row[n], widths[n]) for n in shown).rstrip()


def fit(columns: Sequence[Column], rows: Sequence[Sequence[str]], cells: int) -> list[int]:
    """A width for each column; 0: left out. Where all do not fit, text shrinks to 20 cells, then columns that are
    optional go, then text shrinks to 8, then columns go from the right."""
    natural = [max([width(c.title), *(width(row[n]) for row in rows)]) for n, c in enumerate(columns)]
    optional = [n for n, c in enumerate(columns) if c.optional]
    widths = natural
    for left in range(len(optional), -1, -1):
        widths = [0 if n in optional[left:] else wide for n, wide in enumerate(natural)]
        _shrink(columns, widths, cells, ROOMY_TEXT)
        if _total(widths) <= cells:
            return widths
    _shrink(columns, widths, cells, NARROWEST_TEXT)
    for number in range(len(columns) - 1, 0, -1):
        if _total(widths) > cells:
            widths[number] = 0
    return widths


def _shrink(columns: Sequence[Column], widths: list[int], cells: int, least: int) -> None:
    """Take cells from the widest text until all fits or every text has only the least."""
    while _total(widths) > cells:
        texts = [n for n, c in enumerate(columns) if not c.right and widths[n] > least]
        if not texts:
            return
        widest = max(texts, key=lambda n: widths[n])
        second = max((widths[n] for n in texts if n != widest), default=least)
        widths[widest] -= max(1, min(_total(widths) - cells, widths[widest] - second))


def _total(widths: list[int]) -> int:
    shown = [wide for wide in widths if wide]
    return sum(shown) + GAP * (len(shown) - 1)


def _cell(column: Column, text: str, cells: int) -> str:
    return pad(cut_left(text, cells) if column.path else text, cells, right=column.right)
