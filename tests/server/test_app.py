"""What a server process opens and how its database is made."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from cluster import new_database

from prosa.events.errors import UpgradeError
from prosa.server.migrate import files, migrate
from prosa.server.postgres import Cluster
from prosa.server.state import Server

pytestmark = pytest.mark.anyio


async def test_migrations_run_once_however_many_start_at_once(cluster: Cluster) -> None:
    url = new_database(cluster)
    ran = await asyncio.gather(*(migrate(url) for _ in range(4)))
    names = [path.name for _, path in files()]
    assert sorted(len(names) for names in ran) == [0, 0, 0, len(names)]
    assert await migrate(url) == []


async def test_a_database_of_a_newer_server_is_left_alone(database: str) -> None:
    connection = await asyncpg.connect(database)
    await connection.execute("INSERT INTO migrations (number, name) VALUES (9999, '9999_future.sql')")
    await connection.close()
    with pytest.raises(UpgradeError, match="9999"):
        await migrate(database)


async def test_the_server_works_as_prosa_app(server: Server) -> None:
    for _ in range(3):
        async with server.pool.acquire() as connection:
            assert await connection.fetchval("SELECT current_user") == "prosa_app"
    assert len(server.log_id) == 16
