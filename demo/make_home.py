"""Lays out a home directory with made-up Claude Code and Codex sessions of the last two weeks.

    python3 demo/make_home.py FOLDER [--now 2026-01-31T18:00:00Z]

Dates are relative to now; the rest is the same each time. The records have the shape that the clients write
(docs/formats/); what is said in them was invented for this file. Standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from sessions import SESSIONS  # noqa: E402

Record = dict[str, Any]
REMOTES = {
    "lighthouse-api": "https://example.com/lighthouse/api.git",
    "tidewater": "https://example.com/tidewater/web.git",
}
"""Projects that are git repositories; `field-notes` has a .prosa.yaml instead, and the others have neither."""
CLAUDE_VERSION, CODEX_VERSION = "2.1.220", "0.171.0"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--now", default=None, help="The moment the newest session ends near (default: now).")
    given = arguments.parse_args()
    now = datetime.fromisoformat(given.now) if given.now else datetime.now(UTC)
    make_home(given.folder.absolute(), now)
    return 0


def make_home(home: Path, now: datetime) -> None:
    """Write every session of demo/sessions.py, and the folders they were had in."""
    for name in sorted({str(session["project"]) for session in SESSIONS}):
        make_project(home / "work" / name)
    made: dict[str, Claude] = {}
    for session in SESSIONS:
        start = now - timedelta(days=session["days"], minutes=session["minutes"])
        cwd = home / "work" / session["project"]
        if session["agent"] == "codex":
            Codex(session["name"], cwd, start, session["model"]).write(home, session["talk"])
            continue
        claude = Claude(session["name"], cwd, start, session["model"])
        if "fork_of" in session:
            claude.fork(made[session["fork_of"]])
        claude.write(home, session["talk"], session.get("title"))
        made[session["name"]] = claude


def make_project(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    remote = REMOTES.get(folder.name)
    if remote:
        for name in ("objects", "refs"):
            (folder / ".git" / name).mkdir(parents=True, exist_ok=True)
        (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
        config = f'[core]\n\trepositoryformatversion = 0\n[remote "origin"]\n\turl = {remote}\n'
        (folder / ".git" / "config").write_text(config, encoding="utf-8")
    elif folder.name == "field-notes":
        (folder / ".prosa.yaml").write_text("project: field-notes\n", encoding="utf-8")


def digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()


def stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def uuid4(*parts: object) -> str:
    found = digest(*parts)
    return f"{found[:8]}-{found[8:12]}-4{found[13:16]}-a{found[17:20]}-{found[20:32]}"


def uuid7(moment: datetime, *parts: object) -> str:
    when, found = f"{int(moment.timestamp() * 1000):012x}", digest(*parts)
    return f"{when[:8]}-{when[8:]}-7{found[:3]}-a{found[3:6]}-{found[6:18]}"


def write_lines(path: Path, records: Sequence[Record]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n" for record in records)
    path.write_text(text, encoding="utf-8")


@dataclass
class Talk:
    """A conversation that is being written: its records, its clock and what is in the model's context."""

    name: str
    cwd: Path
    at: datetime
    model: str
    records: list[Record] = field(default_factory=list)
    context: int = 31_000
    fresh: int = 0
    number: int = 0
    number_of_answers: int = 0

    def tick(self, seconds: float) -> str:
        self.at += timedelta(seconds=seconds)
        return stamp(self.at)

    def next(self, word: str) -> str:
        self.number += 1
        return digest(self.name, word, self.number)


