"""The command line in this process: what one run of it printed, and its exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Of `--json`."""
        return [json.loads(line) for line in self.out.splitlines()]


def caller(capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs one command line; stdout is no terminal."""
    from prosa.cli.app import run

    def call(*args: str) -> Ran:
        capfd.readouterr()
        code = run(list(args))
        sys.stdout.flush()
        return Ran(code, *capfd.readouterr())

    return call
