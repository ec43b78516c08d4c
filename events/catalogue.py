"""Every type of event. A new type is a class here and its name in EVENTS; fields are only ever added.

`TYPE` and `VERSION` go into the event's row, the fields into its body. An event says what happened, not what a
table should hold. docs/events.md is made from this module.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from prosa.events.facts import Compaction, Header, Mark, Turn, Usage

Scope = Literal["shared", "local"]


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fact in the past tense, appended once."""

    TYPE: ClassVar[str]
    VERSION: ClassVar[int] = 1
    SCOPE: ClassVar[Scope] = "shared"


class LogOpened(Event, frozen=True, kw_only=True):
    """An origin began to write. The first event of every origin."""

    TYPE: ClassVar[str] = "log_opened"

    origin: str
    prosa: str
    pair: str | None = None
    """The other origin of this installation: the local one names the shared one."""


class LocalLogOpened(LogOpened, frozen=True, kw_only=True):
    """The origin of the events that never leave the device began to write."""

    TYPE: ClassVar[str] = "local_log_opened"
    SCOPE: ClassVar[Scope] = "local"


class LogLocated(Event, frozen=True, kw_only=True):
    """Where this log lies. A later difference says that it is a copy."""

    TYPE: ClassVar[str] = "log_located"
    SCOPE: ClassVar[Scope] = "local"

    inode: int
    machine: str
    """Hash of the machine id, or empty."""


class LogForked(Event, frozen=True, kw_only=True):
    """A new pair of origins goes on where a copied or restored log cannot."""

    TYPE: ClassVar[str] = "log_forked"

    reason: Literal["copied", "restored", "refused"]
    old_origin: str
    old_position: int
    """Last origin position of the old origin that was here."""
    restated: str
    """What is said again under the new origin."""


class DeviceIdentified(Event, frozen=True, kw_only=True):
    """The machine this origin writes on from here on."""

    TYPE: ClassVar[str] = "device_identified"

    device: str
    """Fingerprint: 16 hex digits."""
    hostname: str
    machine: str
    platform: str


class DeviceRenamed(Event, frozen=True, kw_only=True):
    """A device got another name. The last one holds, by time, then origin and position."""

    TYPE: ClassVar[str] = "device_renamed"

    device: str
    """Fingerprint."""
    name: str
    by: str


class DeviceMerged(Event, frozen=True, kw_only=True):
    """Two device entries are one machine. Sessions stay where they are and follow the alias, so a revert is exact."""

    TYPE: ClassVar[str] = "device_merged"

    device: str
    """Fingerprint of the entry that is no longer shown."""
    into: str
    evidence: str
    """`same machine id`, or what a user said."""
    by: str


class DeviceMergeReverted(Event, frozen=True, kw_only=True):
    """A merge of devices is taken back."""

    TYPE: ClassVar[str] = "device_merge_reverted"

    merge: str
    """Id of the device_merged event, as hex."""
    by: str


class DeviceRevoked(Event, frozen=True, kw_only=True):
    """The owner took a device's access to the server away. What it sent stays."""

    TYPE: ClassVar[str] = "device_revoked"

    device: str
    by: str


class LoginApproved(Event, frozen=True, kw_only=True):
    """The owner let a device in, or signed in to the server's pages (then without device)."""

    TYPE: ClassVar[str] = "login_approved"

    device: str | None = None
    hostname: str | None = None
    by: str


class TokenIssued(Event, frozen=True, kw_only=True):
    """The server gave out a token. The token itself is in no event."""

    TYPE: ClassVar[str] = "token_issued"

    token: str
    """Its public id."""
    scope: Literal["device", "reports", "metadata", "everything"]
    device: str | None = None
    name: str | None = None
    expires_at_us: int | None = None
    by: str


class TokenRevoked(Event, frozen=True, kw_only=True):
    """A token is no longer taken."""

    TYPE: ClassVar[str] = "token_revoked"

    token: str
    by: str


