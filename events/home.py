"""Where prosa keeps its files, and how private they are: folders 0700, files 0600, whatever the umask."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


class Home:
    """The data and the configuration folder of one installation. Nothing is created until something is written."""

    def __init__(self, data: Path, config: Path) -> None:
        self.data, self.config = data, config

    @classmethod
    def of(cls, env: Mapping[str, str] = os.environ) -> Home:
        """PROSA_HOME and PROSA_CONFIG_HOME, else the XDG folders, else the usual places below HOME."""
        user = Path(env.get("HOME") or Path.home())
        data = env.get("PROSA_HOME") or Path(env.get("XDG_DATA_HOME") or user / ".local" / "share") / "prosa"
        config = env.get("PROSA_CONFIG_HOME") or Path(env.get("XDG_CONFIG_HOME") or user / ".config") / "prosa"
        return cls(Path(data).expanduser().absolute(), Path(config).expanduser().absolute())

    @property
    def log(self) -> Path:
        return self.data / "log.db"

    @property
    def raw(self) -> Path:
        return self.data / "raw"

    @property
    def index(self) -> Path:
        return self.data / "index"

    @property
    def cache(self) -> Path:
        return self.data / "cache.db"

    @property
    def locks(self) -> Path:
        return self.data / "locks"


def private_folder(path: Path) -> Path:
    """Make a folder and its missing parents, 0700; an existing one that others can read is closed to them."""
    missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)  # with parents=True those would be as the umask says
    if path.stat().st_mode & 0o077:
        path.chmod(0o700)
    return path


def private_file(path: Path) -> Path:
    """Make an empty file 0600 if there is none, in a private folder."""
    private_folder(path.parent)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    return path


def sync_folder(path: Path) -> None:
    """Make renames and unlinks inside a folder durable."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
