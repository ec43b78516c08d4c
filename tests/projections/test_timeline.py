from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from prosa.events.errors import UsageError
from prosa.events.facts import Usage
from prosa.projections.queries import Filters, Timeline, TimelinePage

if TYPE_CHECKING:
    from archive import Archive


def listed(page: TimelinePage) -> list[str]:
    return [session.id for session in page.sessions]


def ask(
    archive: Archive, *, flat: bool = False, limit: int = 0, include_empty: bool = False, **filters: Any
) -> list[str]:
    question = Timeline(filters=Filters(**filters), flat=flat, limit=limit, include_empty=include_empty)
    return listed(archive.backend().timeline(question))


def test_the_newest_activity_is_first_then_the_key_and_unknown_times_last(archive: Archive) -> None:
    archive.chat("b", "x", at=archive.start)
    archive.chat("timeless", "x", at=None)
    archive.chat("a", "x", at=archive.start)
    archive.chat("newest", "x", at=archive.start + archive.day)
    assert ask(archive) == ["newest", "a", "b", "timeless"]


def test_a_window_selects_sessions_whose_activity_overlaps_it(archive: Archive) -> None:
    start, hour = archive.start, archive.hour
    archive.session("long", archive.say("user", "x", start), archive.say("user", "y", start + 10 * hour))
    archive.chat("early", "x", at=start)
    archive.chat("timeless", "x", at=None)
    assert ask(archive, since_us=start + 5 * hour, until_us=start + 6 * hour) == ["long"]
    assert ask(archive, since_us=start + 10 * hour) == ["long"]
    assert ask(archive, since_us=start + 10 * hour + 1) == []
    assert ask(archive, until_us=start) == []
    assert ask(archive, until_us=start + 1) == ["long", "early"]


def test_sessions_without_prompt_and_usage_are_hidden_and_counted(archive: Archive) -> None:
    archive.session("empty", archive.say("assistant", "hello", archive.start))
    archive.session("measured", archive.say("assistant", "hello", 1), usage=(Usage(key=0, at=1, model="m", input=1),))
    archive.chat("prompted", "x")
    backend = archive.backend()
    page = backend.timeline(Timeline(filters=Filters()))
    assert (listed(page), page.hidden_empty, page.total) == (["prompted", "measured"], 1, 2)
    everything = backend.timeline(Timeline(filters=Filters(), include_empty=True))
    assert (len(everything.sessions), everything.hidden_empty, everything.total) == (3, 0, 3)


def test_subagents_are_folded_at_any_depth_and_listed_alone_when_flat(archive: Archive) -> None:
    archive.chat("root", "x")
    archive.chat("child", "x", parent="root")
    archive.chat("grandchild", "x", parent="child")
    archive.chat("orphan", "x", parent="not here")
    backend = archive.backend()
    page = backend.timeline(Timeline(filters=Filters()))
    assert listed(page) == ["orphan", "root"]
    assert page.subagents == {"codex/root": 2}
    assert page.total == 4
    flat = backend.timeline(Timeline(filters=Filters(), flat=True))
    assert (len(flat.sessions), flat.subagents) == (4, {})


def test_a_child_whose_parent_is_filtered_out_is_listed(archive: Archive) -> None:
    archive.chat("root", "x", at=archive.start)
    archive.chat("child", "x", at=archive.start + archive.day, parent="root")
    archive.session("empty")
    archive.chat("below empty", "x", parent="empty")
    assert ask(archive, since_us=archive.start + archive.hour) == ["child"]
    assert ask(archive, kind="subagent") == ["child", "below empty"]
    assert "below empty" in ask(archive)


def test_the_limit_counts_listed_sessions(archive: Archive) -> None:
    for number in range(5):
        archive.chat(f"s{number}", "x", at=archive.start + number)
        archive.chat(f"c{number}", "x", at=archive.start + number, parent=f"s{number}")
    page = archive.backend().timeline(Timeline(filters=Filters(), limit=2))
    assert listed(page) == ["s4", "s3"]
    assert (page.subagents, page.total) == ({"codex/s4": 1, "codex/s3": 1}, 10)


