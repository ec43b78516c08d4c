"""Fixtures of the whole suite: each is one noun."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)
