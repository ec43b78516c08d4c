"""The audit trail over a real log: what is shown, what never is, and what erasing leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from command import Ran

from prosa.cli import opening
from prosa.events import catalogue as c
from prosa.events.facts import Header, Turn
from prosa.events.home import Home
from prosa.events.log import Draft, Log
from prosa.events.raw import RawStore

SECRET = "the secret words of a prompt"
KEY = "claude-code/00000001-7f3c-4abc-9def-0123456789ab"
STREAM = f"session-{KEY}"


def parsed(text: str) -> c.SessionParsed:
    return c.SessionParsed(
        session=KEY, agent="claude-code", id=KEY.split("/")[1], revision=1, parser="claude-code/1", raw="0" * 64,
        turns=(Turn(key=1, kind="message", role="user", text=text),), header=Header(title=SECRET, malformed=2),
    )  # fmt: skip


@pytest.fixture
def place(home: Path) -> Home:
    return Home(home / "prosa", home / "config")


@pytest.fixture
def raw(place: Home) -> str:
    writer = RawStore(place.raw).writer()
    writer.write(SECRET.encode())
    return RawStore(place.raw).keep(writer).sha256


@pytest.fixture
def log(place: Home, raw: str) -> Path:
    with Log(place.log, create=True) as log:
        log.append(
            [
                Draft(STREAM, 0, c.RawPreserved(session=KEY, sha256=raw, size=len(SECRET), stored=40)),
                Draft(STREAM, 1, parsed(SECRET)),
                Draft(STREAM, 2, parsed(SECRET + " again")),
                Draft(STREAM, 3, c.SessionDescribed(session=KEY, field="title", value=SECRET, rank=1, evidence="x")),
                Draft("source-claude-code/1", 0, c.SourceDetected(
                    agent="claude-code", profile="default", path="/home/dev/a\x1b[31m.jsonl", size=9, sha256=raw,
                    sessions=(KEY,),
                )),
                Draft("project-1", 0, c.ProjectIdentified(path="/home/dev/acme/shop", remote="github.com/acme/shop")),
                Draft("project-2", 0, c.ProjectIdentified(path="/elsewhere", remote="github.com/acme/other")),
            ]
        )  # fmt: skip
    return place.log


def test_every_event_is_a_record_without_transcript_text(prosa: Callable[..., Ran], log: Path) -> None:
    ran = prosa("log", "--json")
    records = [json.loads(line) for line in ran.out.splitlines()]
    assert [record["position"] for record in records] == list(range(1, 11))
    assert SECRET not in ran.out + prosa("log").out
    assert list(records[-1]) == [
        "position", "at", "origin", "origin_position", "id", "stream", "stream_version", "type", "version",
        "body", "erased",
    ]  # fmt: skip
    assert records[4]["body"]["turns"] == 1
    assert records[3]["body"]["size"] == len(SECRET)


def test_types_since_and_limit_choose(prosa: Callable[..., Ran], log: Path) -> None:
    assert len(prosa("log", "--type", "session_parsed,session_described").out.splitlines()) == 3
    assert len(prosa("log", "--since", "2000-01-01", "--limit", "2").out.splitlines()) == 2
    assert prosa("log", "--since", "2090-01-01").out == ""
    assert prosa("log", "--type", "nope").code == 2
    assert len(prosa("log", "--json", "--limit", "0").out.splitlines()) == 10


def test_a_terminal_gets_lines_that_fit(terminal: Callable[..., Ran], log: Path) -> None:
    from prosa.cli.text import width

    out = terminal("log", "--no-color").out
    assert all(width(line) <= 80 for line in out.splitlines())
    assert "\x1b" not in out


def test_one_event_is_shown_with_its_hashes(prosa: Callable[..., Ran], log: Path) -> None:
    out = prosa("log", "show", "5").out
    assert "type             session_parsed\n" in out
    assert "  turns          1\n" in out
    assert SECRET not in out
    assert json.loads(prosa("log", "show", "5", "--json").out)["position"] == 5
    assert prosa("log", "show", "99").code == 2


def test_a_whole_log_verifies_and_a_changed_byte_is_named(
    prosa: Callable[..., Ran], log: Path, place: Home, raw: str
) -> None:
    assert prosa("log", "verify", "--deep").out == "10 events and 1 preserved transcript checked: all as written\n"
    RawStore(place.raw).path(raw).write_bytes(b"other")
    assert prosa("log", "verify").code == 0
    deep = prosa("log", "verify", "--deep")
    assert deep.code == 1
    assert f"raw {raw}: its first {len(SECRET)} bytes do not have this hash\n" in deep.out
    db = apsw.Connection(str(log))
    db.execute("DROP TRIGGER events_are_not_changed")
    db.execute("UPDATE events SET body = zeroblob(20) WHERE position = 5")
    db.execute("UPDATE events SET type = 'session_parsee' WHERE position = 6")
    db.close()
    found = [json.loads(line) for line in prosa("log", "verify", "--json").out.splitlines()]
    assert [record.get("where") for record in found[:2]] == ["event 5", "event 6"]
    assert found[-1]["problems"] == 2


def test_why_names_the_sessions_own_events_its_source_and_its_project(prosa: Callable[..., Ran], log: Path) -> None:
    records = [json.loads(line) for line in prosa("why", "00000001", "--json").out.splitlines()]
    assert [record["type"] for record in records] == [
        "raw_preserved", "session_parsed", "session_parsed", "session_described", "source_detected",
        "project_identified",
    ]  # fmt: skip
    assert [record["body"].get("path") for record in records[-2:]] == [
        "/home/dev/a\x1b[31m.jsonl",
        "/home/dev/acme/shop",
    ]


def test_erasing_asks_and_without_anybody_to_ask_erases_nothing(
    prosa: Callable[..., Ran], log: Path, place: Home
) -> None:
    before = log.read_bytes()
    ran = prosa("log", "erase", "00000001")
    assert ran.code == 2
    assert "Nothing was erased." in ran.err
    assert log.read_bytes() == before


def test_erasing_clears_bodies_and_raw_and_keeps_the_headers(
    prosa: Callable[..., Ran], log: Path, place: Home, raw: str
) -> None:
    ran = prosa("log", "erase", "00000001", "--yes")
    assert ran.code == 0
    assert ran.err.startswith("Erased: 4 bodies in the log, 1 preserved transcript, ")
    assert not RawStore(place.raw).has(raw)
    assert SECRET.encode() not in log.read_bytes()
    records = [json.loads(line) for line in prosa("log", "--json").out.splitlines()]
    assert [record["position"] for record in records if record["erased"]] == [4, 5, 6, 7]
    assert sum(record["type"] == "body_erased" for record in records) == 4
    assert prosa("log", "verify", "--deep").code == 0
    assert prosa("log", "erase", "00000001", "--yes").err == "There is nothing to erase.\n"


def test_only_replaced_parses_are_superseded(log: Path, place: Home) -> None:
    plan = opening.plan_erasure(place, None)
    assert (plan.positions, plan.raws, plan.reason) == ([5], [], "superseded")
