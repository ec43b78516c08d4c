"""`prosa sync` of a device that is logged in to a real server."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from served import OWNER, Served
from store import A, B, Store, claude_lines

from prosa.cli import exit_codes
from prosa.cli.app import run
from prosa.events import device
from prosa.events.raw import RawStore
from prosa.server import tokens
from prosa.sync import auth_file


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        assert found["type"] == "summary"
        return found


Sync = Callable[..., Ran]


@pytest.fixture
def sync(store: Store, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Sync:
    monkeypatch.setattr(device, "machine_id", lambda *_: "one machine")
    for name, value in store.env.items():
        monkeypatch.setenv(name, value)
    store.write(A, b"".join(claude_lines(A, 5)))

    def once(*arguments: str) -> Ran:
        capfd.readouterr()
        code = run(["sync", *arguments])
        return Ran(code, *capfd.readouterr())

    return once


@pytest.fixture
def logged_in(sync: Sync, store: Store, served: Served) -> Sync:
    here = device.identify().id
    token, _ = served.run(lambda s: tokens.issue(s, "device", device=here, by=OWNER))
    auth_file.write(store.home, auth_file.Auth(server=served.url, token=token, device=here, server_id=served.server.id))
    return sync


def test_the_summary_says_what_went_and_the_next_sync_writes_nothing(logged_in: Sync, store: Store) -> None:
    first = logged_in("--json")
    assert first.code == exit_codes.DONE
    push = first.summary["push"]
    assert (push["status"], push["sent"], push["confirmed"], push["left"]) == (
        "complete",
        1,
        1,
        {"raws": 0, "events": 0},
    )
    before = store.files()
    again = logged_in("--json")
    assert (again.code, again.summary["events"], again.summary["push"]["events"]) == (exit_codes.DONE, 0, 0)
    assert store.files() == before


def test_a_pipe_gets_rows_and_the_summary_on_stderr(logged_in: Sync, served: Served) -> None:
    ran = logged_in()
    assert [line.split("\t")[:2] for line in ran.out.splitlines()] == [
        ["imported", "claude-code"], ["sent", "raw"], ["sent", "events"]
    ]  # fmt: skip
    assert f"pushed to {served.url}: 1 transcript, " in ran.err
    assert logged_in().err.splitlines()[-1] == f"{served.url} has everything"


def test_without_a_login_or_with_no_push_nothing_is_asked(sync: Sync, store: Store, served: Served) -> None:
    assert sync("--json").summary["push"]["status"] == "off"
    auth = auth_file.Auth(server="http://127.0.0.1:9", token="t", device="d", server_id="00")
    auth_file.write(store.home, auth)
    ran = sync("--no-push", "--json")
    assert (ran.code, ran.summary["push"]["status"]) == (exit_codes.DONE, "off")


def test_the_import_is_done_where_the_server_is_away(sync: Sync, store: Store) -> None:
    auth = auth_file.Auth(server="http://127.0.0.1:9", token="t", device="d", server_id="00")
    auth_file.write(store.home, auth)
    ran = sync("--json")
    assert (ran.code, ran.summary["imported"], ran.summary["push"]["status"]) == (exit_codes.UNREACHABLE, 1, "offline")
    assert set(store.sessions()) == {A}
    words = sync()
    assert words.code == exit_codes.UNREACHABLE
    assert "http://127.0.0.1:9 cannot be reached" in words.err
    assert "1 transcript and 5 events are left for the next sync; they are kept here." in words.err


def test_a_login_that_was_taken_away_is_exit_4(logged_in: Sync, store: Store) -> None:
    auth = auth_file.read(store.home)
    assert auth is not None
    auth_file.write(store.home, auth_file.Auth(server=auth.server, token="x", device=auth.device, server_id="00"))
    ran = logged_in()
    assert ran.code == exit_codes.UNREACHABLE
    assert "prosa login" in ran.err


def test_what_is_refused_is_exit_1_and_said(logged_in: Sync, store: Store) -> None:
    logged_in("--no-push")
    [(digest, size)] = RawStore(store.home.raw).files()
    RawStore(store.home.raw).path(digest).write_bytes(bytes(size))
    ran = logged_in()
    assert ran.code == exit_codes.FAILED
    assert f"refused raw {digest[:16]}: The preserved copy {digest} is damaged" in ran.err


def test_a_machine_that_got_another_name_is_merged_and_goes_on(
    logged_in: Sync, store: Store, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged_in()
    old = device.identify().id
    names = os.uname()
    other = type("Uname", (), {"nodename": "other-name", "machine": names.machine})()
    monkeypatch.setattr(os, "uname", lambda: other)
    here = device.identify().id
    assert here != old
    store.write(B, b"".join(claude_lines(B, 2)))
    ran = logged_in("--json")
    assert ran.code == exit_codes.DONE
    assert (ran.summary["push"]["status"], ran.summary["push"]["sent"]) == ("complete", 1)
    items = [json.loads(line) for line in ran.out.splitlines()]
    assert [item["id"] for item in items if item.get("what") == "device"] == [old, here]
    assert logged_in("--json").summary["push"]["events"] == 0


def test_a_copied_token_is_not_taken_from_another_machine(
    logged_in: Sync, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged_in()
    monkeypatch.setattr(device, "machine_id", lambda *_: "another machine")
    ran = logged_in("--json")
    assert (ran.code, ran.summary["push"]["status"]) == (exit_codes.UNREACHABLE, "offline")


def test_another_push_at_work_is_said_and_no_failure(logged_in: Sync, store: Store) -> None:
    from prosa.events.locks import held

    with held(store.home.locks, "push"):
        ran = logged_in("--json")
    assert (ran.code, ran.summary["push"]["status"], ran.summary["imported"]) == (exit_codes.DONE, "partial", 1)


def test_one_that_watches_pushes_what_is_new_and_waits_before_it_tries_again(
    logged_in: Sync, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prosa.cli import pushing
    from prosa.sync.report import PushSummary

    watching = pushing.Pushing(store.home, watching=True)

    def once() -> PushSummary | None:
        events = store.sync().events
        if not watching.wanted(events):
            return None
        *_, summary = watching.run(lambda *_: None)
        assert isinstance(summary, PushSummary)
        return summary

    first = once()
    assert first is not None and first.status == "complete" and watching.is_news(first)
    assert once() is None
    store.write(B, b"".join(claude_lines(B, 2)))
    second = once()
    assert second is not None and (second.status, second.sent) == ("complete", 1)
    assert watching._connection is not None
    watching._connection.server, there = "http://127.0.0.1:9", watching._connection.server
    store.write(B, b"".join(claude_lines(B, 3)))
    third = once()
    assert third is not None and third.status == "offline" and watching.is_news(third)
    assert once() is None  # it waits
    monkeypatch.setattr(pushing, "RETRY_S", 0)
    fourth = once()
    assert fourth is not None and fourth.status == "offline" and not watching.is_news(fourth)
    watching._connection.server = there
    fifth = once()
    assert fifth is not None and (fifth.status, fifth.sent) == ("complete", 1)


def test_a_scheduled_run_leaves_its_result(logged_in: Sync, store: Store) -> None:
    from prosa.sync import last_run

    assert logged_in("--scheduled").code == exit_codes.DONE
    found = last_run.read(store.home)
    assert found is not None and (found.exit_code, found.running) == (0, False)
    assert not (Path(store.home.data) / "scheduled.json.new").exists()
