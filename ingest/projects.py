"""Which project a working directory belongs to: the remote of its git repository, else the nearest `.prosa.yaml`.

Git's files are read here, git itself is not run: that takes 1.3 ms a directory, not 0.4, and may wait. It is asked
only where a repository's config includes other files. Whatever cannot be read leaves the project unidentified.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

TIME_LIMIT_S: Final = 0.8
FILE_LIMIT: Final = 1_000_000
"""Bytes of a config or marker that are read."""
NAME_LIMIT: Final = 200
MARKER: Final = ".prosa.yaml"

URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)")
SCP = re.compile(r"(?:[^/]*@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^/:@\[\]]+):(?P<path>.*)")
HELPER = re.compile(r"[A-Za-z0-9+.-]+::")
"""`gcrypt::ssh://…`: a program's name before the address it is given."""
HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::(?P<port>[0-9]*))?")
DEFAULT_PORTS: Final = ("", "22", "80", "443", "9418")
SECTION = re.compile(r'\[(?P<name>[A-Za-z0-9.-]+)(?:\s+"(?P<sub>(?:[^"\\]|\\.)*)")?\]')
VARIABLE = re.compile(r"(?P<key>[A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(?P<value>.*))?$", re.DOTALL)
PROJECT_KEY = re.compile(r"""(?:project|"project"|'project')\s*:(?:\s+(?P<value>.*))?$""")


class Project(msgspec.Struct, frozen=True):
    """At most one of the two; none: the session is unscoped."""

    remote: str | None = None
    """Normalised: `github.com/owner/repo`."""
    marker: str | None = None
    """The name in `.prosa.yaml`."""


def identify(cwd: str, limit_s: float = TIME_LIMIT_S) -> Project:
    """The project of a directory of this machine; unidentified if it is gone, foreign, unreadable or too slow.

    A file system that hangs costs `limit_s` and leaves a daemon thread waiting; so ask once for each cwd.
    """
    if not known_path(cwd):
        return Project()
    found: list[Project] = []
    worker = threading.Thread(target=lambda: found.append(_identify(cwd, limit_s)), daemon=True)
    worker.start()
    worker.join(limit_s)
    return found[0] if found else Project()


def known_path(path: str) -> bool:
    """Whether this can be a path of this machine: absolute, POSIX, no network share. Looks at the text only."""
    return path.startswith("/") and not path.startswith("//") and "\0" not in path and len(path) <= 4096


def normalise_remote(url: str) -> str | None:
    """`host/owner/repo` for the URL of a remote, without credentials; None for what is no place on a network.

    Credentials, scheme, default ports, query, `.git` and slashes at the end go, the host is lower-cased, and the
    scp form is the URL form. Local paths and `file://` are None: they name a place on one machine only.
    """
    text = url.strip()
    if not text or len(text) > 2000 or "\\" in text or any(c.isspace() or not c.isprintable() for c in text):
        return None
    if found := URL.fullmatch(text.split("?")[0].split("#")[0]):
        if found["scheme"].lower() == "file":
            return None
        place, path = found["authority"].rpartition("@")[2], found["path"]
    elif found := HELPER.match(text):
        return normalise_remote(text[found.end() :])
    elif found := SCP.fullmatch(text):
        if len(found["host"]) == 1:
            return None  # C:/repo
        place, path = found["host"], found["path"]
    else:
        return None
    host = HOST.fullmatch(place)
    if host is None:
        return None
    port = "" if (host["port"] or "") in DEFAULT_PORTS else f":{host['port']}"
    parts = [part for part in path.split("/") if part]
    while parts and parts[-1].lower() == ".git":
        parts.pop()
    if parts and parts[-1].lower().endswith(".git"):
        parts[-1] = parts[-1][:-4]
    name = host["host"].lower().rstrip(".")
    if parts and parts[0].find("@") > 0:
        return None  # a password with a slash, or `user:token@host/path`: rather no project than a credential in one
    return "/".join((name + port, *parts)) if parts and name else None


def _identify(cwd: str, limit_s: float) -> Project:
    try:
        here = Path(cwd).resolve()
        if not here.is_dir():
            return Project()
        if (url := _origin(here, limit_s)) and (remote := normalise_remote(url)):
            return Project(remote=remote)
        return Project(marker=_marker(here))
    except (OSError, ValueError, RuntimeError):  # no access, a name that cannot be encoded, a loop of links
        return Project()


def _origin(cwd: Path, limit_s: float) -> str | None:
    """`git remote get-url origin` before `insteadOf`: what the repository says, not what this user rewrites."""
    common = _repository(cwd)
    text = _text(common / "config") if common else None
    if text is None:
        return None
    origin = None
    for section, sub, key, value in config_values(text):
        if section in ("include", "includeif"):
            return _ask_git(cwd, limit_s)
        if (section, sub, key) == ("remote", "origin", "url") and origin is None:
            origin = value or None
    return origin


