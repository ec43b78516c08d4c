"""Fixtures of the whole suite: each is one noun."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

from store import Store

settings.register_profile("prosa", deadline=None)
settings.load_profile("prosa")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ceph: needs Ceph's gateway from Debian (tests/ceph.py)")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)
