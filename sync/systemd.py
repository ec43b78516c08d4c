"""The schedule as two units of the user's systemd: a timer by the calendar, and the sync that it starts."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from getpass import getuser
from pathlib import Path
from typing import Final

from prosa.sync.schedule import INTERVALS, Every, InstallFailed, Job, NoServiceManager, State
from prosa.sync.units import calendar, service_unit, timer_unit

TIME_LIMIT_S: Final = 30
SHOWN: Final = "ActiveState,UnitFileState,NextElapseUSecRealtime"


def install(job: Job, every: Every) -> State:
    """Both units, loaded and started."""
    timer, service = _files(job, _folder(job, _unit_path()))
    texts = {service: service_unit(job), timer: timer_unit(every)}
    before = {path: path.read_bytes() if path.exists() else None for path in texts}
    made = _missing_folders(timer.parent)
    try:
        for path, text in texts.items():
            _write(path, text.encode())
        _systemctl("daemon-reload")
        _systemctl("enable", timer.name)
        _systemctl("restart", timer.name)
        if (found := state(job)).active is not True:
            raise InstallFailed(f"{timer.name} was started and does not run.", "Everything is as it was.")
        return found
    except BaseException:
        _put_back(timer, before, made)
        raise


def uninstall(job: Job) -> bool:
    """Stops the timer; where systemd does not answer, the files alone go."""
    timer, service = _files(job, _folder(job, ()))
    there = [path for path in (timer, service, _wanted(timer)) if path.is_symlink() or path.exists()]
    with contextlib.suppress(NoServiceManager, InstallFailed):
        _systemctl("disable", "--now", timer.name)
    for path in there:
        path.unlink(missing_ok=True)
    with contextlib.suppress(NoServiceManager, InstallFailed):
        _systemctl("daemon-reload")
    return bool(there)


def state(job: Job) -> State:
    timer, service = _files(job, _folder(job, ()))
    if not (timer.exists() and service.exists()):
        return State(timer, installed=False)
    found = State(timer, installed=True, every=_every(timer), program=_program(service))
    try:
        said = dict(line.partition("=")[::2] for line in _systemctl("show", timer.name, f"--property={SHOWN}"))
    except (NoServiceManager, InstallFailed) as error:
        return found._replace(trouble=error.what)
    active = said.get("ActiveState") == "active" and said.get("UnitFileState") == "enabled"
    return found._replace(active=active, next_us=_moment(said.get("NextElapseUSecRealtime", "")), linger=_linger())


def _files(job: Job, folder: Path) -> tuple[Path, Path]:
    return folder / f"{job.name}.timer", folder / f"{job.name}.service"


def _folder(job: Job, searched: tuple[Path, ...]) -> Path:
    """Where the user's units lie; a shell's XDG_CONFIG_HOME counts only if systemd looks there too."""
    usual = job.user_home / ".config" / "systemd" / "user"
    stated = Path(job.environment.get("XDG_CONFIG_HOME", job.user_home / ".config")) / "systemd" / "user"
    if stated == usual:
        return usual
    if searched:
        return stated if stated in searched or usual not in searched else usual
    return next((folder for folder in (stated, usual) if (folder / f"{job.name}.timer").exists()), stated)


def _unit_path() -> tuple[Path, ...]:
    """Folders the user's systemd looks into. Raises NoServiceManager where there is no such thing."""
    said = _systemctl("show", "--property=UnitPath")
    return tuple(Path(word) for line in said for word in line.removeprefix("UnitPath=").split())


def _wanted(timer: Path) -> Path:
    """The link that `enable` makes."""
    return timer.parent / "timers.target.wants" / timer.name


def _missing_folders(folder: Path) -> list[Path]:
    """Deepest first."""
    return [path for path in (folder, *folder.parents) if not path.exists()]


def _write(path: Path, text: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # never through a link
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as opened:
        opened.write(text)


def _put_back(timer: Path, before: Mapping[Path, bytes | None], made: list[Path]) -> None:
    fresh = before[timer] is None
    if fresh:
        with contextlib.suppress(NoServiceManager, InstallFailed):
            _systemctl("disable", "--now", timer.name)
        _wanted(timer).unlink(missing_ok=True)
    for path, text in before.items():
        path.unlink(missing_ok=True)
        if text is not None:
            _write(path, text)
    for folder in (timer.parent / "timers.target.wants", *made) if fresh else made:
        with contextlib.suppress(OSError):
            folder.rmdir()
    with contextlib.suppress(NoServiceManager, InstallFailed):
        _systemctl("daemon-reload")
        if not fresh:
            _systemctl("restart", timer.name)


def _systemctl(*words: str) -> list[str]:
    """Lines of its answer. Raises NoServiceManager where nothing answers, InstallFailed with its words."""
    try:
        done = subprocess.run(
            ["systemctl", "--user", "--no-pager", *words], stdin=subprocess.DEVNULL, capture_output=True,
            timeout=TIME_LIMIT_S, check=False, env=_environment(),
        )  # fmt: skip
    except FileNotFoundError:
        raise NoServiceManager("This machine has no systemd.") from None
    except subprocess.TimeoutExpired:
        raise NoServiceManager(f"systemd did not answer within {TIME_LIMIT_S} s.") from None
    if done.returncode == 0:
        return done.stdout.decode("utf-8", "replace").splitlines()
    said = " ".join((done.stderr or done.stdout).decode("utf-8", "replace").split())[:200]
    if "connect to bus" in said or "connect to user scope bus" in said or "not been booted" in said:
        raise NoServiceManager(f"No systemd runs for this user: {said}")
    raise InstallFailed(f"systemctl {' '.join(words)}: {said or f'exit {done.returncode}'}", "Everything is as it was.")


def _environment() -> dict[str, str]:
    """Answers in English and UTC; a shell without a session, such as one of su, gets the user's runtime folder."""
    env = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
    runtime = f"/run/user/{os.getuid()}"
    if "XDG_RUNTIME_DIR" not in env and Path(runtime).is_dir():
        env["XDG_RUNTIME_DIR"] = runtime
    return env


def _linger() -> bool | None:
    """Whether the user's systemd goes on after logout."""
    words = ["loginctl", "show-user", getuser(), "--property=Linger"]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIME_LIMIT_S, check=False, env=_environment()
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return {b"Linger=yes": True, b"Linger=no": False}.get(done.stdout.strip())


def _lines(path: Path, key: str) -> Iterator[str]:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for line in path.read_text("utf-8").splitlines():
            if line.startswith(f"{key}="):
                yield line.partition("=")[2]


def _every(timer: Path) -> Every | None:
    for said in _lines(timer, "OnCalendar"):
        return next((every for every in INTERVALS if calendar(every) == said), None)
    return None


def _program(service: Path) -> Path | None:
    """The path that ExecStart names, where no shell stands before it."""
    for said in _lines(service, "ExecStart"):
        path = said[1:].partition('"')[0] if said.startswith('"') else said.split(" ")[0]
        return None if path == "/bin/sh" else Path(path.replace("%%", "%"))
    return None


def _moment(text: str) -> int | None:
    """`Mon 2026-11-30 19:15:00 UTC` in microseconds."""
    try:
        return int(datetime.strptime(text, "%a %Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC).timestamp()) * 1_000_000
    except ValueError:
        return None
