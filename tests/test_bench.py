"""The corpus of the bench: the same each time, planted words are found where they were planted, and it can grow."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
END = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_corpus", ROOT / "bench" / "make_corpus.py")
    assert spec is not None and spec.loader is not None
    sys.modules["make_corpus"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_corpus_is_imported_whole_and_grows(bench: ModuleType, tmp_path: Path) -> None:
    home = tmp_path / "home"
    size = bench.make(home, 12, 400_000, 3, END)
    assert bench.make(tmp_path / "again", 12, 400_000, 3, END) == size
    for path in bench.transcripts(home):
        assert (tmp_path / "again" / path.relative_to(home)).read_bytes() == path.read_bytes()
    env = {
        "HOME": str(home),
        "PROSA_HOME": str(tmp_path / "data"),
        "PROSA_CONFIG_HOME": str(tmp_path / "c"),
        "TZ": "UTC",
    }

    def prosa(*words: str) -> list[dict[str, Any]]:
        command = [sys.executable, "-m", "prosa", *words, "--json"]
        ran = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, check=True)
        return [json.loads(line) for line in ran.stdout.splitlines()]

    everything = ("--all", "--since", "2000-01-01")
    assert prosa("sync")[-1]["imported"] == 12
    for text, count in bench.PLANTED.items():
        assert len(prosa("search", f'"{text}"', *everything)) == count
    before = {each["key"]: each["usage"]["total"] for each in prosa(*everything)}
    assert bench.grow(home, 2) > 20_000
    assert prosa("sync")[-1]["extended"] == 2
    after = {each["key"]: each["usage"]["total"] for each in prosa(*everything)}
    assert sum(after[key] > total for key, total in before.items()) == 2
    problems = [
        each for each in prosa("doctor") if each["section"] in ("claude-code", "codex") and each["verdict"] != "ok"
    ]
    assert problems == []
