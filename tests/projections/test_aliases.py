"""Devices that are merged, and what they are called."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prosa.projections.aliases import SAME_MACHINE, Aliases, Merge


def merges(*pairs: str, evidence: str = "the user said so") -> list[Merge]:
    """`A>B` in the order of their time; `-A>B` is reverted."""
    found = []
    for number, pair in enumerate(pairs):
        device, into = pair.lstrip("-").split(">")
        found.append(Merge(f"{number:032x}", device, into, evidence, number, pair.startswith("-")))
    return found


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (["A>B"], {"A": "B", "B": "B"}),
        (["A>B", "B>C"], {"A": "C", "B": "C", "C": "C"}),
        (["B>C", "A>B"], {"A": "C", "B": "C", "C": "C"}),  # into an entry that is not shown: into the one that is
        (["A>B", "A>C"], {"A": "C", "B": "C", "C": "C"}),
        (["A>B", "C>B", "D>A"], {"A": "B", "C": "B", "D": "B"}),
        (["A>B", "B>A"], {"A": "A", "B": "A"}),  # a machine that got its old name back
        (["A>B", "B>C", "C>A"], {"A": "A", "B": "A", "C": "A"}),
        (["A>B", "A>B"], {"A": "B"}),
        (["A>A"], {"A": "A"}),
        (["-A>B", "C>A"], {"A": "A", "B": "B", "C": "A"}),
        (["A>B", "-B>C", "C>B"], {"A": "B", "C": "B"}),
    ],
)
def test_merged_entries_are_shown_as_one(said: list[str], shown: dict[str, str]) -> None:
    aliases = Aliases(merges(*said))
    assert {device: aliases.canonical(device) for device in shown} == shown


PAIRS = [f"{a}>{b}" for a, b in itertools.permutations("ABCD", 2)]


@given(said=st.lists(st.sampled_from(PAIRS), max_size=6), seed=st.integers(0, 99), reverted=st.integers(0, 63))
def test_the_order_in_which_merges_arrive_changes_nothing(said: list[str], seed: int, reverted: int) -> None:
    known = [merge._replace(reverted=bool(reverted >> n & 1)) for n, merge in enumerate(merges(*said))]
    mixed = random.Random(seed).sample(known, len(known))
    one, other = Aliases(known), Aliases(mixed)
    names = {"A": ("first", 1), "C": ("second", 2)}
    for device in "ABCD":
        assert one.canonical(device) == other.canonical(device)
        assert one.name(device, names) == other.name(device, names)
        assert one.canonical(one.canonical(device)) == one.canonical(device)
        assert (device in one.merged_by) == (one.canonical(device) != device)


@given(said=st.lists(st.sampled_from(PAIRS), min_size=1, max_size=6), which=st.integers(0, 5))
def test_a_reverted_merge_is_as_if_it_had_never_been(said: list[str], which: int) -> None:
    known = merges(*said)
    number = which % len(known)
    reverted = Aliases([merge._replace(reverted=n == number) for n, merge in enumerate(known)])
    never = Aliases([merge for n, merge in enumerate(known) if n != number])
    assert [reverted.canonical(device) for device in "ABCD"] == [never.canonical(device) for device in "ABCD"]


def test_a_merge_says_which_one_took_a_device_from_the_list() -> None:
    aliases = Aliases(merges("A>B", "B>C"))
    assert aliases.merged_by == {"A": f"{0:032x}", "B": f"{1:032x}"}
    assert aliases.members("B") == ["A", "B", "C"]


def test_a_name_outlives_a_new_hostname_but_not_another_machine() -> None:
    names = {"A": ("studio", 5)}
    assert Aliases(merges("A>B", evidence=SAME_MACHINE)).name("A", names) == "studio"
    assert Aliases(merges("A>B")).name("A", names) is None
    assert Aliases([]).name("A", names) == "studio"
    assert Aliases(merges("A>B", evidence=SAME_MACHINE)).name("B", names | {"B": ("attic", 1)}) == "attic"
