"""Long output on a terminal goes through the user's pager, as git does it; short output does not."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from prosa.cli.terminal import lines as screen_lines


def page(lines: Iterable[str]) -> None:
    """Print lines; more than a screen of them through $PROSA_PAGER, $PAGER or `less -R`. Only for a terminal."""
    stream = iter(lines)
    first = list(islice(stream, screen_lines() - 1))
    rest = next(stream, None)
    if rest is None:
        sys.stdout.writelines(line + "\n" for line in first)
        return
    everything = chain(first, (rest,), stream)
    if not _through_pager(everything):
        sys.stdout.writelines(line + "\n" for line in everything)


def _through_pager(lines: Iterator[str]) -> bool:
    """Whether there was a pager. One that is left early ends the output and is no error."""
    command = os.environ.get("PROSA_PAGER") or os.environ.get("PAGER") or "less"
    import shlex
    import shutil
    import subprocess

    words = shlex.split(command)
    if words == ["cat"] or not words or not shutil.which(words[0]) or os.environ.get("TERM", "dumb") == "dumb":
        return False
    env = {"LESS": "-R", "LESSCHARSET": "utf-8"} | dict(os.environ)
    sys.stdout.flush()
    # the variable holds a command with its options, as everywhere
    pager = subprocess.Popen(  # noqa: S602
        command, shell=True, stdin=subprocess.PIPE, env=env, encoding="utf-8", errors="replace"
    )
    assert pager.stdin is not None
    try:
        for line in lines:
            pager.stdin.write(line + "\n")
    except BrokenPipeError:
        pass
    with contextlib.suppress(BrokenPipeError):
        pager.stdin.close()
    while True:
        try:
            pager.wait()
            return True
        except KeyboardInterrupt:
            continue  # less handles it itself