class BodyErased(Event, frozen=True, kw_only=True):
    """The body of one event was cleared on request; its header and hash stay."""

    TYPE: ClassVar[str] = "body_erased"

    origin: str
    origin_position: int
    subject: str
    """Stream of the erased event."""
    reason: str
    by: str


class SourceDetected(Event, frozen=True, kw_only=True):
    """A file or row set of an agent appeared, changed, or is back."""

    TYPE: ClassVar[str] = "source_detected"

    agent: str
    profile: str
    path: str
    size: int
    """Bytes of the plain content of its sessions."""
    sha256: str
    """Of the plain content; of several sessions: of their hashes in order."""
    sessions: tuple[str, ...] = ()
    """Keys of the sessions it holds."""


class SourceVanished(Event, frozen=True, kw_only=True):
    """The agent deleted or rotated the file. Nothing is lost."""

    TYPE: ClassVar[str] = "source_vanished"

    agent: str
    path: str
    sha256: str
    sessions: tuple[str, ...] = ()


class SourceMoved(Event, frozen=True, kw_only=True):
    """The same content lies elsewhere now: archived, compressed, renamed."""

    TYPE: ClassVar[str] = "source_moved"

    agent: str
    profile: str
    path: str
    to: str
    sha256: str
    sessions: tuple[str, ...] = ()


class SourceRejected(Event, frozen=True, kw_only=True):
    """A source that holds nothing to import, once for each content."""

    TYPE: ClassVar[str] = "source_rejected"

    agent: str
    profile: str
    path: str
    size: int
    sha256: str
    reason: str


class RawPreserved(Event, frozen=True, kw_only=True):
    """The bytes of a session are in the raw store."""

    TYPE: ClassVar[str] = "raw_preserved"

    session: str
    sha256: str
    size: int
    stored: int
    codec: str = "zstd"
    verbatim: bool = True
    extends: str | None = None
    """The sha256 of the raw that these bytes continue."""


class SessionPart(Event, frozen=True, kw_only=True):
    """Facts of a parse that has not ended. Takes effect with the session_parsed or session_extended that counts it."""

    TYPE: ClassVar[str] = "session_part"

    turns: tuple[Turn, ...] = ()
    usage: tuple[Usage, ...] = ()
    marks: tuple[Mark, ...] = ()
    compactions: tuple[Compaction, ...] = ()


class SessionParsed(Event, frozen=True, kw_only=True):
    """A parser has read a raw from its start. Replaces its revision."""

    TYPE: ClassVar[str] = "session_parsed"

    session: str
    agent: str
    id: str
    scope: str | None = None
    profile: str = "default"
    surface: str = "main"
    revision: int
    parser: str
    raw: str
    parts: int = 0
    """How many session_part events right before this one, in its stream and origin, belong to it."""
    header: Header
    turns: tuple[Turn, ...] = ()
    usage: tuple[Usage, ...] = ()
    marks: tuple[Mark, ...] = ()
    compactions: tuple[Compaction, ...] = ()


class SessionExtended(SessionParsed, frozen=True, kw_only=True):
    """A parser has read on. Only facts that are new or changed since the revision's last event, and keys that are gone.

    Without facts when a newer parser read the same raw and found the same.
    """

    TYPE: ClassVar[str] = "session_extended"

    gone: tuple[int, ...] = ()


class SessionDescribed(Event, frozen=True, kw_only=True):
    """A file that is not the session's own says something about it. The highest rank wins, then the latest."""

    TYPE: ClassVar[str] = "session_described"

    session: str
    field: str
    value: str | None
    rank: int
    evidence: str


class SessionLinked(Event, frozen=True, kw_only=True):
    """A session is tied to another by evidence outside its own raw. `other` None takes it back."""

    TYPE: ClassVar[str] = "session_linked"

    session: str
    other: str | None
    """Native id."""
    kind: Literal["parent", "forked_from", "cleared_from", "resumed_from"]
    evidence: str
    rank: int = 1
    """As in session_described."""


