"""Runs prosa on the demo home in a terminal of tmux and writes what it shows as docs/screen.svg.

    .venv/bin/python docs/make_picture.py            needs tmux; standard library only otherwise

The screen is captured with its colours and set in a fixed font, cell by cell, so that wide characters keep their
columns wherever it is looked at.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "demo"))

from make_home import make_home  # noqa: E402

PICTURE = ROOT / "docs" / "screen.svg"
COLUMNS, ROWS = 108, 60
COMMANDS = ("prosa", "prosa search idempotency", "prosa analytics days --last 2w")
PROMPT = "\x1b[36m$\x1b[0m "
CELL_WIDTH, CELL_HEIGHT, SIZE, MARGIN = 8.4, 19, 14, 16
GROUND, INK = "#16181d", "#d5d8df"
COLOURS = {31: "#f07178", 32: "#a3d977", 33: "#f2c66d", 34: "#82aaff", 35: "#c792ea", 36: "#6fd3d8", 37: "#ffffff"}
DIM, BRIGHT = "#8a909c", "#ffffff"
FONT = "ui-monospace, 'SF Mono', Menlo, 'DejaVu Sans Mono', Consolas, 'Noto Sans Mono CJK SC', monospace"
SGR = re.compile(r"\x1b\[([0-9;]*)m")


class Style(NamedTuple):
    """How a run of cells looks."""

    colour: str = INK
    bold: bool = False
    dim: bool = False


def main() -> int:
    if not shutil.which("tmux"):
        print("tmux is not installed; the picture is as it was.", file=sys.stderr)
        return 1
    PICTURE.write_text(svg(screen()), encoding="utf-8")
    return 0


def screen() -> list[str]:
    """The lines of a terminal in which the commands were run, with their escape sequences."""
    with tempfile.TemporaryDirectory(prefix="prosa-picture-") as scratch:
        # the folder's name is seen by nobody: the demo's directories are shown by their projects
        home = Path(scratch) / "home"
        make_home(home, datetime.now(UTC))
        env = {
            "HOME": str(home), "PROSA_HOME": f"{scratch}/prosa", "PROSA_CONFIG_HOME": f"{scratch}/config",
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "TERM": "xterm-256color", "LC_ALL": "C.UTF-8",
        }  # fmt: skip
        subprocess.run([sys.executable, "-m", "prosa", "sync"], env=env, check=True, capture_output=True)
        script = Path(scratch) / "script.sh"
        shown = "\n".join(f"printf '%s%s\\n' '{PROMPT}' '{command}'; {command}; echo" for command in COMMANDS)
        script.write_text(f"cd {home}\n{shown}\nsleep 60\n", encoding="utf-8")
        tmux = ["tmux", "-S", f"{scratch}/socket", "-f", "/dev/null"]
        size = ["-x", str(COLUMNS), "-y", str(ROWS)]
        subprocess.run([*tmux, "-u", "new-session", "-d", *size, f"sh {script}"], env=env, check=True)
        try:
            return settled([*tmux, "capture-pane", "-p", "-e"])
        finally:
            subprocess.run([*tmux, "kill-server"], check=False)


def settled(capture: list[str]) -> list[str]:
    """The screen once it has been the same for a second."""
    before = ""
    for _ in range(40):
        time.sleep(1)
        now = subprocess.run(capture, check=True, capture_output=True, text=True).stdout
        if now == before and now.strip():
            break
        before = now
    return [line.rstrip() for line in before.rstrip("\n").split("\n")]


def runs(line: str) -> Iterator[tuple[Style, str]]:
    """Pieces of a line and their styles."""
    style, place = Style(), 0
    for code in SGR.finditer(line):
        yield style, line[place : code.start()]
        style, place = changed(style, code[1]), code.end()
    yield style, line[place:]


def changed(style: Style, codes: str) -> Style:
    for code in map(int, (codes or "0").split(";")):
        if code == 0:
            style = Style()
        elif code == 1:
            style = style._replace(bold=True)
        elif code == 2:
            style = style._replace(dim=True)
        elif code in (22, 39):
            style = style._replace(**({"bold": False, "dim": False} if code == 22 else {"colour": INK}))
        elif code in COLOURS:
            style = style._replace(colour=COLOURS[code])
    return style


def width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def svg(lines: list[str]) -> str:
    """The picture of a screen."""
    wide = COLUMNS * CELL_WIDTH + 2 * MARGIN
    high = len(lines) * CELL_HEIGHT + 2 * MARGIN
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" width="{wide:g}" height="{high:g}">\n'
        f"<title>prosa on its demo home: the timeline, a search, a report</title>\n"
        f'<rect width="100%" height="100%" rx="8" fill="{GROUND}"/>\n'
        f'<g font-family="{escape(FONT)}" font-size="{SIZE}" xml:space="preserve" fill="{INK}">\n'
    ]
    for row, line in enumerate(lines):
        column, y = 0, MARGIN + (row + 0.75) * CELL_HEIGHT
        for style, text in runs(line):
            for piece in pieces(text):
                cells = sum(map(width, piece))
                if piece.strip():
                    out.append(set_text(piece, MARGIN + column * CELL_WIDTH, y, cells, style))
                column += cells
    return "".join(out) + "</g>\n</svg>\n"


def pieces(text: str) -> list[str]:
    """Words with the single spaces between them; runs of wide characters by themselves."""
    return re.findall(r" {2,}|[\u1100-\uffef]+|(?: ?[^\s\u1100-\uffef]+)+| ", text)


def set_text(text: str, x: float, y: float, cells: int, style: Style) -> str:
    colour = DIM if style.dim else BRIGHT if style.bold and style.colour == INK else style.colour
    weight = ' font-weight="bold"' if style.bold else ""
    fill = f' fill="{colour}"' if colour != INK else ""
    length = f'textLength="{cells * CELL_WIDTH:g}" lengthAdjust="spacingAndGlyphs"'
    return f'<text x="{x:g}" y="{y:g}" {length}{fill}{weight}>{escape(text)}</text>\n'


if __name__ == "__main__":
    sys.exit(main())
