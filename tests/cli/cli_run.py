"""The command line over the in-memory back end, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FAKE = Path(__file__).with_name("cli_fake.py")


def spawn(*args: str) -> subprocess.Popen[bytes]:
    """prosa over the in-memory back end."""
    return subprocess.Popen(
        [sys.executable, str(FAKE), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