def test_a_project_is_found_by_a_part_of_its_name_remote_marker_or_path(archive: Archive) -> None:
    archive.project("/home/dev/one", remote="github.com/Owner/Übung")
    archive.project("/home/dev/two", marker="shop_front")
    for native, cwd in (("remote", "/home/dev/one"), ("marker", "/home/dev/two"), ("path", "/srv/100%_done")):
        archive.chat(native, "x", cwd=cwd)
    archive.chat("nowhere", "x")
    assert ask(archive, project="GITHUB.com") == ["remote"]
    assert ask(archive, project="üBUNG") == ["remote"]
    assert ask(archive, project="_front") == ["marker"]
    assert ask(archive, project="%_") == ["path"]
    assert ask(archive, project="HOME/dev") == ["marker", "remote"]
    assert ask(archive, scope=("remote", "github.com/Owner/Übung")) == ["remote"]
    assert ask(archive, scope=("marker", "shop_front")) == ["marker"]
    assert ask(archive, scope=("path", "/srv")) == []


def test_a_device_is_meant_by_its_name_its_fingerprint_or_a_beginning_of_it(archive: Archive) -> None:
    archive.device("aaaa000011112222", "studio")
    archive.chat("s", "x")
    for text in ("studio", "aaaa000011112222", "aaaa"):
        assert ask(archive, device=text) == ["s"]
    with pytest.raises(UsageError, match=r"device 'stud'.*\n.*studio \(aaaa000011112222\)"):
        ask(archive, device="stud")


def test_sessions_are_filtered_by_agent_profile_model_and_kind(archive: Archive) -> None:
    answer = archive.say("assistant", "y", archive.start, model='odd "model", m')
    archive.session("a", archive.say("user", "x", archive.start), answer, agent="pi", kinds=("goal",))
    archive.chat("b", "x", profile="work", parent="a")
    archive.chat("c", "x", agent="pi", parent="a")
    assert ask(archive, agent="pi", flat=True) == ["a", "c"]
    assert ask(archive, profile="work") == ["b"]
    assert ask(archive, model='odd "model", m') == ["a"]
    assert ask(archive, kind="goal") == ["a"]
    assert ask(archive, kind="orchestrator") == ["a"]
    assert ask(archive, kind="subagent") == ["b", "c"]
    assert ask(archive, kind="workflow") == []


@pytest.mark.parametrize("name", ["agent", "device", "profile", "model", "project", "kind"])
def test_an_unknown_value_names_the_known_ones(archive: Archive, name: str) -> None:
    archive.device("aaaa000011112222", "studio")
    archive.session("a", archive.say("user", "x", 1), archive.say("assistant", "y", 2, model="m"), cwd="/home/here")
    with pytest.raises(UsageError, match=f"{name} 'nonsense'.*\n.*(codex|studio|default|m|here|goal)"):
        ask(archive, **{name: "nonsense"})


def test_of_many_projects_a_message_names_ten(archive: Archive) -> None:
    for number in range(12):
        archive.chat(f"s{number}", "x", cwd=f"/home/p{number}", at=archive.start + number)
    with pytest.raises(UsageError, match=r"p11, p10, .*, p2, and 2 more\."):
        ask(archive, project="nonsense")


def test_an_empty_index_refuses_no_value(archive: Archive) -> None:
    assert ask(archive, agent="pi", device="studio", project="x", model="m", profile="p") == []


def test_a_longer_list_takes_no_more_statements(archive: Archive) -> None:
    for number in range(12):
        archive.chat(f"s{number}", "x", raw=b"%d" % number)
    backend = archive.backend()
    statements: list[int] = []

    def count(*_: Any) -> bool:
        statements[-1] += 1
        return True

    archive.opened[-1].exec_trace = count
    for limit in (1, 12):
        statements.append(0)
        assert len(backend.timeline(Timeline(filters=Filters(), limit=limit)).sessions) == limit
    assert statements[0] == statements[1]
