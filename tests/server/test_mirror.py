"""The tables in Postgres against those of the working file they are filled from."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pushed import Device, parsed, turns

from prosa.events.catalogue import ProjectIdentified
from prosa.events.facts import Usage
from prosa.projections.building import Load
from prosa.projections.records import TEXTS
from prosa.projections.tokens import spaced, words
from prosa.server.mirror import MIRRORED, ddl, fill, open_working, tables
from prosa.server.text_rows import LEXEME_BYTES, lexeme, words_of

pytestmark = pytest.mark.anyio


@pytest.fixture
async def connection(database: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database)
    yield connection
    await connection.close()


async def filled(connection: asyncpg.Connection, device: Device, path: Path) -> None:
    db = open_working(path)
    load = Load(db, device.log, {})
    head, hash_ = device.log.head()
    load.load(head)
    load.finish(head, hash_)
    await connection.execute(ddl("p1_1"))
    await fill(connection, "p1_1", db)
    for table in tables():
        if not table.is_text:
            columns = ", ".join(f'"{name}"' for name in table.columns)
            here = db.execute(f"SELECT {columns} FROM {table.name}").fetchall()
            there = [tuple(row) for row in await connection.fetch(f"SELECT {columns} FROM p1_1.{table.name}")]
            assert sorted(map(repr, here)) == sorted(map(repr, there)), table.name
    db.close()


async def find(connection: asyncpg.Connection, word: str) -> list[int]:
    """Row ids of the prompts that have a word, by the index."""
    rows = await connection.fetch(
        "SELECT rowid FROM p1_1.text_prompt WHERE p1_1.lexemes(words, cut) @@ $1::text::tsquery ORDER BY rowid",
        f"'{lexeme(word.encode()).decode()}'",
    )
    return [row[0] for row in rows]


async def test_every_row_of_a_working_file_is_copied_and_every_word_found(
    connection: asyncpg.Connection, tmp_path: Path
) -> None:
    device = Device(tmp_path)
    device.session("a", one="Grüsse an foo_bar.baz", two="東京タワー", three="::")
    device.session("b", one="grusse")
    await filled(connection, device, tmp_path / "w.db")
    assert len(await find(connection, "grusse")) == 2
    assert len(await find(connection, "bar")) == 1
    assert len(await find(connection, "京")) == 1
    assert await connection.fetchval("SELECT words FROM p1_1.text_prompt WHERE words LIKE '% foo bar baz %'")
    assert await connection.fetchval("SELECT count(*) FROM p1_1.text_prompt WHERE words = '  '") == 1
    assert {"sessions", "turns", "raws", *TEXTS} <= set(MIRRORED)


async def test_the_planner_finds_words_by_the_index(connection: asyncpg.Connection, tmp_path: Path) -> None:
    device = Device(tmp_path)
    device.session("a", **{f"t{n}": f"word{n} common" for n in range(3000)})
    await filled(connection, device, tmp_path / "w.db")
    found = "SELECT rowid FROM p1_1.text_prompt WHERE p1_1.lexemes(words, cut) @@ 'word7'::tsquery"
    plan = await connection.fetch(f"EXPLAIN {found}")
    assert any("Index Scan" in row[0] for row in plan)
    options = "SELECT reloptions FROM pg_class WHERE relname LIKE 'text_prompt%' AND relkind = 'i' AND relam ="
    found = await connection.fetchval(f"{options} (SELECT oid FROM pg_am WHERE amname = 'gin')")
    assert found == ["fastupdate=off"]


@pytest.mark.parametrize(
    "text",
    [
        " ".join(f"w{n}" for n in range(800_000)),
        "漢字" * 2_000,
        "x" * 100_000 + " tail",
        "ü" * 3_000,
        "word " * 1_050_000,
        "\U0001d160" * 150_000 + "\u3099 tail",
    ],
    ids=["800,000 distinct words", "a long run of CJK", "a long word", "a long word of two bytes", "5 MB", "composed"],
)
async def test_texts_that_strain_a_tsvector_are_stored_and_found(
    connection: asyncpg.Connection, tmp_path: Path, text: str
) -> None:
    device = Device(tmp_path)
    device.session("a", one=text)
    await filled(connection, device, tmp_path / "w.db")
    found = words(text)
    for word in {found[0], found[len(found) // 2], found[-1]}:
        assert await find(connection, word), word
    rows = await connection.fetch("SELECT words FROM p1_1.text_prompt WHERE rowid & 16777215 > 0 ORDER BY rowid")
    assert " ".join(row[0].strip() for row in rows).split() == found


async def test_what_postgres_takes_for_no_text_becomes_a_replacement_character(
    connection: asyncpg.Connection, tmp_path: Path
) -> None:
    device = Device(tmp_path)
    path = "/" + random.Random(1).randbytes(2_000).hex()  # longer than a sorted index entry, however compressed
    device.write("project", ProjectIdentified(path=path))
    usage = Usage(key=1, at=None, model="mo\0del", input=1, output=1)
    said = turns("a", {"one": "nul \0 here"})
    device.write("session-codex/a", parsed("a", *said, usage=(usage,)))
    db = open_working(tmp_path / "w.db")
    load = Load(db, device.log, {})
    load.load(device.log.head()[0])
    load.finish(*device.log.head())
    await connection.execute(ddl("p1_1"))
    await fill(connection, "p1_1", db)
    db.close()
    assert await connection.fetchval("SELECT models FROM p1_1.sessions") == '["mo\\u0000del"]'
    assert await connection.fetchval("SELECT name FROM p1_1.names WHERE name LIKE 'mo%'") == "mo\ufffddel"
    assert await connection.fetchval("SELECT words FROM p1_1.text_prompt WHERE words LIKE '%nul%'") == " nul here "
    assert await connection.fetchval("SELECT path FROM p1_1.projects") == path


@given(st.text(st.characters(max_codepoint=127)) | st.text())
def test_an_ascii_text_is_parted_as_fts5_parts_it(text: str) -> None:
    assert b" ".join(words_of(spaced(text))).decode() == " ".join(words(text))


def test_a_long_word_is_cut_at_a_character() -> None:
    assert lexeme(b"ab") == b"ab"
    assert len(lexeme(b"x" * 5_000)) == LEXEME_BYTES
    assert lexeme(("漢" * 400).encode()).decode() == "漢" * (LEXEME_BYTES // 3)
