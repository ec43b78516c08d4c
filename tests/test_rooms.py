"""The rooms: folders, links and the wheel's mapping agree, and nothing is imported against the rule."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = {
    "events": set(),
    "projections": {"events"},
    "ingest": {"events"},
    "sync": {"events", "projections"},
    "server": {"events", "projections"},
    "cli": {"events", "projections", "ingest", "sync", "server"},
}
"""What each room may import of ours, beside itself."""


def modules() -> list[Path]:
    return sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def test_folders_links_and_the_wheels_mapping_agree() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    links = {path.name for path in (ROOT / ".dev" / "prosa").iterdir() if path.is_symlink()}
    assert links == set(ROOMS)
    assert all((ROOT / ".dev" / "prosa" / room).resolve() == ROOT / room for room in ROOMS)
    assert {name for name in build["targets"]["wheel"]["sources"] if name != ".dev/prosa"} == set(ROOMS)
    assert set(ROOMS) <= set(build["only-include"])
    assert set(ROOMS) <= set(build["targets"]["sdist"]["only-include"])


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_what_its_room_may(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    ours = {name.split(".")[1] for name in imported(path) if name.startswith("prosa.")} & set(ROOMS)
    assert ours <= ROOMS[room] | {room}, f"{path.relative_to(ROOT)} imports {sorted(ours - ROOMS[room] - {room})}"


def test_each_sqlite_library_has_its_own_files() -> None:
    """A second library on one of our files loses its locks: the standard one opens agents' databases, in one place."""
    for path in modules():
        name, names = str(path.relative_to(ROOT)), imported(path)
        assert "sqlite3" not in names or name.startswith("ingest/"), name
        assert not {"apsw", "sqlite3"} <= names, f"{name} uses both"
        if "sqlite3" in names and "sqlite3.connect(" in path.read_text(encoding="utf-8"):
            assert name == "ingest/foreign_db.py", f"{name} opens a database"


def test_every_room_says_what_it_is_for() -> None:
    for path in modules():
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), (
            f"{path.relative_to(ROOT)} has no docstring"
        )
