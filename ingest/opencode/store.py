"""opencode's two kinds of store, each session as one canonical JSONL: rows of a database, or files below `storage/`.

Only what is listed here is read: the same database has accounts, credentials and the secrets of shared sessions. A fork
is a session of its own whose first messages are copies under new ids; the store shows whose, by their times.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from stat import S_ISREG
from typing import Any, NamedTuple

import msgspec

from prosa.ingest.folders import Folders, quiet
from prosa.ingest.importer import FileStat, Report, Trouble
from prosa.ingest.opencode import AGENT
from prosa.ingest.opencode.records import decoded
from prosa.ingest.spool import Database, columns

Record = dict[str, Any]

SESSION_COLUMNS = (
    "id", "project_id", "parent_id", "slug", "directory", "path", "title", "version", "agent", "model", "cost",
    "tokens_input", "tokens_output", "tokens_reasoning", "tokens_cache_read", "tokens_cache_write", "revert",
    "time_created", "time_updated", "time_compacting", "time_archived", "fork_session_id",
)  # fmt: skip
MESSAGE_COLUMNS = ("id", "time_created", "data")
PART_COLUMNS = ("id", "message_id", "time_created", "data")
SPOKEN = "SELECT DISTINCT session_id FROM message"
TIMES = "SELECT id, time_created FROM message WHERE session_id = ? ORDER BY time_created, id"
HOLDS = "SELECT 1 FROM message WHERE session_id = ? AND time_created = ? LIMIT 1"
SIBLINGS = "SELECT id, title, time_created FROM session WHERE project_id IS ? AND id <> ? ORDER BY time_created, id"
FORK_OF = "SELECT fork_session_id FROM session_v2 WHERE id = ?"

FORK = re.compile(r"(?P<base>.*) \(fork #(?P<number>\d+)\)\Z", re.DOTALL)
SKEW_MS = 60_000
"""A clock that was set back makes a first message older than its session; a fork's copies are told by more."""
GENERATIONS = 100

_encode = msgspec.json.Encoder(order="sorted").encode


class Told(NamedTuple):
    """A session of one store: where it begins, and its messages' ids and times."""

    id: str
    title: str
    created: int | None
    messages: list[tuple[str, int]]


class Rows:
    """The sessions of a database."""

    def __init__(self) -> None:
        self._db: Database = None
        self._columns: dict[str, list[str]] = {}

    def ids(self, db: Database) -> list[str]:
        """Sessions that have a message; a database without the tables has none."""
        if "session_id" not in columns(db, "message") or "id" not in columns(db, "session"):
            return []
        spoken = {native for (native,) in db.execute(SPOKEN)}
        found = [native for (native,) in db.execute("SELECT id FROM session ORDER BY id") if native in spoken]
        return [native for native in found if isinstance(native, str) and native]

    def project(self, db: Database, native: str) -> Iterator[bytes]:
        if db is not self._db:
            self._db, self._columns = db, {}
        session = next(self._select("session", SESSION_COLUMNS, "id", native, "id"), None)
        if session is None:
            return
        copies = self._fork(session)
        envelope: Record = {"opencode": 1, "session": session}
        if copies.source is not None:
            envelope["fork"] = {"source": copies.source}
        yield _encode(envelope) + b"\n"
        parts: dict[str, list[bytes]] = {}
        for part in self._select("part", PART_COLUMNS, "session_id", native, "id"):
            parts.setdefault(str(part.pop("message_id", "")), []).append(_encode({"part": part}) + b"\n")
        for message in self._select("message", MESSAGE_COLUMNS, "session_id", native, "time_created"):
            line: Record = {"message": message}
            original = copies.originals.get(str(message.get("id")))
            if original is not None:
                line["copy_of"] = original
            yield _encode(line) + b"\n"
            yield from parts.get(str(message.get("id")), ())

    def _select(self, table: str, wanted: tuple[str, ...], where: str, value: str, order: str) -> Iterator[Record]:
        there = self._columns.get(table)
        if there is None:
            there = self._columns[table] = columns(self._db, table)
        names = [name for name in wanted if name in there]
        if where not in there or not names:
            return
        listed = ", ".join(f'"{name}"' for name in names)
        then = f'"{order}", "id"' if order in there and "id" in there else "rowid"
        for row in self._db.execute(f'SELECT {listed} FROM {table} WHERE "{where}" = ? ORDER BY {then}', (value,)):
            yield {name: _value(cell) for name, cell in zip(names, row, strict=True) if cell is not None}

    def _fork(self, session: Record) -> Copies:
        native = str(session.get("id"))
        known = columns(self._db, "session")
        if "time_created" not in columns(self._db, "message") or not {"project_id", "title", "time_created"} <= set(
            known
        ):
            return Copies(None, {})
        own = self._told(native, session.get("title"), session.get("time_created"))
        named = session.get("fork_session_id")
        if named is None and "fork_session_id" in columns(self._db, "session_v2"):
            row = self._db.execute(FORK_OF, (native,)).fetchone()
            named = row[0] if row else None
        old = older(own)
        if not old:
            return Copies(named if isinstance(named, str) else None, {})
        project = session.get("project_id")
        same_project = (project if isinstance(project, str) else None, native)  # a blob was made an object
        siblings = []
        for other, title, created in self._db.execute(SIBLINGS, same_project).fetchall():
            if isinstance(other, str) and self._db.execute(HOLDS, (other, old[0][1])).fetchone():
                siblings.append(self._told(other, title, created))
        return copies_of(own, siblings, named if isinstance(named, str) else None)

    def _told(self, native: str, title: object, created: object) -> Told:
        times = [
            (message, at)
            for message, at in self._db.execute(TIMES, (native,))
            if isinstance(message, str) and isinstance(at, int)
        ]
        at = created if isinstance(created, int) and _is_time(created) else None
        return Told(native, title if isinstance(title, str) else "", at, times)


