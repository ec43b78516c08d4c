"""The schedule: units as systemd itself reads them, installing against a systemctl that records, the stamp of runs."""

from __future__ import annotations

import ast
import itertools
import os
import plistlib
import re
import shutil
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest

from prosa.events.errors import LockedError, UsageError
from prosa.events.home import Home
from prosa.sync import last_run, launchd, schedule, units
from prosa.sync.schedule import DAY, INTERVALS, PASSED_ON, Every, InstallFailed, Job, NoServiceManager

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
QUARTER = Every(15, "m")
ODD = [
    "plain",
    "two words",
    "100%h",
    "$HOME and ${x}",
    "it's",
    'a "quoted" one',
    "back\\slash\\n",
    "new\nline",
    "ünï côdé",
    "semi;colon",
]
"""Names of folders an installation can lie in."""
ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="this machine has no systemd-analyze")


@pytest.fixture
def user_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with systemctl, loginctl and launchctl of their own, which record what they are told."""
    home, tools, fake = tmp_path / "user", tmp_path / "tools", tmp_path / "fake"
    for folder in (home, tools, fake):
        folder.mkdir()
    for name, source in (("systemctl", "systemctl"), ("loginctl", "systemctl"), ("launchctl", "launchctl")):
        shutil.copy(HERE / f"fake_{source}.sh", tools / name)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE", str(fake))
    for name in ("FAKE_FAIL", "FAKE_DIES", "FAKE_NO_BUS", "FAKE_LINGER", *PASSED_ON):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def job(user_home: Path) -> Job:
    program = user_home / "bin" / "prosa"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return Job("prosa-sync", (str(program), "sync", "--scheduled"), {"CODEX_HOME": "/data/co dex"}, user_home)


def calls(tmp_path: Path) -> list[str]:
    file = tmp_path / "fake" / "calls"
    return file.read_text().splitlines() if file.exists() else []


def tree(folder: Path) -> dict[str, bytes | str]:
    """Every file, folder and link below a folder, with what is in it."""

    def content(path: Path) -> bytes | str:
        if path.is_symlink():
            return str(path.readlink())
        return path.read_bytes() if path.is_file() else ""

    return {str(path.relative_to(folder)): content(path) for path in folder.rglob("*")}


# units


def words_of(line: str) -> list[str]:
    """A line of a unit as systemd splits it: quotes, C escapes and specifiers."""
    found = []
    for quoted, bare in re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', line):
        word = quoted or bare
        raw = re.sub(rb"\\(x[0-9a-f]{2}|.)", unescape, word.encode())
        found.append(raw.decode().replace("%%", "%"))
    return found


def unescape(found: re.Match[bytes]) -> bytes:
    said = found[1]
    return bytes([int(said[1:], 16)]) if len(said) == 3 else said


def with_variables(word: str) -> str:
    """An argument as systemd passes it on where no variable is set; the program's path is not looked at."""
    return re.sub(r"\$(\$|\w+|\{\w+\})", lambda found: "$" if found[1] == "$" else "", word)


def an_installation(folder: Path) -> Path:
    program = folder / "bin" / "prosa"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >"$(dirname "$0")/called"\n')
    program.chmod(0o755)
    return program


