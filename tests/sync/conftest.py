"""A device with transcripts and a real server that it talks to over a socket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import a_cluster, new_database
from pushes import Devices
from served import Served, a_server

from prosa.server.postgres import Cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with a_cluster() as cluster:
        yield cluster


@pytest.fixture
def database(cluster: Cluster) -> str:
    """URL of an empty database of this test's own: the server makes its tables."""
    return new_database(cluster)


@pytest.fixture
def served(database: str, tmp_path: Path) -> Iterator[Served]:
    with a_server(database, tmp_path / "server", working=True) as served:
        yield served


@pytest.fixture
def devices(served: Served, tmp_path: Path) -> Devices:
    return Devices(served, tmp_path / "devices")
