"""Looking below an agent's home, with one policy for all of them.

What is not there is passed over: a folder nobody made, a link to nothing, a file gone this moment. So is what is
neither a file nor a folder. A folder is entered once, however it is reached. All else that cannot be looked at is
reported, and costs only itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from prosa.ingest.importer import FileStat, Report, Trouble

Place = os.DirEntry[str] | Path | str


class Folders:
    """One look below one home."""

    def __init__(self, agent: str, report: Report) -> None:
        self._agent, self._report = agent, report
        self._entered: set[tuple[int, int]] = set()
        self._reported: set[str] = set()

    def entries(self, folder: Place) -> list[os.DirEntry[str]]:
        """A folder's entries by name, links last: what a link and a folder both reach is known by the folder."""
        try:
            with os.scandir(folder) as found:
                return sorted(found, key=lambda entry: (entry.is_symlink(), entry.name))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as bad:
            self._trouble(folder, "listed", bad)
            return []

    def enter(self, place: Place) -> bool:
        """Whether this is a folder that was not yet entered by another way."""
        try:
            if isinstance(place, os.DirEntry) and not place.is_dir():
                return False
            found = _stat(place)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as bad:
            self._trouble(place, "entered", bad)
            return False
        inode = (found.st_dev, found.st_ino)
        if not S_ISDIR(found.st_mode) or inode in self._entered:
            return False
        self._entered.add(inode)
        return True

    def inside(self, folder: Place) -> Iterator[os.DirEntry[str]]:
        """The folders in a folder that were not yet entered."""
        return (entry for entry in self.entries(folder) if self.enter(entry))

    def file(self, place: Place) -> FileStat | None:
        """The stat of a file; None where there is none."""
        try:
            found = _stat(place)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as bad:
            self._trouble(place, "read", bad)
            return None
        if not S_ISREG(found.st_mode):
            return None
        return FileStat(os.fspath(place), found.st_size, found.st_mtime_ns, found.st_ino)

    def files(self, places: Iterable[Place]) -> tuple[FileStat, ...]:
        """The stat of those that are files."""
        return tuple(file for place in places if (file := self.file(place)) is not None)

    def _trouble(self, place: Place, what: str, bad: OSError) -> None:
        path = os.fspath(place)
        if path not in self._reported:
            self._reported.add(path)
            self._report(Trouble(self._agent, path, f"cannot be {what}: {bad.strerror}"))


def _stat(place: Place) -> os.stat_result:
    # a DirEntry remembers it, a Path would cost twice the time of the call itself
    return place.stat() if isinstance(place, os.DirEntry) else os.stat(place)  # noqa: PTH116


def quiet(trouble: Trouble) -> None:
    """For a second look at what was reported at the first."""


def newest(files: Iterable[FileStat]) -> int:
    """The second of the last change. As a rank it lets the copy that was changed last speak for a session."""
    return max((file.mtime_ns for file in files), default=0) // 1_000_000_000


def below_home(text: str, user_home: Path) -> Path:
    """A path as users write it into a variable: `~/` is their home."""
    return user_home / text[2:] if text.startswith("~/") else Path(text)
