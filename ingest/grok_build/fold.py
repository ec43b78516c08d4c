"""Folds the raw of one Grok Build session: its small files as text, then the lines of updates.jsonl and of the chat.

Keys are made of the record's eventId and time, of call ids and prompt ids: a fork copies these and rewrites only the
session id and the time of the line. How the raw is put together: `grok_build.raws`.
"""

from __future__ import annotations

from typing import Any

from prosa.events.facts import Facts, Header
from prosa.ingest.clock import parse_iso
from prosa.ingest.grok_build.chat import Chat
from prosa.ingest.grok_build.records import (
    CHAT,
    SECTION,
    SUMMARY,
    UPDATES,
    Section,
    document,
    records,
    rows,
    sections,
    text_of,
)
from prosa.ingest.grok_build.telling import Telling
from prosa.ingest.grok_build.updates import Updates
from prosa.ingest.importer import Identity
from prosa.ingest.json_lines import Lines


class Fold:
    """See `importer.Fold`. The raw begins with what changes most, so it is always read from its start."""

    def __init__(self, identity: Identity, state: bytes | None = None) -> None:
        self.identity = identity
        self._lines = Lines()
        self._section = ""
        self._telling = Telling(identity)
        self._updates = Updates(self._telling)
        self._chat = Chat(self._telling)
        self._summary: dict[str, Any] = {}
        self._cwd: str | None = None
        self._parent: str | None = None

    def feed(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            self._line(line)

    def end(self) -> None:
        """The importer ends every line; a raw cut elsewhere has a last one that counts if it is whole."""
        rest = self._lines.rest
        if rest.rstrip().endswith(b"}") and not rows(rest)[1]:
            self._lines = Lines()
            self._line(rest)

    def take(self) -> Facts:
        self._updates.flush()
        return self._telling.take()

    def state(self) -> bytes | None:
        return None

    def _line(self, line: bytes) -> None:
        if line.startswith(SECTION):
            found, lost = sections(line)
            for section in found:
                self._begin(section)
        elif self._section == UPDATES:
            records_, lost = records(line)
            for record in records_:
                self._updates.record(record, line)
        else:
            rows_, lost = rows(line)
            for row in rows_:
                self._chat.row(row, line)
        if lost:
            self._telling.tally.damaged(len(line))

    def _begin(self, section: Section) -> None:
        self._updates.flush()
        self._section = section.file
        text = (section.text or "").encode()
        if section.file == SUMMARY:
            self._cwd = section.group_cwd
            self._summary = document(text) or {}
            self._parentage()
        elif section.file == UPDATES:
            self._updates.inherited = section.inherited
        elif section.file == CHAT:
            self._chat.called = self._updates.called
        elif section.file.startswith("subagents/"):
            meta = document(text) or {}
            parent = text_of(meta, "parent_session_id")
            if parent != self.identity.id:
                self._parent = self._parent or parent

    def _parentage(self) -> None:
        """What the summary says about a session before this one."""
        before = text_of(self._summary, "parent_session_id")
        if before is None or before == self.identity.id:
            return
        self._updates.parent = self._chat.parent = before
        self._updates.forked_at = self._time("forked_at") or self._time("created_at")
        rows_ = self._summary.get("inherited_prefix_len", self._summary.get("inheritedPrefixLen"))
        self._chat.inherited = rows_ if isinstance(rows_, int) else 0

    def _time(self, name: str) -> int | None:
        return parse_iso(text_of(self._summary, name))

    def header(self) -> Header:
        telling, summary = self._telling, self._summary
        info = summary.get("info")
        info = info if isinstance(info, dict) else {}
        before = self._updates.parent
        kind = text_of(summary, "session_kind")
        parent = self._parent
        if kind == "subagent" and before is not None:
            # a plain sub-agent copies nothing: the session it names is the one that asked for it
            parent, before = parent or before, None if parent in (None, before) else before
        models = telling.models or telling.chat_models
        current = text_of(summary, "current_model_id")
        started, last = self._time("created_at"), self._time("last_active_at")
        return Header(
            cwd=text_of(info, "cwd") or self._cwd,
            branch=text_of(summary, "head_branch"),
            title=text_of(summary, "generated_title") or text_of(summary, "session_summary"),
            parent=parent,
            forked_from=before or telling.origin,
            models=tuple(models) or ((current,) if current else ()),
            started_at=started if started is not None else telling.times.first,
            last_activity_at=last if last is not None else telling.times.last or self._time("updated_at"),
            has_usage=telling.has_usage,
            unknown=dict(telling.tally.unknown),
            malformed=telling.tally.malformed,
            malformed_bytes=telling.tally.malformed_bytes,
        )
