"""Search in Postgres against FTS5: for every text and every query the same hits in the same order."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from datetime import UTC
from threading import Thread
from typing import Any, NamedTuple, TypeVar

import asyncpg
import pytest
from cluster import new_database
from hypothesis import given, settings
from hypothesis import strategies as st

from prosa.events.database import Database
from prosa.projections import grammar
from prosa.projections.filtering import EVERY
from prosa.projections.hits import EVERY_KIND, Finder, Hits, IndexFinder, Place, Wanted
from prosa.projections.index import lay_out
from prosa.projections.records import SHIFT, TEXTS
from prosa.projections.tables import SqliteTables
from prosa.projections.tokens import pieces, spaced
from prosa.server import finding, mirror
from prosa.server.finding import PgFinder
from prosa.server.postgres import Cluster
from prosa.server.tables import PgTables, read_sums

T = TypeVar("T")

SESSION = """
INSERT INTO sessions (sid, key, agent, id, profile, applied, next, header, last)
VALUES (:sid, :key, 'a', :key, 'p', 1, 1, x'', :last)"""
LONG = (
    *("x" * length for length in (995, 996, 997, 999, 1000, 1001, 2500)),
    *("x" * 996 + "yz", "x" * 2500 + "y", "é" * 600, "东" * 1200, "z" * 32_768, "z" * 32_768 + "y", "ab" * 20_000),
)
WORDS = (
    *("error", "errors", "err", "Ärger", "arger", "A\u0308rger", "naïve", "foo_bar.baz", "foo", "bar", "1.5", "it's"),
    *("数据库", "数据", "据", "库", "東京タワー", "か\u3099", "が", "한국어", "\u1112\u1161\u11ab", "Ｆｕｌｌ"),
    *("\x1b[31mred\x1b[0m", "nul\0nul", "\ud800", "a", "ab", "İstanbul", "ſ", "ﬁx", "<&>", "'quoted'", "back\\slash"),
    *("::", "🙂", "%", "_", "AND", "NEAR("),
    *LONG,
)
word = st.one_of(st.sampled_from(WORDS), st.text(max_size=4))
text = st.lists(word, max_size=8).map(" ".join) | st.lists(word, max_size=5).map("".join)
bare = st.builds(lambda text, star: text + star, word, st.sampled_from(["", "", "*"]))
phrase = st.builds(lambda text, star: f'"{text}"{star}', st.lists(word, min_size=1, max_size=3).map(" ".join),
                   st.sampled_from(["", "", "*"]))  # fmt: skip
asked = st.lists(
    st.builds(lambda out, term: out + term, st.sampled_from(["", "", "", "-"]), st.one_of(bare, phrase))
    | st.just("OR"),
    min_size=1,
    max_size=4,
).map(" ".join)


class Loop:
    """An event loop in a thread, as a server has one."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = Thread(target=self.loop.run_forever)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Both(NamedTuple):
    """One set of texts, searched by FTS5 and by Postgres."""

    loop: Loop
    connection: asyncpg.Connection

    def fill(self, texts: list[tuple[int, int, str]]) -> tuple[SqliteTables, PgTables]:
        """(session, score, text): each is a row of full text, a long one several."""
        db = Database(":memory:")
        lay_out(db)
        rows: dict[int, list[tuple[int, str]]] = {score: [] for score in range(len(TEXTS))}
        for sid in range(6):
            db.execute(SESSION, {"sid": sid, "key": f"k{sid % 4}{sid}", "last": None if sid == 2 else sid // 2})
        for number, (sid, score, text) in enumerate(texts, 1):
            for place, piece in enumerate(pieces(text)):
                rows[score].append((sid << SHIFT | number << 4 | place, spaced(piece)))
        for score, of_class in rows.items():
            db.executemany(f"INSERT INTO {TEXTS[score]} (rowid, text) VALUES (?, ?)", sorted(of_class))
        self.loop.run(self._mirror(db, rows))
        return SqliteTables(db), PgTables(self.connection, self.loop.loop, "p1_1")

    async def _mirror(self, db: Database, rows: dict[int, list[tuple[int, str]]]) -> None:
        await self.connection.execute(f"SET search_path TO p1_1; TRUNCATE sessions, {', '.join(TEXTS)}")
        for table in mirror.tables():
            if table.is_text:
                await mirror.copy(self.connection, "p1_1", table, rows[TEXTS.index(table.name)])
            elif table.name == "sessions":
                columns = ", ".join(table.columns)
                await mirror.copy(self.connection, "p1_1", table, db.execute(f"SELECT {columns} FROM sessions"))


@pytest.fixture(scope="module")
def both(cluster: Cluster) -> Iterator[Both]:
    loop = Loop()
    connection = loop.run(asyncpg.connect(new_database(cluster)))
    loop.run(connection.execute(mirror.ddl("p1_1")))
    loop.run(read_sums(connection))
    for statement in mirror.indexes("p1_1"):
        loop.run(connection.execute(statement))
    yield Both(loop, connection)
    loop.run(connection.close())
    loop.stop()


def hits(tables: SqliteTables | PgTables, find: type[Finder], query: grammar.Query, limit: int | None) -> list[Place]:
    wanted = Wanted(query, EVERY, None, None, EVERY_KIND)
    with tables.one_state():
        found = Hits(tables, wanted, find(tables, wanted))  # type: ignore[call-arg]
        best = found.best(limit)
        return best + [place for first in best for place in found.all_of(first.sid)]


def same(both: Both, texts: list[tuple[int, int, str]], queries: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Compare; returns how many hits there were in all."""
    here, there = both.fill(texts)
    count = 0
    for asked in queries:
        query = grammar.parse(asked, UTC)
        for form in (query, grammar.widened(query)):
            if form is None or not form.groups:
                continue
            for limit in (None, 2):
                expected = hits(here, IndexFinder, form, limit)
                count += len(expected)
                for most in (0, 200):  # classes read whole, sessions tried one by one
                    monkeypatch.setattr(finding, "MOST_TRIED", most)
                    monkeypatch.setattr(finding, "HIT_US", 1e9 if most else 0.25)
                    assert hits(there, PgFinder, form, limit) == expected, (asked, limit, most)
    return count


def test_each_kind_of_query_finds_what_fts5_finds(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [(n % 6, n % 4, f"{one} {WORDS[n * 7 % len(WORDS)]} {other}")
             for n, (one, other) in enumerate(zip(WORDS, WORDS[3:] + WORDS[:3], strict=True))]  # fmt: skip
    texts += [(1, 3, "error 数据库 " * 20), (2, 0, "一" * 3000), (3, 2, "the error is here, the error there")]
    queries = [*WORDS, *(f'"{one}"*' for one in WORDS[::3]), *(f"error -{one}" for one in WORDS[1::3])]
    queries += [
        '"数据库"',
        '"error is"',
        '"error i"*',
        "error OR 京 -foo",
        '"the error there" OR "is here"',
        '-"foo bar" a',
    ]
    assert same(both, texts, queries, monkeypatch) > 500


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), text), max_size=8), st.lists(asked, min_size=1, max_size=3)
)
def test_any_query_over_any_texts_finds_what_fts5_finds(
    both: Both, texts: list[tuple[int, int, str]], queries: list[str]
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        same(both, texts, queries, monkeypatch)


def test_a_query_of_thousands_of_words_is_asked_at_once(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [(1, 3, " ".join(f"w{n}" for n in range(3000))), (2, 3, "w1"), (3, 2, "一二三" * 500)]
    queries = [
        " ".join(f"w{n}" for n in range(3000)),
        " OR ".join(f"w{n}" for n in range(1500)),
        f'"{" ".join(f"w{n}" for n in range(2900))}"',
        "w1 " + " ".join(f"-v{n}" for n in range(2000)),
        "一二三" * 500,
    ]
    assert same(both, texts, queries, monkeypatch) > 10
