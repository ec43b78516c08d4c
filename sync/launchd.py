"""The schedule as a LaunchAgent: launchd starts what it missed once when a Mac wakes up."""

from __future__ import annotations

import contextlib
import os
import plistlib
import secrets
import subprocess
from pathlib import Path
from typing import Any, Final

from prosa.sync.schedule import DAY, INTERVALS, Every, InstallFailed, Job, NoServiceManager, State

TIME_LIMIT_S: Final = 30


def install(job: Job, every: Every) -> State:
    path = _file(job)
    before = path.read_bytes() if path.exists() else None
    try:
        _write(path, plistlib.dumps(agent(job, every, secrets.randbelow(min(every.seconds // 60, 60)))))
        with contextlib.suppress(InstallFailed):  # there is none yet
            _launchctl("bootout", f"{_domain()}/{job.name}")
        _launchctl("bootstrap", _domain(), str(path))
        if (found := state(job)).active is not True:
            raise InstallFailed(f"{job.name} was loaded and is not there.", "Everything is as it was.")
        return found
    except BaseException:
        with contextlib.suppress(InstallFailed, NoServiceManager):
            _launchctl("bootout", f"{_domain()}/{job.name}")
        path.unlink(missing_ok=True)
        if before is not None:
            _write(path, before)
            with contextlib.suppress(InstallFailed, NoServiceManager):
                _launchctl("bootstrap", _domain(), str(path))
        raise


def uninstall(job: Job) -> bool:
    there = _file(job).exists()
    with contextlib.suppress(InstallFailed, NoServiceManager):
        _launchctl("bootout", f"{_domain()}/{job.name}")
    _file(job).unlink(missing_ok=True)
    return there


def state(job: Job) -> State:
    path = _file(job)
    if not path.exists():
        return State(path, installed=False)
    try:
        said = plistlib.loads(path.read_bytes())
    except (plistlib.InvalidFileException, ValueError, OSError):
        return State(path, installed=True, active=False, trouble=f"{path} cannot be read.")
    found = State(path, installed=True, every=_every(said), program=Path(said["ProgramArguments"][0]))
    try:
        _launchctl("print", f"{_domain()}/{job.name}")
    except InstallFailed:
        return found._replace(active=False)
    except NoServiceManager as error:
        return found._replace(trouble=error.what)
    return found._replace(active=True)


def agent(job: Job, every: Every, offset: int) -> dict[str, Any]:
    """The property list; `offset` in minutes spreads the machines of one owner over the interval."""
    return {
        "Label": job.name,
        "ProgramArguments": list(job.program),
        "EnvironmentVariables": job.environment,
        "StartCalendarInterval": calendar(every, offset),
        "ProcessType": "Background",
        "LowPriorityIO": True,
        "Nice": 10,
        "Umask": 0o077,
    }


def calendar(every: Every, offset: int) -> list[dict[str, int]]:
    """Every time of the day that it runs at."""
    if every == DAY:
        return [{"Hour": 0, "Minute": offset}]
    if every.unit == "h":
        return [{"Hour": hour, "Minute": offset} for hour in range(0, 24, every.number)]
    return [{"Minute": minute + offset} for minute in range(0, 60, every.number)]


def _every(said: dict[str, Any]) -> Every | None:
    times = said.get("StartCalendarInterval") or []
    by_hour = bool(times) and "Hour" in times[0]
    return next((e for e in INTERVALS if (e.unit == "h") == by_hour and len(calendar(e, 0)) == len(times)), None)


def _file(job: Job) -> Path:
    return job.user_home / "Library" / "LaunchAgents" / f"{job.name}.plist"


def _domain() -> str:
    return f"gui/{os.getuid()}"


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as opened:
        opened.write(data)


def _launchctl(*words: str) -> None:
    try:
        done = subprocess.run(
            ["launchctl", *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=TIME_LIMIT_S, check=False
        )
    except FileNotFoundError:
        raise NoServiceManager("This machine has no launchd.") from None
    except subprocess.TimeoutExpired:
        raise NoServiceManager(f"launchd did not answer within {TIME_LIMIT_S} s.") from None
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).decode("utf-8", "replace").split())[:200]
        raise InstallFailed(f"launchctl {words[0]}: {said or f'exit {done.returncode}'}", "Everything is as it was.")
