"""Writes requirements/*.txt anew: every package of pyproject.toml's ranges with its newest version and hashes.

    python3 requirements/lock.py                 the newest versions that the ranges admit
    python3 requirements/lock.py --keep          the pinned ones, where they still fit

The files name packages, versions and hashes and no place to fetch them from: pip's own configuration says where.
They hold for Linux and macOS, Python 3.11 and later. uv resolves; it is installed into a folder that is removed again.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent / "pyproject.toml"
OTHER_SYSTEMS = re.compile(r"sys_platform == '(win32|emscripten)'")
"""Entries that only a system we do not run on would install."""
ABOUT = "# Written by requirements/lock.py from the ranges in pyproject.toml; do not edit.\n"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--keep", action="store_true", help="Keep the pinned versions where they fit.")
    keep = arguments.parse_args().keep
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    server = [*project["project"]["dependencies"], *extras["server"]]
    run = [*server, *extras["dev-server"]]
    build = project["build-system"]["requires"]
    check = extras["dev"]
    with tempfile.TemporaryDirectory() as scratch:
        uv = install_uv(Path(scratch))
        everything = resolve(uv, Path(scratch), "check", [*run, *build, *check], None, keep)
        resolve(uv, Path(scratch), "run", run, everything, keep)
        resolve(uv, Path(scratch), "server", server, everything, keep)
        resolve(uv, Path(scratch), "build", build, everything, keep)
        resolve(uv, Path(scratch), "pip", ["pip"], None, keep)
    return 0


def install_uv(scratch: Path) -> Path:
    venv.create(scratch / "uv", with_pip=True)
    python = scratch / "uv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "uv"], check=True)
    return python.with_name("uv")


def resolve(uv: Path, scratch: Path, name: str, wanted: list[str], within: Path | None, keep: bool) -> Path:
    """Write requirements/<name>.txt; `within` is a file whose versions it must have."""
    asked, found, target = scratch / f"{name}.in", scratch / f"{name}.txt", HERE / f"{name}.txt"
    asked.write_text("\n".join(wanted) + "\n", encoding="utf-8")
    if keep and target.exists():
        found.write_bytes(target.read_bytes())
    command = [
        str(uv), "pip", "compile", "--quiet", "--no-config", "--universal", "--python-version", "3.11",
        "--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links",
        "--native-tls", "--output-file", str(found), str(asked),
    ]  # fmt: skip
    if within is not None:
        command += ["--constraints", str(within)]
    subprocess.run(command, check=True)
    target.write_text(ABOUT + "".join(ours(found.read_text(encoding="utf-8"))), encoding="utf-8")
    pinned = target.read_text(encoding="utf-8").count("==")
    print(f"{target.relative_to(HERE.parent)}: {pinned} packages")
    return target


def ours(text: str) -> Iterator[str]:
    """The entries, each with its lines of hashes, that Linux or macOS could install."""
    for entry in re.findall(r"^\S.*\n(?: +.*\n)*", text, re.MULTILINE):
        if not OTHER_SYSTEMS.search(entry.partition("\n")[0]):
            yield entry


if __name__ == "__main__":
    sys.exit(main())