class Copies(NamedTuple):
    """The session a fork was made of, and each copied message's original."""

    source: str | None
    originals: dict[str, str]


def older(session: Told) -> list[tuple[str, int]]:
    """The messages that were there before their session."""
    return [one for one in session.messages if session.created is not None and one[1] < session.created]


def copies_of(session: Told, siblings: list[Told], named: str | None) -> Copies:
    """A fork's source holds the same times: the one that is named, then by the title it had, then the first."""
    old = older(session)
    if not old:
        return Copies(named, {})
    times = {at for _, at in old}
    held = [one for one in siblings if not times.isdisjoint(at for _, at in one.messages)]
    if not held:
        return Copies(named, {})

    def fits(one: Told) -> tuple[bool, int, bool, int, str]:
        shared = len(times.intersection(at for _, at in one.messages))
        return (one.id != named, -shared, one.title != _title_before(session.title), one.created or 0, one.id)

    source = min(held, key=fits)
    # a message belongs to the session that began before it
    firsts = sorted(held, key=lambda one: (one.created or 0, one.id))
    originals: dict[str, str] = {}
    for at in times:
        mine = [message for message, when in old if when == at]
        for one in firsts:
            theirs = [message for message, when in one.messages if when == at]
            if theirs and (one.created is None or at >= one.created or one is firsts[-1]):
                originals.update(zip(mine, theirs, strict=False))
                break
    return Copies(source.id, originals)


def _title_before(title: str) -> str:
    fork = FORK.match(title)
    if fork is None:
        return title
    number = int(fork["number"][:9])
    return fork["base"] if number <= 1 else f"{fork['base']} (fork #{number - 1})"


class Filed(NamedTuple):
    """A session below `storage/`."""

    id: str
    path: str
    messages: str
    parts: str


def filed(home: str, report: Report) -> list[Filed]:
    """Every session file, of the storage of 2025 and of the one before it."""
    found: dict[str, Filed] = {}
    folders = Folders(AGENT, report)
    places = [entry.path for entry in folders.inside(f"{home}/storage/session")]
    places += [f"{entry.path}/storage/session/info" for entry in folders.inside(f"{home}/project")]
    for place in places:
        for name in _names(folders, place):
            session = filed_at(f"{place}/{name}")
            found.setdefault(session.id, session)
    return [found[native] for native in sorted(found)]


