from __future__ import annotations

from prosa.projections.lineage import Member, below, roots


def member(key: str, parent: str | None = None, *, started: int | None = 0, scope: str | None = None) -> Member:
    return Member(
        key=f"pi/{scope}/{key}" if scope else key, agent="pi", id=key, scope=scope, parent=parent, started=started
    )


def test_children_of_children_hang_under_the_topmost_session() -> None:
    found = roots([member("c", "b"), member("a"), member("b", "a"), member("d")])
    assert found == {"a": "a", "b": "a", "c": "a", "d": "d"}
    assert below(found) == {"a": 2}


def test_a_child_whose_parent_is_not_here_is_its_own_root() -> None:
    assert roots([member("b", "elsewhere")]) == {"b": "b"}


def test_a_parent_of_another_agent_with_the_same_id_is_not_meant() -> None:
    other = Member(key="codex/a", agent="codex", id="a", scope=None, parent=None, started=0)
    assert roots([other, member("b", "a")]) == {"codex/a": "codex/a", "b": "b"}


def test_in_a_cycle_the_session_that_started_first_is_the_root() -> None:
    cycle = [member("a", "c", started=3), member("b", "a", started=1), member("c", "b", started=2)]
    assert set(roots([*cycle, member("leaf", "c")]).values()) == {"b"}


def test_in_a_cycle_an_unknown_start_is_last_and_the_lowest_key_breaks_ties() -> None:
    assert set(roots([member("a", "b", started=None), member("b", "a", started=9)]).values()) == {"b"}
    assert set(roots([member("b", "a", started=1), member("a", "b", started=1)]).values()) == {"a"}


def test_an_edge_to_itself_is_no_edge() -> None:
    assert roots([member("a", "a")]) == {"a": "a"}


def test_of_several_sessions_with_the_parents_id_the_one_of_the_same_scope_is_meant() -> None:
    parents = [member("p"), member("p", scope="x"), member("p", scope="y")]
    found = roots([*parents, member("c", "p", scope="y"), member("d", "p")])
    assert found["pi/y/c"] == "pi/y/p"
    assert found["d"] == "p"


def test_a_chain_of_ten_thousand_sessions_is_folded() -> None:
    chain = [member(f"{n:05}", f"{n - 1:05}" if n else None) for n in range(10_000)]
    assert below(roots(chain)) == {"00000": 9_999}
