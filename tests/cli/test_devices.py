"""prosa devices over a real log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command import Ran, caller
from store import A, B, Store, claude_lines

from prosa.events import device as devices
from prosa.events.device import Device

HERE = Device("00000000000000bb", "studio", "m" * 16, "linux/x86_64")
ATTIC = Device("00000000000000aa", "attic", "n" * 16, "linux/x86_64")
SHED = Device("0000000000000cc1", "shed", "o" * 16, "linux/x86_64")


@pytest.fixture
def place(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A log in which three machines wrote; the last is this one."""
    store = Store(home / "place")
    for name in ("HOME", "PROSA_HOME", "PROSA_CONFIG_HOME"):
        monkeypatch.setenv(name, store.env[name])
    for here, session in ((ATTIC, A), (SHED, B), (HERE, B)):
        monkeypatch.setattr(devices, "identify", lambda here=here: here)
        store.write(session, b"".join(claude_lines(session, 2)))
        store.sync()
    yield store


@pytest.fixture
def prosa(place: Store, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Over the real rooms, not over the in-memory ones."""
    return caller(capfd)


Prosa = Callable[..., Ran]


def rows(prosa: Prosa) -> dict[str, dict[str, object]]:
    found = [json.loads(line) for line in prosa("devices", "list", "--json").out.splitlines()]
    return {str(row["hostname"]): row for row in found}


def said(store: Store) -> list[str]:
    return [
        event.type for event in store.events() if event.type.startswith("device_") and event.type[7:] != "identified"
    ]


def test_every_machine_is_listed_with_its_work(prosa: Prosa) -> None:
    assert rows(prosa)["attic"] == {
        "device": ATTIC.id, "name": "attic", "hostname": "attic", "platform": "linux/x86_64", "merged_into": None,
        "merge": None, "sessions": 1, "last_activity_at": "2026-05-01T10:00:10.200Z",
    }  # fmt: skip
    assert rows(prosa)["studio"]["sessions"] == 0
    assert prosa("devices").out == prosa("devices", "list").out
    assert prosa("devices", "list").out.splitlines()[0].split("\t")[:2] == [ATTIC.id, "attic"]


def test_a_device_is_renamed_once(prosa: Prosa, place: Store) -> None:
    assert prosa("devices", "rename", "attic", "loft").code == 0
    assert rows(prosa)["attic"]["name"] == "loft"
    again = prosa("devices", "rename", ATTIC.id[:15], "loft")
    assert (again.code, said(place)) == (0, ["device_renamed"])
    again = prosa("devices", "rename", "loft", "loft")
    assert (again.code, said(place)) == (0, ["device_renamed"])


@pytest.mark.parametrize("name", ["", " ", "x" * 101, "a\tb"])
def test_a_name_that_cannot_be_shown_is_refused(prosa: Prosa, place: Store, name: str) -> None:
    assert prosa("devices", "rename", "attic", name).code == 2
    assert said(place) == []


def test_a_merge_is_made_and_taken_back_once(prosa: Prosa, place: Store) -> None:
    before = rows(prosa)
    assert prosa("devices", "merge", "attic", "shed").code == 0
    assert rows(prosa)["attic"]["merged_into"] == SHED.id
    assert rows(prosa)["shed"]["sessions"] == 2
    assert prosa("devices", "merge", "attic", "shed").code == 0
    assert said(place) == ["device_merged"]
    assert prosa("devices", "unmerge", "attic").code == 0
    assert rows(prosa) == before
    assert prosa("devices", "unmerge", "attic").code == 0
    assert said(place) == ["device_merged", "device_merge_reverted"]


def test_an_id_that_fits_none_or_several_lists_them(prosa: Prosa, place: Store) -> None:
    none = prosa("devices", "merge", "cellar", "shed")
    assert (none.code, "attic" in none.err, "shed" in none.err) == (2, True, True)
    several = prosa("devices", "rename", "0000", "x")
    assert (several.code, ATTIC.id in several.err, SHED.id in several.err) == (2, True, True)
    assert prosa("devices", "merge", "shed", SHED.id).code == 2
    assert said(place) == []


def test_the_server_is_needed_for_what_only_it_knows(prosa: Prosa) -> None:
    assert prosa("devices", "list", "--remote").code == 4
    assert prosa("devices", "revoke", "attic").code == 4


def test_without_a_log_there_is_nothing_to_list(prosa: Prosa, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("PROSA_HOME", str(home / "empty"))
    assert prosa("devices").code == 0
    assert not (home / "empty").exists()
