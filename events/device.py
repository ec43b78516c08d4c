"""Who this machine is: hostname, machine id, and the fingerprint made of both.

The machine id itself never leaves the machine and is in no event; only hashes of it are.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

TIME_LIMIT_S: Final = 2.0
ID_FILES: Final = ("/etc/machine-id", "/var/lib/dbus/machine-id")
LOCAL_HOST_NAME: Final = ("/usr/sbin/scutil", "--get", "LocalHostName")
PLATFORM_EXPERT: Final = ("/usr/sbin/ioreg", "-rd1", "-c", "IOPlatformExpertDevice")
PLATFORM_UUID = re.compile(r'"IOPlatformUUID"\s*=\s*"([^"]+)"')

Read = Callable[[str], str | None]
"""Text of a file, None if it cannot be read."""
Run = Callable[[Sequence[str]], str | None]
"""Output of a program, None if it fails."""


class Device(msgspec.Struct, frozen=True):
    """What `device_identified` says."""

    id: str
    """The fingerprint, 16 hex digits."""
    hostname: str
    machine_hash: str
    """16 hex digits; empty where the machine has no id."""
    platform: str
    """`linux/x86_64`, `darwin/arm64`."""


def read_file(path: str) -> str | None:
    """The file's text, None if it cannot be read."""
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return None


def run_program(command: Sequence[str]) -> str | None:
    """What the program prints, None if it is missing, fails or takes too long."""
    try:
        answer = subprocess.run(
            list(command), stdin=subprocess.DEVNULL, capture_output=True, timeout=TIME_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.decode("utf-8", "replace") if answer.returncode == 0 else None


def identify(
    *,
    system: str = sys.platform,
    node: str | None = None,
    machine: str | None = None,
    read: Read = read_file,
    run: Run = run_program,
) -> Device:
    """This machine. Everything it looks at can be given instead."""
    names = os.uname()
    host = hostname(system, names.nodename if node is None else node, run)
    found = machine_id(system, read, run)
    return Device(
        id=fingerprint(host, found),
        hostname=host,
        machine_hash=machine_hash(found),
        platform=f"{system}/{names.machine if machine is None else machine}",
    )


def hostname(system: str, node: str, run: Run = run_program) -> str:
    """The system's name without `.local`; on macOS the name that does not change with the network."""
    stated = (run(LOCAL_HOST_NAME) or "").strip() if system == "darwin" else ""
    return (stated or node).removesuffix(".local")


def machine_id(system: str, read: Read = read_file, run: Run = run_program) -> str:
    """The installation's id as the system states it; empty if it has none."""
    if system == "darwin":
        found = PLATFORM_UUID.search(run(PLATFORM_EXPERT) or "")
        return found[1].strip() if found else ""
    for path in ID_FILES:
        stated = (read(path) or "").strip()
        if stated and stated != "uninitialized":  # systemd writes this word into images before their first boot
            return stated
    return ""


def fingerprint(hostname: str, machine_id: str) -> str:
    """The device's id: first 16 hex digits of sha256(hostname, NUL, machine id)."""
    return _digest(hostname, machine_id)


def machine_hash(machine_id: str) -> str:
    """By which two devices are known to be one machine: 16 hex digits; empty, so equal to nothing, without an id."""
    return _digest("prosa", machine_id) if machine_id else ""


def _digest(first: str, second: str) -> str:
    return hashlib.sha256(f"{first}\0{second}".encode("utf-8", "surrogateescape")).hexdigest()[:16]
