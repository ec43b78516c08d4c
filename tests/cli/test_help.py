"""Help texts are golden files. UPDATE_GOLDEN=1 writes them; look at the difference."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from command import Ran

from prosa.cli.commands import COMMANDS

GOLDEN = Path(__file__).parent / "golden"
PAGES = [
    (), *((name,) for name in COMMANDS), ("log", "show"), ("log", "verify"), ("log", "erase"),
    ("profiles", "list"),    ("profiles", "add"), ("profiles", "set-path"), ("profiles", "remove"),
    ("completion", "show"), ("completion", "install"),
    ("devices", "list"), ("devices", "rename"), ("devices", "merge"), ("devices", "unmerge"), ("devices", "revoke"),
    ("schedule", "install"), ("schedule", "status"), ("schedule", "uninstall"),
]  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: "-".join(page) or "prosa")
def test_help_is_as_it_was(page: tuple[str, ...], prosa: Callable[..., Ran]) -> None:
    ran = prosa(*page, "--help")
    file = GOLDEN / f"{'-'.join(('prosa', *page))}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        file.write_text(ran.out, encoding="utf-8")
    assert ran.code == 0
    assert ran.err == ""
    assert ran.out == file.read_text(encoding="utf-8")


def test_every_line_of_help_fits_80_columns(prosa: Callable[..., Ran]) -> None:
    for page in PAGES:
        assert all(len(line) <= 80 for line in prosa(*page, "--help").out.splitlines()), page


def test_first_lines_are_whole_in_the_list_of_commands(prosa: Callable[..., Ran]) -> None:
    for page in ((), ("log",), ("profiles",), ("completion",), ("schedule",)):
        assert "..." not in prosa(*page, "--help").out.partition("Commands:")[2], page