def verify(folder: Path, job: Job) -> str:
    """What systemd has to say about the units of a job."""
    folder.mkdir(exist_ok=True)
    (folder / "runtime").mkdir(mode=0o700, exist_ok=True)
    service, timer = folder / f"{job.name}.service", folder / f"{job.name}.timer"
    service.write_text(units.service_unit(job), encoding="utf-8")
    timer.write_text(units.timer_unit(QUARTER), encoding="utf-8")
    done = subprocess.run(
        [str(ANALYZE), "--user", "verify", str(service), str(timer)], capture_output=True, text=True, check=False,
        env={**os.environ, "XDG_RUNTIME_DIR": str(folder / "runtime"), "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    return done.stdout + done.stderr


@needs_systemd
@pytest.mark.parametrize("name", ODD)
def test_systemd_takes_the_units_of_an_installation_wherever_it_lies(name: str, tmp_path: Path) -> None:
    program = an_installation(tmp_path / name)
    job = Job("prosa-sync", (str(program), "sync", "--scheduled"), {"PROSA_HOME": str(tmp_path / name)}, tmp_path)
    assert verify(tmp_path / "units", job) == ""
    if not set(name) & set("\"'\\\n"):  # those go through the shell, into which systemd does not look
        program.unlink()
        assert f"Command {program} is not executable" in verify(tmp_path / "units", job)


@needs_systemd
def test_systemd_says_what_is_wrong_with_a_unit(tmp_path: Path) -> None:
    """Or the test above would prove nothing."""
    job = Job("prosa-sync", (str(tmp_path / "no such program"), "sync"), {}, tmp_path)
    assert "is not executable" in verify(tmp_path / "units", job)


@pytest.mark.parametrize("name", ODD)
def test_the_command_of_the_unit_starts_the_program_with_its_words(name: str, tmp_path: Path) -> None:
    program = an_installation(tmp_path / name)
    first, *rest = words_of(units.command((str(program), "sync", "$x")))
    subprocess.run([first, *map(with_variables, rest)], check=True, env={"PATH": "/usr/bin:/bin"})
    assert (program.parent / "called").read_text() == "sync\n$x\n"


@pytest.mark.parametrize("value", [*ODD, " ", "trailing\\", "tab\t"])
def test_a_variable_keeps_its_value(value: str, tmp_path: Path) -> None:
    text = units.service_unit(Job("x", ("/bin/true", "sync"), {"PROSA_HOME": value}, tmp_path))
    (line,) = [line for line in text.splitlines() if line.startswith("Environment=")]
    assert words_of(line.removeprefix("Environment=")) == [f"PROSA_HOME={value}"]


@needs_systemd
@pytest.mark.parametrize("every", INTERVALS, ids=str)
def test_the_calendar_of_systemd_repeats_at_the_interval(every: Every) -> None:
    words = [str(ANALYZE), "calendar", "--iterations=5", units.calendar(every)]
    said = subprocess.run(words, capture_output=True, text=True, check=True, env={**os.environ, "TZ": "UTC"}).stdout
    times = [datetime.fromisoformat(text) for text in re.findall(r"\w{3} (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC", said)]
    assert len(times) == 5
    assert {(b - a).total_seconds() for a, b in itertools.pairwise(times)} == {every.seconds}


@pytest.mark.parametrize("every", INTERVALS, ids=str)
def test_the_calendar_of_launchd_repeats_at_the_interval(every: Every) -> None:
    for offset in {0, min(every.seconds // 60, 60) - 1}:
        times = launchd.calendar(every, offset)
        minutes = sorted(
            hour * 60 + time["Minute"] for time in times for hour in ([time["Hour"]] if "Hour" in time else range(24))
        )
        assert {b - a for a, b in zip(minutes, [*minutes[1:], minutes[0] + 1440], strict=True)} == {every.seconds // 60}
        assert all(0 <= time["Minute"] < 60 for time in times)


@pytest.mark.parametrize(
    ("text", "every"), [("15m", QUARTER), ("60m", Every(1, "h")), ("24h", DAY), ("1d", DAY), (" 2H", Every(2, "h"))]
)
def test_an_interval_is_read(text: str, every: Every) -> None:
    assert schedule.interval(text) == every


@pytest.mark.parametrize("text", ["", "0m", "7m", "90m", "5h", "-15m", "15", "2d", "15 m;rm", "٣m"])
def test_an_interval_that_no_calendar_has_is_refused_with_those_it_has(text: str) -> None:
    with pytest.raises(UsageError, match=r"One of: 1m, 2m, .* 12h, 1d\."):
        schedule.interval(text)


# installing


def test_what_is_installed_runs_and_is_private(job: Job, user_home: Path, tmp_path: Path) -> None:
    found = schedule.install(job, QUARTER, system="linux")
    assert (found.active, found.every, found.linger) == (True, QUARTER, False)
    assert found.next_us == 1_796_066_100_000_000
    assert found.program == Path(job.program[0])
    service = found.unit.with_suffix(".service")
    assert [path.stat().st_mode & 0o777 for path in (found.unit, service)] == [0o600, 0o600]
    assert 'Environment="CODEX_HOME=/data/co dex"' in service.read_text()
    assert {"Persistent=true", "RandomizedDelaySec=90s", "OnCalendar=*-*-* *:00/15:00"} <= set(
        found.unit.read_text().splitlines()
    )
    verbs = [line.split("--no-pager ")[1] for line in calls(tmp_path) if line.startswith("systemctl")]
    assert verbs[:4] == [
        "show --property=UnitPath",
        "daemon-reload",
        "enable prosa-sync.timer",
        "restart prosa-sync.timer",
    ]
    assert schedule.state(job, system="linux") == found


def test_installing_again_changes_the_interval(job: Job) -> None:
    schedule.install(job, QUARTER, system="linux")
    assert schedule.install(job, DAY, system="linux").every == DAY


FAILURES = [
    ("FAKE_NO_BUS", "1"), ("FAKE_FAIL", "show"), ("FAKE_FAIL", "daemon-reload"), ("FAKE_FAIL", "enable"),
    ("FAKE_FAIL", "restart"), ("FAKE_FAIL", "restart disable"), ("FAKE_DIES", "1"),
]  # fmt: skip


@pytest.mark.parametrize(("variable", "value"), FAILURES)
def test_an_install_that_fails_leaves_nothing_behind(
    variable: str, value: str, job: Job, user_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(user_home)
    monkeypatch.setenv(variable, value)
    with pytest.raises((InstallFailed, NoServiceManager)):
        schedule.install(job, QUARTER, system="linux")
    assert tree(user_home) == before
    assert not (tmp_path / "fake" / "active").exists()
    monkeypatch.delenv(variable)
    assert not schedule.state(job, system="linux").installed
    assert schedule.install(job, QUARTER, system="linux").active


@pytest.mark.parametrize(("variable", "value"), FAILURES)
def test_a_change_that_fails_leaves_the_earlier_schedule(
    variable: str, value: str, job: Job, user_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule.install(job, QUARTER, system="linux")
    before = tree(user_home)
    monkeypatch.setenv(variable, value)
    with pytest.raises((InstallFailed, NoServiceManager)):
        schedule.install(job, DAY, system="linux")
    monkeypatch.delenv(variable)
    assert tree(user_home) == before
    assert schedule.state(job, system="linux").active


def test_without_systemd_a_line_for_cron_is_shown(job: Job, user_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(user_home))
    with pytest.raises(NoServiceManager, match=r"no systemd(?s:.)*With cron: \*/15 \* \* \* \* CODEX_HOME="):
        schedule.install(job, QUARTER, system="linux")


@pytest.mark.parametrize("name", ODD)
def test_the_line_for_cron_runs_the_same(name: str, tmp_path: Path) -> None:
    program = an_installation(tmp_path / name)
    line = schedule.cron_line(Job("x", (str(program), "sync"), {"PROSA_HOME": "a b%"}, tmp_path), QUARTER)
    assert line.startswith("*/15 * * * * ")
    assert not re.search(r"(?<!\\)%", line), "cron ends the command at a %"
    subprocess.run(["/bin/sh", "-c", line.split(" ", 5)[5].replace("\\%", "%")], check=True)
    assert (program.parent / "called").read_text() == "sync\n"


def test_uninstalling_leaves_nothing(job: Job, user_home: Path, tmp_path: Path) -> None:
    schedule.install(job, QUARTER, system="linux")
    assert schedule.uninstall(job, system="linux")
    assert not list(user_home.rglob("*prosa-sync*"))
    assert not (tmp_path / "fake" / "active").exists()
    assert not schedule.uninstall(job, system="linux")


def test_without_a_bus_uninstalling_takes_the_files_away(
    job: Job, user_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule.install(job, QUARTER, system="linux")
    monkeypatch.setenv("FAKE_NO_BUS", "1")
    assert "No medium found" in schedule.state(job, system="linux").trouble
    assert schedule.uninstall(job, system="linux")
    assert not list(user_home.rglob("*prosa-sync*"))


def test_units_go_where_systemd_looks(job: Job, user_home: Path) -> None:
    """A shell's XDG_CONFIG_HOME that the user's systemd does not know would hide them."""
    elsewhere = job._replace(environment={"XDG_CONFIG_HOME": str(user_home / "shell-only")})
    found = schedule.install(elsewhere, QUARTER, system="linux")
    assert found.unit.parent == user_home / ".config" / "systemd" / "user"
    assert schedule.state(elsewhere, system="linux").active
    assert schedule.uninstall(elsewhere, system="linux")


def test_a_lingering_user_is_not_told_to_linger(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_LINGER", "yes")
    assert schedule.install(job, QUARTER, system="linux").linger is True


# the job


def test_two_installations_do_not_meet(user_home: Path) -> None:
    usual = schedule.job(Home.of({"HOME": str(user_home)}), {"HOME": str(user_home)})
    env = {"HOME": str(user_home), "PROSA_HOME": str(user_home / "other")}
    other = schedule.job(Home.of(env), env)
    assert (usual.name, usual.environment) == ("prosa-sync", {})
    assert re.fullmatch(r"prosa-sync-[0-9a-f]{8}", other.name)
    assert other.environment == {"PROSA_HOME": str(user_home / "other")}


def test_the_program_is_this_installation_by_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = an_installation(tmp_path / "venv")
    link = tmp_path / "prosa"
    link.symlink_to(program)
    monkeypatch.chdir(tmp_path)
    assert schedule.this_program([str(link)]) == (str(link),), "an upgrade changes what the link leads to"
    assert schedule.this_program(["./prosa"]) == (str(link),)
    assert schedule.this_program(["/x/prosa/__main__.py"], "/v/python") == ("/v/python", "-m", "prosa")


def test_every_variable_that_decides_what_is_read_is_passed_on() -> None:
    read: set[str] = set()
    for path in [ROOT / "events" / "home.py", *(ROOT / "ingest").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and any(arg.arg == "env" for arg in node.args.args):
                words = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
                read |= {word for word in words if isinstance(word, str) and re.fullmatch(r"[A-Z]+(_[A-Z]+)+", word)}
    assert len(read) > 10
    assert read <= set(PASSED_ON)


# launchd


def test_a_launch_agent_is_loaded(job: Job, user_home: Path, tmp_path: Path) -> None:
    found = schedule.install(job, QUARTER, system="darwin")
    assert (found.active, found.every, found.program) == (True, QUARTER, Path(job.program[0]))
    said = plistlib.loads(found.unit.read_bytes())
    assert said["ProgramArguments"] == list(job.program)
    assert said["EnvironmentVariables"] == job.environment
    assert schedule.install(job, DAY, system="darwin").every == DAY
    assert plistlib.loads((tmp_path / "fake" / "loaded").read_bytes())["StartCalendarInterval"][0]["Hour"] == 0
    assert schedule.uninstall(job, system="darwin")
    assert not list(user_home.rglob("*.plist"))
    assert not (tmp_path / "fake" / "loaded").exists()


@pytest.mark.parametrize(("variable", "value"), [("FAKE_FAIL", "bootstrap"), ("FAKE_DIES", "1")])
def test_a_launch_agent_that_is_not_loaded_is_not_left(
    variable: str, value: str, job: Job, user_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InstallFailed):
        schedule.install(job, QUARTER, system="darwin")
    assert not list(user_home.rglob("*.plist"))
    assert not (tmp_path / "fake" / "loaded").exists()


# the stamp


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "data", tmp_path / "config")


def test_a_run_says_how_it_went(home: Home) -> None:
    assert last_run.read(home) is None
    with last_run.recorded(home) as run:
        during = last_run.read(home)
        assert during is not None
        assert (during.running, during.exit_code) == (True, None)
        run.text = "2 imported"
    found = last_run.read(home)
    assert found is not None
    assert (found.running, found.exit_code, found.text, found.succeeded_us) == (False, 0, "2 imported", found.ended_us)
    assert (home.data / "scheduled.json").stat().st_mode & 0o777 == 0o600


def test_a_failure_is_told_and_the_last_success_kept(home: Home) -> None:
    with last_run.recorded(home):
        pass
    good = last_run.read(home)
    with pytest.raises(LockedError), last_run.recorded(home):
        raise LockedError("Another prosa is at work on this: sync.")
    found = last_run.read(home)
    assert good is not None and found is not None
    assert (found.exit_code, found.text) == (5, "Another prosa is at work on this: sync.")
    assert found.succeeded_us == good.ended_us
    with pytest.raises(ZeroDivisionError), last_run.recorded(home):
        1 / 0  # noqa: B018
    broken = last_run.read(home)
    assert broken is not None and (broken.exit_code, broken.text) == (1, "ZeroDivisionError: division by zero")


def test_a_run_that_was_killed_does_not_look_like_one_that_ended(home: Home) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\n"
        "from prosa.events.home import Home\nfrom prosa.sync import last_run\n"
        "with last_run.recorded(Home(Path(sys.argv[1]), Path(sys.argv[1]))):\n    print(flush=True); time.sleep(60)"
    )
    words = [sys.executable, "-c", program, str(home.data)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=os.environ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = last_run.read(home)
        assert found is not None and found.running
        process.send_signal(signal.SIGKILL)
    found = last_run.read(home)
    assert found is not None
    assert (found.running, found.ended_us, found.exit_code) == (False, None, None)
    assert time.time() - found.started_us / 1e6 < 60


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"pid": "x"}', b"\xff"])
def test_a_damaged_stamp_is_no_run(text: bytes, home: Home) -> None:
    home.data.mkdir()
    (home.data / "scheduled.json").write_bytes(text)
    assert last_run.read(home) is None
    with last_run.recorded(home):
        pass
    assert last_run.read(home) is not None
