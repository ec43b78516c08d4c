"""prosa prune and prosa devices as they are typed, with a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from command import Ran, caller
from prunes import here, log_in, push
from served import OWNER, Served
from store import A, B, Store, claude_lines

from prosa.events.device import Device
from prosa.events.messages import Devices
from prosa.events.raw import RawStore
from prosa.server import tokens
from prosa.sync.http import Connection

OTHER = "00000000000000aa"


Prosa = Callable[..., Ran]


@pytest.fixture
def prosa(store: Store, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Prosa:
    """The command line over the store's folders."""
    for name in ("HOME", "PROSA_HOME", "PROSA_CONFIG_HOME"):
        monkeypatch.setenv(name, store.env[name])
    return caller(capfd)


@pytest.fixture
def pushed(store: Store, served: Served) -> Store:
    store.write(A, b"".join(claude_lines(A, 3)))
    store.write(B, b"".join(claude_lines(B, 2)))
    store.sync()
    log_in(store, served)
    push(store, served)
    return store


def test_prune_says_what_it_would_do_and_what_it_did(prosa: Prosa, pushed: Store) -> None:
    shown = prosa("prune", "--dry-run", "--json")
    assert [row.get("status") for row in shown.rows] == ["planned", "planned", "planned"]
    assert shown.rows[-1]["bytes"] == sum(row["bytes"] for row in shown.rows[:-1]) > 0
    assert len(here(pushed)) == 2
    done = prosa("prune", "--json")
    assert (done.code, [row["status"] for row in done.rows]) == (0, ["pruned", "pruned", "complete"])
    assert [row["raws"] for row in done.rows[:-1]] == [row["raws"] for row in shown.rows[:-1]]
    assert here(pushed) == []
    again = prosa("prune")
    assert (again.code, again.out, "nothing was pruned" in again.err) == (0, "", True)


def test_prune_names_what_it_kept_and_sync_as_the_next_step(prosa: Prosa, pushed: Store) -> None:
    pushed.write(A, b"".join(claude_lines(A, 4)))
    pushed.sync()
    ran = prosa("prune")
    assert ran.out.split("\t")[:2] == ["pruned", f"claude-code/{B}"]
    assert "1 session of that age" in ran.err
    assert "Next: prosa sync" in ran.err


def test_a_pruned_session_answers_as_before_and_its_raw_comes_from_the_server(prosa: Prosa, pushed: Store) -> None:
    asked = (("show", A, "--json"), ("search", "prompt", "--json", "--all"), ("analytics", "usage", "--json", "--all"))
    raw = prosa("show", A, "--raw").out
    before = [prosa(*words).out for words in asked]
    assert prosa("prune").code == 0
    after = [prosa(*words).out.replace('"pruned"', '"local"') for words in asked]
    assert after == before
    assert prosa("show", A, "--raw").out == raw == b"".join(claude_lines(A, 3)).decode()


def test_storage_log_why_and_doctor_say_what_was_pruned(prosa: Prosa, pushed: Store) -> None:
    could = {row["by"]: row for row in prosa("storage", "--json", "--all").rows}
    assert (could["prunable"]["sessions"], could["agent"]["pruned_bytes"]) == (2, 0)
    assert could["prunable"]["stored_bytes"] == could["agent"]["local_bytes"] > 0
    prosa("prune")
    did = {row["by"]: row for row in prosa("storage", "--json", "--all").rows}
    assert (did["agent"]["pruned_bytes"], did["agent"]["local_bytes"]) == (could["agent"]["local_bytes"], 0)
    assert did["prunable"]["sessions"] == 0
    assert "older than 30d, held by http://127.0.0.1" in prosa("why", A).out
    assert "older than 30d: 2 sessions" in prosa("log", "--type", "prune_planned").out
    assert prosa("log", "verify", "--deep").code == 0
    assert "2 pruned" in prosa("doctor").out


