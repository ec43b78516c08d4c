"""The identity of a machine, from what Linux and macOS say about themselves."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

import pytest

from prosa.events import device

IOREG = '+-o J316s  <class IOPlatformExpertDevice>\n    {\n      "IOPlatformUUID" = "AB12-CD"\n      "x" = 1\n    }\n'


def nothing(_: object) -> str | None:
    return None


def test_the_fingerprint_is_that_of_the_go_original() -> None:
    assert device.fingerprint("studio", "abc") == hashlib.sha256(b"studio\0abc").hexdigest()[:16]
    assert device.machine_hash("abc") == hashlib.sha256(b"prosa\0abc").hexdigest()[:16]


def test_linux_reads_its_files_and_runs_nothing() -> None:
    def run(command: Sequence[str]) -> str | None:
        raise AssertionError(command)

    files = {"/etc/machine-id": "0123abcd\n"}
    found = device.identify(system="linux", node="studio.local", machine="x86_64", read=files.get, run=run)
    assert found == device.Device(
        id=device.fingerprint("studio", "0123abcd"),
        hostname="studio",
        machine_hash=device.machine_hash("0123abcd"),
        platform="linux/x86_64",
    )
    assert "0123abcd" not in repr(found)


def test_macos_asks_its_programs_and_reads_nothing() -> None:
    def read(path: str) -> str | None:
        raise AssertionError(path)

    answers = {device.LOCAL_HOST_NAME: "Studio\n", device.PLATFORM_EXPERT: IOREG}
    found = device.identify(
        system="darwin", node="dhcp-17.example.org", machine="arm64", read=read, run=lambda c: answers.get(tuple(c))
    )
    assert (found.hostname, found.id) == ("Studio", device.fingerprint("Studio", "AB12-CD"))
    assert found.platform == "darwin/arm64"


def test_macos_falls_back_to_the_systems_name() -> None:
    assert device.hostname("darwin", "mac.local", nothing) == "mac"
    assert device.machine_id("darwin", nothing, nothing) == ""


@pytest.mark.parametrize("first", [None, "", "\n", "uninitialized\n"])
def test_the_second_file_serves_where_the_first_says_nothing(first: str | None) -> None:
    files = {"/etc/machine-id": first, "/var/lib/dbus/machine-id": "beef\n"}
    assert device.machine_id("linux", files.get, nothing) == "beef"


def test_machines_without_an_id_are_not_one_machine() -> None:
    found = device.identify(system="linux", node="box", machine="x86_64", read=nothing, run=nothing)
    assert found.machine_hash == "" and found.id == device.fingerprint("box", "")


def test_this_machine_is_the_same_twice() -> None:
    found = device.identify()
    assert found == device.identify()
    assert found.hostname == os.uname().nodename.removesuffix(".local") and len(found.id) == 16


def test_a_program_that_is_missing_or_fails_says_nothing() -> None:
    assert device.run_program(["/nowhere/scutil"]) is None
    assert device.run_program(["false"]) is None
    assert device.run_program(["echo", "x"]) == "x\n"
    assert device.read_file("/nowhere") is None
