"""Entries of one machine: merged by itself once, by the user whenever, and taken back exactly."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import permutations
from pathlib import Path
from typing import Any

import msgspec
import pytest
from store import A, B, Store, claude_lines
from test_interleaving import merged

from prosa.events import device as devices
from prosa.events.device import Device
from prosa.events.log import Log
from prosa.events.raw import RawStore
from prosa.projections.aliases import SAME_MACHINE
from prosa.projections.building import build
from prosa.projections.device_list import ListedDevice, listed
from prosa.projections.engine import catch_up
from prosa.projections.index import open_index
from prosa.projections.local import LocalBackend
from prosa.projections.queries import Filters, Report, Search, Timeline
from prosa.projections.tables import SqliteTables
from prosa.sync.merging import merge, merge_self, rename, unmerge

OLD = Device("00000000000000aa", "old-name", "m" * 16, "linux/x86_64")
NEW = Device("00000000000000bb", "new-name", "m" * 16, "linux/x86_64")
NAMELESS = Device("00000000000000cc", "box", "", "linux/x86_64")
NAMELESS_TOO = Device("00000000000000dd", "crate", "", "linux/x86_64")

Sync = Callable[[Device, str], None]


@pytest.fixture
def sync(store: Store, monkeypatch: pytest.MonkeyPatch) -> Sync:
    """A session that is imported on a machine of that name."""

    def do(here: Device, session: str) -> None:
        monkeypatch.setattr(devices, "identify", lambda: here)
        store.write(session, b"".join(claude_lines(session, 2)))
        store.sync()

    return do


def said(store: Store, say: Callable[[Log, Any], Any]) -> Any:
    """Let something be said over a current index."""
    with store.log() as log, closing(open_index(store.home.index)) as db:
        catch_up(db, log, {})
        done = say(log, db)
        catch_up(db, log, {})
    return done


def entries(store: Store) -> dict[str, ListedDevice]:
    return said(store, lambda log, db: {row.hostname or row.device: row for row in listed(SqliteTables(db))})


def answers(store: Store) -> bytes:
    """What questions that show or filter devices are answered."""

    def ask(log: Log, db: Any) -> bytes:
        backend = LocalBackend(db, log, RawStore(store.home.raw), now_us=0)
        asked: list[Any] = [backend.values("device"), listed(SqliteTables(db))]
        for device in (None, OLD.id, NEW.id):
            filters = Filters(device=device)
            asked += [
                backend.timeline(Timeline(filters=filters, flat=True)),
                backend.search(Search(query="prompt", filters=filters)),
                backend.report(Report(name="sessions", filters=filters)),
            ]
        return msgspec.json.encode(asked)

    return bytes(said(store, ask))


def test_a_machine_with_a_new_hostname_is_merged_once_by_itself(store: Store, sync: Sync) -> None:
    sync(OLD, A)
    sync(NEW, B)
    assert said(store, lambda log, db: merge_self(log, db, NEW)) == [OLD.id]
    assert said(store, lambda log, db: merge_self(log, db, NEW)) == []
    (event,) = store.events("device_merged")
    assert (event.event().evidence, event.event().into) == (SAME_MACHINE, NEW.id)
    rows = entries(store)
    assert (rows["old-name"].merged_into, rows["new-name"].sessions) == (NEW.id, 2)


def test_what_the_user_took_back_is_not_merged_again(store: Store, sync: Sync) -> None:
    sync(OLD, A)
    sync(NEW, B)
    said(store, lambda log, db: merge_self(log, db, NEW))
    merged_by = entries(store)["old-name"].merge
    assert merged_by is not None
    said(store, lambda log, db: unmerge(log, OLD.id, merged_by, "dev"))
    assert said(store, lambda log, db: merge_self(log, db, NEW)) == []
    assert entries(store)["old-name"].merged_into is None


def test_a_machine_that_gets_its_old_name_back_is_shown_by_it(store: Store, sync: Sync) -> None:
    sync(OLD, A)
    sync(NEW, B)
    said(store, lambda log, db: merge_self(log, db, NEW))
    sync(OLD, A)
    assert said(store, lambda log, db: merge_self(log, db, OLD)) == [NEW.id]
    assert entries(store)["new-name"].merged_into == OLD.id


def test_machines_without_an_id_stay_apart(store: Store, sync: Sync) -> None:
    sync(NAMELESS, A)
    sync(NAMELESS_TOO, B)
    assert said(store, lambda log, db: merge_self(log, db, NAMELESS_TOO)) == []


def test_a_merge_that_is_taken_back_leaves_every_answer_as_it_was(store: Store, sync: Sync) -> None:
    sync(OLD, A)
    sync(NEW, B)
    said(store, lambda log, db: rename(log, OLD.id, "attic", "dev"))
    before = answers(store)
    said(store, lambda log, db: merge(log, OLD.id, NEW.id, "dev", "said by the user"))
    between = answers(store)
    assert between != before
    merged_by = entries(store)["old-name"].merge
    assert merged_by is not None
    said(store, lambda log, db: unmerge(log, OLD.id, merged_by, "dev"))
    assert answers(store) == before
    store.sync()
    assert store.serving() == store.rebuilt()


def test_a_merged_device_answers_under_the_one_that_is_shown(store: Store, sync: Sync) -> None:
    sync(OLD, A)
    sync(NEW, B)
    said(store, lambda log, db: rename(log, NEW.id, "studio", "dev"))
    said(store, lambda log, db: merge(log, OLD.id, NEW.id, "dev", "said by the user"))

    def shown(log: Log, db: Any) -> list[tuple[str | None, str | None]]:
        backend = LocalBackend(db, log, RawStore(store.home.raw), now_us=0)
        found = backend.timeline(Timeline(filters=Filters(device="studio"), flat=True)).sessions
        return [(session.device, session.device_name) for session in found]

    assert said(store, shown) == [(NEW.id, "studio")] * 2


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_logs_in_any_order_give_the_same_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: tuple[int, ...]
) -> None:
    """Three machines that rename and merge each other; one takes a merge back."""
    here = [Device(f"{n:016x}", f"host{n}", f"{n:016x}", "linux/x86_64") for n in range(3)]
    logs = []
    ids: list[str] = []
    for n, device in enumerate(here):
        store = Store(tmp_path / f"machine{n}")
        with monkeypatch.context() as patch:
            patch.setattr(devices, "identify", lambda device=device: device)
            store.write(A, b"".join(claude_lines(A, 1)))
            store.sync()
        with store.log() as log:
            rename(log, here[0].id, f"named by {n}", "dev")
            ids.append(merge(log, device.id, here[(n + 1) % 3].id, "dev", "said by the user").id.hex())
            if n == 2:
                unmerge(log, here[0].id, ids[0], "dev")
        logs.append(store.home.log)
    found = []
    for number, interleaved in enumerate(([], [index for index in order for _ in range(20)])):
        log_path = merged(logs, list(interleaved), tmp_path / f"merged{number}.db")
        with Log(log_path) as log:
            building, digest = build(tmp_path / f"index{number}", log, {})
            found.append(
                (digest.tables["merges"], digest.tables["names of devices"], listed(SqliteTables(building.db)))
            )
            building.discard()
    assert found[0] == found[1]
    assert {row.device: row.merged_into for row in found[0][2]} == {
        here[0].id: None, here[1].id: here[0].id, here[2].id: here[0].id,
    }  # fmt: skip
    assert found[0][2][-1].name == "named by 2"
