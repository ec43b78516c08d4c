"""What every back end is asked about: sessions of several agents, with all that can be said of one."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

from archive import DAY, HOUR, MINUTE, START, Archive, say
from store import A, B, C, Store, claude_lines

from prosa.events.catalogue import (
    DeviceMerged,
    DeviceMergeReverted,
    DeviceRenamed,
    SessionDescribed,
    SessionPruned,
    SessionRestored,
)
from prosa.events.facts import Compaction, Summary, Usage

CORPUS = Path(__file__).parents[2] / "shared" / "corpus"
SUMMER_TIME = 1_774_746_000_000_000
"""2026-03-29 01:00 UTC: in Berlin two o'clock became three."""
WINTER_TIME = 1_792_890_000_000_000
"""2026-10-25 01:00 UTC: in Berlin three o'clock became two."""
OPUS, HAIKU, OWN = "claude-opus-4-5-20251101", "claude-haiku-4-5-20251001", "acme/own-model"


def fill(store: Store) -> None:
    """Transcripts of Claude Code and of every agent in the corpus, then what no agent here wrote."""
    _claude(store)
    with store.log() as log:
        archive = Archive(store.home.data, log)
        _chats(archive)
        _times(archive)
        _devices(archive)


def _claude(store: Store) -> None:
    """A session, a fork of it with lines of its own, one in Chinese."""
    lines = claude_lines(A, 4, text="reaper.drain")
    store.write(A, b"".join(lines))
    fork = [line.replace(A.encode(), B.encode()) for line in lines[:6]]
    store.write(B, b"".join([*fork, *claude_lines(B, 2, start=9, text="drain the pool")]))
    store.write(C, b"".join(claude_lines(C, 3, text="数据库 迁移 失败 nul \0 here")))
    store.sync()
    for home in sorted(CORPUS.glob("*/*/home")):
        store.env["HOME"] = str(home)
        store.sync()
    store.env["HOME"] = str(store.user)