class Claude(Talk):
    """One Claude Code session, or one of its sub-agents."""

    agent_id: str | None = None
    session: str = ""
    up: str | None = None

    def fork(self, other: Claude) -> None:
        """Begin with another session's records, as `claude --resume --fork-session` does."""
        self.session = uuid4("session", self.name)
        self.records = [record | {"sessionId": self.session} for record in other.records if "uuid" in record]
        self.up, self.context = other.up, other.context

    def write(self, home: Path, talk: Sequence[Mapping[str, Any]], title: str | None = None) -> None:
        self.session = self.session or uuid4("session", self.name)
        folder = home / ".claude" / "projects" / "".join(c if c.isalnum() else "-" for c in str(self.cwd))
        if title:
            self.records.append({"type": "ai-title", "aiTitle": title, "sessionId": self.session})
        for step in talk:
            self.step(step, home, folder)
        if self.agent_id:
            write_lines(folder / self.session / "subagents" / f"agent-{self.agent_id}.jsonl", self.records)
        else:
            write_lines(folder / f"{self.session}.jsonl", self.records)

    def record(self, seconds: float, body: Record) -> str:
        """Add one record of the chain."""
        identity = self.next("uuid")
        uuid = f"{identity[:8]}-{identity[8:12]}-4{identity[13:16]}-a{identity[17:20]}-{identity[20:32]}"
        side: Record = {"isSidechain": True, "agentId": self.agent_id} if self.agent_id else {"isSidechain": False}
        self.records.append(
            {"parentUuid": self.up, **side, **body, "uuid": uuid, "timestamp": self.tick(seconds)}
            | {"userType": "external", "entrypoint": "cli", "cwd": str(self.cwd), "sessionId": self.session}
            | {"version": CLAUDE_VERSION, "gitBranch": "main"}
        )
        self.up = uuid
        return uuid

    def step(self, step: Mapping[str, Any], home: Path, folder: Path) -> None:
        if "wait" in step:
            self.tick(60 * step["wait"])
        if "ask" in step:
            self.fresh += len(step["ask"]) // 3
            self.record(20, {"type": "user", "message": {"role": "user", "content": step["ask"]}})
        if "compact" in step:
            self.compact(step["compact"])
        blocks: list[Record] = []
        if "think" in step:
            blocks.append({"type": "thinking", "thinking": step["think"], "signature": self.next("signature")})
        if "say" in step:
            blocks.append({"type": "text", "text": step["say"]})
        if "run" in step:
            tool, given, _ = step["run"]
            call = f"toolu_01{self.next('tool')[:22]}"
            blocks.append({"type": "tool_use", "id": call, "name": tool, "input": given})
        if blocks:
            self.answer(blocks, step.get("tokens", 0))
        if "run" in step:
            self.result(call, step["run"], home, folder, failed=step.get("failed", False))

    def answer(self, blocks: list[Record], extra: int) -> None:
        """One answer: a line for each block, all with its usage."""
        size = sum(len(json.dumps(block)) for block in blocks)
        cached = self.context if self.number_of_answers else 0  # nothing is cached before the first request
        written, self.fresh = self.fresh + 40 + self.context - cached, 0
        self.number_of_answers += 1
        output = size // 3 + 60 + extra
        usage = {
            "input_tokens": 4, "cache_creation_input_tokens": written, "cache_read_input_tokens": cached,
            "output_tokens": output, "service_tier": "standard",
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": written},
        }  # fmt: skip
        self.context = cached + written + output
        message, request = f"msg_01{self.next('message')[:22]}", f"req_01{self.next('request')[:22]}"
        stop = "tool_use" if blocks[-1]["type"] == "tool_use" else "end_turn"
        for block in blocks:
            body = {
                "id": message, "type": "message", "role": "assistant", "model": self.model, "content": [block],
                "stop_reason": stop, "stop_sequence": None, "usage": usage,
            }  # fmt: skip
            self.record(23, {"type": "assistant", "message": body, "requestId": request})

    def result(self, call: str, run: Sequence[Any], home: Path, folder: Path, *, failed: bool) -> None:
        _, given, output = run
        if isinstance(output, list):  # a sub-agent's own conversation; its last words are the result
            kid = Claude(f"{self.name}/{call}", self.cwd, self.at, self.model)
            kid.session, kid.agent_id = self.session, f"a{digest(self.name, call)[:16]}"
            kid.write(home, [{"ask": given["prompt"]}, *output])
            meta = folder / self.session / "subagents" / f"agent-{kid.agent_id}.meta.json"
            meta.write_text(json.dumps({"agentType": given["subagent_type"]}) + "\n", encoding="utf-8")
            self.at, output = kid.at, output[-1]["say"]
        self.fresh += len(output) // 3
        block = {"type": "tool_result", "tool_use_id": call, "content": output, "is_error": failed}
        self.record(41, {"type": "user", "message": {"role": "user", "content": [block]}})

    def compact(self, summary: str) -> None:
        before, logical, self.up = self.context, self.up, None
        meta = {"trigger": "auto", "preTokens": before}
        self.record(
            30,
            {"type": "system", "subtype": "compact_boundary", "content": "Conversation compacted", "isMeta": False}
            | {"level": "info", "logicalParentUuid": logical, "compactMetadata": meta},
        )
        text = (
            "This session is being continued from a previous conversation that ran out of context. "
            f"The conversation is summarized below:\n{summary}"
        )
        flags = {"isVisibleInTranscriptOnly": True, "isCompactSummary": True}
        self.record(1, {"type": "user", "message": {"role": "user", "content": text}, **flags})
        self.context, self.fresh = 18_000, 0