def _repository(cwd: Path) -> Path | None:
    """The folder with the config that holds for a directory: that of the main checkout for a worktree."""
    device = cwd.stat().st_dev
    for folder in (cwd, *cwd.parents):
        if folder.stat().st_dev != device:
            return None  # git does not look across file systems either
        dot_git = folder / ".git"
        pointer = _text(dot_git) if dot_git.is_file() else None
        if pointer is not None:
            target = pointer.strip().removeprefix("gitdir:").strip()
            return (
                _common(folder / target) if pointer.startswith("gitdir:") and known_path(str(folder / target)) else None
            )
        for candidate in (dot_git, folder):  # the folder itself: a bare repository
            if (candidate / "HEAD").is_file() and (candidate / "objects").is_dir():
                return candidate
    return None


def _common(git_dir: Path) -> Path:
    stated = _text(git_dir / "commondir")
    return git_dir / stated.strip() if stated and stated.strip() else git_dir


def config_values(text: str) -> Iterator[tuple[str, str | None, str, str]]:
    """Section, subsection, key and value of a git config, in order. A line that is not understood is passed over."""
    section, sub = "", None
    for line in _logical_lines(text):
        rest = line.strip()
        if found := SECTION.match(rest):
            section = found["name"].lower()
            sub = re.sub(r"\\(.)", r"\1", found["sub"]) if found["sub"] is not None else None
            rest = rest[found.end() :].strip()
        if (found := VARIABLE.match(rest)) and section:
            yield section, sub, found["key"].lower(), _config_value(found["value"] or "")


def _logical_lines(text: str) -> Iterator[str]:
    """Lines, a backslash at the end joining the next one."""
    pending = ""
    for line in text.replace("\r\n", "\n").split("\n"):
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending += line[:-1]
        else:
            yield pending + line
            pending = ""
    if pending:
        yield pending


def _config_value(raw: str) -> str:
    """Quotes and escapes read, the comment and the space before it cut."""
    value, kept = "", 0
    quoted = False
    characters = iter(raw)
    for character in characters:
        if character == "\\":
            value += {"n": "\n", "t": "\t", "b": "\b"}.get(escaped := next(characters, ""), escaped)
            kept = len(value)
        elif character == '"':
            quoted = not quoted
            kept = len(value)
        elif character in "#;" and not quoted:
            break
        else:
            value += character
            if quoted or not character.isspace():
                kept = len(value)
    return value[:kept]


def _ask_git(cwd: Path, limit_s: float) -> str | None:
    command = ["git", "-C", str(cwd), "config", "--local", "--includes", "--get-all", "remote.origin.url"]
    # GIT_DIR and its like, set in a hook or by the user, would speak of another repository
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {"LC_ALL": "C"}
    try:
        answer = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s, env=env, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = answer.stdout.decode("utf-8", "replace").splitlines()
    return lines[0] if answer.returncode == 0 and lines else None


def _marker(cwd: Path) -> str | None:
    for folder in (cwd, *cwd.parents):
        text = _text(folder / MARKER)
        if text is not None and (name := marker_name(text)):
            return name
    return None


def marker_name(text: str) -> str | None:
    """The plain or quoted text of the key `project` at the top level of a `.prosa.yaml`, first document; else None."""
    lines = text.removeprefix("\ufeff").splitlines()
    for number, line in enumerate(lines):
        if number and line.rstrip() in ("---", "..."):
            if any(before.strip() and not before.startswith(("#", "%")) for before in lines[:number]):
                return None
        elif found := PROJECT_KEY.match(line):
            name = _scalar((found["value"] or "").strip())
            return name if name and len(name) <= NAME_LIMIT and name.isprintable() else None
    return None


def _scalar(text: str) -> str | None:
    """A YAML scalar on one line; None for null and for what is no text (a block, a list, an alias)."""
    if text.startswith("'"):
        found = re.match(r"'((?:[^']|'')*)'\s*(?:\s#.*)?$", text)
        return found[1].replace("''", "'").strip() if found else None
    if text.startswith('"'):
        found = re.match(r'("(?:[^"\\]|\\.)*")\s*(?:\s#.*)?$', text)
        try:
            return str(msgspec.json.decode(found[1], type=str)).strip() if found else None
        except msgspec.DecodeError:
            return None
    plain = re.sub(r"(?:^|\s+)#.*$", "", text).strip()
    if not plain or plain[0] in "|>&*!%@`{}[]," or plain.lower() in ("~", "null") or ": " in plain:
        return None
    return plain


def _text(path: Path) -> str | None:
    """A regular file's text; None if there is none. A pipe or device is never opened."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        with path.open("rb") as file:
            return file.read(FILE_LIMIT).decode("utf-8", "replace")
    except OSError:
        return None
