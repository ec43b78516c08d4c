"""The pinned packages are ones that pyproject.toml admits, each with hashes, and no file says where to fetch them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
FILES = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "requirements").glob("*.txt"))}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
SERVER = [*PROJECT["project"]["dependencies"], *EXTRAS["server"]]
RUN = [*SERVER, *EXTRAS["dev-server"]]
BUILD = PROJECT["build-system"]["requires"]
CHECK = EXTRAS["dev"]
PLACES = [
    {"python_full_version": f"{python}.9", "python_version": python, "sys_platform": system, "platform_machine": arch}
    for python in ("3.11", "3.12", "3.13")
    for system, arch in (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"), ("darwin", "x86_64"))
]  # fmt: skip


def pins(name: str) -> dict[str, Requirement]:
    found = {}
    for entry in re.findall(r"^[^\s#].*$", FILES[name], re.MULTILINE):
        requirement = Requirement(entry.rstrip("\\ "))
        if requirement.name in found:  # one version for each Python: the one for this Python counts
            assert requirement.marker and found[requirement.name].marker, entry
        if requirement.name not in found or (requirement.marker and requirement.marker.evaluate()):
            found[requirement.name] = requirement
    return found


def version(requirement: Requirement) -> str:
    (only,) = requirement.specifier
    assert only.operator == "=="
    return only.version


@pytest.mark.parametrize(
    ("name", "wanted"), [("run", RUN), ("server", SERVER), ("build", BUILD), ("check", RUN + BUILD + CHECK)]
)
def test_the_ranges_admit_the_pins(name: str, wanted: list[str]) -> None:
    pinned = pins(name)
    for requirement in map(Requirement, wanted):
        there = pinned.get(requirement.name.lower().replace("_", "-").replace(".", "-"))
        assert there is not None, f"requirements/{name}.txt has no {requirement.name}: run requirements/lock.py"
        assert requirement.specifier.contains(version(there)), f"{requirement} does not admit {there}"


def test_the_files_agree() -> None:
    everything = pins("check")
    for name in ("run", "server", "build"):
        for package, requirement in pins(name).items():
            assert version(everything[package]) == version(requirement)


@pytest.mark.parametrize("name", FILES)
def test_every_pin_has_hashes_and_no_place(name: str) -> None:
    text = FILES[name]
    for entry in re.findall(r"^[^\s#].*\n(?:[ ].*\n)*", text, re.MULTILINE):
        assert "--hash=sha256:" in entry, entry
    assert not re.search(r"://|--(extra-)?index|--find-links|--trusted", text)


def test_what_is_needed_is_needed_on_every_system_we_run_on() -> None:
    for requirement in map(Requirement, RUN):
        there = pins("run")[requirement.name]
        for place in PLACES:
            environment = {key: str(value) for key, value in default_environment().items()} | place
            assert there.marker is None or there.marker.evaluate(environment), f"{there} on {place}"


def test_no_index_is_named_in_the_scripts_of_the_set_up() -> None:
    for path in [ROOT / "check", ROOT / "try", *(ROOT / "requirements").glob("*.[ps][yh]")]:
        assert "://" not in path.read_text(encoding="utf-8"), path