def _answer(at: int | None, model: str | None, tokens: int, **more: Any) -> Usage:
    return Usage(key=0, at=at, model=model, input=tokens, output=tokens // 2, **more)


def _chats(archive: Archive) -> None:
    call = {"kind": "tool_call", "tool": "Bash", "tool_call_id": "c1", "model": OPUS}
    result = {"kind": "tool_result", "tool": "Bash", "tool_call_id": "c1", "is_error": True}
    archive.project("/home/dev/straße", remote="github.com/acme/Straße")
    archive.project("/home/dev/other", remote="github.com/acme/tools")
    archive.project("/srv/tools", marker="tools")
    common = {"cwd": "/home/dev/straße", "agent": "codex", "raw": b"of main"}
    archive.session(
        "main",
        say("user", "look why the reaper fails", START),
        say("assistant", "thinking about the reaper", START + MINUTE, kind="thinking", model=OPUS),
        say("assistant", "ls -la", START + 2 * MINUTE, **call),
        say("tool", "ls: cannot access", START + 3 * MINUTE, **result),
        say("assistant", "The reaper fails because of the pool.", START + 4 * MINUTE, model=HAIKU),
        say("tool", "again an error", START + 5 * MINUTE, **result | {"tool_call_id": "c2"}),
        say("system", "summary of what was said", START + 6 * MINUTE, kind="compaction", counted=False),
        usage=(_answer(START + 2 * MINUTE, OPUS, 1000, reasoning=100), _answer(START + 4 * MINUTE, HAIKU, 300),
               _answer(START + 40 * MINUTE, OWN, 7)),
        compactions=(Compaction(key=1, id="c", at=START + 6 * MINUTE, trigger="auto", size_before=100_000),),
        title="Reaper, the title", branch="main", kinds=("goal",), source="/home/dev/.codex/main.jsonl", **common,
    )  # fmt: skip
    for number in range(5):
        parent = "main" if number < 3 else "child1" if number == 3 else "nobody"
        turns = [say("user", f"task {number} about the pool", START + number * HOUR)]
        archive.session(f"child{number}", *turns, parent=parent, **common | {"raw": b"child %d" % number})
    archive.session("empty", title="Nothing was said")
    archive.chat("orphan", "an orphan " * 30, agent="pi", profile="work", cwd="/srv/tools", at=START - DAY)
    archive.chat("elsewhere", "the same name, another project", cwd="/home/dev/other", at=START - 2 * DAY)
    archive.chat("scoped", "in a scope", agent="pi", scope="s1", at=START - 3 * DAY, compactions_known=False,
                 compactions_reason="the agent does not say")  # fmt: skip
    archive.chat("long", "word " * 90_000 + "needle at the end", "needle again", at=START - 4 * DAY)
    archive.chat("named", "titled by another", at=START - 5 * DAY, leaf="leaf-1", state="partial", state_reason="cut")
    archive.chat(
        "namer", "names another", at=START - 6 * DAY, foreign_titles=(Summary(leaf="leaf-1", text="A stated title"),)
    )
    described = SessionDescribed(session="pi/orphan", field="title", value="Said later", rank=3, evidence="test")
    archive.write("session-pi/orphan", described)
    for number in range(30):
        texts = [f"common prompt {number}", "common error", "东京タワー ÄRGER " + "x" * (990 + number)]
        archive.chat(f"s{number:02}", *texts[: 1 + number % 3], at=START + number * DAY // 7, agent="gemini")


def _times(archive: Archive) -> None:
    for name, around in (("spring", SUMMER_TIME), ("autumn", WINTER_TIME)):
        hours = [around + n * HOUR // 2 for n in range(-6, 8)]
        usage = tuple(_answer(at, OPUS, 10) for at in hours)
        archive.session(name, *(say("user", f"at {n}", at) for n, at in enumerate(hours)), usage=usage, agent="pi")
    archive.chat("timeless", "when was this?", at=None, agent="hermes")
    archive.chat("started", "only its start is known", at=None, agent="hermes", started_at=START - 30 * DAY)
    archive.chat("active", "still at work", at=START + 30 * DAY - 5 * MINUTE)
    numbers = count()
    archive.session(
        "old", *(say("user", f"before {next(numbers)}", START - n * 40 * DAY) for n in range(9)), agent="pi",
        usage=(_answer(START - 300 * DAY, None, 5), _answer(None, OPUS, 1)),
    )  # fmt: skip


def _devices(archive: Archive) -> None:
    for fingerprint, hostname in (("aaaa000011112222", "studio"), ("bbbb000011112222", "laptop"), ("cccc00", "old")):
        archive.device(fingerprint, hostname)
        raw = b"made on " + fingerprint.encode()
        archive.chat(f"on-{hostname}", f"made on {hostname}", at=START + DAY, agent="opencode", raw=raw)
    (merge, *_) = archive.append("device-cccc00", DeviceMerged(
        device="cccc00", into="aaaa000011112222", evidence="same machine id", by="test"))  # fmt: skip
    (wrong, *_) = archive.append("device-bbbb000011112222", DeviceMerged(
        device="bbbb000011112222", into="aaaa000011112222", evidence="asked", by="test"))  # fmt: skip
    assert merge.id != wrong.id
    archive.write("device-bbbb000011112222", DeviceMergeReverted(merge=wrong.id.hex(), by="test"))
    archive.write("device-bbbb000011112222", DeviceRenamed(device="bbbb000011112222", name="Läppi", by="test"))
    for hostname, restored in (("studio", False), ("old", True)):
        key = f"opencode/on-{hostname}"
        raw = archive.raw_of[key]
        archive.write(f"session-{key}", SessionPruned(
            session=key, raw=raw, size=20, stored=20, server="s", uri="u", confirmed_at_us=START, rule="30d",
            actor="test", plan="p"))  # fmt: skip
        if restored:
            archive.write(f"session-{key}", SessionRestored(session=key, raw=raw))
