"""Tables fit the terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from prosa.cli.tables import Column, fit, table
from prosa.cli.terminal import Paint
from prosa.cli.text import one_line, width

TEXT, NUMBER = Column("name"), Column("n", right=True)


@given(
    st.lists(st.tuples(st.text(max_size=60), st.text(max_size=30), st.text("0123456789", max_size=9))),
    st.integers(40, 100),
)
def test_no_line_is_wider_than_the_terminal(rows: list[tuple[str, str, str]], cells: int) -> None:
    texts = [[one_line(cell) for cell in row] for row in rows]
    for line in table([TEXT, TEXT, NUMBER], texts, cells, Paint(False)):
        assert width(line) <= cells


def test_optional_columns_go_before_names_become_unreadable() -> None:
    columns = [TEXT, Column("a", True), Column("b", True, optional=True), Column("c", True)]
    assert fit(columns, [["x" * 40, "1" * 8, "2" * 8, "3" * 8]], 44) == [24, 8, 0, 8]


def test_numbers_stand_to_the_right_and_wide_characters_count_twice() -> None:
    assert list(table([TEXT, NUMBER], [["日本", "1"], ["ab", "23"]], 40, Paint(False))) == [
        "name   n",
        "日本   1",
        "ab    23",
    ]
