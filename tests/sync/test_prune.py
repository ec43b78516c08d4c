"""Prune against a real server: what goes, what stays and why, and what a second run does."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from prunes import OLD, here, key, log_in, push, run, whole
from served import Served
from store import A, B, C, Store, claude_lines

from prosa.cli.pushing import Pushing
from prosa.events.clock import now_us
from prosa.events.messages import ConfirmAnswer, ConfirmQuestion
from prosa.events.raw import RawStore
from prosa.projections.index import open_index
from prosa.server.raws import raw_name
from prosa.sync import prune as pruning
from prosa.sync.candidates import DAY_US, Left, Rule, advisory
from prosa.sync.http import Connection, NotLoggedIn, Unreachable
from prosa.sync.prune import PruneStopped, prune


@pytest.fixture
def pushed(store: Store, served: Served) -> Store:
    """Three sessions, all on the server."""
    for session in (A, B, C):
        store.write(session, b"".join(claude_lines(session, 3)))
    store.sync()
    log_in(store, served)
    push(store, served)
    return store


def test_what_the_server_holds_goes_and_everything_else_stays_as_it_was(pushed: Store) -> None:
    before, found = pushed.sessions(), pushed.found("prompt")
    raws = here(pushed)
    sizes = sum(size for _, size in RawStore(pushed.home.raw).files())
    items, summary = run(pushed)
    assert [(item.session, item.status) for item in items] == [(key(s), "pruned") for s in (A, B, C)]
    assert (summary.status, summary.pruned, summary.bytes, summary.unconfirmed) == ("complete", 3, sizes, 0)
    assert here(pushed) == []
    assert (pushed.sessions(), pushed.found("prompt")) == (before, found)
    (planned,) = pushed.events("prune_planned")
    said = [event.event() for event in pushed.events("session_pruned")]
    assert (planned.event().sessions, planned.event().bytes) == (3, sizes)
    assert {event.plan for event in said} == {planned.id.hex()}
    assert sorted(event.raw for event in said) == raws
    assert sum(event.stored for event in said) == sizes
    assert all(event.confirmed_at_us > 0 and event.uri.endswith(f"{event.raw}.zst") for event in said)
    whole(pushed)


def test_a_second_prune_has_nothing_to_do_and_says_nothing(pushed: Store) -> None:
    run(pushed)
    events = len(pushed.events())
    assert run(pushed)[1].pruned == 0
    assert len(pushed.events()) == events


def test_the_plan_that_is_shown_is_the_one_that_is_executed(pushed: Store) -> None:
    events, raws = len(pushed.events()), here(pushed)
    shown, planned = run(pushed, dry_run=True)
    assert planned.status == "planned"
    assert (len(pushed.events()), here(pushed)) == (events, raws)
    done, summary = run(pushed)
    assert [(i.session, i.raws, i.bytes) for i in shown] == [(i.session, i.raws, i.bytes) for i in done]
    assert planned.bytes == summary.bytes


def test_a_limit_takes_the_longest_untouched_first(pushed: Store) -> None:
    pushed.write(A, b"".join(claude_lines(A, 30)))  # touched after the others
    pushed.sync()
    Pushing(pushed.home)
    items, _ = run(pushed, limit=1)
    assert [item.session for item in items] == [key(B)]


def test_without_a_login_nothing_is_planned(store: Store) -> None:
    store.write(A, b"".join(claude_lines(A, 1)))
    store.sync()
    with pytest.raises(NotLoggedIn) as refused:
        run(store)
    assert refused.value.exit_code == 4
    assert store.events("prune_planned") == []


def test_only_what_a_sync_confirmed_is_taken_and_the_rest_is_counted(pushed: Store) -> None:
    pushed.write(A, b"".join(claude_lines(A, 4)))  # grew since
    pushed.sync()
    items, summary = run(pushed)
    assert [item.session for item in items] == [key(B), key(C)]
    assert summary.unconfirmed == 1
    assert summary.unconfirmed_bytes == sum(size for _, size in RawStore(pushed.home.raw).files())


def test_what_is_younger_than_the_window_stays(pushed: Store) -> None:
    assert run(pushed, Rule("older than 52w", 1))[1].sessions == 0
    assert len(here(pushed)) == 3


def test_a_raw_that_grew_goes_with_the_name_it_had_before(store: Store, served: Served) -> None:
    """Its file has two names where a killed sync did not come to remove the first."""
    from prosa.ingest import importing

    lines = claude_lines(A, 40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importing, "SMALL", 100)
        store.write(A, b"".join(lines[:60]))
        store.sync()
        patch.setattr(RawStore, "remove", lambda *_: None)
        store.write(A, b"".join(lines))
        store.sync()
    log_in(store, served)
    push(store, served)
    old, new = [raw for (raw,) in store.rows("SELECT sha256 FROM raws ORDER BY size")]
    paths = [RawStore(store.home.raw).path(raw) for raw in (old, new)]
    assert paths[0].samefile(paths[1])
    size = paths[0].stat().st_size
    (item,), summary = run(store)
    assert (item.raws, item.bytes, summary.bytes) == ([new], size, size)
    assert here(store) == []
    whole(store)


def test_raw_of_earlier_revisions_goes_with_it(store: Store, served: Served) -> None:
    log_in(store, served)
    store.write(A, b"".join(claude_lines(A, 3)))
    store.sync()
    store.write(A, b"".join(claude_lines(A, 2, start=6)))  # written anew
    store.sync()
    push(store, served)
    assert len(here(store)) == 2
    (item,), _ = run(store)
    assert sorted(item.raws) == sorted(raw for (raw,) in store.rows("SELECT sha256 FROM raws"))
    assert here(store) == []
    whole(store)


def same_bytes(store: Store, served: Served) -> str:
    """Two sessions with one raw: a transcript that was copied to another name."""
    data = b"".join(claude_lines(A, 3))
    store.write(A, data)
    store.write(B, data)
    store.sync()
    log_in(store, served)
    push(store, served)
    (raw,) = here(store)
    return raw


def test_sessions_with_the_same_bytes_go_together(store: Store, served: Served) -> None:
    raw = same_bytes(store, served)
    items, summary = run(store)
    assert [(item.session, item.raws) for item in items] == [(key(A), [raw]), (key(B), [raw])]
    assert (here(store), summary.pruned) == ([], 2)
    assert sorted(event.event().stored for event in store.events("session_pruned")) == [0, summary.bytes]
    whole(store)


def test_bytes_that_a_younger_session_names_too_stay(store: Store, served: Served) -> None:
    raw = same_bytes(store, served)
    store.write(B, b"".join([*claude_lines(A, 3), *claude_lines(B, 1, start=8)]))
    store.write(C, b"".join(claude_lines(A, 3)))  # unconfirmed
    store.sync()
    items, summary = run(store)
    assert [(item.session, item.status) for item in items] == [(key(A), "skipped")]
    assert key(B) in str(items[0].reason) or key(C) in str(items[0].reason)
    assert (summary.skipped, summary.status, summary.failed) == (1, "complete", 0)
    assert raw in here(store)
    push(store, served)
    assert run(store)[1].pruned == 3
    whole(store)


def test_a_session_that_changed_between_plan_and_execution_is_left(
    pushed: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = pruning.plan

    def then_it_grows(*given: Any) -> Any:
        made = plan(*given)
        with monkeypatch.context() as patch:
            patch.setattr("prosa.ingest.run.held", lambda *_: nullcontext())  # as if there were no lock
            pushed.write(B, b"".join(claude_lines(B, 4)))
            pushed.sync()
        return made

    monkeypatch.setattr(pruning, "plan", then_it_grows)
    items, summary = run(pushed)
    assert {item.session: item.status for item in items} == {key(A): "pruned", key(B): "skipped", key(C): "pruned"}
    assert summary.failed == 0
    monkeypatch.undo()
    assert len(here(pushed)) == 1
    whole(pushed)


def test_a_source_that_changed_after_its_prune_is_preserved_again(pushed: Store) -> None:
    run(pushed)
    pushed.write(A, b"".join(claude_lines(A, 4)))
    pushed.sync()
    assert len(here(pushed)) == 1
    assert [event.event().session for event in pushed.events("session_restored")] == [key(A)]
    assert run(pushed)[1].pruned == 0  # the new raw is not confirmed
    whole(pushed)


def test_what_the_server_lost_stays_here_and_is_sent_again(pushed: Store, served: Served) -> None:
    (raw,) = pushed.rows(f"SELECT raw FROM sessions WHERE id = '{A}'")[0]
    path = served.server.settings.raw_folder / raw_name(raw)
    path.unlink()
    items, summary = run(pushed)
    assert {item.session: (item.status, item.reason) for item in items}[key(A)] == (
        "skipped", "the server does not hold its bytes now",
    )  # fmt: skip
    assert (summary.pruned, summary.skipped, summary.status) == (2, 1, "complete")
    assert here(pushed) == [raw]
    whole(pushed)


def test_what_the_server_has_not_read_yet_stays(pushed: Store, served: Served) -> None:
    served.run(lambda server: server.pool.execute("UPDATE projections SET position = 1"))
    items, summary = run(pushed)
    assert {item.reason for item in items} == {"the server has not read its events yet"}
    assert (summary.skipped, len(here(pushed))) == (3, 3)


def test_a_damaged_copy_is_kept_and_the_rest_goes_on(pushed: Store) -> None:
    (raw,) = pushed.rows(f"SELECT raw FROM sessions WHERE id = '{B}'")[0]
    path = RawStore(pushed.home.raw).path(raw)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    items, summary = run(pushed)
    assert {item.session: item.status for item in items} == {key(A): "pruned", key(B): "failed", key(C): "pruned"}
    assert (summary.status, summary.failed) == ("partial", 1)
    assert path.read_bytes() == damaged


class GoesAway(Connection):
    """The server answers so many questions and is gone then."""

    def __init__(self, real: Connection, answers: int) -> None:
        super().__init__(real.server, None, real.device, server_id=real.server_id)
        self._real, self._answers = real, answers

    def post(self, path: str, question: Any, kind: Any) -> Any:
        if not self._answers:
            raise Unreachable("gone")
        self._answers -= 1
        return self._real.post(path, question, kind)

    def close(self) -> None:
        self._real.close()


@pytest.mark.parametrize("answers", [0, 1, 2])
def test_a_server_that_is_gone_in_the_middle_costs_only_what_it_did_not_confirm(
    pushed: Store, monkeypatch: pytest.MonkeyPatch, answers: int
) -> None:
    monkeypatch.setattr(pruning, "MISSING_LIMIT", 1)
    real = Connection.of(pushed.home)
    assert real is not None
    found: list[Any] = []
    with pytest.raises(PruneStopped) as stopped:
        found.extend(prune(pushed.home, OLD, {}, connection=GoesAway(real, answers)))
    assert stopped.value.exit_code == 4
    assert (found[-1].status, found[-1].pruned, len(here(pushed))) == ("stopped", answers, 3 - answers)
    whole(pushed)
    assert run(pushed)[1].pruned == 3 - answers
    whole(pushed)


def test_a_server_that_is_down_is_said_and_changes_nothing(pushed: Store, served: Served) -> None:
    real = Connection.of(pushed.home)
    assert real is not None
    gone = Connection("http://127.0.0.1:1", None, real.device, server_id=real.server_id)
    with pytest.raises(PruneStopped) as stopped:
        list(prune(pushed.home, OLD, {}, connection=gone))
    assert stopped.value.exit_code == 4
    assert len(here(pushed)) == 3


def test_many_sessions_are_asked_for_in_pages(pushed: Store, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    post = Connection.post

    def counted(self: Connection, path: str, question: Any, kind: Any) -> Any:
        if isinstance(question, ConfirmQuestion):
            asked.append(len(question.copies))
            assert kind is ConfirmAnswer
        return post(self, path, question, kind)

    monkeypatch.setattr(Connection, "post", counted)
    monkeypatch.setattr(pruning, "MISSING_LIMIT", 2)
    assert run(pushed)[1].pruned == 3
    assert asked == [2, 1]


def test_an_unlink_that_fails_is_finished_by_the_next_run(pushed: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    remove = RawStore.remove

    def refused(self: RawStore, raw: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(RawStore, "remove", refused)
    items, summary = run(pushed)
    assert (summary.failed, {item.status for item in items}) == (3, {"failed"})
    monkeypatch.setattr(RawStore, "remove", remove)
    assert run(pushed)[1].leftovers == 3
    assert here(pushed) == []
    whole(pushed)


def test_the_advice_of_sync_counts_what_was_confirmed_a_week_ago(pushed: Store) -> None:
    auth = Connection.of(pushed.home)
    assert auth is not None
    with open_index(pushed.home.index) as db:
        sizes = sum(size for _, size in RawStore(pushed.home.raw).files())
        assert advisory(db, auth.server_id, now_us()) == Left(0, 0)
        assert advisory(db, auth.server_id, now_us() + 8 * DAY_US) == Left(3, sizes)
        assert advisory(db, "another server", now_us() + 8 * DAY_US) == Left(0, 0)
    run(pushed)
    pushed.sync()
    with open_index(pushed.home.index) as db:
        assert advisory(db, auth.server_id, now_us() + 8 * DAY_US) == Left(0, 0)


def test_prune_keeps_out_a_sync(pushed: Store) -> None:
    from prosa.events.errors import LockedError
    from prosa.events.locks import held

    with held(pushed.home.locks, "sync"), pytest.raises(LockedError):
        run(pushed)
    answers = prune(pushed.home, OLD, {})
    next(iter(answers))
    with pytest.raises(LockedError):
        pushed.sync()
