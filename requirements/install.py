"""Sets up a virtual environment with the pinned packages and this checkout in it. `./try` and `./check` begin here.

    python3 requirements/install.py run           what prosa needs            (requirements/run.txt, build.txt)
    python3 requirements/install.py check         and what its tests need     (requirements/check.txt)
    python3 requirements/install.py wheel FILE    an environment with a built wheel instead of the checkout
    --venv FOLDER                                 another place than .venv

Needs Python 3.11 and nothing else: where Python has no ensurepip (Debian keeps it in a package of its own), pip's wheel
is taken from the index that pip's configuration names, with its pinned hash, else from Debian's package of it, fetched
into a temporary folder and not installed. Nothing outside the environment is written. A second run changes nothing
and needs no network.
"""

from __future__ import annotations

import argparse
import base64
import configparser
import hashlib
import importlib.util
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SETS = {"run": ("run", "build"), "check": ("check",), "wheel": ("run",)}
"""What is asked for → the files that are installed."""
OLDEST = (3, 11)
DEBIAN_PACKAGE = "python3-pip-whl"


class Failed(Exception):
    """The set-up cannot go on; the text says what to do."""


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("what", choices=SETS)
    arguments.add_argument("wheel", nargs="?", type=Path)
    arguments.add_argument("--venv", type=Path, default=ROOT / ".venv")
    given = arguments.parse_args()
    if sys.version_info < OLDEST:
        print(f"prosa needs Python 3.11; this is {sys.version.split()[0]}.", file=sys.stderr)
        return 1
    try:
        set_up(given.venv.absolute(), given.what, given.wheel)
    except Failed as why:
        print(f"{why}\nOnly {given.venv} was written; run the same command again when it is mended.", file=sys.stderr)
        return 1
    return 0


def set_up(place: Path, what: str, wheel: Path | None = None) -> None:
    """Make the environment hold what is asked for; nothing is done where it does."""
    stamp, wanted = place / f"prosa-{what}.stamp", fingerprint(place, what)
    if wheel is None and stamp.exists() and stamp.read_text(encoding="utf-8") == wanted and works(place):
        return
    print(f"Setting up {place} (the first time only) …", file=sys.stderr, flush=True)
    pip = [*environment(place), "install", "--no-cache-dir", "--no-input", "--disable-pip-version-check", "--quiet"]
    files = [f"--requirement={HERE / name}.txt" for name in SETS[what]]
    run([*pip, "--require-hashes", "--only-binary=:all:", *files], "The pinned packages could not be installed.")
    here = ["--no-build-isolation", f"--editable={ROOT}"] if wheel is None else [str(wheel)]
    run([*pip, "--no-deps", "--no-index", *here], "prosa itself could not be installed.")
    for name in ("run", "check") if what == "check" else (what,):
        (place / f"prosa-{name}.stamp").write_text(fingerprint(place, name), encoding="utf-8")


def fingerprint(place: Path, what: str) -> str:
    """Equal as long as nothing has to be installed: the place, the pins and what pyproject.toml says."""
    found = hashlib.sha256(f"{place}\n".encode())
    for path in (*(HERE / f"{name}.txt" for name in SETS[what]), ROOT / "pyproject.toml"):
        found.update(path.read_bytes())
    return found.hexdigest()


