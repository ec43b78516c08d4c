"""Arguments, exit codes and errors, whatever the command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_fake import Rooms
from cli_run import spawn
from command import Ran

from prosa import __version__
from prosa.cli import exit_codes
from prosa.events.errors import ConflictError, DamageError, LockedError

REPO = Path(__file__).parents[2]


def test_version_is_one_line(prosa: Callable[..., Ran]) -> None:
    assert prosa("--version") == (0, f"prosa {__version__}\n", "")


def test_version_loads_neither_typer_nor_msgspec() -> None:
    code = "import sys; from prosa.cli.app import run; run(['--version']); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"typer", "msgspec", "apsw", "json", "re"} & set(loaded)


def test_a_timeline_loads_no_rich_and_no_other_command() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from cli_fake import Rooms; from prosa.cli import opening\n"
        "Rooms().install(lambda n, v: setattr(opening, n, v)); before = set(sys.modules)\n"
        "from prosa.cli.app import run; run(['--json']); print(*set(sys.modules) - before)"
    )
    here = str(Path(__file__).parent)
    out = subprocess.run([sys.executable, "-c", code, here], capture_output=True, text=True, check=True).stdout
    loaded = set(out.splitlines()[-1].split())
    assert not {"rich", "prosa.cli.sync", "prosa.cli.doctor", "prosa.cli.show"} & loaded


@pytest.mark.parametrize(
    "args",
    [
        ("--last", "30d", "search", "reaper", "--json"),
        ("search", "--last", "30d", "reaper", "--json"),
        ("--json", "search", "reaper", "--last=30d"),
        ("--json", "--last=30d", "search", "reaper"),
    ],
)
def test_options_may_stand_before_the_command(args: tuple[str, ...], prosa: Callable[..., Ran]) -> None:
    ran = prosa(*args)
    assert ran.code == 0
    assert len(ran.out.splitlines()) == 2


@pytest.mark.parametrize("command", ["sync", "show", "why", "rebuild", "doctor", "resume", "profiles"])
@pytest.mark.parametrize(
    "option", ["--project", "--agent", "--last", "--since", "--device", "--model", "--kind", "--all"]
)
def test_a_filter_is_refused_by_name_where_it_means_nothing(
    command: str, option: str, prosa: Callable[..., Ran]
) -> None:
    if (command, option) == ("sync", "--agent"):
        pytest.skip("sync has one of its own")
    value = () if option == "--all" else ("x",)
    for args in ((command, option, *value), (option, *value, command)):
        ran = prosa(*args)
        assert ran.code == exit_codes.USAGE
        assert f"prosa {command} does not take {option}" in ran.err
        assert ran.out == ""


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("nonsense",), "prosa has no command 'nonsense'."),
        (("serch", "x"), "Did you mean prosa search?"),
        (("sync", "--jsn"), "prosa sync has no option --jsn. Did you mean --json?"),
        (("--limit", "-1"), "--limit"),
        (("search",), "QUERY"),
        (("analytics", "nope"), "Reports: days, sessions"),
        (("--last", "3x"), "--last '3x' is not a length of time."),
        (("--since", "yesterday"), "--since 'yesterday' is not a date or time."),
        (("--last", "3d", "--since", "2026-01-01"), "--last and --since cannot be used together."),
        (("--tz", "Nowhere/City"), "Unknown time zone 'Nowhere/City'."),
        (("--model", "nope"), "Known: claude-opus-4-6."),
        (("show", "zzz"), "No session's id or key begins with 'zzz'."),
        (("show", "0000000", "--raw", "--json"), "--raw and --json"),
        (("sync", "--dry-run"), "--dry-run goes with --reparse."),
        (("sync", "--agent", "nope"), "Agents: claude-code, codex, cursor."),
        (("completion", "show", "tcsh"), "Shells: bash, zsh, fish."),
        (("log", "erase"), "Name one session"),
        (("log", "--since", "2026-01-01", "verify"), "prosa log verify does not take --since"),
    ],
)
def test_a_usage_error_is_three_lines_at_most_and_exit_2(
    args: tuple[str, ...], said: str, prosa: Callable[..., Ran]
) -> None:
    ran = prosa(*args)
    assert ran.code == exit_codes.USAGE
    assert said in ran.err
    assert len(ran.err.splitlines()) <= 3
    assert ran.out == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DamageError("It broke.", "This is safe.", "Do that."), exit_codes.FAILED),
        (ConflictError("It is stale."), exit_codes.CONFLICT),
        (LockedError("Another one runs."), exit_codes.PENDING),
    ],
)
def test_an_error_ends_with_its_code(error: Exception, code: int, prosa: Callable[..., Ran], rooms: Rooms) -> None:
    rooms.error = error
    for args in ((), ("search", "x"), ("show", "x"), ("sync",), ("analytics", "days")):
        ran = prosa(*args)
        assert (ran.code, ran.out, ran.err) == (code, "", f"{error}\n")


def test_a_bug_says_so_and_shows_a_traceback_only_with_debug(prosa: Callable[..., Ran], rooms: Rooms) -> None:
    rooms.error = KeyError("surprise")
    ran = prosa()
    assert ran.code == exit_codes.FAILED
    assert "prosa has a bug: KeyError: 'surprise'" in ran.err
    assert "Traceback" not in ran.err
    with pytest.raises(KeyError):
        prosa("--debug")
    with pytest.raises(KeyError):
        prosa("search", "x", "--debug")


def test_an_error_behind_the_first_record_is_on_stderr_with_its_code(prosa: Callable[..., Ran], rooms: Rooms) -> None:
    rooms.backend.fails_after_turns = 2
    ran = prosa("show", "00000001", "--json")
    assert ran.code == exit_codes.USAGE
    assert ran.out.startswith('{"session":')
    assert ran.err.startswith("The log was cut.")


@pytest.mark.parametrize(
    "args", [(), ("--json",), ("search", "x"), ("analytics", "days"), ("storage",), ("log",), ("rebuild", "--check")]
)
def test_without_a_log_the_next_step_is_said_and_it_is_no_failure(
    args: tuple[str, ...], prosa: Callable[..., Ran], rooms: Rooms
) -> None:
    rooms.empty = True
    ran = prosa(*args)
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "Nothing is imported yet.\nNext: prosa sync\n"


def test_a_reader_that_goes_away_is_no_error() -> None:
    process = spawn("show", "00000001", "--json")
    assert process.stdout
    process.stdout.close()
    process.stdout = None
    _, err = process.communicate()
    assert (process.returncode, err) == (0, b"")


def test_ctrl_c_is_quiet() -> None:
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); import cli_fake; from prosa.cli import opening\n"
        "rooms = cli_fake.Rooms(); rooms.install(lambda n, v: setattr(opening, n, v))\n"
        "def slow(*_): print('started', flush=True); time.sleep(30)\n"
        "opening.run_sync = slow\n"
        "from prosa.cli.app import run; sys.exit(run(['sync']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(Path(__file__).parent)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout
    assert process.stdout.readline() == b"started\n"
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (exit_codes.INTERRUPTED, b"")


def test_no_color_holds_wherever_it_stands(terminal: Callable[..., Ran]) -> None:
    assert "\x1b[" in terminal().out
    assert "\x1b[" not in terminal("--no-color").out
    os.environ.pop("NO_COLOR")
    assert "\x1b[" not in terminal("analytics", "days", "--no-color").out


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_the_environment_turns_colours_off(
    name: str, value: str, terminal: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert "\x1b[" not in terminal().out


def test_the_documents_name_every_exit_code_and_command() -> None:
    from prosa.cli.commands import COMMANDS

    text = (REPO / "docs" / "cli.md").read_text(encoding="utf-8")
    for code, meaning in exit_codes.TABLE.items():
        assert f"| {code} | {meaning} |" in text
    for command in COMMANDS:
        assert f"`prosa {command}" in text
