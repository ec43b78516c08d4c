"""Hermes: `state.db` of each profile, and the older transcripts in `sessions/` beside it.

A session may lie in the database, in a .jsonl and in a snapshot at once: the place with the most messages tells the
turns, the database all else. So the files beside a database are read with it, as one source; without a database each
file is a source. The default profile has no name in its sessions' keys. Format facts: docs/formats/hermes.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from prosa.ingest import foreign_db
from prosa.ingest.chunks import file_chunks
from prosa.ingest.document import DocumentFold
from prosa.ingest.folders import Folders, below_home
from prosa.ingest.foreign_db import BrokenError, BusyError
from prosa.ingest.hermes import AGENT
from prosa.ingest.importer import Aside, FileStat, Fold, Identity, Raw, Report, Source, Trouble
from prosa.ingest.spool import Database, spooled

if TYPE_CHECKING:
    from prosa.ingest.hermes.store import Held

__all__ = ["AGENT", "ASIDE_FILES", "HOMES", "PARSER", "asides", "fold", "homes", "raws", "resume", "sources"]

PARSER = "hermes/1"
HOMES: tuple[str, ...] = ("~/.hermes",)
ASIDE_FILES: tuple[str, ...] = ()

TRANSCRIPT = re.compile(r"(?!request_dump_)(?P<id>.+)\.jsonl\Z", re.DOTALL)
SNAPSHOT = re.compile(r"session_(?P<id>.+)\.json\Z", re.DOTALL)
PROFILES = "profiles"
ID_LIMIT = 200

_encode = msgspec.json.Encoder(order="sorted").encode


class Files(NamedTuple):
    """The transcripts of one session outside the database, the .jsonl first."""

    id: str
    stats: list[FileStat]


def homes(env: Mapping[str, str], user_home: Path) -> list[Path]:
    """`HERMES_HOME`, else `~/.hermes`. The home of a named profile stands for the root above it, as in the client."""
    named = env.get("HERMES_HOME", "").strip()
    if not named:
        return [user_home / ".hermes"]
    path = below_home(named, user_home)
    return [path.parent.parent if path.parent.name == PROFILES else path]


def sources(home: Path, report: Report) -> Iterator[Source]:
    home = home.absolute()
    folders = Folders(AGENT, report)
    yield from _profile(folders, str(home), home.name if home.parent.name == PROFILES else None, report)
    for entry in folders.inside(home / PROFILES):
        yield from _profile(folders, entry.path, entry.name, report)


def _profile(folders: Folders, folder: str, scope: str | None, report: Report) -> Iterator[Source]:
    path = Path(folder, "state.db")
    files = _transcripts(folders, folder)
    try:
        database = foreign_db.database_files(path) if path.is_file() else ()
    except OSError as bad:
        report(Trouble(AGENT, str(path), f"cannot be read: {bad.strerror}"))
        return
    if database:
        beside = tuple(stat for one in files for stat in one.stats)
        yield Source(AGENT, str(path), (*database, *beside), scope=scope)
        return
    for one in files:
        yield Source(AGENT, one.stats[0].path, tuple(one.stats), one.id, scope)


def _transcripts(folders: Folders, folder: str) -> list[Files]:
    found: dict[str, Files] = {}
    for entry in folders.entries(f"{folder}/sessions"):
        named = TRANSCRIPT.match(entry.name) or SNAPSHOT.match(entry.name)
        file = folders.file(entry) if named is not None else None
        if named is None or file is None:
            continue
        one = found.setdefault(named["id"], Files(named["id"], []))
        place = 0 if entry.name.endswith(".jsonl") else len(one.stats)
        one.stats.insert(place, file)
    return [found[name] for name in sorted(found)]


def raws(source: Source, report: Report) -> Iterator[Raw]:
    """Sessions of the database, then those that only files hold. A busy database says nothing at all."""
    from prosa.ingest.hermes.store import held

    files = _grouped(source)
    if source.id is not None:
        yield from _file_raw(source, files[source.id], report, set())
        return
    path = Path(source.path)
    known: list[Held] = []
    try:
        known = foreign_db.read(path, held)
    except BusyError as bad:
        report(Trouble(AGENT, source.path, str(bad), retry=True))
        return
    except (BrokenError, OSError) as bad:
        report(Trouble(AGENT, source.path, f"cannot be read: {bad}"))
    yield from _database_raws(source, path, known, files, report)
    stored = {one.id for one in known}
    for native in sorted(files.keys() - stored):
        yield from _file_raw(source, files[native], report, stored | files.keys())


def _grouped(source: Source) -> dict[str, Files]:
    files: dict[str, Files] = {}
    for stat in source.files:
        named = TRANSCRIPT.match(Path(stat.path).name) or SNAPSHOT.match(Path(stat.path).name)
        if named is not None:
            files.setdefault(named["id"], Files(named["id"], [])).stats.append(stat)
    return files


def _database_raws(
    source: Source, path: Path, known: list[Held], files: Mapping[str, Files], report: Report
) -> Iterator[Raw]:
    from prosa.ingest.hermes.store import Store

    store = Store()
    counts = {one.id: one.messages for one in known}
    spent = {one.id for one in known if one.has_usage}

    def project(db: Database, native: str) -> Iterator[bytes]:
        beside = _richest(files[native], report) if native in files else None
        if beside is None or beside.spoken <= counts[native]:
            if counts[native] or native in spent:
                yield from store.project(db, native)
            return
        envelope = store.envelope(db, native)
        if "relation" in envelope:
            # what the file repeats of another session was not compared
            envelope["relation"]["present"] = False
        yield _encode(envelope) + b"\n"
        yield from _wrapped(beside)

    # sessions without a message are left over from clients that were only opened
    wanted = [one.id for one in known if one.messages or one.id in spent or one.id in files]
    try:
        for one in spooled(path, wanted, project):
            if one.problem is not None:
                report(Trouble(AGENT, source.path, f"session {one.id}: {one.problem}"))
            else:
                yield Raw(Identity(AGENT, one.id, source.scope), one.chunks, verbatim=False)
    except BusyError as bad:
        report(Trouble(AGENT, source.path, str(bad), retry=True))
    except OSError as bad:
        report(Trouble(AGENT, source.path, f"cannot be read: {bad}"))


class Transcript(NamedTuple):
    """A file's content, and how many messages stand in it."""

    path: str
    data: bytes
    spoken: int
    damaged: bool


