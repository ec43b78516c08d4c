"""Where the server keeps raw: a folder here, S3 in raws_s3.py. Objects are named by content and never change.

A raw is `raw/ab/<sha256>.zst`: zstd frames whose plain bytes have that sha256, as the device made them. A part of an
upload is `parts/<sha256>/<number>-<sha256 of the part>`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Final, Protocol

from prosa.events.errors import ProsaError
from prosa.events.home import private_folder, sync_folder

PIECE: Final = 1024 * 1024


class StoreAway(OSError):
    """The store does not answer, or refuses what it always takes."""


class Raws(Protocol):
    """A store of objects. Names come from `raw_name` and `part_name` alone."""

    def uri(self, name: str) -> str:
        """Where an object is, for people and receipts."""

    async def put(self, name: str, file: IO[bytes], size: int) -> None:
        """Keep a file's first `size` bytes; an object of that name that is there already stays as it is."""

    async def size(self, name: str) -> int | None:
        """Bytes of an object at this moment, None if there is none. Asks the store, no cache."""

    def read(self, name: str) -> AsyncIterator[bytes]:
        """An object's bytes in pieces. Raises FileNotFoundError if there is none."""

    async def remove(self, name: str) -> None:
        """Drop an object; no error if there is none."""

    async def check(self) -> None:
        """Raises where the store does not answer."""

    async def close(self) -> None: ...


def raw_name(sha256: str) -> str:
    return f"raw/{sha256[:2]}/{sha256}.zst"


def part_name(sha256: str, number: int, part: str) -> str:
    return f"parts/{sha256}/{number:05}-{part}"


class FolderRaws:
    """Objects as files: complete and durable, or not there."""

    def __init__(self, folder: Path) -> None:
        self._folder = private_folder(folder)

    def uri(self, name: str) -> str:
        return f"file://{self._folder / name}"

    async def put(self, name: str, file: IO[bytes], size: int) -> None:
        await asyncio.to_thread(self._put, name, file, size)

    async def size(self, name: str) -> int | None:
        try:
            return (self._folder / name).stat().st_size
        except FileNotFoundError:
            return None

    async def read(self, name: str) -> AsyncIterator[bytes]:
        with (self._folder / name).open("rb") as file:
            while piece := await asyncio.to_thread(file.read, PIECE):
                yield piece

    async def remove(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)

    async def check(self) -> None:
        if not os.access(self._folder, os.W_OK):
            raise ProsaError("The folder of the raw store cannot be written.")

    async def close(self) -> None:
        pass

    def _put(self, name: str, file: IO[bytes], size: int) -> None:
        path = self._folder / name
        if path.exists():
            return
        private_folder(path.parent)
        handle, half = tempfile.mkstemp(prefix=".new-", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as out:
                file.seek(0)
                left = size
                while left and (piece := file.read(min(PIECE, left))):
                    left -= out.write(piece)
                out.flush()
                os.fsync(out.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(half, path)  # another upload may have been faster; its bytes are as good
            sync_folder(path.parent)
        finally:
            Path(half).unlink(missing_ok=True)
