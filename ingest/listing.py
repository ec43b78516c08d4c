"""Looking into agents' folders: every bad entry is reported and costs only itself."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from prosa.ingest.importer import FileStat, Report, Trouble


class Listing:
    """One look below one home. A folder is entered once, however it is reached."""

    def __init__(self, agent: str, report: Report) -> None:
        self._agent, self._report = agent, report
        self._seen: set[tuple[int, int]] = set()

    def entries(self, folder: Path) -> list[os.DirEntry[str]]:
        """A folder's entries by name, links last; empty where there is no such folder."""
        try:
            with os.scandir(folder) as found:
                return sorted(found, key=lambda entry: (entry.is_symlink(), entry.name))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as bad:
            self._report(Trouble(self._agent, str(folder), f"cannot be listed: {bad.strerror}"))
            return []

    def folders(self, folder: Path) -> Iterator[Path]:
        """The folders in a folder, links followed. A link that leads nowhere is reported."""
        for entry in self.entries(folder):
            try:
                if not entry.is_dir():
                    if entry.is_symlink():
                        entry.stat()
                    continue
                found = entry.stat()
            except OSError as bad:
                self._report(Trouble(self._agent, entry.path, f"cannot be followed: {bad.strerror}"))
                continue
            place = (found.st_dev, found.st_ino)
            if place not in self._seen:
                self._seen.add(place)
                yield Path(entry.path)

    def files(self, paths: Iterable[Path]) -> tuple[FileStat, ...]:
        """The stat of those that are regular files; what cannot be looked at is reported."""
        found = []
        for path in paths:
            try:
                seen = path.stat()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as bad:
                self._report(Trouble(self._agent, str(path), f"cannot be read: {bad.strerror}"))
                continue
            if stat.S_ISREG(seen.st_mode):
                found.append(FileStat(str(path), seen.st_size, seen.st_mtime_ns, seen.st_ino))
        return tuple(found)


def newest(files: Iterable[FileStat]) -> int:
    """The second of the last change. As a rank it lets the copy that was changed last speak for a session."""
    return max((file.mtime_ns for file in files), default=0) // 1_000_000_000


def pieces(lines: Iterable[bytes], size: int = 1 << 20) -> Iterator[bytes]:
    """The lines joined and cut into pieces of at most `size` bytes."""
    waiting: list[bytes] = []
    length = 0
    for line in lines:
        if length + len(line) > size and waiting:
            yield b"".join(waiting)
            waiting, length = [], 0
        if len(line) > size:
            yield from (line[place : place + size] for place in range(0, len(line), size))
        else:
            waiting.append(line)
            length += len(line)
    if waiting:
        yield b"".join(waiting)
