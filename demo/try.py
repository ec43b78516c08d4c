"""What `./try` does once prosa is installed: import and show the reader's histories, else made-up ones.

    ./try                     prosa sync, then the sessions of the last 7 days
    ./try --demo [WORDS…]     the same, or any prosa command, over the made-up sessions of demo/

The demo lies in .venv/demo: nothing of the reader's own is read or written for it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from make_home import make_home

ROOT = Path(__file__).resolve().parents[1]
PROSA = [sys.executable, "-m", "prosa"]
DEMO = Path(sys.prefix) / "demo"


def main() -> int:
    words = sys.argv[1:]
    if "-h" in words[:1] or "--help" in words[:1]:
        print(__doc__)
        return 0
    if words and words[0] != "--demo":
        print("./try takes --demo and nothing else; afterwards the program is .venv/bin/prosa", file=sys.stderr)
        return 2
    if not words and has_histories():
        say("Your agents' files are read, never written. prosa keeps its own in " + own_folder())
        code = sync(None)
        if any_session():
            code = run("--all", env=None) or code
            say("Next: .venv/bin/prosa search WORD, .venv/bin/prosa analytics days, .venv/bin/prosa --help")
            return code
    return demo(words[1:])


def has_histories() -> bool:
    """Whether a folder of an agent is here."""
    listed = subprocess.run([*PROSA, "profiles", "list"], capture_output=True, text=True, check=False).stdout
    return any("found" in line.split("\t")[3:4] for line in listed.splitlines())


def any_session() -> bool:
    command = [*PROSA, "--all", "--since", "2000-01-01", "--limit", "1", "--json"]
    return bool(subprocess.run(command, capture_output=True, check=False).stdout.strip())


def own_folder() -> str:
    from prosa.events.home import Home

    return str(Home.of().data)


def demo(words: list[str]) -> int:
    """Lay the demo out anew, import it, and show it; with words: only run them over it."""
    env = {name: value for name, value in os.environ.items() if not agents_own(name)} | {
        "HOME": str(DEMO / "home"), "PROSA_HOME": str(DEMO / "prosa"), "PROSA_CONFIG_HOME": str(DEMO / "config"),
    }  # fmt: skip
    if not words or not (DEMO / "prosa").is_dir():
        say("DEMO: these sessions are made up. None of your files is read.")
        shutil.rmtree(DEMO, ignore_errors=True)
        make_home(DEMO / "home", datetime.now(UTC))
        code = sync(env)
        if code:
            return code
    if words:
        return run(*words, env=env)
    code = run("--all", env=env)
    say("Next: ./try --demo search timeout, ./try --demo analytics days, ./try --demo --help")
    say("Your own: .venv/bin/prosa sync, wherever an agent has left its files (.venv/bin/prosa profiles list)")
    return code


def agents_own(name: str) -> bool:
    """Variables that could lead from the demo to the reader's files."""
    return name.startswith(("XDG_", "CLAUDE_", "CODEX_", "PROSA_HOME", "PROSA_CONFIG")) or name.endswith(
        ("_HOME", "_CONFIG_DIR", "_DATA_DIR", "_AGENT_DIR", "_SESSION_DIR", "_DB")
    )


def run(*words: str, env: dict[str, str] | None) -> int:
    return subprocess.run([*PROSA, *words], env=env, check=False).returncode


def sync(env: dict[str, str] | None) -> int:
    """Import; into a pipe only the timeline goes, so the line for each source is left out there."""
    out = None if sys.stdout.isatty() else subprocess.DEVNULL
    return subprocess.run([*PROSA, "sync"], env=env, stdout=out, check=False).returncode


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
