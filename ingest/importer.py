"""What an importer is: a module with the names of `Importer` below. Hashing, storing and appending are not its work.

An importer finds the sources below an agent's home, says which sessions a source holds, and folds the bytes of one
session's raw into facts. A fold sees one raw and the session's identity and nothing else: what other files say
about a session (title index, prompt history) comes from `asides`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from prosa.events.facts import Facts, Header


class Identity(msgspec.Struct, frozen=True):
    """Whose bytes these are: the agent's own id, and a scope where ids are not unique by themselves."""

    agent: str
    id: str
    scope: str | None = None

    @property
    def key(self) -> str:
        """`agent/[scope/]id`: names the stream and every link."""
        parts = (part for part in (self.agent, self.scope, self.id) if part)
        return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)

    @classmethod
    def from_key(cls, key: str) -> Identity:
        """The identity a key was made from."""
        parts = [part.replace("%2F", "/").replace("%25", "%") for part in key.split("/")]
        return cls(parts[0], parts[-1], parts[1] if len(parts) == 3 else None)


class FileStat(msgspec.Struct, frozen=True):
    """What change detection compares."""

    path: str
    size: int
    mtime_ns: int
    inode: int


class Source(msgspec.Struct, frozen=True):
    """One file or database of an agent. Made from names and stat alone: nothing was opened."""

    agent: str
    path: str
    """Absolute; as found, links in the agent's own folders not resolved."""
    files: tuple[FileStat, ...]
    """All files whose change is a change of this source; the first is the source itself, a `-wal` follows it."""
    id: str | None = None
    """Session id, where the path states it."""
    scope: str | None = None
    packed: bool = False
    """True: the file is zstd-compressed and is read through."""
    rank: int = 0
    """Where several sources hold the same session: the highest rank is read, the others are its copies."""


class Trouble(msgspec.Struct, frozen=True):
    """One thing that could not be read. Counted and printed by sync; never ends the scan."""

    agent: str
    path: str
    reason: str
    retry: bool = False
    """True: the owner was writing (a locked database); the next sync tries again."""
    lost: bool = True
    """False: read around, nothing of a conversation is missing; said, but no failure."""


Report = Callable[[Trouble], None]


class Raw(msgspec.Struct, frozen=True):
    """One session's bytes within a source."""

    identity: Identity
    chunks: Callable[[], Iterable[bytes]]
    """Reads the bytes from the start, in pieces of at most about 1 MB; may be called again."""
    verbatim: bool = True
    """False: a canonical projection (JSONL) of rows or of several files."""
    surface: str = "main"
    """Name of the kind of source, where one session can lie in several with different ids for its records. The one with
    more prompts serves, never both; `~name` is one that knows prompts alone and serves only where there is no other."""


class Aside(msgspec.Struct, frozen=True):
    """What a file that is not the session's own says about it."""

    identity: Identity
    field: Literal["title", "cwd", "branch", "parent", "forked_from", "cleared_from", "resumed_from"]
    value: str
    """For links: the native id of the other session."""
    evidence: str
    """The file, and what in it: `history.jsonl: /clear`."""
    rank: int = 0
    """The highest rank wins; what the session's own raw says has rank 0."""


class Fold(Protocol):
    """The parser of one raw: bytes in, facts out. Feeding in any pieces gives the same facts in the end."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes. A line without its newline waits."""

    def take(self) -> Facts:
        """What is new or changed since the last take, in reading order, and forget it."""

    def header(self) -> Header:
        """What is known of the session so far."""

    def end(self) -> None:
        """The raw is complete as it is on disk: a last line without its newline counts if it is whole JSON; a torn one
        waits. A document format parses itself now. Called before the last `take` and `state`; more may be fed later."""

    def state(self) -> bytes | None:
        """All that is needed to go on later (msgpack), or None where this format is always read from its start."""


class Importer(Protocol):
    """The names an importer module has."""

    AGENT: str
    PARSER: str
    """`claude-code/1`: raise the number when the output for the same bytes changes."""
    HOMES: tuple[str, ...]
    """Names shown to a user who sets a profile's path: `~/.claude`."""
    ASIDE_FILES: tuple[str, ...]
    """Files below a home that `asides` reads; it is called when one of them or a session changed."""

    def homes(self, env: Mapping[str, str], user_home: Path) -> list[Path]:
        """Where this agent keeps its files by default, the agent's own variables respected; may not exist."""

    def sources(self, home: Path, report: Report) -> Iterator[Source]:
        """Every source below one home, cheap. A bad entry is reported and passed over."""

    def raws(self, source: Source, report: Report) -> Iterator[Raw]:
        """The sessions of a source. Opens the source, read-only, and only as long as it must."""

    def fold(self, identity: Identity, state: bytes | None = None) -> Fold:
        """A new fold, or one that goes on from a saved state."""

    def asides(self, home: Path, known: Mapping[str, Iterable[Identity]], report: Report) -> Iterator[Aside]:
        """What shared files say about sessions; `known` has the known sessions of this agent by native id."""

    def resume(self, identity: Identity, cwd: str | None) -> list[str] | None:
        """The agent's own command that goes on with a session, as words; None if it cannot."""
