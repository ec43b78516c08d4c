"""The list of devices: names, merges that are taken back exactly, revoking; over HTTP and out of pushed events."""

from __future__ import annotations

import asyncio
from itertools import permutations
from typing import Any

import httpx
import msgspec
import pytest
from browser import Browser, Pkce, browsing, many_connections, shown_code

from prosa.events import catalogue as c
from prosa.events import codec
from prosa.events.log import Draft, Log
from prosa.events.messages import Head, PushBatch, PushedEvent
from prosa.projections.aliases import SAME_MACHINE
from prosa.server import tokens
from prosa.server.devices import canonical
from prosa.server.endpoints import Caller
from prosa.server.entries import aliases, note_pushed
from prosa.server.log import append_pushed
from prosa.server.settings import Settings
from prosa.server.state import Server

pytestmark = pytest.mark.anyio

A, B, C = "00000000000000aa", "00000000000000bb", "00000000000000cc"
MACHINE = "0000000000000001"


@pytest.fixture
def admin(server: Server) -> dict[str, str]:
    return {"Authorization": f"Bearer {server.settings.admin_token}"}


@pytest.fixture
async def three(server: Server) -> None:
    """Three devices that have logged in: A and B with one machine id, C without."""
    for device, hostname, machine in ((A, "studio", MACHINE), (B, "studio-2", MACHINE), (C, "box", "")):
        await server.pool.execute(
            "INSERT INTO device_entries (owner, device, hostname, machine, platform) VALUES (1, $1, $2, $3, 'linux')",
            device, hostname, machine,
        )  # fmt: skip


async def rows(client: httpx.AsyncClient, headers: dict[str, str]) -> dict[str, dict[str, Any]]:
    answer = await client.get("/v1/devices", headers=headers)
    assert answer.status_code == 200, answer.text
    return {row["device"]: row for row in answer.json()["devices"]}