class Codex(Talk):
    """One Codex session."""

    ordinal = 0

    def write(self, home: Path, talk: Sequence[Mapping[str, Any]]) -> None:
        self.id, self.sums = uuid7(self.at, self.name), [0, 0, 0, 0]
        local = self.at.astimezone()
        self.line(
            "session_meta", 0,
            {
                "session_id": self.id, "id": self.id, "timestamp": stamp(self.at), "cwd": str(self.cwd),
                "originator": "codex-tui", "cli_version": CODEX_VERSION, "source": "cli", "thread_source": "user",
                "model_provider": "openai", "history_mode": "paginated",
                "git": {"commit_hash": digest(self.name)[:40], "branch": "main"},
            },
        )  # fmt: skip
        for step in talk:
            self.step(step)
        name = f"rollout-{local:%Y-%m-%dT%H-%M-%S}-{self.id}.jsonl"
        write_lines(home / ".codex" / "sessions" / f"{local:%Y/%m/%d}" / name, self.records)

    def line(self, kind: str, seconds: float, payload: Record) -> None:
        self.records.append(
            {"timestamp": self.tick(seconds), "ordinal": self.ordinal, "type": kind, "payload": payload}
        )
        self.ordinal += 1

    def item(self, item: Record) -> None:
        when = int(self.at.timestamp() * 1000)
        body = {"type": "item_completed", "thread_id": self.id, "turn_id": self.turn, "item": item}
        self.line("event_msg", 0.1, body | {"started_at_ms": when, "completed_at_ms": when})

    def step(self, step: Mapping[str, Any]) -> None:
        if "wait" in step:
            self.tick(60 * step["wait"])
        if "ask" in step:
            self.turn = uuid7(self.at, self.name, len(self.records))
            context = {"turn_id": self.turn, "cwd": str(self.cwd), "model": self.model, "effort": "medium"}
            self.line("event_msg", 15, {"type": "task_started", "turn_id": self.turn, "model_context_window": 258_400})
            self.line("turn_context", 0.1, context | {"approval_policy": "never", "summary": "auto"})
            content = [{"type": "input_text", "text": step["ask"]}]
            self.line("response_item", 0.1, {"type": "message", "role": "user", "content": content})
            said = [{"type": "text", "text": step["ask"], "text_elements": []}]
            self.item({"type": "UserMessage", "id": uuid7(self.at, self.next("item")), "content": said})
            self.fresh += len(step["ask"]) // 3
        size = self.answer(step)
        if "think" in step or "say" in step or "run" in step:
            self.count(size // 3 + 50 + step.get("tokens", 0), 200 if "think" in step else 0)
        if "run" in step:
            self.result(step["run"], failed=step.get("failed", False))

    def answer(self, step: Mapping[str, Any]) -> int:
        """The records of one answer; their size in characters."""
        size = 0
        if "think" in step:
            summary = [{"type": "summary_text", "text": step["think"]}]
            self.line("response_item", 3, {"type": "reasoning", "id": f"rs_{self.next('rs')[:32]}", "summary": summary})
            size += len(step["think"])
        if "say" in step:
            message = f"msg_{self.next('msg')[:32]}"
            self.item({"type": "AgentMessage", "id": message, "content": [{"type": "Text", "text": step["say"]}]})
            content = [{"type": "output_text", "text": step["say"]}]
            body = {"type": "message", "id": message, "role": "assistant", "content": content}
            self.line("response_item", 4, body | {"phase": "commentary" if "run" in step else "final_answer"})
            size += len(step["say"])
        if "run" in step:
            tool, given, _ = step["run"]
            self.call = f"call_{self.next('call')[:24]}"
            if tool == "apply_patch":
                body = {"type": "custom_tool_call", "status": "completed", "input": given}
            else:
                body = {"type": "function_call", "arguments": json.dumps(given, ensure_ascii=False)}
            self.line("response_item", 19, body | {"call_id": self.call, "name": tool})
            size += len(str(given))
        return size

    def count(self, output: int, reasoning: int) -> None:
        """The usage of one response, twice as the client writes it."""
        new, self.fresh = self.fresh + 30, 0
        cached = self.context // 128 * 128 if self.number_of_answers else 0
        self.number_of_answers += 1
        now = [self.context + new, cached, output + reasoning, reasoning]
        self.context += new + output
        self.sums = [a + b for a, b in zip(self.sums, now, strict=True)]
        last, total = tokens(now), tokens(self.sums)
        response = f"resp_{self.next('resp')[:32]}"
        body = {"thread_id": self.id, "turn_id": self.turn, "session_id": self.id, "response_id": response}
        self.line("token_usage_record", 0.1, body | {"usage": last, "thread_token_usage": total})
        info = {"total_token_usage": total, "last_token_usage": last, "model_context_window": 258_400}
        self.line("event_msg", 0.1, {"type": "token_count", "info": info})

    def result(self, run: Sequence[Any], *, failed: bool) -> None:
        tool, _, output = run
        kind = "custom_tool_call_output" if tool == "apply_patch" else "function_call_output"
        text = f"Wall time: 0.4 seconds\nProcess exited with code {int(failed)}\nOutput:\n{output}"
        self.line("response_item", 52, {"type": kind, "call_id": self.call, "output": text})
        self.fresh += len(output) // 3


def tokens(counts: Sequence[int]) -> Record:
    given, cached, output, reasoning = counts
    return {
        "input_tokens": given, "cached_input_tokens": cached, "output_tokens": output,
        "reasoning_output_tokens": reasoning, "total_tokens": given + output,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
