"""What code offers stands in the docs: commands, settings, exit codes, variables; and what is made is current."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from typer.main import get_command

from prosa.cli import exit_codes
from prosa.cli.commands import COMMANDS
from prosa.events.catalogue import DeviceIdentified, SessionDescribed
from prosa.events.log import Draft, Log
from prosa.ingest.agents import IMPORTERS
from prosa.projections.prices import OVERRIDE_KEYS

ROOT = Path(__file__).parents[1]
ROOMS = ("events", "projections", "ingest", "sync", "server", "cli")
CLI = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
PAGES = {path: path.read_text(encoding="utf-8") for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]}
VARIABLE = re.compile(r"_?[A-Z][A-Z0-9_]*")


def commands() -> list[str]:
    """Every command and subcommand, as it is typed."""
    found = []
    for name in COMMANDS:
        command = get_command(import_module(f"prosa.cli.{name}").app)
        children = getattr(command, "commands", {})
        found += [name, *(f"{name} {child}" for child in children)] if children else [name]
    return found


@pytest.mark.parametrize("command", commands())
def test_every_command_stands_in_the_docs(command: str) -> None:
    first, _, last = command.partition(" ")
    assert f"prosa {first}" in CLI
    if last:
        assert re.search(rf"prosa {first}[^#\n]*\b{last}\b|`{last}`", CLI), f"docs/cli.md does not have {command}"


def test_exit_codes_are_those_of_the_docs() -> None:
    table = re.findall(r"^\| (\d+) \| (.+) \|$", CLI, re.MULTILINE)
    assert {int(code): text for code, text in table} == exit_codes.TABLE


def test_every_exit_code_of_an_error_is_in_the_table() -> None:
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assign) and any(
                isinstance(t, ast.Name) and t.id == "exit_code" for t in node.targets
            ):
                assert ast.literal_eval(node.value) in exit_codes.TABLE, path


def sources() -> list[Path]:
    return sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def variables(path: Path) -> set[str]:
    """Names looked up in an environment: `env.get("X")`, `environ["X"]`, `"X" in env`, and tuples of them beside it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_environment(node.func.value):
            found.update(constants(node.args[:1]))
        elif isinstance(node, ast.Subscript) and is_environment(node.value):
            found.update(constants([node.slice]))
        elif isinstance(node, ast.Compare) and any(is_environment(each) for each in node.comparators):
            found.update(constants([node.left]))
        elif isinstance(node, ast.FunctionDef) and any(arg.arg == "env" for arg in node.args.args):
            tuples = [each for each in ast.walk(node) if isinstance(each, ast.Tuple)]
            found.update(name for each in tuples for name in constants(each.elts) if "_" in name)
    return found


def is_environment(node: ast.expr) -> bool:
    return (isinstance(node, ast.Name) and node.id == "env") or (
        isinstance(node, ast.Attribute) and node.attr == "environ"
    )


def constants(nodes: list[ast.expr]) -> list[str]:
    values = [node.value for node in nodes if isinstance(node, ast.Constant)]
    return [value for value in values if isinstance(value, str) and VARIABLE.fullmatch(value)]


def test_every_environment_variable_stands_in_the_docs() -> None:
    for path in sources():
        for name in variables(path) - {"_PROSA_COMPLETE"}:  # said by our own completion scripts, not by people
            assert any(re.search(rf"\b{name}\b", text) for text in PAGES.values()), f"{path.relative_to(ROOT)}: {name}"


def test_the_variables_are_found() -> None:
    found = {name for path in sources() for name in variables(path)}
    assert found >= {"PROSA_HOME", "PROSA_CONFIG_HOME", "NO_COLOR", "TZ", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "PAGER"}


def test_every_setting_stands_in_the_docs() -> None:
    tree = ast.parse((ROOT / "cli" / "config.py").read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    tables = {
        str(call.args[0].value)
        for call in calls
        if call.func.attr == "get" and isinstance(call.args[0], ast.Constant)  # type: ignore[attr-defined]
    }
    assert tables >= {"profiles", "prices"}
    everything = "\n".join(PAGES.values())
    for table in tables:
        assert f"[{table}." in everything, f"config.toml: {table}"
    for key in OVERRIDE_KEYS:
        assert re.search(rf"^{key} = ", everything, re.MULTILINE), f"config.toml: prices.<model>.{key}"


def test_every_agent_stands_in_the_docs() -> None:
    agents = PAGES[ROOT / "docs" / "agents.md"]
    for importer in IMPORTERS:
        assert f"`{importer.AGENT}`" in agents
        assert f"formats/{importer.AGENT}.md" in agents
        assert ROOT / "docs" / "formats" / f"{importer.AGENT}.md" in PAGES


def made(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_events_is_current() -> None:
    assert PAGES[ROOT / "docs" / "events.md"] == made("make_events").page(), "run docs/make_events.py"


def test_links_between_pages_lead_somewhere() -> None:
    for path, text in PAGES.items():
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            if "://" not in link:
                assert (path.parent / link).exists(), f"{path.relative_to(ROOT)}: {link}"


def test_the_program_in_the_page_of_the_format_checks_a_log(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGES[ROOT / "docs" / "log-format.md"], re.DOTALL)
    here = DeviceIdentified(device="0123", hostname="studio", machine="", platform="linux")
    long = SessionDescribed(session="codex/x", field="title", value="words " * 500, rank=1, evidence="a file")
    with Log(tmp_path / "log.db", create=True, prosa="test") as log:
        log.append([Draft("device-x", 0, here), Draft("session-codex/x", 0, long)])
        log.erase([event for event in log.read() if event.stream == "device-x"], "requested", "a test")
        log.checkpoint()
        events, _ = log.head()

    def check() -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-c", program, str(tmp_path / "log.db")]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    assert check().stdout == f"{events} events, 2 origins: whole\n"
    tamper = (
        "import sqlite3, sys; log = sqlite3.connect(sys.argv[1]); log.execute('DROP TRIGGER events_are_not_changed');"
        "log.execute('UPDATE events SET at_us = at_us + 1 WHERE position = 3'); log.commit()"
    )
    subprocess.run([sys.executable, "-c", tamper, str(tmp_path / "log.db")], check=True)
    assert "event 3: its header was changed" in check().stderr
