"""Doctor, retention, resume and completion."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_fake import Rooms, make
from command import Ran
from msgspec.structs import replace

from prosa.cli.checks import check_permissions, check_retention
from prosa.cli.items import IndexState
from prosa.cli.retention import cleanup_days, due_soon
from prosa.events.home import Home
from prosa.events.log import Log
from prosa.projections.queries import Session, SourceFile

DAY = 86_400


@pytest.fixture
def log(home: Path) -> Path:
    (home / "prosa").mkdir(mode=0o700)
    Log(home / "prosa" / "log.db", create=True).close()
    return home / "prosa" / "log.db"


def checks(ran: Ran) -> dict[str, dict[str, str]]:
    return {record["section"]: record for record in map(json.loads, ran.out.splitlines())}


def test_each_section_has_a_verdict(prosa: Callable[..., Ran], log: Path) -> None:
    ran = prosa("doctor", "--json")
    found = checks(ran)
    assert ran.code == 1, "a raw copy of the fake is missing"
    assert (found["log"]["verdict"], found["index"]["verdict"], found["permissions"]["verdict"]) == ("ok", "ok", "ok")
    assert found["raw"]["verdict"] == "fail"
    assert "prosa log verify --deep" in found["raw"]["next_step"]
    assert "genai-prices" in found["prices"]["text"]


def test_without_a_log_doctor_says_what_to_do(prosa: Callable[..., Ran], rooms: Rooms) -> None:
    rooms.empty = True
    ran = prosa("doctor", "--json")
    assert ran.code == 0
    assert checks(ran)["log"] == {
        "section": "log", "verdict": "warn", "text": "Nothing is imported yet.", "next_step": "prosa sync"
    }  # fmt: skip


def test_an_index_that_knows_more_than_the_log_is_a_failure(prosa: Callable[..., Ran], rooms: Rooms, log: Path) -> None:
    rooms.index = IndexState(state="ahead", position=20, log_position=12)
    assert checks(prosa("doctor", "--json"))["index"]["verdict"] == "fail"


def test_a_readable_file_is_a_failure_and_named(home: Path, log: Path) -> None:
    log.chmod(0o644)
    found = check_permissions(Home(home / "prosa", home / "config"))
    assert (found.verdict, str(log) in found.text) == ("fail", True)


def test_the_terminal_lines_fit(terminal: Callable[..., Ran], log: Path) -> None:
    out = terminal("doctor", "--no-color").out
    assert all(len(line) <= 80 for line in out.splitlines())
    assert out.startswith("ok    log           ")


@pytest.fixture
def transcript(home: Path) -> Session:
    """A transcript that Claude Code deletes in three days."""
    file = home / ".claude" / "projects" / "p" / "a.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("{}\n")
    touched = time.time() - 27 * DAY
    os.utime(file, (touched, touched))
    cleanup_days.cache_clear()
    return replace(make(1, ago_h=1), source=SourceFile(str(file), "present"))


def test_what_the_agent_deletes_soon_is_counted_by_the_files_time(transcript: Session, home: Path) -> None:
    (due,) = due_soon([transcript])
    assert 2.9 < due.days_left <= 3
    (found,) = check_retention([transcript])
    assert found.verdict == "warn"
    assert "deleted after 30 days (Claude Code's default); 1 transcript within 7 days" in found.text


def test_the_users_own_period_counts(transcript: Session, home: Path) -> None:
    (home / ".claude" / "settings.json").write_text('{"cleanupPeriodDays": 365}')
    assert due_soon([transcript]) == []
    (found,) = check_retention([transcript])
    assert (found.verdict, "after 365 days (cleanupPeriodDays)" in found.text) == ("ok", True)


@pytest.mark.parametrize("text", ["", "[]", '{"cleanupPeriodDays": "x"}', '{"cleanupPeriodDays": true}', "{"])
def test_settings_that_say_nothing_leave_the_default(text: str, tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(text)
    cleanup_days.cache_clear()
    assert cleanup_days(tmp_path / "settings.json") == (30, False)


def test_resume_prints_a_command_for_the_shell(prosa: Callable[..., Ran], rooms: Rooms) -> None:
    ran = prosa("resume", "00000001", "--print")
    assert ran.out == "cd /home/dev/acme/shop && claude-code --resume 00000001-7f3c-4abc-9def-0123456789ab\n"


@pytest.mark.parametrize(
    ("session", "said"),
    [("00000001", "is gone"), ("00000007", "ran on fedcba9876543210, not here"), ("00000006", "no command")],
)
def test_what_cannot_be_resumed_is_refused(session: str, said: str, prosa: Callable[..., Ran]) -> None:
    ran = prosa("resume", session)
    assert (ran.code, said in ran.err) == (3, True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("prosa", "re"), {"rebuild", "resume"}),
        (("prosa", "analytics", "us"), {"usage", "usage_by_model"}),
        (("prosa", "sync", "--ver"), {"--verify"}),
        (("prosa", "--agent", "c"), {"claude-code", "codex", "cursor"}),
        (("prosa", "search", "x", "--model", ""), {"claude-opus-4-6"}),
        (("prosa", "show", "agent-a1b2c"), {"agent-a1b2c3d4e5"}),
        (("prosa", "log", "v"), {"verify"}),
        (("prosa", "log", "--type", "session_p"), {"session_part", "session_parsed", "session_pruned"}),
    ],
)
def test_completion_knows_commands_options_and_values(
    words: tuple[str, ...], expected: set[str], prosa: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_PROSA_COMPLETE", "bash")
    ran = prosa(str(len(words) - 1), *words)
    assert ran.code == 0
    assert set(ran.out.splitlines()) == expected


def test_zsh_and_fish_get_descriptions(prosa: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_PROSA_COMPLETE", "zsh")
    assert "rebuild:Build the index from the log again." in prosa("1", "prosa", "reb").out
    monkeypatch.setenv("_PROSA_COMPLETE", "fish")
    assert "rebuild\tBuild the index from the log again." in prosa("1", "prosa", "reb").out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_installed_where_the_shell_looks(shell: str, prosa: Callable[..., Ran], home: Path) -> None:
    assert prosa("completion", "install", shell).code == 0
    written = [path for path in home.rglob("*prosa*") if path.is_file()]
    assert len(written) == 1
    assert written[0].read_text() == prosa("completion", "show", shell).out
