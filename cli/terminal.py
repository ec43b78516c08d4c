"""What stdout and stderr are: a terminal with or without colours, or a pipe.

`NO_COLOR`, `--no-color` (which sets it), `TERM=dumb` and `COLUMNS` are followed. Data goes to stdout, everything
else to stderr.
"""

from __future__ import annotations

import os
import sys
from typing import Literal, TextIO

from prosa.cli.text import clean

Style = Literal["bold", "dim", "red", "green", "yellow", "cyan", "mark"]

CODES: dict[Style, str] = {
    "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36", "mark": "1;33",
}  # fmt: skip
NARROWEST, WIDEST = 40, 160


def is_terminal(stream: TextIO | None = None) -> bool:
    """Whether a stream (stdout) is read by a person."""
    stream = stream or sys.stdout
    return bool(stream and stream.isatty())


def has_colours(stream: TextIO | None = None) -> bool:
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def columns() -> int:
    """Cells of a line, within what the layouts can use."""
    from shutil import get_terminal_size

    return max(NARROWEST, min(WIDEST, get_terminal_size((80, 24)).columns))


def lines() -> int:
    from shutil import get_terminal_size

    return get_terminal_size((80, 24)).lines


class Paint:
    """Puts text into colours, or leaves it as it is."""

    def __init__(self, colours: bool) -> None:
        self.colours = colours

    def __call__(self, text: str, *styles: Style) -> str:
        if not self.colours or not text:
            return text
        return f"\x1b[{';'.join(CODES[style] for style in styles)}m{text}\x1b[0m"


def say(text: str, *styles: Style) -> None:
    """A line for the reader, on stderr."""
    paint = Paint(has_colours(sys.stderr))
    print("\n".join(paint(line, *styles) for line in clean(text).splitlines()), file=sys.stderr, flush=True)


def hint(text: str) -> None:
    """A quiet line on stderr: what was assumed, what is hidden, what to do next."""
    say(text, "dim")
