"""What prosa says end to end about the homes that the tests of rules make: the JSON that `prosa --json` prints."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
from store import Store

from prosa.events.raw import RawStore
from prosa.ingest.report import SourceDone
from prosa.projections.index import open_index
from prosa.projections.local import LocalBackend
from prosa.projections.queries import Filters, Timeline

Json = dict[str, Any]

sys.path.insert(0, str(Path(__file__).parent / "ingest"))
"""The tests of rules use what the importers' tests make their files with."""


class Listed:
    """One user's home; each question syncs first and checks what must hold after every sync."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root)
        (self.store.projects).rmdir()
        self.user = self.store.user

    def troubles(self) -> list[str]:
        """Path and reason of the sources that failed in one sync."""
        return [f"{one.path}: {one.reason}" for one in self.store.done() if one.status == "failed"]

    def sessions(self) -> dict[str, Json]:
        """The listing by id, after a sync that left the home alone and that a second one adds nothing to."""
        before = self._snapshot()
        self.store.sync()
        assert self._snapshot() == before, "the sync wrote into the home"
        events = len(self.store.events())
        list(self.store.items())
        assert len(self.store.events()) == events, "a second sync says something"
        assert self.store.serving() == self.store.rebuilt()
        return self.listing()

    def listing(self) -> dict[str, Json]:
        """The listing as it is."""
        question = Timeline(filters=Filters(), flat=True, include_empty=True)
        with closing(open_index(self.store.home.index)) as db, self.store.log() as log:
            page = LocalBackend(db, log, RawStore(self.store.home.raw), now_us=0).timeline(question)
            found = [msgspec.to_builtins(one) for one in page.sessions]
        assert len({one["id"] for one in found}) == len(found)
        return {one["id"]: one for one in found}

    def done(self) -> list[SourceDone]:
        return self.store.done()

    def _snapshot(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(self.user.rglob("*")) if path.is_file()}

    def leaks(self, secret: str) -> list[str]:
        """Files of prosa in which a secret stands in the clear, raws unpacked, and outputs."""
        import zstandard

        word = secret.encode()
        found = []
        for path in self.store.home.raw.parent.rglob("*"):
            if not path.is_file():
                continue
            data = path.read_bytes()
            if path.suffix == ".zst":
                data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
            if word in data:
                found.append(str(path))
        if any(word in msgspec.json.encode(turn) for event in self.store.events() for turn in [event]):
            found.append("events")
        return found


def brief(one: Json) -> Json:
    """The fields of a session that the corpus compares, in its words."""
    turns, usage = one["turns"], one["usage"]
    return {
        "user": turns["user"],
        "assistant": turns["assistant"],
        "thinking": turns["thinking"],
        "tool_result": turns["tool_result"],
        "tools": one["tools"],
        "tool_errors": one["tool_errors"],
        "usage": None
        if usage is None
        else {k: usage[k] for k in ("input", "output", "cache_read", "cache_creation", "reasoning")},
        "compactions": one["compactions"]["count"] if one["compactions"]["known"] else None,
        "parent": one["parent_id"],
        "lineage": {name: value for name, value in one["lineage"].items() if value},
        "title": one["title"],
        "cwd": one["project"] and one["project"]["path"],
        "first_prompt": one["first_prompt"],
        "models": one["models"],
        "branch": one["branch"],
        "started": one["started_at"],
        "last": one["last_activity_at"],
    }
