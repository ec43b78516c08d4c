"""Names of Pi's session files: a time, and the session's id."""

from __future__ import annotations

import re

NAME = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z_(.+)", re.DOTALL)


def id_of_path(path: str) -> str:
    """Session id in the name of a session file, of any system; a bare id is itself."""
    stem = re.split(r"[/\\]", path)[-1].removesuffix(".jsonl")
    named = NAME.fullmatch(stem)
    return named[1] if named else stem.rpartition("_")[2]
