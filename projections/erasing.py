"""What goes from an index at once when a session is erased, before the index is made anew from what is left."""

from __future__ import annotations

from typing import Final

import msgspec

from prosa.events import codec
from prosa.events.database import Database
from prosa.events.facts import Header
from prosa.projections.records import TEXTS, span

SESSION: Final = "SELECT sid, header FROM sessions WHERE key = ?"
STRIP: Final = "UPDATE sessions SET title = NULL, first_prompt = NULL, header = ? WHERE sid = ?"
REVISIONS: Final = "SELECT origin, surface, revision, header FROM revisions WHERE sid = ?"
STRIP_REVISION: Final = """
UPDATE revisions SET header = ? WHERE sid = ? AND origin = ? AND surface = ? AND revision = ?"""


def forget_texts(db: Database, key: str) -> None:
    """A session loses its words, and what was said about it; its counts stay."""
    db.execute("DELETE FROM described WHERE session = ?", (key,))
    row = db.execute(SESSION, (key,)).fetchone()
    if row is None:
        return
    sid, header = row
    for table in TEXTS:
        db.execute(f"DELETE FROM {table} WHERE rowid BETWEEN ? AND ?", span(sid))
    db.execute("DELETE FROM foreign_titles WHERE sid = ?", (sid,))
    db.execute(STRIP, (_stripped(header), sid))
    for *place, body in db.execute(REVISIONS, (sid,)).fetchall():
        db.execute(STRIP_REVISION, (_stripped(body), sid, *place))


def _stripped(body: bytes) -> bytes:
    header = codec.decode_as(Header, body)
    return codec.encode(msgspec.structs.replace(header, title=None, objective=None, foreign_titles=()))
