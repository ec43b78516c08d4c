"""What a run of the command line left, and a run in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

FAKE = Path(__file__).with_name("cli_fake.py")


class Ran(NamedTuple):
    code: int
    out: str
    err: str


def spawn(*args: str) -> subprocess.Popen[bytes]:
    """prosa over the in-memory back end."""
    return subprocess.Popen(
        [sys.executable, str(FAKE), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
