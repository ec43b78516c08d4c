"""The demo home: the same each time, relative to now, and what it is meant to show is in it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
NOW = datetime(2026, 5, 14, 16, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_home", ROOT / "demo" / "make_home.py")
    assert spec is not None and spec.loader is not None
    sys.modules["make_home"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def contents(home: Path) -> dict[str, bytes]:
    return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}


def test_it_is_the_same_each_time_and_small(maker: ModuleType, tmp_path: Path) -> None:
    maker.make_home(tmp_path / "home", NOW)
    first = contents(tmp_path / "home")
    (tmp_path / "home").rename(tmp_path / "old")
    maker.make_home(tmp_path / "home", NOW)
    assert contents(tmp_path / "home") == first
    assert sum(map(len, first.values())) < 300_000


def test_it_shows_what_prosa_can(maker: ModuleType, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    maker.make_home(tmp_path / "home", now)
    env = {
        "HOME": str(tmp_path / "home"), "PROSA_HOME": str(tmp_path / "data"),
        "PROSA_CONFIG_HOME": str(tmp_path / "config"), "PATH": "/usr/bin:/bin", "TZ": "UTC",
    }  # fmt: skip

    def prosa(*words: str) -> list[dict[str, object]]:
        ran = subprocess.run(
            [sys.executable, "-m", "prosa", *words, "--json"], env=env, cwd=tmp_path, capture_output=True, check=True
        )
        return [json.loads(line) for line in ran.stdout.splitlines()]

    synced = prosa("sync")[-1]
    assert (synced["status"], synced["failed"], synced["rejected"]) == ("complete", 0, 0)
    found = prosa("--since", "2000-01-01", "--all", "--flat", "--include-empty")
    assert len(found) == 12
    assert {each["agent"] for each in found} == {"claude-code", "codex"}
    assert {each["project"]["name"] for each in found} == {"lighthouse/api", "tidewater/web", "field-notes", "dotfiles"}  # type: ignore[index]
    assert all(each["cost_usd"] for each in found), "a model has no price"
    assert all(not each["raw"] or each["state"] == "plain" for each in found)
    assert sum(bool(each["parent_id"]) for each in found) == 1
    assert sum(bool(each["inherited"]) for each in found) == 1
    assert sum(each["compactions"]["count"] for each in found) == 1  # type: ignore[index]
    assert sum(each["tool_errors"] for each in found) >= 4  # type: ignore[misc]
    assert sum(bool(each["active"]) for each in found) == 1
    times = [datetime.fromisoformat(str(each["last_activity_at"])) for each in found]
    assert now - timedelta(days=14) < min(times) < now - timedelta(days=12)
    assert max(times) < now
    assert prosa("search", "时区", "--all") and prosa("search", "idempotency", "--all")
    doctor = prosa("doctor")
    assert {each["verdict"] for each in doctor if each["section"] in ("claude-code", "codex", "log", "index")} == {"ok"}
