"""The text of the two unit files, and the words in them as systemd reads words."""

from __future__ import annotations

import os
from typing import Final

from prosa.sync.schedule import Every, Job

MOST_DELAY_S: Final = 300
UNSAFE: Final = frozenset("\"'\\")
"""What systemd takes in no path of a program, however it is quoted."""

SERVICE = """\
[Unit]
Description=prosa: import what the AI coding agents wrote, and push it

[Service]
Type=oneshot
ExecStart={command}
{environment}Nice=10
IOSchedulingClass=idle
UMask=0077
StandardOutput=null
# offline (4), or a sync that a person started (5): the next run does it
SuccessExitStatus=4 5
TimeoutStartSec=12h
"""

TIMER = """\
[Unit]
Description=prosa: sync {words}

[Timer]
OnCalendar={calendar}
# a time that passed while the machine was off or asleep is made up for
Persistent=true
RandomizedDelaySec={delay}
AccuracySec=10s

[Install]
WantedBy=timers.target
"""


def service_unit(job: Job) -> str:
    variables = "".join(f"Environment={_quoted(f'{name}={value}')}\n" for name, value in job.environment.items())
    return SERVICE.format(command=command(job.program), environment=variables)


def timer_unit(every: Every) -> str:
    delay = min(MOST_DELAY_S, every.seconds // 10)
    return TIMER.format(words=every.words, calendar=calendar(every), delay=f"{delay}s")


def calendar(every: Every) -> str:
    """As OnCalendar takes it."""
    if every.unit == "m":
        return f"*-*-* *:00/{every.number:02d}:00"
    return f"*-*-* 00/{every.number:02d}:00:00" if every.number < 24 else "*-*-* 00:00:00"


def command(program: tuple[str, ...]) -> str:
    """As ExecStart takes it: a `$` is doubled everywhere but in the program's path, which no variable may begin."""
    path, *words = program
    if UNSAFE & set(path) or not path.isprintable():
        return " ".join(["/bin/sh", "-c", _argument('exec "$0" "$@"'), *map(_argument, program)])
    return " ".join([_quoted(path), *map(_argument, words)])


def _argument(text: str) -> str:
    return _quoted(text.replace("$", "$$"))


def _quoted(text: str) -> str:
    """One word of a unit file."""
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    text = "".join(char if char.isprintable() else _escape(char) for char in text)
    return f'"{text}"' if set(text) & set(" \t\"'\\;") or not text else text


def _escape(char: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(char))
