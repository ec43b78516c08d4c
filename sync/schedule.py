"""A sync at every so many minutes, by the system's own means: a systemd user timer, or a LaunchAgent on macOS.

What is installed names this installation by its absolute path and carries the variables it was installed under, since
neither systemd nor launchd reads a shell's start-up files.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

from prosa.events.errors import ProsaError, UsageError
from prosa.events.home import Home

MINUTES: Final = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30)
HOURS: Final = (1, 2, 3, 4, 6, 8, 12)
"""Those that a calendar can say: they divide an hour and a day. A timer counting from its start would not catch up
after a suspend."""
PASSED_ON: Final = (
    "PROSA_HOME", "PROSA_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME",
    "CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "COPILOT_HOME", "CURSOR_CONFIG_DIR", "CURSOR_DATA_DIR",
    "GROK_HOME",
    "HERMES_HOME", "OPENCODE_DATA_DIR", "OPENCODE_DB", "PI_CODING_AGENT_DIR", "PI_CODING_AGENT_SESSION_DIR",
    "ANTIGRAVITY_DATA_DIR",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY",
    "https_proxy", "http_proxy", "all_proxy", "no_proxy",
)  # fmt: skip
"""Variables that decide what a sync reads and where it sends it."""
WORDS: Final = ("sync", "--scheduled")


class Every(NamedTuple):
    """An interval: so many minutes of an hour, or so many hours of a day; a day is 24 hours."""

    number: int
    unit: str
    """`m` or `h`."""

    def __str__(self) -> str:
        return "1d" if self == DAY else f"{self.number}{self.unit}"

    @property
    def seconds(self) -> int:
        return self.number * (60 if self.unit == "m" else 3600)

    @property
    def words(self) -> str:
        """`every 15 minutes`."""
        if self == DAY:
            return "every day"
        name = "minute" if self.unit == "m" else "hour"
        return f"every {name}" if self.number == 1 else f"every {self.number} {name}s"


DAY: Final = Every(24, "h")
INTERVALS: Final = (*(Every(n, "m") for n in MINUTES), *(Every(n, "h") for n in HOURS), DAY)


class Job(NamedTuple):
    """What is to run, and under which name it is known to the system."""

    name: str
    """`prosa-sync`; with a suffix where the data does not lie in its usual place, so that two do not meet."""
    program: tuple[str, ...]
    """Absolute path of this installation, with the words that make it sync."""
    environment: dict[str, str]
    user_home: Path


class State(NamedTuple):
    """What the system says of an installed schedule."""

    unit: Path
    """The file that makes it run."""
    installed: bool
    """The file is there."""
    every: Every | None = None
    active: bool | None = None
    """None: the system's service manager does not answer."""
    next_us: int | None = None
    linger: bool | None = None
    """Whether it runs while the user is logged out; None: always, or unknown."""
    program: Path | None = None
    """What it runs."""
    trouble: str = ""


class NoServiceManager(ProsaError):
    """Nothing on this machine runs a schedule for a user."""


class InstallFailed(ProsaError):
    """The system refused; everything is as it was."""


def interval(text: str) -> Every:
    """`15m`, `2h`, `1d`. Raises UsageError for others, with those that are near."""
    wanted = text.strip().lower()
    for every in INTERVALS:
        if wanted in (str(every), f"{every.number}{every.unit}", f"{every.seconds // 60}m"):
            return every
    possible = ", ".join(str(every) for every in INTERVALS)
    raise UsageError(
        f"{text!r} is no interval that repeats within an hour or a day.", "Nothing was changed.", f"One of: {possible}."
    )


def job(home: Home, env: Mapping[str, str] = os.environ) -> Job:
    """The schedule of one installation."""
    user = Path(env.get("HOME") or Path.home())
    usual = Home.of({"HOME": str(user)})
    name = "prosa-sync"
    if (home.data, home.config) != (usual.data, usual.config):
        places = os.fsencode(home.data) + b"\0" + os.fsencode(home.config)
        name += f"-{hashlib.sha256(places).hexdigest()[:8]}"
    passed = {variable: env[variable] for variable in PASSED_ON if env.get(variable)}
    # as absolute paths: a service does not start in the folder this was typed in
    passed |= {"PROSA_HOME": str(home.data)} if "PROSA_HOME" in passed else {}
    passed |= {"PROSA_CONFIG_HOME": str(home.config)} if "PROSA_CONFIG_HOME" in passed else {}
    return Job(name, (*this_program(), *WORDS), passed, user)


def this_program(arguments: list[str] = sys.argv, python: str = sys.executable) -> tuple[str, ...]:
    """How to start this installation from anywhere. Links stay links: an upgrade changes what they lead to."""
    started = arguments[0] if arguments else ""
    if Path(started).name == "prosa" and (found := shutil.which(started)):
        return (str(Path(found).absolute()),)
    return (python, "-m", "prosa")


def install(job: Job, every: Every, *, system: str = sys.platform) -> State:
    """Write, load and start the schedule, in place of an earlier one. Raises NoServiceManager or InstallFailed; then
    nothing has changed."""
    try:
        return _means(system).install(job, every)  # type: ignore[no-any-return]
    except NoServiceManager as none:
        raise NoServiceManager(none.what, "Nothing was installed.", f"With cron: {cron_line(job, every)}") from None


def uninstall(job: Job, *, system: str = sys.platform) -> bool:
    """Stop and remove the schedule; False if there was none."""
    return _means(system).uninstall(job)  # type: ignore[no-any-return]


def state(job: Job, *, system: str = sys.platform) -> State:
    """What the service manager says; nothing is changed."""
    return _means(system).state(job)  # type: ignore[no-any-return]


def cron_line(job: Job, every: Every) -> str:
    """The same as a line of `crontab -e`, where a % would end the command."""
    when = f"*/{every.number} * * * *" if every.unit == "m" else f"0 */{every.number} * * *"
    when = {"*/1 * * * *": "* * * * *", "0 */1 * * *": "0 * * * *", "0 */24 * * *": "0 0 * * *"}.get(when, when)
    variables = [f"{name}={shlex.quote(value)}" for name, value in job.environment.items()]
    return f"{when} {' '.join([*variables, shlex.join(job.program)])}".replace("%", "\\%")


def _means(system: str) -> ModuleType:
    if system == "darwin":
        from prosa.sync import launchd

        return launchd
    from prosa.sync import systemd

    return systemd