def _richest(files: Files, report: Report) -> Transcript | None:
    """The file with the most messages; None if there is none in any."""
    from prosa.ingest.hermes.fold import Session

    found = []
    for stat in files.stats:
        try:
            data = Path(stat.path).read_bytes()
        except OSError as bad:
            report(Trouble(AGENT, stat.path, f"cannot be read: {bad.strerror}", isinstance(bad, FileNotFoundError)))
            continue
        session = Session(Identity(AGENT, files.id))
        session.collect(data)
        one = Transcript(stat.path, data, len(session.messages), session.tally.malformed > 0)
        if not one.spoken and data.strip(b"\0\r\n\t ") and (one.damaged or not session.meta):
            report(Trouble(AGENT, stat.path, "damaged: no message can be read"))
        found.append(one)
    best = max(found, key=lambda one: one.spoken, default=None)
    return best if best is not None and best.spoken else None


def _wrapped(transcript: Transcript) -> Iterator[bytes]:
    """A file inside a projection: every line or message as it is."""
    from prosa.ingest.hermes.fold import Session

    document = Session.document(transcript.data)
    if document is None:
        for line in transcript.data.split(b"\n"):
            if line.strip():
                yield _encode({"line": line.decode("utf-8", "replace")}) + b"\n"
        return
    yield _encode({"snapshot": {name: value for name, value in document.items() if name != "messages"}}) + b"\n"
    messages: list[Any] = document["messages"]
    for message in messages:
        if isinstance(message, dict):
            yield _encode({"message": message}) + b"\n"


def _file_raw(source: Source, files: Files, report: Report, others: Set[str]) -> Iterator[Raw]:
    """The session that only files hold. A snapshot says its id, whatever its name is."""
    best = _richest(files, report)
    if best is None:
        return
    native = _stated_id(best) or files.id
    if native == files.id or native not in others:
        path = best.path
        yield Raw(Identity(AGENT, native, source.scope), lambda: file_chunks(path))


def _stated_id(transcript: Transcript) -> str | None:
    from prosa.ingest.hermes.fold import Session

    stated = (Session.document(transcript.data) or {}).get("session_id")
    return stated if isinstance(stated, str) and 0 < len(stated) <= ID_LIMIT else None


def fold(identity: Identity, state: bytes | None = None) -> Fold:
    from prosa.ingest.hermes.fold import read  # a sync with nothing new folds nothing

    return DocumentFold(partial(read, identity))


def asides(home: Path, known: Mapping[str, Iterable[Identity]], report: Report) -> Iterator[Aside]:
    """None: all that is said of a session stands in its own database."""
    return iter(())


def resume(identity: Identity, cwd: str | None) -> list[str] | None:
    profile = ["-p", identity.scope] if identity.scope else []
    return ["hermes", *profile, "--resume", identity.id]