def works(place: Path) -> bool:
    """Whether the environment's Python runs and is new enough: its folder may have been moved, its Python removed."""
    test = f"import sys; sys.exit(sys.version_info < {OLDEST})"
    try:
        return subprocess.run([place / "bin" / "python", "-c", test], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def run(command: list[str], failed: str) -> None:
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    # `user = true` in a pip.conf is an error inside an environment; a foreign PIP_TARGET would install elsewhere
    env = {name: value for name, value in env.items() if name not in ("PIP_TARGET", "PIP_PREFIX")} | {"PIP_USER": "0"}
    if subprocess.run(command, stdin=subprocess.DEVNULL, env=env, check=False).returncode:
        raise Failed(failed)


# the environment and its pip


def environment(place: Path) -> list[str]:
    """The command that runs pip for the environment, which is made where there is none that works."""
    python = str(place / "bin" / "python")
    if not works(place):
        make(place)
    elif not has_pip(place) and not kept_pip(place):
        fetch_pip(place)
    wheel = kept_pip(place)
    return [python, f"{wheel}/pip"] if wheel else [python, "-m", "pip"]


def make(place: Path) -> None:
    """Make the environment with Python's own pip, or without one and with pip's wheel beside it."""
    if importlib.util.find_spec("ensurepip"):
        try:
            venv.create(place, clear=True, symlinks=True, with_pip=True)
            return
        except (subprocess.CalledProcessError, OSError) as bad:
            print(f"Python's own pip cannot be used ({bad}).", file=sys.stderr)
    try:
        venv.create(place, clear=True, symlinks=True)
    except OSError as bad:
        raise Failed(f"The virtual environment could not be made: {bad}.") from None
    fetch_pip(place)


def has_pip(place: Path) -> bool:
    return any(place.glob("lib/python3*/site-packages/pip/__main__.py"))


def kept_pip(place: Path) -> Path | None:
    return next(iter(sorted(place.glob("pip-*.whl"))), None)


def fetch_pip(place: Path) -> None:
    """Put pip's wheel into the environment's folder. Raises Failed."""
    tried = []
    for source in (from_index, from_debian):
        try:
            source(place)
            return
        except (Failed, OSError, subprocess.SubprocessError) as bad:
            tried.append(str(bad))
    raise Failed(
        f"This Python has no ensurepip, and pip could not be fetched: {'; '.join(tried)}.\n"
        "Name your index in PIP_INDEX_URL, or install the package python3-venv."
    )


def from_index(place: Path) -> None:
    """The pinned wheel from the configured index; its hash is checked, whatever the way to it was."""
    index = setting("index-url")
    if not index:
        raise Failed("pip's configuration names no index")
    text = (HERE / "pip.txt").read_text(encoding="utf-8")
    version = re.findall(r"^pip==(\S+)", text, re.MULTILINE)[0]
    name = f"pip-{version}-py3-none-any.whl"
    page = f"{index.rstrip('/')}/pip/"
    links = re.findall(r"href=[\"']([^\"']+)", fetch(page).decode("utf-8", "replace"))
    link = next((link for link in links if urllib.parse.urlsplit(link).path.endswith(f"/{name}")), name)
    data = fetch(urllib.parse.urljoin(page, link))
    if hashlib.sha256(data).hexdigest() not in text:
        raise Failed(f"{name} from the configured index does not have its pinned hash")
    (place / name).write_bytes(data)


def fetch(url: str) -> bytes:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("https", "http", "file"):
        raise Failed(f"the configured index is no URL that can be read ({parts.scheme or 'no scheme'})")
    request = urllib.request.Request(urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])))  # noqa: S310
    if parts.username:
        user = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        request.add_header("Authorization", f"Basic {base64.b64encode(user.encode()).decode()}")
    context = ssl.create_default_context(cafile=setting("cert") or None)
    try:
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:  # noqa: S310
            data: bytes = answer.read()
            return data
    except urllib.error.URLError as bad:
        raise Failed(f"the configured index cannot be read ({bad.reason})") from None


def setting(name: str) -> str:
    """What pip would take for an option: the environment, else the last of its files that says it."""
    value = ""
    home = Path(os.environ.get("HOME") or "/")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    files = [Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf"), home / ".pip/pip.conf"]
    files += [home / "Library/Application Support/pip/pip.conf", config / "pip/pip.conf"]
    files += [Path(os.environ["PIP_CONFIG_FILE"])] if os.environ.get("PIP_CONFIG_FILE") else []
    for file in files:
        parser = configparser.RawConfigParser()
        try:
            parser.read(file, encoding="utf-8")
        except (configparser.Error, OSError, UnicodeDecodeError):
            continue
        for section in ("global", "install"):
            value = parser.get(section, name, fallback=value)
    return os.environ.get(f"PIP_{name.upper().replace('-', '_')}") or value


def from_debian(place: Path) -> None:
    """The wheel in Debian's package of it. Needs no root: package lists go into a folder of their own, if need be."""
    present = next(iter(sorted(Path("/usr/share/python-wheels").glob("pip-*.whl"))), None)
    if present is not None:
        shutil.copy(present, place)
        return
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise Failed("there is no apt-get to fetch it with")
    with tempfile.TemporaryDirectory(dir=place) as scratch:
        folder = Path(scratch)
        for name in ("lists/partial", "cache/archives/partial", "unpacked"):
            (folder / name).mkdir(parents=True)
        own = ["-o", f"Dir::State::Lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache"]
        own += ["-o", "Acquire::Languages=none"]
        for options, update in ([], False), (own, True):
            apt = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", *options]
            if update:
                subprocess.run([*apt, "update"], cwd=folder, stdin=subprocess.DEVNULL, check=False)
            got = subprocess.run(
                [*apt, "download", DEBIAN_PACKAGE],
                cwd=folder, stdin=subprocess.DEVNULL, stderr=None if update else subprocess.DEVNULL, check=False,
            )  # fmt: skip
            package = next(iter(folder.glob(f"{DEBIAN_PACKAGE}_*.deb")), None)
            if got.returncode == 0 and package is not None:
                subprocess.run(["dpkg-deb", "-x", package, folder / "unpacked"], check=True)
                wheels = folder.glob("unpacked/usr/share/python-wheels/pip-*.whl")
                shutil.copy(next(iter(wheels)), place)
                return
    raise Failed(f"apt-get has no package {DEBIAN_PACKAGE}")


if __name__ == "__main__":
    sys.exit(main())
