"""opencode: `opencode.db` (and one for each release channel), and the JSON files of 2025 below `storage/`.

The database took the files over in 2026; where a session is in both it wins. So the files beside a database are read
with it, as one source; without a database each session file is a source. Format facts: docs/formats/opencode.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from prosa.ingest import foreign_db
from prosa.ingest.document import DocumentFold
from prosa.ingest.folders import Folders, below_home
from prosa.ingest.foreign_db import BrokenError, BusyError
from prosa.ingest.importer import Aside, FileStat, Fold, Identity, Raw, Report, Source, Trouble
from prosa.ingest.opencode import AGENT
from prosa.ingest.opencode.store import Filed, Rows, filed, filed_at, home_of, lines_of, stats_of
from prosa.ingest.spool import spooled

__all__ = ["AGENT", "ASIDE_FILES", "HOMES", "PARSER", "asides", "fold", "homes", "raws", "resume", "sources"]

PARSER = "opencode/1"
HOMES: tuple[str, ...] = ("~/.local/share/opencode",)
ASIDE_FILES: tuple[str, ...] = ()
MAIN = "opencode.db"


def homes(env: Mapping[str, str], user_home: Path) -> list[Path]:
    """The data folder, and the folder of the database that `OPENCODE_DB` names."""
    data = env.get("OPENCODE_DATA_DIR", "").strip()
    base = env.get("XDG_DATA_HOME", "").strip()
    home = (
        below_home(data, user_home)
        if data
        else (below_home(base, user_home) if base else user_home / ".local/share") / "opencode"
    )
    found = [home]
    named = env.get("OPENCODE_DB", "").strip()
    if named and named != ":memory:":
        beside = (home / below_home(named, user_home)).parent
        if beside != home:
            found.insert(0, beside)
    return found


def sources(home: Path, report: Report) -> Iterator[Source]:
    folder = str(home.absolute())
    databases = _databases(folder, report)
    sessions = filed(folder, report)
    for place, files in enumerate(databases):
        beside = tuple(stat for one in sessions for stat in stats_of(one, report)) if place == 0 else ()
        yield Source(AGENT, files[0].path, (*files, *beside))
    if not databases:
        for one in sessions:
            stats = stats_of(one, report)
            if stats:
                yield Source(AGENT, one.path, stats, one.id)


def _databases(folder: str, report: Report) -> list[tuple[FileStat, ...]]:
    """opencode.db first, then those of the channels; a name of the user's own only where there is none of them."""
    names = [entry.name for entry in Folders(AGENT, report).entries(folder) if entry.name.endswith(".db")]
    usual = [name for name in names if name == MAIN or name.startswith("opencode-")]
    databases = []
    for name in sorted(usual or names, key=lambda name: (name != MAIN, name)):
        path = Path(folder, name)
        try:
            if path.is_file():
                databases.append(foreign_db.database_files(path))
        except OSError as bad:
            report(Trouble(AGENT, str(path), f"cannot be read: {bad.strerror}"))
    return databases


def raws(source: Source, report: Report) -> Iterator[Raw]:
    """Sessions of the database, then those that only files hold. A busy database says nothing at all."""
    if source.id is not None:
        session = filed_at(source.path)
        if _speaks(session):
            yield _file_raw(session, partial(filed, home_of(source.path), report), report)
        return
    path = Path(source.path)
    folder = str(path.parent)
    first = source.path == next((files[0].path for files in _databases(folder, report)), source.path)
    ids: list[str] = []
    rows = Rows()
    try:
        ids = foreign_db.read(path, rows.ids)
        if not first:
            ids = sorted(set(ids) - set(_elsewhere(path, report)))
        for one in spooled(path, ids, rows.project):
            if one.problem is not None:
                report(Trouble(AGENT, source.path, f"session {one.id}: {one.problem}"))
            else:
                yield Raw(Identity(AGENT, one.id), one.chunks, verbatim=False)
    except BusyError as bad:
        report(Trouble(AGENT, source.path, str(bad), retry=True))
        return
    except (BrokenError, OSError) as bad:
        report(Trouble(AGENT, source.path, f"cannot be read: {bad}"))
    if first:
        known = filed(folder, report)
        taken = set(ids)
        left = [session for session in known if session.id not in taken and _speaks(session)]
        yield from (_file_raw(session, lambda: known, report) for session in left)


def _elsewhere(path: Path, report: Report) -> list[str]:
    """The sessions of the databases before this one."""
    ids: list[str] = []
    for files in _databases(str(path.parent), report):
        if files[0].path == str(path):
            break
        try:
            ids += foreign_db.read(Path(files[0].path), Rows().ids)
        except BrokenError:
            continue
    return ids


def _speaks(session: Filed) -> bool:
    """A chat that never started has no message."""
    try:
        with os.scandir(session.messages) as found:
            return any(entry.name.endswith(".json") for entry in found)
    except OSError:
        return False


def _file_raw(session: Filed, known: Callable[[], list[Filed]], report: Report) -> Raw:
    return Raw(Identity(AGENT, session.id), partial(lines_of, session, known, report), verbatim=False)


def fold(identity: Identity, state: bytes | None = None) -> Fold:
    from prosa.ingest.opencode.fold import read  # a sync with nothing new folds nothing

    return DocumentFold(partial(read, identity))


def asides(home: Path, known: Mapping[str, Iterable[Identity]], report: Report) -> Iterator[Aside]:
    """None: all that is said of a session stands in its own store."""
    return iter(())


def resume(identity: Identity, cwd: str | None) -> list[str] | None:
    return ["opencode", "--session", identity.id]
