"""What the log says of the server: up to where it has each origin, which raw it holds, what it refused.

All of them are local events, said when something changed. A server is named by the id of its log, not by its URL:
one that was set up anew at the same place holds nothing yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from prosa.events.catalogue import Event, EventsAcknowledged, PushConfirmed, PushRefused
from prosa.events.database import Database
from prosa.events.log import BATCH_EVENTS, Draft, Log, Origin
from prosa.events.messages import Head

# the file of a raw may hold more than the raw, never less: the least that was ever said is where it ends
UNCONFIRMED: Final = """
SELECT r.raw, s.key, w.size, w.stored FROM revisions r JOIN sessions s USING (sid)
JOIN raws w ON w.sha256 = r.raw AND w.session = s.key
WHERE :lost OR NOT EXISTS (SELECT 1 FROM pushed p WHERE p.session = s.key AND p.raw = r.raw AND p.server = :server)
GROUP BY r.raw, s.key ORDER BY r.raw, s.key"""


URI: Final = 2_000
"""Characters of where the server says that it keeps a raw."""


class Unsent(msgspec.Struct, frozen=True):
    """A raw that the server was not shown to hold, and the sessions it is the last raw of a revision of."""

    sha256: str
    size: int
    stored: int
    sessions: tuple[str, ...]


def unconfirmed(index: Database, server: str, *, lost: bool) -> list[Unsent]:
    """Raws without a confirmation of this server; `lost`: all, because its confirmations hold no more."""
    found: dict[str, Unsent] = {}
    for raw, key, size, stored in index.execute(UNCONFIRMED, {"server": server, "lost": lost}):
        known = found.get(raw)
        found[raw] = Unsent(raw, size, min(stored, known.stored) if known else stored,
                            (*(known.sessions if known else ()), key))  # fmt: skip
    return list(found.values())


class Receipts:
    """Reads and says them. Every `say_…` appends at once; nothing that was said before is said again."""

    def __init__(self, log: Log, server: str) -> None:
        self._log, self.server = log, server
        self.said = 0

    def acknowledged(self, origin: Origin) -> int:
        """Up to which origin position the server had these events once; 0: never, or the log has others now."""
        stream = self._stream(origin.origin.hex())
        for local in reversed([o for o in self._log.origins if o.scope == "local"]):
            last = self._log.last(stream, local)
            event = last.event() if last and not last.erased else None
            if isinstance(event, EventsAcknowledged):
                same = self._log.hash_at(origin, event.origin_position)
                return event.origin_position if same and same.hex() == event.hash else 0
        return 0

    def say_acknowledged(self, origin: Origin, head: Head, position: int) -> None:
        event = EventsAcknowledged(
            origin=origin.origin.hex(), origin_position=head.position, hash=head.hash.hex(), server=self.server,
            position=position,
        )  # fmt: skip
        self._say([(self._stream(event.origin), event)])

    def say_confirmed(self, found: Sequence[tuple[str, str, str]], position: int) -> None:
        """(session, raw, uri) of what the server holds."""
        for start in range(0, len(found), BATCH_EVENTS):
            self._say(
                [
                    (
                        f"session-{session}",
                        PushConfirmed(session=session, raw=raw, uri=uri[:URI], server=self.server, position=position),
                    )
                    for session, raw, uri in found[start : start + BATCH_EVENTS]
                ]
            )

    def say_refused(self, what: str, why: str, retry_after_s: int | None = None) -> None:
        """Said when the reason is another than the last time."""
        event = PushRefused(what=what, why=why, retry_after_s=retry_after_s)
        stream = self._stream(what.replace(" ", "-"))
        last = self._log.last(stream, self._log.local)
        if last is None or last.erased or last.event() != event:
            self._say([(stream, event)])

    def _stream(self, subject: str) -> str:
        return f"push-{self.server}/{subject}"

    def _say(self, events: Sequence[tuple[str, Event]]) -> None:
        versions: dict[str, int] = {}
        drafts = []
        for stream, event in events:
            if stream not in versions:
                last = self._log.last(stream, self._log.local)
                versions[stream] = last.stream_version if last else 0
            drafts.append(Draft(stream, versions[stream], event))
            versions[stream] += 1
        self.said += len(self._log.append(drafts))
