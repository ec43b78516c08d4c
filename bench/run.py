"""Measures prosa on a corpus of bench/make_corpus.py and prints one table. Times are printed, never judged.

    .venv/bin/python bench/run.py CORPUS [--runs 5] [--save FILE] [--against FILE]
    .venv/bin/python bench/run.py CORPUS --compare 'other=other-tool list' --compare 'grep=grep -rl error .claude'

CORPUS is only read: prosa sees a copy. `--against` is a table that `--save` wrote; the last column is then this run's
value by that one's. Medians of --runs runs; what can only be done once (the first import) is done once. Standard
library only.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from make_corpus import CJK, IDENTIFIER, PHRASE, RARE, grow, transcripts  # noqa: E402

EVERYTHING = ("--all", "--since", "2000-01-01", "--json")
SEARCHES = {
    "rare word": RARE, "common word": "error", "two common words": "error function", "phrase": f'"{PHRASE}"',
    "identifier": IDENTIFIER, "two CJK characters": CJK, "nothing": "nowhereatall",
    "filtered": "error agent:codex role:tool",
}  # fmt: skip


class Ran(NamedTuple):
    """One command: what it printed, and what it cost."""

    out: str
    wall_s: float
    cpu_s: float
    peak_mb: float
    """Of its largest process."""
    written_mb: float
    """Given to the file system, by getrusage: Linux only, 0 in a folder in memory."""


class Bench:
    """A copy of the corpus, prosa's own empty folder, and the table that is filled."""

    def __init__(self, prosa: list[str], corpus: Path, scratch: Path, runs: int) -> None:
        self.prosa, self.runs, self.home, self.data = prosa, runs, scratch / "home", scratch / "prosa"
        shutil.copytree(corpus, self.home)
        self.bytes = sum(path.stat().st_size for path in transcripts(self.home))
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "TMPDIR")}
        self.env = kept | {
            "HOME": str(self.home), "PROSA_HOME": str(self.data), "PROSA_CONFIG_HOME": str(scratch / "config"),
            "TZ": "UTC", "LC_ALL": "C.UTF-8",
        }  # fmt: skip
        self.table: dict[str, float] = {}

    def run(self, command: list[str]) -> Ran:
        """Raises SystemExit where the command fails."""
        start = time.perf_counter()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = subprocess.Popen(
                command, env=self.env, cwd=self.home, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )
            _, status, used = os.wait4(child.pid, 0)
            wall = time.perf_counter() - start
            child.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            err.seek(0)
            if child.returncode:
                raise SystemExit(f"{shlex.join(command)}: exit {child.returncode}\n{err.read().decode()[-2000:]}")
            text = out.read().decode("utf-8", "replace")
        unit = 1024 * 1024 if sys.platform == "darwin" else 1024
        return Ran(text, wall, used.ru_utime + used.ru_stime, used.ru_maxrss / unit, used.ru_oublock * 512 / 1e6)

    def once(self, *words: str) -> Ran:
        return self.run([*self.prosa, *words])

    def put(self, name: str, value: float) -> None:
        self.table[name] = value
        print(f"{name:<44} {value:>12,.3f}", file=sys.stderr, flush=True)

    def timed(self, name: str, *words: str, command: list[str] | None = None) -> Ran:
        """The median wall time in milliseconds of several runs; gives the last one back."""
        ran = [self.run(command or [*self.prosa, *words]) for _ in range(self.runs)]
        self.put(f"{name}, ms", median(each.wall_s for each in ran) * 1000)
        return ran[-1]

    def stored(self, *names: str) -> int:
        roots = [self.data / name for name in names]
        files = [path for root in roots for path in ([root] if root.is_file() else root.rglob("*"))]
        inodes = {(s.st_dev, s.st_ino): s.st_size for path in files if path.is_file() for s in [path.stat()]}
        return sum(inodes.values())

    def events(self) -> int:
        return self.once("log", "--json").out.count("\n")


