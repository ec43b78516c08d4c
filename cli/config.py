"""`config.toml`: profiles of agents and the user's own prices. What prosa does not know in it is left as it is.

    [profiles.claude-code]
    work = "/home/dev/.claude-work"

    [prices."my-model"]
    input = 2.5
    output = 10

Read with tomllib; written by changing one line, after which the file must say exactly what was meant.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from prosa.events.errors import ConflictError, ProsaError, UsageError
from prosa.events.home import Home, private_folder

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Config(NamedTuple):
    profiles: dict[str, dict[str, Path]]
    prices: dict[str, dict[str, object]]


def read(home: Home) -> Config:
    """The configuration; empty where there is no file. Raises UsageError for one that cannot be understood."""
    path = home.config / "config.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Config({}, {})
    except UnicodeDecodeError as bad:
        raise UsageError(f"{path} is not UTF-8: {bad}.", "Nothing was changed.") from None
    data = _parse(text, path)
    for table in ("profiles", "prices"):
        if not all(isinstance(value, dict) for value in (data.get(table, {}), *_values(data.get(table, {})))):
            raise UsageError(f"[{table}] in {path} is not a table of tables.", "Nothing was changed.")
    homes: dict[str, dict[str, Path]] = {}
    for agent, named in data.get("profiles", {}).items():
        for name, value in named.items():
            if not isinstance(value, str) or not value:
                raise UsageError(f"profiles.{agent}.{name} in {path} is {value!r}, not a path.", "Nothing was changed.")
            homes.setdefault(agent, {})[name] = Path(value).expanduser()
    return Config(homes, data.get("prices", {}))


def set_profile(home: Home, agent: str, name: str, path: Path | None) -> None:
    """Write one profile's path, or take it out (None). The rest of the file stays byte for byte."""
    file = home.config / "config.toml"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    wanted = _parse(text, file)
    changed = _edit(text, agent, name, path)
    named = wanted.setdefault("profiles", {}).setdefault(agent, {})
    if path is None:
        named.pop(name, None)
    else:
        named[name] = str(path)
    try:
        same = _without_empty(_parse(changed, file)) == _without_empty(wanted)
    except ProsaError:
        same = False
    if not same:
        raise ConflictError(
            f"{file} is written in a way that cannot be changed by one line.",
            "It was left as it is.",
            f"Edit it by hand: {name} = {_quoted(str(path))} under [profiles.{agent}]",
        )
    _write(file, changed)


def check_name(name: str) -> None:
    """Raises UsageError for a name that is no bare TOML key."""
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name for a profile.", "", "Use letters, digits, - and _.")


def _edit(text: str, agent: str, name: str, path: Path | None) -> str:
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    heading = re.compile(rf"\s*\[\s*profiles\s*\.\s*[\"']?{re.escape(agent)}[\"']?\s*\]\s*(#.*)?\n?")
    key = re.compile(rf"\s*[\"']?{re.escape(name)}[\"']?\s*=")
    start = next((n for n, line in enumerate(lines) if heading.fullmatch(line)), None)
    entry = [] if path is None else [f"{name} = {_quoted(str(path))}\n"]
    if start is None:
        gap = ["\n"] if lines else []
        return "".join([*lines, *gap, f"[profiles.{agent}]\n", *entry]) if entry else text
    end = next((n for n in range(start + 1, len(lines)) if lines[n].lstrip().startswith("[")), len(lines))
    for number in range(start + 1, end):
        if key.match(lines[number]):
            lines[number : number + 1] = entry
            return "".join(lines)
    while end > start + 1 and not lines[end - 1].strip():
        end -= 1
    lines[end:end] = entry
    return "".join(lines)


def _quoted(text: str) -> str:
    """A TOML basic string; JSON escapes what TOML does, but for DEL."""
    import json

    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _parse(text: str, path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as bad:
        raise UsageError(f"{path} is no TOML: {bad}.", "Nothing was changed.", "Correct it or move it away.") from None


def _without_empty(data: dict[str, Any]) -> dict[str, Any]:
    homes = {agent: named for agent, named in data.get("profiles", {}).items() if named}
    return {k: v for k, v in data.items() if k != "profiles"} | ({"profiles": homes} if homes else {})


def _values(table: Any) -> list[Any]:
    return list(table.values()) if isinstance(table, dict) else []


def _write(file: Path, text: str) -> None:
    private_folder(file.parent)
    aside = file.with_name("config.toml.new")
    aside.unlink(missing_ok=True)
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", newline="") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())
    aside.replace(file)
