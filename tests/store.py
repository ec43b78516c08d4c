"""A whole prosa in a folder: agents' files that are written here, syncs, and what the index says after them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prosa.cli.indexing import IndexProjector
from prosa.events.home import Home
from prosa.events.log import Log
from prosa.ingest.report import SourceDone, SyncOptions, SyncSummary
from prosa.ingest.run import sync
from prosa.projections.building import build
from prosa.projections.digest import Digest, digest
from prosa.projections.index import open_index

A, B, C = (f"{letter * 8}-1111-4111-8111-{letter * 12}" for letter in "abc")


def claude_lines(session: str, turns: int, *, start: int = 0, text: str = "") -> list[bytes]:
    """Lines of a transcript: a prompt, an answer with a tool call and usage, and the call's result, in turn."""
    lines = []
    for n in range(start, start + turns):
        common = {"sessionId": session, "cwd": "/home/dev/app", "gitBranch": "main", "version": "2.1.0"}
        stamp = f"2026-05-01T10:{n // 6:02d}:{n % 6 * 10:02d}"
        lines += [
            {"type": "user", "uuid": f"u{session[0]}{n}", "timestamp": f"{stamp}.000Z", **common,
             "message": {"role": "user", "content": f"prompt {n} {text}"}},
            {"type": "assistant", "uuid": f"v{session[0]}{n}", "timestamp": f"{stamp}.100Z", **common,
             "message": {"id": f"msg{session[0]}{n}", "role": "assistant", "model": "claude-opus-4-5-20251101",
                         "usage": {"input_tokens": 10 + n, "output_tokens": 5},
                         "content": [{"type": "text", "text": f"answer {n} {text}"},
                                     {"type": "tool_use", "id": f"toolu_{session[0]}{n}", "name": "Bash",
                                      "input": {"command": f"echo {n}"}}]}},
            {"type": "user", "uuid": f"w{session[0]}{n}", "timestamp": f"{stamp}.200Z", **common,
             "message": {"role": "user", "content": [
                 {"type": "tool_result", "tool_use_id": f"toolu_{session[0]}{n}", "content": f"output {n}",
                  "is_error": n % 3 == 0}]}},
        ]  # fmt: skip
    return [json.dumps(line).encode() + b"\n" for line in lines]


def fork_of(lines: list[bytes], old: str, new: str) -> list[bytes]:
    """Copies as --fork-session writes them: the same uuid and message id under a new session id."""
    return [line.replace(old.encode(), new.encode()) for line in lines]


class Store:
    """One user's home and one installation of prosa beside it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.user = root / "user"
        self.projects = self.user / ".claude" / "projects" / "-home-dev-app"
        self.projects.mkdir(parents=True, exist_ok=True)
        self.env = {
            "HOME": str(self.user),
            "PROSA_HOME": str(root / "prosa"),
            "PROSA_CONFIG_HOME": str(root / "config"),
        }
        self.home = Home.of(self.env)

    def write(self, session: str, data: bytes) -> Path:
        path = self.projects / f"{session}.jsonl"
        path.write_bytes(data)
        return path

    def items(self, options: SyncOptions | None = None) -> Iterator[Any]:
        yield from sync(
            self.home,
            {},
            options or SyncOptions(),
            lambda *_: None,
            lambda log: IndexProjector(self.home, log, {}),
            self.env,
        )

    def sync(self, options: SyncOptions | None = None) -> SyncSummary:
        *_, last = self.items(options)
        assert isinstance(last, SyncSummary)
        return last

    def done(self) -> list[SourceDone]:
        return [item for item in self.items() if isinstance(item, SourceDone)]

    def log(self) -> Log:
        return Log(self.home.log)

    def events(self, kind: str | None = None) -> list[Any]:
        with self.log() as log:
            return [event for event in log.read() if kind in (None, event.type)]

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        db = open_index(self.home.index)
        try:
            return db.execute(statement).fetchall()
        finally:
            db.close()

    def sessions(self) -> dict[str, tuple[Any, ...]]:
        """What a user sees of each session, by id."""
        rows = self.rows(
            "SELECT id, started, last, first_prompt, users, assistants, tool_calls, tool_results, tool_errors, tools, "
            "models, input, output, cost, title, forked_from FROM sessions ORDER BY id"
        )
        return {row[0]: row[1:] for row in rows}

    def found(self, word: str) -> list[str]:
        """Ids of the sessions in which a word is found, in any class of text."""
        return sorted(
            {
                native
                for table in ("text_prompt", "text_answer", "text_thinking", "text_rest")
                for (native,) in self.rows(
                    f"SELECT id FROM {table} f JOIN sessions s ON sid = f.rowid >> 24 WHERE {table} MATCH '\"{word}\"'"
                )
            }
        )

    def serving(self) -> Digest:
        db = open_index(self.home.index)
        try:
            return digest(db)
        finally:
            db.close()

    def rebuilt(self) -> Digest:
        """What a rebuild from the log alone gives; switches nothing."""
        with self.log() as log:
            building, found = build(self.home.index, log, {})
            building.discard()
        return found

    def files(self) -> dict[str, tuple[int, int]]:
        """Size and mtime of everything prosa wrote."""
        return {
            str(path.relative_to(self.root)): (path.stat().st_size, path.stat().st_mtime_ns)
            for path in (self.root / "prosa").rglob("*")
            if path.is_file()
        }


def two_machines(root: Path) -> list[Store]:
    """One machine has a session and its fork, the other an older copy of the session, grown differently."""
    base = claude_lines(A, 4)
    one, two = Store(root / "one"), Store(root / "two")
    one.write(A, b"".join(base))
    one.sync()
    one.write(B, b"".join(fork_of(base[:6], A, B) + claude_lines(B, 1, start=7)))
    one.sync()
    two.write(A, b"".join(base[:9] + claude_lines(A, 1, start=8)))
    two.write(C, b"".join(claude_lines(C, 2)))
    two.sync()
    two.write(A, b"".join(base[:9] + claude_lines(A, 2, start=8)))
    two.sync()
    return [one, two]
