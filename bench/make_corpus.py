"""Writes a home with many made-up sessions of Claude Code and Codex, to measure prosa on.

    python3 bench/make_corpus.py FOLDER                               200 sessions, 60 MB
    python3 bench/make_corpus.py FOLDER --sessions 2000 --bytes 1G
    python3 bench/make_corpus.py FOLDER --grow 5                      five of them go on for some turns

The records are those of demo/make_home.py; the words are drawn, common ones often (Zipf), and sizes are log-normal
with a few sessions of more than 50 times the median. Rare words are planted: RARE stands in three sessions, PHRASE in
three, IDENTIFIER in two, CJK in two. The same arguments and Python give the same bytes. Standard library only.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "demo"))

from make_home import Claude, Codex, Talk

RARE, PHRASE, IDENTIFIER, CJK = "quorvexity", "harbor lantern drift", "quillon_reaper.drain", "鲸鱼"
PLANTED = {RARE: 3, PHRASE: 3, IDENTIFIER: 2, CJK: 2}
MODELS = {Claude: ("claude-opus-4-8", "claude-sonnet-5", "claude-haiku-4-5"), Codex: ("gpt-5.5", "gpt-5.3-codex")}
PROJECTS = [f"project-{number:02d}" for number in range(40)]
CJK_PARTS = "时间线的显示修正测试数据库查询服务网络错误重试接口文件配置更新"
ONSETS = ("b", "c", "d", "f", "g", "h", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "st", "tr", "sh", "pl")
END = datetime(2026, 1, 1, tzinfo=UTC)
"""The end of the year that sessions lie in, unless --end says another."""

Step = dict[str, Any]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--sessions", type=int, default=200)
    arguments.add_argument("--bytes", default="60M", help="of all transcripts: 60M, 1G")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--end", type=datetime.fromisoformat, default=END, help="2026-01-31: the last day")
    arguments.add_argument("--grow", type=int, metavar="N", help="let N sessions of a corpus go on")
    given = arguments.parse_args()
    if given.grow:
        print(f"{grow(given.folder, given.grow):,} bytes were added to {given.grow} sessions")
        return 0
    made = make(given.folder, given.sessions, size_of(given.bytes), given.seed, given.end.replace(tzinfo=UTC))
    print(f"{given.sessions:,} sessions, {made:,} bytes in {given.folder}")
    return 0


def size_of(text: str) -> int:
    factor = {"K": 1_000, "M": 1_000_000, "G": 1_000_000_000}.get(text[-1].upper(), 1)
    return int(float(text.rstrip("KMGkmg")) * factor)


def make(home: Path, sessions: int, total: int, seed: int, end: datetime) -> int:
    """Write the sessions; returns their bytes."""
    dice = random.Random(seed)
    words = Words(dice)
    share = [dice.lognormvariate(0, 1.1) for _ in range(sessions)]
    scale = total / sum(share)
    planted = {number: [] for number in range(sessions)}  # type: dict[int, list[str]]
    for text, count in PLANTED.items():
        for number in dice.sample(range(sessions), min(count, sessions)):
            planted[number].append(text)
    for number in range(sessions):
        kind: type[Claude] | type[Codex] = Codex if dice.random() < 0.35 else Claude
        start = end - timedelta(days=365 * dice.random() ** 1.5, hours=1)
        cwd = Path("/home/dev/work") / dice.choices(PROJECTS, [1 / (1 + place) for place in range(len(PROJECTS))])[0]
        talk = kind(f"{seed}/{number}", cwd, start, dice.choice(MODELS[kind]))
        talk.write(home, list(words.talk(int(share[number] * scale), planted[number], kind is Codex)))
    return sum(path.stat().st_size for path in transcripts(home))


def transcripts(home: Path) -> list[Path]:
    return sorted([*home.glob(".claude/projects/*/*.jsonl"), *home.glob(".codex/sessions/*/*/*/*.jsonl")])


class Words:
    """Draws what is said."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        parts = [a + b for a in ONSETS for b in ("a", "e", "i", "o", "u", "ea")]
        self.words = ["error", "function"] + [
            "".join(dice.choices(parts, k=dice.choice((1, 2, 2, 3)))) for _ in range(20_000)
        ]
        self.weights = list(itertools.accumulate(1 / (place + 3) for place in range(len(self.words))))
        self.prose = [self.sentence() for _ in range(8_000)]
        self.lines = [self.line() for _ in range(20_000)]

    def some(self, count: int) -> list[str]:
        return self.dice.choices(self.words, cum_weights=self.weights, k=count)

    def sentence(self) -> str:
        if self.dice.random() < 0.05:
            return "".join(self.dice.choices(CJK_PARTS, k=self.dice.randint(6, 24))) + "。"
        return " ".join(self.some(self.dice.randint(5, 22))).capitalize() + "."

    def line(self) -> str:
        a, b, c, d = self.some(4)
        number = self.dice.randrange(10_000)
        kinds = (f"    {a}_{b} = self.{c}({d})", f"{a}/{b}/{c}.py:{number}: {d}", f"PASS {a}::{b}_{c} ({number} ms)")
        noise = f"  {self.dice.getrandbits(48):012x}" if self.dice.random() < 0.2 else ""
        return self.dice.choice(kinds) + noise

    def text(self, size: int) -> str:
        return " ".join(self.dice.choices(self.prose, k=max(1, size // 70)))

    def output(self, size: int) -> str:
        return "\n".join(self.dice.choices(self.lines, k=max(1, size // 48)))

    def talk(self, size: int, planted: list[str], codex: bool) -> Iterator[Step]:
        """Steps of about so many bytes in all; what is planted stands in the first answer or its tool's output."""
        dice, written = self.dice, 0
        while written < size or planted:
            yield {"wait": dice.expovariate(1 / 9), "ask": self.text(int(dice.lognormvariate(4.6, 0.9)))}
            for _ in range(min(50, int(dice.expovariate(1 / 7)) + 1)):
                output = self.output(min(120_000, int(dice.lognormvariate(7.4, 1.4))))
                if planted:
                    output += f"\nsee {planted.pop()} here"
                command = f"rg -n {dice.choice(self.words)} src"
                tool = ("exec_command", {"cmd": command}) if codex else ("Bash", {"command": command})
                step: Step = {"run": (*tool, output), "failed": dice.random() < 0.08}
                if dice.random() < 0.4:
                    step["think"] = self.text(300)
                written += len(output) + 1_800
                yield step
                if written > size and not planted:
                    break
            yield {"say": self.text(int(dice.lognormvariate(6.6, 0.8)))}
            written += 2_000


def grow(home: Path, count: int) -> int:
    """Let the newest sessions go on; returns the bytes that were added."""
    words = Words(random.Random(7))
    added = 0
    for path in sorted(transcripts(home), key=lambda each: (each.stat().st_size, each.name))[-3 * count :: 3]:
        before = path.read_bytes()
        records = [json.loads(line) for line in before.splitlines()]
        talk = go_on(records, f"grow/{path.stem}/{len(before)}")
        for step in words.talk(40_000, [], isinstance(talk, Codex)):
            if isinstance(talk, Codex):
                talk.step(step)
            elif isinstance(talk, Claude):
                talk.step(step, home, path.parent)
        more = "".join(json.dumps(r, ensure_ascii=False, separators=(",", ":")) + "\n" for r in talk.records)
        with path.open("a", encoding="utf-8") as file:
            file.write(more)
        added += len(more.encode())
    return added


def go_on(records: list[dict[str, Any]], name: str) -> Talk:
    """A conversation that continues from its last record."""
    at = datetime.fromisoformat(max(record["timestamp"] for record in records if "timestamp" in record))
    if records[0].get("type") != "session_meta":
        last = [record for record in records if "uuid" in record][-1]
        claude = Claude(name, Path(last["cwd"]), at, MODELS[Claude][0])
        claude.session, claude.up = last["sessionId"], last["uuid"]
        return claude
    meta = records[0]["payload"]
    codex = Codex(name, Path(meta["cwd"]), at, MODELS[Codex][0])
    codex.id, codex.ordinal = meta["id"], records[-1]["ordinal"] + 1
    counts = [r["payload"]["info"]["total_token_usage"] for r in records if r["payload"].get("type") == "token_count"]
    names = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens")
    codex.sums = [counts[-1][each] for each in names]
    return codex


if __name__ == "__main__":
    sys.exit(main())
