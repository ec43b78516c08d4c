"""What a device and the server say to each other: the bodies of /v1, the same classes on both sides.

As JSON (bytes are base64 there) or as msgpack, by Content-Type and Accept; msgpack is what `prosa` sends. Errors are
`Problem` with a status of 4xx or 5xx. docs/server.md lists the routes.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from prosa.events.log import Recorded

DEVICE_HEADER: Final = "Prosa-Device"
"""Fingerprint of the machine that asks; with every authenticated request of the command line."""
SIZE_HEADER: Final = "Prosa-Size"
"""With an upload of raw: bytes of the original."""
MSGPACK: Final = "application/msgpack"

MISSING_LIMIT: Final = 1_000
EVENTS_LIMIT: Final = 500
EVENTS_BYTES: Final = 4 * 1024 * 1024
"""Of the stored bodies of a batch; a single larger event stands alone."""
EVENT_BYTES: Final = 16 * 1024 * 1024
PART_BYTES: Final = 8 * 1024 * 1024
"""Above this a compressed raw is sent in parts of this size; the last is shorter."""


class Problem(msgspec.Struct, frozen=True):
    """Why something was not done, in the words of a ProsaError."""

    code: str
    """For programs: `not_logged_in`, `token_expired`, `token_revoked`, `other_device`, `forbidden`, `not_found`,
    `invalid`, `conflict`, `forked`, `too_large`, `rate_limited`, `unavailable`."""
    what: str
    kept: str = ""
    next_step: str = ""
    retry_after_s: int | None = None


# events


class Head(msgspec.Struct, frozen=True):
    """The last event of an origin; position 0 and 32 zero bytes of one that has none."""

    position: int
    hash: bytes


class Heads(msgspec.Struct, frozen=True):
    """GET /v1/heads: what the server has of the origins of the asking device. `?origin=<hex>` adds one whoever owns it,
    `?origin=<hex>@<position>` what the server has there, under that name; both may stand many times."""

    server: str
    """Id of the server's log: another one means that it was set up anew."""
    position: int
    origins: dict[str, Head]
    """By origin as hex, and as they were asked for. What the server does not have is left out."""
    projected: int = 0
    """Position up to which the server's tables are."""


class PushedEvent(msgspec.Struct, frozen=True, array_like=True):
    """An event as it lies in the device's log; `body` as it is stored there. Salt and body are None once erased."""

    origin_position: int
    id: bytes
    stream: str
    stream_version: int
    type: str
    version: int
    at_us: int
    body_hash: bytes
    hash: bytes
    salt: bytes | None
    body: bytes | None

    @classmethod
    def of(cls, event: Recorded) -> PushedEvent:
        return cls(*event[2:])


class PushBatch(msgspec.Struct, frozen=True):
    """POST /v1/events: events of one origin that follow its head without a gap."""

    origin: str
    expect: Head
    """Where the device believes the server's copy of this origin to end."""
    events: list[PushedEvent]


class Receipt(msgspec.Struct, frozen=True):
    """The events of the batch are in the server's log. The same batch again gives the same receipt."""

    head: Head
    position_from: int
    """Of the batch's first event in the server's log; 0 for an empty batch."""
    position_to: int
    erased: int = 0
    """Bodies that body_erased events of the batch cleared on the server."""


# raw


class RawSize(msgspec.Struct, frozen=True, array_like=True):
    sha256: str
    size: int


class MissingQuestion(msgspec.Struct, frozen=True):
    """POST /v1/raw/missing: at most MISSING_LIMIT."""

    raws: list[RawSize]


class MissingAnswer(msgspec.Struct, frozen=True):
    missing: list[str]


class RawStored(msgspec.Struct, frozen=True):
    """PUT /v1/raw/{sha256}, POST …/join: the server has hashed what it keeps."""

    sha256: str
    size: int
    stored: int
    uri: str


class RawPart(msgspec.Struct, frozen=True):
    """A part of an upload, PUT /v1/raw/{sha256}/parts/{number}?sha256=<of the part>; numbers begin with 1."""

    number: int
    sha256: str
    size: int


