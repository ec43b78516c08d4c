"""The command line over an in-memory back end: `prosa(...)` runs it in this process, `spawn(...)` in its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cli_fake import Rooms
from command import Ran, caller

import prosa as package
from prosa.cli import opening


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Nothing of the machine the tests run on is read or written."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PROSA_HOME", str(tmp_path / "prosa"))
    monkeypatch.setenv("PROSA_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("PYTHONPATH", str(Path(package.__file__).parents[1]))
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "_PROSA_COMPLETE", "PAGER", "PROSA_PAGER"):
        monkeypatch.delenv(name, raising=False)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    yield tmp_path
    os.environ.pop("NO_COLOR", None)


@pytest.fixture
def rooms(monkeypatch: pytest.MonkeyPatch) -> Rooms:
    found = Rooms()
    found.install(lambda name, value: monkeypatch.setattr(opening, name, value))
    return found


@pytest.fixture
def prosa(rooms: Rooms, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs one command line over `rooms`; stdout is no terminal."""
    return caller(capfd)


@pytest.fixture
def terminal(prosa: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """The same, as if stdout were a terminal of 80 columns."""
    from prosa.cli import terminal as screen

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("PAGER", "cat")
    monkeypatch.setattr(screen, "is_terminal", lambda stream=None: stream is None or stream is sys.stdout)
    from prosa.cli import output

    monkeypatch.setattr(output, "is_terminal", screen.is_terminal)
    return prosa
