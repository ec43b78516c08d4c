"""A question and the parameters of a URL say the same; what is no question is refused by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prosa.events.errors import UsageError
from prosa.projections.asking import filters_of, moment_us, to_parameters, to_question
from prosa.projections.queries import Filters, Report, Search, Timeline

TEXT = st.none() | st.text(max_size=12)
WHEN = st.none() | st.integers(-(1 << 61), 1 << 61)
SCOPE = st.none() | st.tuples(st.sampled_from(("remote", "marker", "path")), st.text(max_size=12))
FILTERS = st.builds(
    Filters, since_us=WHEN, until_us=WHEN, project=TEXT, scope=SCOPE, agent=TEXT, device=TEXT, profile=TEXT,
    model=TEXT, kind=TEXT,
)  # fmt: skip
COUNT = st.integers(0, 5_000)
QUESTIONS = (
    st.builds(Timeline, filters=FILTERS, limit=COUNT, flat=st.booleans(), include_empty=st.booleans(), after=TEXT)
    | st.builds(Search, query=st.text(), filters=FILTERS, limit=COUNT, all_hits=st.booleans(), zone=TEXT, after=TEXT)
    | st.builds(Report, name=st.sampled_from(("days", "usage")), filters=FILTERS, limit=COUNT, zone=TEXT)
)


@given(QUESTIONS)
def test_a_question_comes_back_from_its_parameters(question: Timeline | Search | Report) -> None:
    parameters = to_parameters(question)
    assert all(isinstance(value, str) for value in parameters.values())
    assert to_question(parameters, type(question)) == question


def test_a_default_is_not_said() -> None:
    assert to_parameters(Search(query="x", filters=Filters(agent=""))) == {"query": "x", "agent": ""}


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({}, "query"),
        ({"query": "x", "limit": "many"}, "limit"),
        ({"query": "x", "all_hits": "perhaps"}, "all_hits"),
        ({"query": "x", "since_us": "yesterday"}, "since_us"),
        ({"query": "x", "until_us": "9" * 30}, "until_us"),
        ({"query": "x", "scope": "remote"}, "scope"),
        ({"query": "x", "scope": "owner:me"}, "scope"),
    ],
)
def test_what_is_no_question_is_refused_by_name(parameters: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        to_question(parameters, Search)


def test_moments_are_whole_numbers_that_a_log_can_hold() -> None:
    assert moment_us("-5", "since_us") == -5
    assert filters_of({"since_us": "0"}) == Filters(since_us=0)
    with pytest.raises(UsageError, match=r"'1\.5'"):
        moment_us("1.5", "since_us")