def test_a_file_that_outlived_its_event_is_named_until_it_is_removed(
    prosa: Prosa, pushed: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(RawStore, "remove", raising(PermissionError(13, "Permission denied")))
        ran = prosa("prune", "--json")
    assert (ran.code, [row["status"] for row in ran.rows]) == (1, ["failed", "failed", "partial"])
    assert "2 pruned, 2 of them still here" in prosa("doctor").out
    found = prosa("log", "verify", "--deep")
    assert (found.code, found.out.count("still here")) == (1, 2)
    assert prosa("prune", "--json").rows[-1]["leftovers"] == 2
    assert "2 pruned" in (said := prosa("doctor").out)
    assert "still here" not in said
    assert prosa("log", "verify", "--deep").code == 0


def raising(error: OSError) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("args", "code"), [(("--older-than", "soon"), 2), (("--limit", "-1"), 2), (("--agent", "codex"), 2)]
)
def test_what_is_not_understood_prunes_nothing(prosa: Prosa, pushed: Store, args: tuple[str, ...], code: int) -> None:
    assert prosa("prune", *args).code == code
    assert len(here(pushed)) == 2


def test_without_a_log_or_a_login_prune_says_what_comes_first(prosa: Prosa, store: Store) -> None:
    ran = prosa("prune")
    assert (ran.code, "Next: prosa sync" in ran.err) == (0, True)
    store.write(A, b"".join(claude_lines(A, 1)))
    store.sync()
    ran = prosa("prune")
    assert (ran.code, "prosa login" in ran.err) == (4, True)


@pytest.fixture
def other(served: Served) -> Iterator[Connection]:
    """Another device of the same owner; it is logged in."""
    token, _ = served.run(lambda server: tokens.issue(server, "device", device=OTHER, by=OWNER))
    connection = Connection(served.url, token, OTHER)
    yield connection
    connection.close()


def test_devices_of_the_server_are_listed_named_merged_and_revoked(
    prosa: Prosa, pushed: Store, served: Served, other: Connection
) -> None:
    assert other.ask("/v1/devices", Devices).devices
    (mine,) = [row for row in prosa("devices", "list", "--json").rows if row["sessions"]]
    there = {row["device"]: row for row in prosa("devices", "list", "--remote", "--json").rows}
    assert set(there) == {OTHER, mine["device"]}
    assert there[mine["device"]]["sessions"] == 2
    assert prosa("devices", "merge", mine["device"], OTHER).code == 0  # an entry that only the server knows
    assert prosa("devices", "rename", OTHER, "studio").code == 0
    push(pushed, served)
    there = {row["device"]: row for row in prosa("devices", "list", "--remote", "--json").rows}
    assert (there[OTHER]["name"], there[mine["device"]]["merged_into"]) == ("studio", OTHER)
    assert prosa("devices", "unmerge", mine["device"]).code == 0
    push(pushed, served)
    there = {row["device"]: row for row in prosa("devices", "list", "--remote", "--json").rows}
    assert there[mine["device"]]["merged_into"] is None
    assert prosa("devices", "revoke", "studio").code == 0
    there = {row["device"]: row for row in prosa("devices", "list", "--remote", "--json").rows}
    assert (there[OTHER]["revoked"], there[OTHER]["tokens"], there[mine["device"]]["revoked"]) == (True, 0, False)


def on(monkeypatch: pytest.MonkeyPatch, here: Device) -> None:
    """From now on this machine is that one."""
    for place in ("prosa.events.device", "prosa.sync.merging", "prosa.sync.prune", "prunes"):
        monkeypatch.setattr(f"{place}.identify", lambda: here)


@pytest.mark.parametrize("machine", ["m" * 16, ""], ids=["with a machine id", "without"])
def test_a_new_hostname_is_explained_to_the_server_by_prune(
    prosa: Prosa, store: Store, served: Served, monkeypatch: pytest.MonkeyPatch, machine: str
) -> None:
    on(monkeypatch, Device("00000000000000cc", "old-name", machine, "linux/x86_64"))
    store.write(A, b"".join(claude_lines(A, 3)))
    store.sync()
    log_in(store, served)
    push(store, served)
    on(monkeypatch, Device("00000000000000dd", "new-name", machine, "linux/x86_64"))
    ran = prosa("prune", "--json")
    merged = [event.event().into for event in store.events("device_merged")]
    if machine:
        assert (ran.code, ran.rows[-1]["pruned"], merged) == (0, 1, ["00000000000000dd"])
    else:  # nothing shows that both are one machine
        assert (ran.code, ran.rows[-1]["status"], merged, len(here(store))) == (4, "stopped", [], 1)
        assert "prosa login" in ran.err
