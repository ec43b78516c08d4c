"""Loads a prosa-server: many devices push at once, then many readers ask. Figures are printed, never judged.

    prosa-server --dev &
    .venv/bin/python bench/load.py http://127.0.0.1:7070 --devices 8 --events 10000 --readers 200 --seconds 10

Every device is a real log of its own with a login of its own (by the page that a --dev server has), pushing from a
process of its own. The readers ask what is there: push a corpus before, or they read small events alone.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import multiprocessing
import re
import secrets
import sys
import tempfile
import time
from collections import Counter
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median, quantiles

import httpx
import msgspec

from prosa.events import messages
from prosa.events.catalogue import SourceDetected
from prosa.events.log import BATCH_EVENTS, Draft, Log

FIELD = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)">')
CODE = re.compile(r'<p class="code"><code>([^<]+)</code>')
QUESTIONS = (
    "/v1/sessions?limit=50",
    "/v1/search?query=error&limit=20",
    "/v1/search?query=%22connection+pool%22&limit=20",
    "/v1/reports/usage",
    "/v1/reports/days",
)


class Device:
    """A login of its own; speaks msgpack."""

    def __init__(self, url: str, name: str) -> None:
        self.fingerprint = hashlib.sha256(name.encode()).hexdigest()[:16]
        with httpx.Client(base_url=url, headers={"Origin": url}) as browser:
            browser.post("/dev-login", data=dict(FIELD.findall(browser.get("/login").text)))
            verifier = secrets.token_urlsafe(48)
            challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
            asked = messages.LoginQuestion(
                device=self.fingerprint, hostname=name, machine="", platform="linux/x86_64", challenge=challenge,
                state=secrets.token_urlsafe(24),
            )  # fmt: skip
            begun = browser.post("/v1/login/begin", content=msgspec.json.encode(asked)).raise_for_status().json()
            page = browser.get(begun["authorize_url"]).text
            done = browser.post("/authorize", data=dict(FIELD.findall(page)) | {"decision": "approve"}).text
            exchange = messages.LoginExchange(begun["request"], CODE.findall(done)[0], verifier)
            answer = browser.post("/v1/login/exchange", content=msgspec.json.encode(exchange)).raise_for_status()
        self.headers = {
            "Authorization": f"Bearer {answer.json()['token']}", messages.DEVICE_HEADER: self.fingerprint,
            "Content-Type": messages.MSGPACK, "Accept": messages.MSGPACK,
        }  # fmt: skip


def push(url: str, headers: dict[str, str], name: str, events: int, start: Barrier) -> None:
    """Make a log of small events, wait for the others, send it."""
    with tempfile.TemporaryDirectory() as folder, Log(Path(folder) / "log.db", create=True) as log:
        for first in range(0, events, BATCH_EVENTS):
            log.append([
                Draft(f"source-load/{name}-{number}", 0, SourceDetected(
                    agent="codex", profile="default", path=f"/home/{name}/{number}.jsonl", size=number, sha256="0" * 64,
                ))
                for number in range(first, min(first + BATCH_EVENTS, events))
            ])  # fmt: skip
        shared = log.shared
        mine = [messages.PushedEvent.of(event) for event in log.read() if event.origin == shared.number]
    with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
        start.wait()
        head = messages.Head(0, bytes(32))
        for first in range(0, len(mine), messages.EVENTS_LIMIT):
            batch = messages.PushBatch(shared.origin.hex(), head, mine[first : first + messages.EVENTS_LIMIT])
            answer = client.post("/v1/events", content=msgspec.msgpack.encode(batch)).raise_for_status()
            head = msgspec.msgpack.decode(answer.content, type=messages.Receipt).head
        assert head.position == len(mine)
        start.wait()


def push_at_once(url: str, devices: list[Device], events: int) -> None:
    spawn = multiprocessing.get_context("spawn")
    start = spawn.Barrier(len(devices) + 1)
    processes = [
        spawn.Process(target=push, args=(url, device.headers, f"load{number}", events, start))
        for number, device in enumerate(devices)
    ]
    for process in processes:
        process.start()
    start.wait()
    began = time.monotonic()
    start.wait()
    took = time.monotonic() - began
    total = len(devices) * events
    print(f"append: {total:,} events from {len(devices)} devices in {took:.2f} s: {total / took:,.0f} a second")
    with httpx.Client(base_url=url, headers=devices[0].headers, timeout=60) as client:
        while True:
            heads = msgspec.msgpack.decode(client.get("/v1/heads").content, type=messages.Heads)
            if heads.projected >= heads.position:
                break
            time.sleep(0.1)
    print(f"projected: {time.monotonic() - began - took:.2f} s after the last append")


async def read(url: str, device: Device, readers: int, seconds: float) -> None:
    """Each reader asks one question after the other."""
    times: dict[str, list[float]] = {question: [] for question in QUESTIONS}
    failed: Counter[int] = Counter()
    until = time.monotonic() + seconds
    limits = httpx.Limits(max_connections=readers, max_keepalive_connections=readers)
    async with httpx.AsyncClient(base_url=url, headers=device.headers, timeout=60, limits=limits) as client:

        async def one(number: int) -> None:
            turn = number
            while time.monotonic() < until:
                question = QUESTIONS[turn % len(QUESTIONS)]
                turn += 1
                began = time.monotonic()
                answer = await client.get(question)
                if answer.status_code == 200:
                    times[question].append(time.monotonic() - began)
                else:
                    failed[answer.status_code] += 1

        await asyncio.gather(*(one(number) for number in range(readers)))
    total = sum(map(len, times.values()))
    print(f"read: {readers} readers, {total / seconds:,.0f} answers a second, failed {dict(failed)}")
    for question, took in times.items():
        if len(took) > 1:
            late = quantiles(took, n=20)[-1]
            print(f"  {question}: {len(took):,} answers, median {median(took):.2f} s, 95th of 100 {late:.2f} s")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("url")
    arguments.add_argument("--devices", type=int, default=8)
    arguments.add_argument("--events", type=int, default=10_000, help="of each device")
    arguments.add_argument("--readers", type=int, default=200)
    arguments.add_argument("--seconds", type=float, default=10)
    given = arguments.parse_args()
    devices = [Device(given.url, f"load{number}-{secrets.token_hex(4)}") for number in range(given.devices)]
    if given.events:
        push_at_once(given.url, devices, given.events)
    if given.readers:
        asyncio.run(read(given.url, devices[0], given.readers, given.seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
