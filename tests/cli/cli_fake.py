"""An in-memory back end with a few awkward sessions, and what puts it in the place of the real rooms.

`python tests/cli/cli_fake.py ARGS` is prosa over this back end: for pipes, terminals and a look at the output.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from prosa.cli import items, opening
from prosa.events.errors import UsageError
from prosa.events.home import Home
from prosa.ingest import report
from prosa.projections import queries as q
from prosa.projections.zones import rfc3339

NOW = datetime.now(UTC)
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[0m \u202egnp.exe\u2069 bell\x07 \x9b1m tab\there\r\nand a second line"
CJK = "修复导航栏的布局问题：在窄屏幕上按钮会重叠，并且标题被截断了，请同时检查深色模式下的对比度"
EMOJI = "Ship it 👩‍💻🚀 with flags 🇪🇸 and a family 👨‍👩‍👧‍👦 that is long enough to be cut somewhere in the middle of it"


def us(when: datetime) -> int:
    return int(when.timestamp() * 1_000_000)


def make(
    number: int, *, ago_h: float, hours: float = 1.0, title: str | None = "A session", agent: str = "claude-code",
    project: str | None = "acme/shop", parent: str | None = None, native: str | None = None, **changes: Any,
) -> q.Session:  # fmt: skip
    end = NOW - timedelta(hours=ago_h)
    native = native or f"{number:08x}-7f3c-4abc-9def-0123456789ab"
    session = q.Session(
        key=f"{agent}/{native}",
        id=native,
        agent=agent,
        device="0123456789abcdef",
        device_name="studio.example.org",
        profile="default",
        parent_id=parent,
        lineage=q.Lineage(),
        title=title,
        first_prompt=f"Please do number {number}" if title else None,
        kinds=["subagent"] if parent else [],
        project=q.Project(project, f"github.com/{project}", None, f"/home/dev/{project}") if project else None,
        branch="main",
        started_at=rfc3339(us(end - timedelta(hours=hours))),
        last_activity_at=rfc3339(us(end)),
        active=ago_h < 0.1,
        model="claude-opus-4-6",
        models=["claude-opus-4-6"],
        turns=q.Turns(3, 5, 2, 14, 14),
        tools={"Read": 14, "Bash": 7, "Edit": 2, "Grep": 1},
        tool_errors=1,
        usage=q.Tokens(1_200, 34_567, 1_000_000, 200_000, None, 1_235_767),
        cost_usd="1.234567",
        compactions=q.Compactions(0, True, None),
        inherited=None,
        state="plain",
        raw=q.RawCopy(f"{number:064x}", 123_456, 45_678, "local"),
        source=q.SourceFile(f"/home/dev/.claude/projects/p/{native}.jsonl", "present"),
    )
    return replace(session, **changes)


def sessions() -> list[q.Session]:
    """Newest first, as a back end orders them."""
    main = make(1, ago_h=0.05, hours=2.2, title="Fix the flaky reaper test in CI")
    busy = make(
        2, ago_h=1.5, hours=30, title="Migrate the billing service to the new queue and keep the old consumers alive"
    )
    return [
        main,
        make(11, ago_h=0.3, hours=0.1, title="Look for reaper.drain", parent=main.id, native="agent-a1b2c3d4e5"),
        make(12, ago_h=0.4, hours=0.2, title="Run the tests", parent=main.id, native="agent-a1b2ffffff"),
        busy,
        *(make(20 + n, ago_h=2 + n / 10, title=f"Part {n}", parent=busy.id) for n in range(6)),
        make(3, ago_h=5, title=CJK, agent="codex", project="东京/导航", hours=0.4, cost_usd=None),
        make(4, ago_h=26, title=ESCAPES, agent="gemini", project="acme/a-project-with-a-very-long-name-indeed"),
        make(5, ago_h=30, title=EMOJI, agent="grok-build", project=None, usage=None, cost_usd=None, tools={}),
        make(6, ago_h=60, title=None, agent="cursor", usage=None, cost_usd=None, tools={}, hours=0,
             turns=q.Turns(0, 0, 0, 0, 0), raw=None),
        make(7, ago_h=24 * 40, title="Old work", device="fedcba9876543210", device_name=None,
             source=q.SourceFile(None, "orphaned"), raw=q.RawCopy("7" * 64, 1_000, 400, "missing")),
    ]  # fmt: skip


def turns() -> list[q.ShownTurn]:
    def turn(n: int, role: str, kind: str, text: str, **more: Any) -> q.ShownTurn:
        fields: dict[str, Any] = {
            "tool": None, "tool_call_id": None, "is_error": False, "model": None, "truncated": False,
            "counted": True, "inherited": False, "at": rfc3339(us(NOW - timedelta(minutes=30 - n))),
        } | more  # fmt: skip
        return q.ShownTurn(ordinal=n, key=f"{n:016x}", role=role, kind=kind, text=text, **fields)

    opus = {"model": "claude-opus-4-6"}
    return [
        turn(1, "user", "message", "<environment>\ncwd: /home/dev\n</environment>", counted=False),
        turn(2, "user", "message", "Fix the flaky reaper test in CI.\n\nIt fails once in ten runs, in `test_drain`."),
        turn(3, "assistant", "thinking", "\n".join(f"thought {n}" for n in range(30)), **opus),
        turn(4, "assistant", "message", "I will look at the test first. " * 6, **opus),
        turn(5, "assistant", "tool_call", "grep -rn drain tests/", tool="Bash", tool_call_id="t1", **opus),
        turn(6, "tool", "tool_result", "\n".join(f"tests/test_reaper.py:{n}: drain()" for n in range(40)),
             tool="Bash", tool_call_id="t1"),
        turn(7, "assistant", "tool_call", '{"file_path": "/home/dev/shop/reaper.py",\n "old": "a",\n "new": "b"}',
             tool="Edit", tool_call_id="t2", **opus),
        turn(8, "tool", "tool_result", ESCAPES, tool="Edit", tool_call_id="t2", is_error=True),
        turn(9, "system", "compaction", "Summary of what was done so far."),
        turn(10, "assistant", "message", f"Done. {CJK}", **opus),
    ]  # fmt: skip


class FakeBackend:
    """Answers from the lists above; knows just enough of every rule to be asked everything."""

    behind = 0

    def __init__(self, listed: Sequence[q.Session] | None = None) -> None:
        self.listed = list(sessions() if listed is None else listed)
        self.reports: dict[str, list[dict[str, Any]]] = REPORTS
        self.asked: list[Any] = []
        self.fails_after_turns: int | None = None

    def chosen(self, filters: q.Filters) -> list[q.Session]:
        def fits(s: q.Session) -> bool:
            end = us(datetime.fromisoformat(s.last_activity_at)) if s.last_activity_at else 0
            start = us(datetime.fromisoformat(s.started_at)) if s.started_at else end
            if filters.since_us is not None and end < filters.since_us:
                return False
            if filters.until_us is not None and start >= filters.until_us:
                return False
            project = s.project or q.Project(None, None, None, None)
            if filters.project and filters.project.casefold() not in str(project).casefold():
                return False
            if filters.scope and getattr(project, filters.scope[0]) != filters.scope[1]:
                return False
            return all(
                value is None or value == getattr(s, name)
                for name, value in (("agent", filters.agent), ("profile", filters.profile), ("model", filters.model))
            )

        for what in ("agent", "profile", "model"):
            value = getattr(filters, what)
            if value is not None and value not in self.values(what):
                raise UsageError(
                    f"No session here has the {what} {value!r}.", "", f"Known: {', '.join(self.values(what))}."
                )
        return [s for s in self.listed if fits(s)]

    def timeline(self, question: q.Timeline) -> q.TimelinePage:
        self.asked.append(question)
        found = self.chosen(question.filters)
        shown = [s for s in found if question.include_empty or s.title or s.usage]
        ids = {s.id: s.key for s in shown}
        top = shown if question.flat else [s for s in shown if s.parent_id not in ids]
        below = Counter() if question.flat else Counter(ids[s.parent_id] for s in shown if s.parent_id in ids)
        top = top[: question.limit] if question.limit else top
        keys = {s.key for s in top}
        return q.TimelinePage(
            sessions=top,
            subagents={key: n for key, n in below.items() if key in keys},
            hidden_empty=len(found) - len(shown),
            total=len(shown),
        )

    def search(self, question: q.Search) -> q.SearchPage:
        self.asked.append(question)
        chosen = self.chosen(question.filters)
        words = question.query.split()
        found = []
        for s in chosen:
            text = (s.title or "") + " around it"
            marks = [(text.find(w), text.find(w) + len(w)) for w in words if w in text]
            if len(marks) == len(words):
                hit = q.Hit(ordinal=2, key="0" * 15 + "2", role="user", kind="message", tool=None, at=s.started_at,
                            snippet=text, marks=marks, score=3)  # fmt: skip
                found.append(q.Found(s, hit))
        more = bool(question.limit) and len(found) > question.limit
        return q.SearchPage(found[: question.limit] if question.limit else found, False, more, len(chosen))

    def find(self, prefix: str) -> list[q.Match]:
        whole = [s for s in self.listed if prefix in (s.id, s.key)]
        found = whole or [s for s in self.listed if s.id.startswith(prefix) or s.key.startswith(prefix)]
        return [
            q.Match(key=s.key, id=s.id, agent=s.agent, device_name=s.device_name, parent_id=s.parent_id,
                    started_at=s.started_at)
            for s in found
        ]  # fmt: skip

    def unique(self, texts: Sequence[str]) -> set[str]:
        return {text for text in texts if len(self.find(text)) == 1}

    def session(self, key: str) -> q.Session:
        return next(s for s in self.listed if s.key == key)

    def turns(self, key: str, first: int = 0, most: int = 1_000) -> Iterator[q.ShownTurn]:
        for number, turn in enumerate(turns()):
            if number == self.fails_after_turns:
                raise UsageError("The log was cut.", "What was printed is right.", "prosa log verify")
            yield turn

    def report(self, question: q.Report) -> list[dict[str, Any]]:
        self.asked.append(question)
        return self.reports.get(question.name, [])

    def storage(self, filters: q.Filters) -> list[dict[str, Any]]:
        chosen = self.chosen(filters)
        names = {
            "agent": lambda s: s.agent,
            "project": lambda s: s.project and s.project.name,
            "age": lambda s: "under 7 days",
        }
        return [
            {"by": by, "value": value, "sessions": n, "raw_bytes": n * 123_456, "stored_bytes": n * 45_678,
             "local_bytes": n * 45_678, "pruned_bytes": 0}
            for by, name in names.items()
            for value, n in Counter(map(name, chosen)).items()
        ]  # fmt: skip

    def values(self, what: Literal["agent", "device", "profile", "model", "project"]) -> list[str]:
        match what:
            case "project":
                return sorted({s.project.name for s in self.listed if s.project and s.project.name})
            case "model":
                return sorted({m for s in self.listed for m in s.models})
            case "device":
                return sorted({s.device_name or s.device or "" for s in self.listed})
            case _:
                return sorted({getattr(s, what) for s in self.listed})


def heatmap() -> list[dict[str, Any]]:
    today = NOW.date()
    return [
        {"date": (today - timedelta(days=n)).isoformat(), "sessions": (n * 7919) % 11 if n % 7 not in (1, 2) else 0}
        for n in range(370, -1, -1)
    ]


REPORTS: dict[str, list[dict[str, Any]]] = {
    "usage_by_model": [
        {"model": "claude-opus-4-6", "sessions": 1234, "input": 1_234_567, "output": 34_567_890,
         "cache_read": 12_345_678_901, "cache_creation": 234_567_890, "reasoning": None, "total": 12_616_049_248,
         "cost_usd": "12345.678900", "unpriced_models": []},
        {"model": "a-model-\x1b[31mwith-a-name-that-nobody-has-a-price-for", "sessions": 1, "input": 12, "output": 3,
         "cache_read": 0, "cache_creation": 0, "reasoning": 1, "total": 15, "cost_usd": None, "unpriced_models": ["x"]},
    ],
    "days": [
        {"date": "2026-11-30", "project": "acme/shop", "sessions": 4, "prompts": 31, "active_minutes": 145,
         "total": 1_235_767, "cost_usd": "12.345678"},
        {"date": "2026-11-30", "project": "东京/导航", "sessions": 1, "prompts": 3, "active_minutes": 4, "total": 9_876,
         "cost_usd": "0.001234"},
    ],
    "hours": [{"hour": n, "sessions": (n * 5) % 13} for n in range(24)],
    "heatmap": heatmap(),
}  # fmt: skip


class FakeImporter:
    HOMES = ("~/.agent",)

    def __init__(self, agent: str) -> None:
        self.AGENT = agent

    def homes(self, env: object, user_home: Path) -> list[Path]:
        return [user_home / f".{self.AGENT}"]

    def resume(self, identity: Any, cwd: str | None) -> list[str] | None:
        return [self.AGENT, "--resume", identity.id] if self.AGENT != "cursor" else None


SYNCED: list[report.SyncItem] = [
    report.SourceDone(agent="claude-code", path="/home/dev/a.jsonl", status="imported", sessions=["claude-code/a"]),
    report.SourceDone(agent="claude-code", path="/home/dev/b.jsonl", status="unchanged"),
    report.SyncSummary(status="complete", sources=2, imported=1, unchanged=1, events=5, bytes=123_456, seconds=0.42),
]
BROKEN = report.SourceDone(
    agent="codex", path="/home/dev/bad\x1b[31m.jsonl", status="failed", reason="not a transcript: line 1 is no JSON"
)
SYNCED_IN_PART: list[report.SyncItem] = [
    SYNCED[0],
    BROKEN,
    report.SyncSummary(status="partial", sources=2, imported=1, failed=1, events=5, seconds=75.0),
]


class Rooms:
    """What stands behind cli/opening.py in a test; a test changes it and looks at it."""

    def __init__(self) -> None:
        self.backend = FakeBackend()
        self.empty = False
        self.synced = SYNCED
        self.error: Exception | None = None
        self.differences: list[str] = []
        self.project: tuple[str | None, str | None] = (None, None)
        self.options: report.SyncOptions | None = None
        self.index = items.IndexState(state="current", position=12, log_position=12)
        self.raw = b'{"type":"user"}\r\n\x00\xff\n'
        self.device = "0123456789abcdef"

    @contextmanager
    def open_backend(self, home: Home, *, remote: bool = False) -> Iterator[FakeBackend]:
        if self.error:
            raise self.error
        if self.empty:
            raise opening.NothingImported
        yield self.backend

    def run_sync(self, home: Home, options: report.SyncOptions, progress: items.Progress) -> Iterator[report.SyncItem]:
        if self.error:
            raise self.error
        self.options = options
        progress(1, 2, "claude-code")
        yield from self.synced

    def run_rebuild(self, home: Home, progress: items.Progress) -> items.Rebuilt:
        return items.Rebuilt(digest="ab" * 32, events=12, seconds=0.5)

    def check_rebuild(self, home: Home, progress: items.Progress) -> items.Checked:
        return items.Checked(events=12, seconds=0.5, differences=self.differences)

    def install(self, patch: Any) -> None:
        """`patch(name, value)` for each name of cli/opening.py that is replaced."""
        patch("open_backend", self.open_backend)
        patch("run_sync", self.run_sync)
        patch("run_rebuild", self.run_rebuild)
        patch("check_rebuild", self.check_rebuild)
        patch("index_state", lambda home: self.index)
        patch("identify_project", lambda cwd: self.project)
        patch("importers", lambda: [FakeImporter(name) for name in ("claude-code", "codex", "cursor")])
        patch("this_device", lambda: self.device)
        patch("read_raw", lambda home, session: iter([self.raw]))


if __name__ == "__main__":
    Rooms().install(lambda name, value: setattr(opening, name, value))
    from prosa.cli.app import run

    sys.exit(run(sys.argv[1:]))
