"""A real Postgres for the tests: one cluster a run, started where a test asks for it, one database a test."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prosa.server.postgres import Cluster, running

QUICK = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "shared_buffers": "128MB"}
_numbers = itertools.count(1)


@contextmanager
def a_cluster() -> Iterator[Cluster]:
    """Below a folder that any user can enter: Postgres does not run as root."""
    with tempfile.TemporaryDirectory(prefix="prosa-pg-") as folder:
        Path(folder).chmod(0o755)
        with running(Path(folder) / "pg", QUICK) as cluster:
            yield cluster


def new_database(cluster: Cluster, template: str = "template0") -> str:
    """URL of an empty database, or of a copy of one that nobody is connected to."""
    name = f"t{next(_numbers)}"
    cluster.run_sql(f"CREATE DATABASE {name} TEMPLATE {template}")
    return cluster.url(name)
