"""The last run that the schedule started, as the run itself wrote it: `scheduled.json` in the data folder.

Unit files and timers say what should happen; this says what did. A sync that a person starts writes nothing here.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from prosa.events.clock import now_us
from prosa.events.errors import ProsaError
from prosa.events.home import Home, private_folder

FILE = "scheduled.json"
INTERRUPTED = 130


class LastRun(msgspec.Struct, kw_only=True):
    """One scheduled run; without `ended_us` it is still at work or was cut off."""

    pid: int
    started_us: int
    ended_us: int | None = None
    exit_code: int | None = None
    text: str = ""
    """What it did or why it failed, in one line."""
    succeeded_us: int | None = None
    """When a scheduled run last ended with exit code 0."""

    @property
    def running(self) -> bool:
        if self.ended_us is not None:
            return False
        with contextlib.suppress(PermissionError):  # it runs, as somebody else
            try:
                os.kill(self.pid, 0)
            except ProcessLookupError:
                return False
        return True


def read(home: Home) -> LastRun | None:
    """None where the schedule has not run yet, and where the file is damaged: the next run writes it anew."""
    try:
        return msgspec.json.decode((home.data / FILE).read_bytes(), type=LastRun)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None


@contextmanager
def recorded(home: Home) -> Iterator[LastRun]:
    """Written when the block begins and when it ends, however it ends; the block sets `exit_code` and `text`."""
    before = read(home)
    run = LastRun(pid=os.getpid(), started_us=now_us(), succeeded_us=before.succeeded_us if before else None)
    _write(home.data / FILE, run)
    try:
        yield run
    except ProsaError as error:
        run.exit_code, run.text = error.exit_code, error.what
        raise
    except KeyboardInterrupt:
        run.exit_code, run.text = INTERRUPTED, "interrupted"
        raise
    except BaseException as error:
        run.exit_code, run.text = 1, f"{type(error).__name__}: {str(error)[:200]}"
        raise
    finally:
        run.ended_us = now_us()
        run.exit_code = run.exit_code or 0
        if run.exit_code == 0:
            run.succeeded_us = run.ended_us
        _write(home.data / FILE, run)


def _write(path: Path, run: LastRun) -> None:
    private_folder(path.parent)
    aside = path.with_name(f"{FILE}.new")
    aside.unlink(missing_ok=True)
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as opened:
        opened.write(msgspec.json.encode(run))
    aside.replace(path)