class ProjectIdentified(Event, frozen=True, kw_only=True):
    """What project a path belongs to on this machine."""

    TYPE: ClassVar[str] = "project_identified"

    path: str
    remote: str | None = None
    marker: str | None = None


class PrunePlanned(Event, frozen=True, kw_only=True):
    """Local copies of raw are about to be removed. Every session_pruned of the plan names it."""

    TYPE: ClassVar[str] = "prune_planned"

    rule: str
    """`older than 30d`."""
    actor: str
    sessions: int
    bytes: int
    """Stored bytes that the plan would free."""
    list_sha256: str
    """Of the lines `session key, space, raw sha256, newline`, in order of the keys."""


class SessionPruned(Event, frozen=True, kw_only=True):
    """The local copy of a session's raw is removed; the server has shown that it holds the same bytes.

    Said before the file is unlinked: a copy is never gone without its event.
    """

    TYPE: ClassVar[str] = "session_pruned"

    session: str
    raw: str
    size: int
    stored: int
    """Bytes on disk that this frees; 0 where another raw's file holds them too."""
    server: str
    """Base URL."""
    uri: str
    """Where the server keeps the bytes."""
    confirmed_at_us: int
    """When the server looked, microseconds UTC, by its clock."""
    rule: str
    actor: str
    plan: str
    """Id of the prune_planned event, as hex."""


class SessionRestored(Event, frozen=True, kw_only=True):
    """A pruned session's source changed and was preserved again."""

    TYPE: ClassVar[str] = "session_restored"

    session: str
    raw: str


class PushConfirmed(Event, frozen=True, kw_only=True):
    """The server holds a session's raw: by the reply to an upload, or by its manifest."""

    TYPE: ClassVar[str] = "push_confirmed"
    SCOPE: ClassVar[Scope] = "local"

    session: str
    raw: str
    uri: str
    server: str
    position: int
    """Head of the server's log when it said so."""


class EventsAcknowledged(Event, frozen=True, kw_only=True):
    """The server's log has this origin's events up to a position."""

    TYPE: ClassVar[str] = "events_acknowledged"
    SCOPE: ClassVar[Scope] = "local"

    origin: str
    origin_position: int
    hash: str
    server: str
    position: int


class PushRefused(Event, frozen=True, kw_only=True):
    """The server did not take something; it stays here and is tried again."""

    TYPE: ClassVar[str] = "push_refused"
    SCOPE: ClassVar[Scope] = "local"

    what: str
    """`raw <sha256>`, `events`, `origin <hex>`."""
    why: str
    retry_after_s: int | None = None


class LoginCompleted(Event, frozen=True, kw_only=True):
    """This device may talk to a server."""

    TYPE: ClassVar[str] = "login_completed"
    SCOPE: ClassVar[Scope] = "local"

    server: str
    device: str


class LogoutCompleted(Event, frozen=True, kw_only=True):
    """This device forgot its token; the server revoked it if it could be reached."""

    TYPE: ClassVar[str] = "logout_completed"
    SCOPE: ClassVar[Scope] = "local"

    server: str
    device: str


EVENTS: tuple[type[Event], ...] = (
    LogOpened,
    LocalLogOpened,
    LogLocated,
    LogForked,
    DeviceIdentified,
    DeviceRenamed,
    DeviceMerged,
    DeviceMergeReverted,
    DeviceRevoked,
    LoginApproved,
    TokenIssued,
    TokenRevoked,
    BodyErased,
    SourceDetected,
    SourceVanished,
    SourceMoved,
    SourceRejected,
    RawPreserved,
    SessionPart,
    SessionParsed,
    SessionExtended,
    SessionDescribed,
    SessionLinked,
    ProjectIdentified,
    PrunePlanned,
    SessionPruned,
    SessionRestored,
    PushConfirmed,
    EventsAcknowledged,
    PushRefused,
    LoginCompleted,
    LogoutCompleted,
)