class RawParts(msgspec.Struct, frozen=True):
    """GET /v1/raw/{sha256}/parts: those that are there."""

    parts: list[RawPart]


class RawJoin(msgspec.Struct, frozen=True):
    """POST /v1/raw/{sha256}/join: all parts in order, and the size of the original."""

    size: int
    parts: list[str]
    """sha256 of each."""


class ManifestEntry(msgspec.Struct, frozen=True, array_like=True):
    session: str
    sha256: str
    size: int
    stored_at_us: int
    uri: str


class Manifest(msgspec.Struct, frozen=True):
    """GET /v1/manifest?after=<cursor>&limit=: raw of sessions that the server holds, by session key and sha256."""

    entries: list[ManifestEntry]
    next: str | None
    """`after` of the next page; None: this was the last."""
    position: int


class ConfirmQuestion(msgspec.Struct, frozen=True):
    """POST /v1/prune/confirm: may these copies go? At most MISSING_LIMIT."""

    copies: list[tuple[str, str]]
    """Session key and raw sha256."""


class Confirmed(msgspec.Struct, frozen=True, array_like=True):
    session: str
    sha256: str
    held: bool
    """The object was in the store when it was asked for, just now."""
    size: int
    projected: bool
    """The session's last parse of this raw is in the server's tables."""
    uri: str


class ConfirmAnswer(msgspec.Struct, frozen=True):
    at_us: int
    """The server's clock."""
    copies: list[Confirmed]


# identity


class LoginQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """POST /v1/login/begin: PKCE (RFC 7636), S256 only."""

    device: str
    hostname: str
    machine: str
    """Hash of the machine id, or empty."""
    platform: str
    challenge: str
    """base64url of sha256 of the verifier, without padding."""
    state: str
    redirect_uri: str | None = None
    """`http://127.0.0.1:<port>/callback`; None: the page shows a code to paste."""


class LoginBegun(msgspec.Struct, frozen=True):
    request: str
    authorize_url: str
    expires_at_us: int


class LoginExchange(msgspec.Struct, frozen=True):
    """POST /v1/login/exchange: once for each code."""

    request: str
    code: str
    verifier: str
    redirect_uri: str | None = None


class LoginDone(msgspec.Struct, frozen=True):
    token: str
    """Shown once; the server keeps its hash."""
    device: str
    owner: str
    expires_at_us: int
    server: str
    """Id of the server's log."""


class WhoAmI(msgspec.Struct, frozen=True):
    """GET /v1/whoami."""

    owner: str
    scope: Literal["device", "reports", "metadata", "everything", "admin"]
    device: str | None
    expires_at_us: int | None
    server: str
    version: str


class SelfMerge(msgspec.Struct, frozen=True):
    """POST /v1/devices/merge-self: this machine has another fingerprint than the token was issued to (its name
    changed). Taken if both have the same machine hash and it is not empty; the server says `device_merged`."""

    device: str
    """The entry the token was issued to."""
    into: str
    """The fingerprint that asks now."""
    hostname: str
    machine: str


class DeviceRow(msgspec.Struct, frozen=True, kw_only=True):
    """GET /v1/devices: one entry. Merged ones are listed with `merged_into`."""

    device: str
    name: str
    hostname: str | None
    platform: str | None
    merged_into: str | None
    merge: str | None
    """Id of the merge that holds, for unmerge."""
    sessions: int
    last_activity_at: str | None
    last_push_at: str | None
    revoked: bool
    tokens: int
    """Valid ones."""


class Devices(msgspec.Struct, frozen=True):
    devices: list[DeviceRow]
    prices: str
    """Version of the server's price table."""


class DeviceName(msgspec.Struct, frozen=True):
    """POST /v1/devices/{device}/rename."""

    name: str


class DeviceMerge(msgspec.Struct, frozen=True):
    """POST /v1/devices/merge; unmerge is POST /v1/devices/unmerge with the merge's id."""

    device: str
    into: str


class DeviceUnmerge(msgspec.Struct, frozen=True):
    merge: str


class Done(msgspec.Struct, frozen=True):
    """What a change answers: the server's event that says so, its id as hex and its position."""

    event: str
    position: int