def measure(bench: Bench) -> None:
    """Every figure, in the order of a user's day."""
    bench.put("transcripts, MB", bench.bytes / 1e6)
    first = bench.once("sync", "--no-push", "--json")
    bench.put("first import, s", first.wall_s)
    bench.put("first import, CPU s", first.cpu_s)
    bench.put("first import, MB/s", bench.bytes / 1e6 / first.wall_s)
    bench.put("first import, peak MB", first.peak_mb)
    bench.put("first import, MB written", first.written_mb)
    for name, files in (("log", ("log.db",)), ("raw", ("raw",)), ("index", ("index",)), ("all", ("",))):
        bench.put(f"stored / transcripts: {name}", bench.stored(*files) / bench.bytes)
    before = bench.events()
    unchanged = bench.timed("unchanged sync", "sync", "--no-push", "--json")
    bench.put("unchanged sync, MB written", unchanged.written_mb)
    bench.put("unchanged sync, events added", bench.events() - before)
    added = grow(bench.home, 5)
    bench.put("growth of 5 sessions, MB", added / 1e6)
    grown = bench.once("sync", "--no-push", "--json")
    bench.put("growth: sync, ms", grown.wall_s * 1000)
    bench.put("growth: MB written", grown.written_mb)
    bench.timed("start (--version)", "--version")
    bench.timed("timeline, a month", "--all", "--between", "2025-12-01..2025-12-31", "--json")
    everything = bench.timed("timeline, everything", *EVERYTHING)
    for name, query in SEARCHES.items():
        bench.timed(f"search: {name}", "search", query, *EVERYTHING)
    for report in ("days", "usage_by_model", "tools", "heatmap"):
        bench.timed(f"report: {report}", "analytics", report, *EVERYTHING)
    sessions = [json.loads(line) for line in everything.out.splitlines()]
    middle = sorted(sessions, key=lambda each: each["raw"]["size"])[len(sessions) // 2]
    bench.timed("show, median session as JSON", "show", middle["key"], "--json")
    rebuilt = bench.once("rebuild", "--json")
    bench.put("rebuild, s", rebuilt.wall_s)
    bench.put("rebuild, peak MB", rebuilt.peak_mb)
    bench.timed("log verify", "log", "verify")


def show(table: dict[str, float], against: dict[str, float], out: Callable[[str], object] = print) -> None:
    """One table; the last column is this run by the other one."""
    out(f"{'':<44} {'median':>12}" + (f" {'before':>12} {'ratio':>7}" if against else ""))
    for name, value in table.items():
        line = f"{name:<44} {value:>12,.3f}"
        if against:
            old = against.get(name)
            ratio = f"{value / old:>7.2f}" if old else f"{'':>7}"
            line += f" {'' if old is None else format(old, ',.3f'):>12} {ratio}"
        out(line.rstrip())


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("corpus", type=Path)
    arguments.add_argument("--prosa", default=f"{sys.executable} -m prosa", help="the command to measure")
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--save", type=Path)
    arguments.add_argument("--against", type=Path)
    arguments.add_argument(
        "--compare", action="append", default=[], metavar="NAME=COMMAND", help="run in the home, too"
    )
    given = arguments.parse_args()
    against = json.loads(given.against.read_text(encoding="utf-8")) if given.against else {}
    with tempfile.TemporaryDirectory(prefix="prosa-bench-") as scratch:
        bench = Bench(shlex.split(given.prosa), given.corpus, Path(scratch), given.runs)
        measure(bench)
        for each in given.compare:
            name, _, command = each.partition("=")
            bench.timed(f"compared: {name}", command=shlex.split(command))
    if given.save:
        given.save.write_text(json.dumps(bench.table, indent=1) + "\n", encoding="utf-8")
    show(bench.table, against)
    return 0


if __name__ == "__main__":
    sys.exit(main())
