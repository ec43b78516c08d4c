"""The raw store: preserved transcripts, named by the sha256 of their original bytes, compressed with zstd.

A file may be longer than its event says: a copy that grows is continued in place under a second name, and a crash
can leave a tail behind the first one's end. So whoever reads gives the size, and bytes behind it are not read.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import IO, NamedTuple

import zstandard

from prosa.events.errors import DamageError
from prosa.events.home import private_folder, sync_folder

LEVEL = 6
WINDOW_LOG = 24
"""Above 1 MB: 16 MB with long-distance matching, which finds repeats of whole files. Level 3 without: 0.232 of the
transcripts' bytes; with: 0.188; level 6: 0.177, for 3 s more a GB."""
PIECE = 1024 * 1024
APPEND_ABOVE = 4 * 1024 * 1024
"""A grown copy above this size gets another zstd frame; below, it is compressed anew, which costs the same."""


class Stored(NamedTuple):
    """What the store holds of one raw: sizes in bytes, of the original and on disk."""

    sha256: str
    size: int
    stored: int


class RawWriter:
    """Hashes and compresses one raw as it is read. `finish` or `discard` ends it."""

    def __init__(self, folder: Path, size_hint: int) -> None:
        private_folder(folder)
        handle, name = tempfile.mkstemp(prefix=".new-", dir=folder)
        self._path, self._file = Path(name), os.fdopen(handle, "wb")
        self._compress = _compressor(size_hint).compressobj()
        self.hash = sha256()
        self.size = 0

    def write(self, data: bytes) -> None:
        self.hash.update(data)
        self.size += len(data)
        self._file.write(self._compress.compress(data))

    def discard(self) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)

    def close(self) -> Path:
        """Make the file durable under its temporary name."""
        self._file.write(self._compress.flush())
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return self._path


class RawStore:
    """The folder `raw/`: files appear complete and durable, or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, digest: str) -> Path:
        return self.folder / digest[:2] / f"{digest}.zst"

    def has(self, digest: str) -> bool:
        return self.path(digest).exists()

    def writer(self, size_hint: int = 0) -> RawWriter:
        """A new raw, its bytes to be written piece by piece; `size_hint` is its likely size."""
        return RawWriter(self.folder, size_hint)

    def keep(self, writer: RawWriter) -> Stored:
        """Put a written raw in its place. The same content again is not written twice."""
        digest = writer.hash.hexdigest()
        path = self.path(digest)
        written = writer.close()
        if path.exists() and self.verify(digest, writer.size):
            written.unlink()
        else:
            self._place(written, path)
        return Stored(digest, writer.size, path.stat().st_size)

    def extend(self, old: Stored, tail: Iterable[bytes], digest: str, size: int) -> Stored | None:
        """A raw that continues `old` by `tail`; the old name stays and still reads as it was.

        None, and nothing of the tail is read: old is not here, or another raw continues it in the same file.

        Both names are one file: what was compressed once is neither read nor written again.
        """
        before, path = self.path(old.sha256), self.path(digest)
        try:
            if before.stat().st_size < old.stored:
                return None
        except OSError:
            return None
        if path.exists() and path.stat().st_ino != before.stat().st_ino and self.verify(digest, size):
            return Stored(digest, size, path.stat().st_size)
        with before.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # two sources may continue the same raw at once
            found = os.fstat(file.fileno())
            if found.st_size > old.stored and (found.st_nlink > 1 or not _ends_at(file, old)):
                return None  # another session's raw goes on behind this end, or it was compressed anew
            file.truncate(old.stored)
            file.seek(old.stored)
            _write_frame(file, tail, size - old.size)
            file.flush()
            os.fsync(file.fileno())
            second = self.folder / f".new-{digest}"
            second.unlink(missing_ok=True)
            os.link(before, second)
            self._place(second, path)
        return Stored(digest, size, path.stat().st_size)

    def read(self, digest: str, size: int, *, whole: bool = True) -> Iterator[bytes]:
        """The original bytes in pieces. Raises FileNotFoundError, or DamageError where they are not what was kept.

        `whole`: the size is the raw's own, so at the end the hash is checked; else only the beginning is wanted.
        """
        left, found = size, sha256()
        with self.path(digest).open("rb") as file:
            reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(file, read_across_frames=True)
            while left:
                try:
                    piece = reader.read(min(PIECE, left))
                except zstandard.ZstdError as bad:
                    raise DamageError(f"The preserved copy {digest} is damaged: {bad}.") from None
                if not piece:
                    raise DamageError(f"The preserved copy {digest} ends {left:,} bytes early.")
                left -= len(piece)
                found.update(piece)
                yield piece
        if whole and found.hexdigest() != digest:
            raise DamageError(f"The preserved copy {digest} is damaged: its bytes have another hash.")

    def repack(self, digest: str, size: int, into: IO[bytes]) -> None:
        """Write one raw alone, compressed anew: its file may hold more than it. Raises like `read`."""
        _write_frame(into, self.read(digest, size), size)

    def verify(self, digest: str, size: int) -> bool:
        """Whether the file is there and its first `size` bytes have the hash it is named by."""
        try:
            for _ in self.read(digest, size):
                pass
        except (OSError, DamageError):
            return False
        return True

    def remove(self, digest: str) -> None:
        """Drop one copy. The caller has the event that says why."""
        path = self.path(digest)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
            sync_folder(path.parent)

    def cut(self, digest: str, stored: int) -> None:
        """Drop what another raw wrote behind the end of this one in the same file."""
        with contextlib.suppress(FileNotFoundError), self.path(digest).open("r+b") as file:
            if os.fstat(file.fileno()).st_size > stored:
                file.truncate(stored)
                os.fsync(file.fileno())

    def files(self) -> Iterator[tuple[str, int]]:
        """Hash and bytes on disk of every file, by hash."""
        for path in sorted(self.folder.glob("??/*.zst")):
            yield path.stem, path.stat().st_size

    def sweep(self) -> int:
        """Remove what an interrupted import left half written. Returns the number of files. Hold the sync lock."""
        left = list(self.folder.glob(".new-*"))
        for path in left:
            path.unlink(missing_ok=True)
        return len(left)

    def _place(self, written: Path, path: Path) -> None:
        private_folder(path.parent)
        written.replace(path)
        sync_folder(path.parent)


def _ends_at(file: IO[bytes], old: Stored) -> bool:
    """Whether the first stored bytes of the file are the whole raw and nothing else."""
    decompress = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj(read_across_frames=True)
    found, size, left = sha256(), 0, old.stored
    file.seek(0)
    try:
        while left and (piece := file.read(min(PIECE, left))):
            left -= len(piece)
            plain = decompress.decompress(piece)
            size += len(plain)
            found.update(plain)
    except zstandard.ZstdError:
        return False
    return size == old.size and found.hexdigest() == old.sha256


def _compressor(size_hint: int) -> zstandard.ZstdCompressor:
    if size_hint < PIECE:
        return zstandard.ZstdCompressor(level=LEVEL, write_content_size=False)
    parameters = zstandard.ZstdCompressionParameters.from_level(
        LEVEL, window_log=WINDOW_LOG, enable_ldm=True, write_content_size=False
    )
    return zstandard.ZstdCompressor(compression_params=parameters)


def _write_frame(file: IO[bytes], pieces: Iterable[bytes], size_hint: int) -> None:
    compress = _compressor(size_hint).compressobj()
    for piece in pieces:
        file.write(compress.compress(piece))
    file.write(compress.flush())