def filed_at(path: str) -> Filed:
    """The session whose file this is."""
    folder = Path(path).parent
    native = Path(path).name.removesuffix(".json")
    if folder.parts[-5:-4] == ("project",) and folder.name == "info":
        return Filed(native, path, f"{folder.parent}/message/{native}", f"{folder.parent}/part/{native}")
    storage = folder.parent.parent
    return Filed(native, path, f"{storage}/message/{native}", f"{storage}/part")


def home_of(path: str) -> str:
    """The data folder above a session's file."""
    folder = Path(path).parent
    return str(folder.parents[4 if folder.parts[-5:-4] == ("project",) and folder.name == "info" else 2])


def stats_of(session: Filed, report: Report) -> tuple[FileStat, ...]:
    """The session's file, its folder of messages, and the folder of the last message's parts."""
    folders = Folders(AGENT, report)
    first = folders.file(session.path)
    if first is None:
        return ()
    last = _names(folders, session.messages)[-1:]
    beside = (session.messages, *(f"{session.parts}/{name.removesuffix('.json')}" for name in last))
    return (first, *(stat for path in beside if (stat := _folder_stat(path)) is not None))


def _folder_stat(path: str) -> FileStat | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return FileStat(path, found.st_size, found.st_mtime_ns, found.st_ino)


def lines_of(session: Filed, known: Callable[[], list[Filed]], report: Report) -> Iterator[bytes]:
    """The session's file, then each message with its parts, as their files are."""
    text = _read(session.path, report)
    if text is None:
        return
    folders = Folders(AGENT, report)
    names = _names(folders, session.messages)
    if not names:
        return
    told = _told_file(session, text)
    copies = Copies(None, {})
    if older(told):
        siblings = [
            one for one in known() if Path(one.path).parent == Path(session.path).parent and one.id != session.id
        ]
        others = [_told_file(one, _read(one.path, report) or "") for one in siblings]
        copies = copies_of(told, others, None)
    envelope: Record = {"opencode": 1, "session": {"id": session.id, "data": text}}
    if copies.source is not None:
        envelope["fork"] = {"source": copies.source}
    yield _encode(envelope) + b"\n"
    for name in names:
        native = name.removesuffix(".json")
        path = f"{session.messages}/{name}"
        text = _read(path, report)
        if text is None:
            continue
        line: Record = {"message": {"id": native, "data": text}}
        if native in copies.originals:
            line["copy_of"] = copies.originals[native]
        yield _encode(line) + b"\n"
        for part in _names(folders, f"{session.parts}/{native}"):
            text = _read(f"{session.parts}/{native}/{part}", report)
            if text is not None:
                yield _encode({"part": {"id": part.removesuffix(".json"), "data": text}}) + b"\n"


def _told_file(session: Filed, text: str) -> Told:
    data = decoded(text) or {}
    messages = []
    for name in _names(Folders(AGENT, quiet), session.messages):
        message = decoded(_read(f"{session.messages}/{name}", quiet) or "") or {}
        at = _created(message)
        if at is not None:
            messages.append((name.removesuffix(".json"), at))
    title = data.get("title")
    return Told(
        session.id, title if isinstance(title, str) else "", _created(data), sorted(messages, key=lambda m: m[1])
    )


def _created(record: Record) -> int | None:
    time = record.get("time")
    at = time.get("created") if isinstance(time, dict) else None
    return at if isinstance(at, int) and _is_time(at) else None


def _is_time(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 53


def _names(folders: Folders, folder: str) -> list[str]:
    return [entry.name for entry in folders.entries(folder) if entry.name.endswith(".json")]


def _read(path: str, report: Report) -> str | None:
    """A small file as text; one that is no JSON is reported, and kept as it is."""
    try:
        if not S_ISREG(Path(path).stat().st_mode):
            return None
        text = Path(path).read_bytes().decode("utf-8", "replace")
    except OSError as bad:
        report(Trouble(AGENT, path, f"cannot be read: {bad.strerror}", isinstance(bad, FileNotFoundError)))
        return None
    if decoded(text) is None:
        report(Trouble(AGENT, path, "damaged: no JSON object"))
    return text


def _value(cell: Any) -> Any:
    return {"$base64": base64.b64encode(cell).decode()} if isinstance(cell, bytes) else cell