async def change(client: httpx.AsyncClient, headers: dict[str, str], path: str, **body: str) -> dict[str, Any]:
    answer = await client.post(f"/v1/devices/{path}", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def said(server: Server, kind: str) -> int:
    return int(await server.pool.fetchval("SELECT count(*) FROM events WHERE type = $1", kind))


# over HTTP


async def test_a_new_name_shows_at_once(
    server: Server, client: httpx.AsyncClient, a_device: Any, admin: dict[str, str], three: None
) -> None:
    headers = await a_device(A)
    assert (await rows(client, headers))[A]["name"] == "studio"
    done = await change(client, headers, f"{C}/rename", name="  the box ")
    assert (await rows(client, admin))[C]["name"] == "the box"
    assert await change(client, admin, f"{C}/rename", name="the box") == done
    assert await said(server, "device_renamed") == 1
    event = await server.pool.fetchrow("SELECT stream, body FROM events WHERE type = 'device_renamed'")
    assert event["stream"] == f"device-{C}"
    assert codec.decode("device_renamed", 1, codec.unpack(event["body"])) == c.DeviceRenamed(
        device=C, name="the box", by=A
    )


@pytest.mark.parametrize("name", ["", "   ", "a\nb", "\0", "x" * 101, "\x1b[31m"])
async def test_a_name_is_printable(client: httpx.AsyncClient, admin: dict[str, str], three: None, name: str) -> None:
    answer = await client.post(f"/v1/devices/{A}/rename", json={"name": name}, headers=admin)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


async def test_a_merge_and_its_revert_leave_the_list_as_it_was(
    server: Server, client: httpx.AsyncClient, admin: dict[str, str], three: None
) -> None:
    before = await rows(client, admin)
    merge = await change(client, admin, "merge", device=A, into=C)
    merged = await rows(client, admin)
    assert (merged[A]["merged_into"], merged[A]["merge"]) == (C, merge["event"])
    assert merged[C]["merged_into"] is None
    assert await canonical(server, A) == C
    assert await change(client, admin, "merge", device=A, into=C) == merge
    revert = await change(client, admin, "unmerge", merge=merge["event"])
    assert await rows(client, admin) == before
    assert await change(client, admin, "unmerge", merge=merge["event"]) == revert
    assert (await said(server, "device_merged"), await said(server, "device_merge_reverted")) == (1, 1)
    again = await change(client, admin, "merge", device=A, into=C)
    assert again != merge and await canonical(server, A) == C


async def test_what_cannot_be_merged_changes_nothing(
    server: Server, client: httpx.AsyncClient, admin: dict[str, str], three: None
) -> None:
    await change(client, admin, "merge", device=A, into=B)
    await change(client, admin, "merge", device=B, into=C)
    for body, status in (
        ({"device": A, "into": A}, 422),
        ({"device": A, "into": C}, 409),  # they are one by way of B
        ({"device": A, "into": "00000000000000ff"}, 404),
        ({"device": "\0", "into": A}, 404),
    ):
        answer = await client.post("/v1/devices/merge", json=body, headers=admin)
        assert answer.status_code == status, answer.text
    for merge in ("", "\0", "00", "x" * 500):
        answer = await client.post("/v1/devices/unmerge", json={"merge": merge}, headers=admin)
        assert answer.status_code == 404, answer.text
    assert await said(server, "device_merged") == 2


async def test_two_who_merge_at_once_say_it_once(
    server: Server, client: httpx.AsyncClient, admin: dict[str, str], three: None
) -> None:
    await many_connections(server)
    done = await asyncio.gather(*(change(client, admin, "merge", device=A, into=C) for _ in range(6)))
    assert all(each == done[0] for each in done)
    assert await said(server, "device_merged") == 1


async def test_what_is_counted_of_a_machine_includes_its_merged_entries(
    client: httpx.AsyncClient, admin: dict[str, str], a_device: Any, three: None
) -> None:
    await a_device(A)
    await a_device(C)
    await a_device(C, days=0)
    assert {device: row["tokens"] for device, row in (await rows(client, admin)).items()} == {A: 1, B: 0, C: 1}
    await change(client, admin, "merge", device=A, into=C)
    assert {device: row["tokens"] for device, row in (await rows(client, admin)).items()} == {A: 1, B: 0, C: 2}


async def test_sessions_are_counted_from_the_tables_that_serve(
    server: Server, client: httpx.AsyncClient, admin: dict[str, str], three: None
) -> None:
    await server.pool.execute(
        "INSERT INTO projections (owner, number, version, schema, worker, prices, state) "
        "VALUES (1, 1, 1, 'p1_1', 'w', 'a table', 'serving')"
    )
    assert (await rows(client, admin))[A]["sessions"] == 0  # it was dropped: another one will serve
    await server.pool.execute("CREATE SCHEMA p1_1")
    await server.pool.execute("CREATE TABLE p1_1.sessions (device text, last bigint)")
    times = [(A, 1_800_000_000_000_000), (A, None), (C, 1_700_000_000_000_000), (None, 1)]
    await server.pool.executemany("INSERT INTO p1_1.sessions VALUES ($1, $2)", times)
    answer = (await client.get("/v1/devices", headers=admin)).json()
    found = {row["device"]: (row["sessions"], row["last_activity_at"]) for row in answer["devices"]}
    assert found == {A: (2, "2027-01-15T08:00:00.000Z"), B: (0, None), C: (1, "2023-11-14T22:13:20.000Z")}
    assert answer["prices"] == "a table"


# revoking


async def test_a_revoked_device_is_refused_at_once_and_let_in_by_the_next_login(settings: Settings) -> None:
    async with browsing(settings) as (server, browser):
        client, pkce = browser.client, Pkce()
        admin = {"Authorization": f"Bearer {settings.admin_token}"}
        token, _ = await _logged_in(browser, A)
        other, _ = await _logged_in(browser, B)
        headers = {"Authorization": f"Bearer {token}", "Prosa-Device": A}
        done = await change(client, admin, f"{A}/revoke")
        refused = await client.get("/v1/whoami", headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (401, "token_revoked")
        others = {"Authorization": f"Bearer {other}", "Prosa-Device": B}
        assert (await client.get("/v1/whoami", headers=others)).status_code == 200
        assert (await rows(client, admin))[A]["revoked"] is True
        assert await change(client, admin, f"{A}/revoke") == done
        begun = await client.post("/v1/login/begin", content=msgspec.json.encode(pkce.question(A)))
        page = await browser.open("/authorize", params={"request": begun.json()["request"]})
        assert "revoked at" in page.text and "lets it in again" in page.text

        again, _ = await _logged_in(browser, A)
        headers["Authorization"] = f"Bearer {again}"
        assert (await client.get("/v1/whoami", headers=headers)).status_code == 200
        headers["Authorization"] = f"Bearer {token}"
        assert (await client.get("/v1/whoami", headers=headers)).status_code == 401  # the old one stays revoked
        assert (await rows(client, admin))[A]["revoked"] is False
        assert await change(client, admin, f"{A}/revoke") != done
        assert await said(server, "device_revoked") == 2


async def test_revoking_a_machine_revokes_it_under_all_its_names(
    client: httpx.AsyncClient, admin: dict[str, str], a_device: Any, three: None
) -> None:
    headers = [await a_device(A), await a_device(B)]
    await change(client, admin, "merge", device=A, into=B)
    await change(client, admin, f"{A}/revoke")
    for each in headers:
        assert (await client.get("/v1/whoami", headers=each)).status_code == 401
    assert (await client.post("/v1/devices/00000000000000ff/revoke", headers=admin)).status_code == 404


async def test_revoking_a_device_and_its_tokens_at_once_waits_for_nobody(
    server: Server, client: httpx.AsyncClient, admin: dict[str, str], three: None
) -> None:
    ids = [(await tokens.issue(server, "device", device=A, by="admin"))[1] for _ in range(8)]
    await many_connections(server)
    calls = [client.post(f"/v1/tokens/{id}/revoke", headers=admin) for id in ids]
    calls.insert(4, client.post(f"/v1/devices/{A}/revoke", headers=admin))
    assert [answer.status_code for answer in await asyncio.gather(*calls)] == [200] * 9


async def _logged_in(browser: Browser, device: str) -> tuple[str, Pkce]:
    pkce = Pkce()
    begun = await browser.client.post("/v1/login/begin", content=msgspec.json.encode(pkce.question(device)))
    await browser.sign_in()
    code = shown_code(await browser.decide(begun.json()["request"]))
    asked = {"request": begun.json()["request"], "code": code, "verifier": pkce.verifier}
    answer = await browser.client.post("/v1/login/exchange", json=asked)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["token"]), pkce


# a machine whose name changed


async def test_a_machine_says_that_its_name_changed(
    server: Server, client: httpx.AsyncClient, a_device: Any, admin: dict[str, str], three: None
) -> None:
    headers = {**await a_device(A), "Prosa-Device": B}
    assert (await client.get("/v1/whoami", headers=headers)).json()["code"] == "other_device"
    done = await change(client, headers, "merge-self", device=A, into=B, hostname="studio-2", machine=MACHINE)
    who = (await client.get("/v1/whoami", headers=headers)).json()
    assert who["device"] == B
    assert (await rows(client, admin))[A]["merged_into"] == B
    assert await change(client, headers, "merge-self", device=A, into=B, hostname="x", machine=MACHINE) == done
    row = await server.pool.fetchrow("SELECT evidence, own FROM device_merges")
    assert (row["evidence"], row["own"]) == (SAME_MACHINE, True)


async def test_a_machine_may_have_a_name_that_nobody_knew(
    client: httpx.AsyncClient, a_device: Any, admin: dict[str, str], three: None
) -> None:
    new = "00000000000000dd"
    headers = {**await a_device(A), "Prosa-Device": new}
    await change(client, headers, "merge-self", device=A, into=new, hostname="renamed", machine=MACHINE)
    listed = await rows(client, admin)
    assert (listed[new]["hostname"], listed[A]["merged_into"]) == ("renamed", new)


@pytest.mark.parametrize(
    ("device", "into", "machine"),
    [
        (A, C, MACHINE),
        (A, B, "0000000000000002"),
        (A, B, ""),
        (C, B, ""),
        (C, B, MACHINE),
        (C, "00000000000000dd", ""),  # no id is no evidence
        (B, A, MACHINE),  # the token is A's
    ],
)
async def test_another_machine_is_not_merged(
    server: Server, client: httpx.AsyncClient, a_device: Any, three: None, device: str, into: str, machine: str
) -> None:
    headers = {**await a_device(A if device != C else C), "Prosa-Device": into}
    body = {"device": device, "into": into, "hostname": "h", "machine": machine}
    answer = await client.post("/v1/devices/merge-self", json=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "other_device")
    assert await said(server, "device_merged") == 0


async def test_a_merge_that_was_taken_back_is_not_made_again_by_itself(
    server: Server, client: httpx.AsyncClient, a_device: Any, admin: dict[str, str], three: None
) -> None:
    headers = {**await a_device(A), "Prosa-Device": B}
    merge = await change(client, headers, "merge-self", device=A, into=B, hostname="studio-2", machine=MACHINE)
    await change(client, admin, "unmerge", merge=merge["event"])
    assert (await client.get("/v1/whoami", headers=headers)).status_code == 403
    body = {"device": A, "into": B, "hostname": "studio-2", "machine": MACHINE}
    assert (await client.post("/v1/devices/merge-self", json=body, headers=headers)).status_code == 403


# pushed events


def batch_of(log: Log, after: int = 0) -> PushBatch:
    shared = log.shared
    events = [event for event in log.read() if event.origin == shared.number]
    before = [event for event in events if event.origin_position <= after]
    expect = Head(before[-1].origin_position, before[-1].hash) if before else Head(0, bytes(32))
    return PushBatch(shared.origin.hex(), expect, [PushedEvent.of(event) for event in events[after:]])


async def push(server: Server, device: str, log: Log, after: int = 0) -> int:
    receipt = await append_pushed(server, Caller("device", device), batch_of(log, after))
    return receipt.head.position


async def test_what_a_device_says_of_devices_holds_at_once(
    server: Server, client: httpx.AsyncClient, admin: dict[str, str], tmp_path: Any
) -> None:
    with Log(tmp_path / "log.db", create=True) as log:
        log.append(
            [
                Draft(
                    f"device-{A}", 0, c.DeviceIdentified(device=A, hostname="stu\0dio", machine=MACHINE, platform="l")
                ),
                Draft(f"device-{B}", 0, c.DeviceIdentified(device=B, hostname="old", machine=MACHINE, platform="l")),
                Draft(f"device-{B}", 1, c.DeviceRenamed(device=B, name="one", by=A)),
                Draft(f"device-{B}", 2, c.DeviceRenamed(device=B, name="two", by=A)),
            ]
        )
        done = await push(server, A, log)
        listed = await rows(client, admin)
        assert (listed[A]["hostname"], listed[B]["name"], listed[B]["hostname"]) == ("stu\ufffddio", "two", "old")
        merge = log.append([Draft(f"device-{B}", 3, c.DeviceMerged(device=B, into=A, evidence="mine", by=A))])[0]
        done = await push(server, A, log, done)
        assert await canonical(server, B) == A
        log.append([Draft(f"device-{B}", 4, c.DeviceMergeReverted(merge=merge.id.hex(), by=A))])
        await push(server, A, log, done)
        assert await canonical(server, B) == B


async def test_a_device_that_takes_its_merge_back_takes_the_servers_with_it(
    server: Server, client: httpx.AsyncClient, a_device: Any, three: None, tmp_path: Any
) -> None:
    """Both sides merged a machine whose hostname changed."""
    headers = {**await a_device(A), "Prosa-Device": B}
    await change(client, headers, "merge-self", device=A, into=B, hostname="studio-2", machine=MACHINE)
    with Log(tmp_path / "log.db", create=True) as log:
        merge = log.append([Draft(f"device-{A}", 0, c.DeviceMerged(device=A, into=B, evidence=SAME_MACHINE, by=B))])[0]
        done = await push(server, B, log)
        assert await canonical(server, A) == B
        log.append([Draft(f"device-{A}", 1, c.DeviceMergeReverted(merge=merge.id.hex(), by=B))])
        await push(server, B, log, done)
    assert await canonical(server, A) == A
    assert await said(server, "device_merge_reverted") == 2
    positions = [row["position"] for row in await server.pool.fetch("SELECT position FROM events ORDER BY position")]
    assert positions == list(range(1, len(positions) + 1))


async def test_the_owner_takes_back_what_both_sides_merged(
    server: Server, client: httpx.AsyncClient, a_device: Any, admin: dict[str, str], three: None, tmp_path: Any
) -> None:
    headers = {**await a_device(A), "Prosa-Device": B}
    await change(client, headers, "merge-self", device=A, into=B, hostname="studio-2", machine=MACHINE)
    with Log(tmp_path / "log.db", create=True) as log:
        log.append([Draft(f"device-{A}", 0, c.DeviceMerged(device=A, into=B, evidence=SAME_MACHINE, by=B))])
        await push(server, B, log)
    await change(client, admin, "unmerge", merge=(await rows(client, admin))[A]["merge"])
    assert (await rows(client, admin))[A]["merged_into"] is None
    assert await said(server, "device_merge_reverted") == 2


async def test_in_whatever_order_names_and_reverts_arrive_they_end_the_same(server: Server, tmp_path: Any) -> None:
    async def ends(order: tuple[int, ...]) -> tuple[str, str]:
        await server.pool.execute("DELETE FROM device_entries")
        await server.pool.execute("DELETE FROM device_merges")
        for number in order:
            await note_pushed(server.pool, server.owner, [recorded[number]])
        name = await server.pool.fetchval("SELECT name FROM device_entries WHERE device = $1", A)
        return str(name), (await aliases(server.pool, server.owner)).canonical(A)

    with Log(tmp_path / "log.db", create=True) as log:
        first = log.append([Draft("device-x", 0, c.DeviceRenamed(device=A, name="one", by=A))])[0]
        merge = log.append([Draft("device-x", 1, c.DeviceMerged(device=A, into=B, evidence="mine", by=A))])[0]
        revert = log.append([Draft("device-x", 2, c.DeviceMergeReverted(merge=merge.id.hex(), by=A))])[0]
        last = log.append([Draft("device-x", 3, c.DeviceRenamed(device=A, name="two", by=A))])[0]
        await push(server, A, log)
    recorded = [event._replace(origin=1) for event in (first, merge, revert, last)]
    assert {await ends(order) for order in permutations(range(4))} == {("two", A)}


async def test_an_event_whose_body_cannot_be_read_changes_nothing_and_holds_up_nothing(
    server: Server, tmp_path: Any
) -> None:
    with Log(tmp_path / "log.db", create=True) as log:
        log.append([Draft("device-x", 0, c.DeviceRenamed(device=A, name="one", by=A))])
        log.erase(list(log.stream("device-x")), "a test", "me")
        assert await push(server, A, log) == 3
    assert await server.pool.fetchval("SELECT count(*) FROM device_entries") == 0
