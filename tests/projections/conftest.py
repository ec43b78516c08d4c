"""An archive to ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from archive import Archive


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    made = Archive(tmp_path)
    yield made
    made.close()
