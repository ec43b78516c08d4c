"""What doctor looks at. Every check only reads; none of them stops the others."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from prosa.cli import opening
from prosa.cli.amounts import count, size
from prosa.events.errors import ProsaError
from prosa.events.home import Home

if TYPE_CHECKING:
    from prosa.events.log import Log
    from prosa.projections.queries import Session

Verdict = Literal["ok", "warn", "fail"]

INDEX_WORDS: dict[str, tuple[Verdict, str, str]] = {
    "current": ("ok", "up to date with the log", ""),
    "behind": ("ok", "behind the log; the next command catches up", ""),
    "missing": ("warn", "there is none; the next command builds it", ""),
    "newer": ("fail", "made by a newer prosa", "Upgrade prosa."),
    "ahead": (
        "fail",
        "knows events that the log does not have: the log was cut",
        "Restore log.db, then: prosa rebuild",
    ),
    "foreign": ("fail", "was made from another log", "prosa rebuild"),
    "damaged": ("fail", "cannot be read", "prosa rebuild"),
}


class Check(msgspec.Struct, frozen=True):
    """One verdict."""

    section: str
    verdict: Verdict
    text: str
    next_step: str = ""


class Parsed(msgspec.Struct):
    """What a parse says about its agent and about what it could not read."""

    agent: str = ""
    session: str = ""
    header: Header | None = None


class Header(msgspec.Struct):
    unknown: dict[str, tuple[int, int]] = {}
    malformed: int = 0
    clients: tuple[str, ...] = ()


class Seen(msgspec.Struct):
    """What the log says of one agent."""

    last_us: int = 0
    headers: dict[str, Header] = {}


def every_check(home: Home) -> Iterator[Check]:
    """All sections in order; without a log those that do not need one."""
    sessions: list[Session] = []
    seen: dict[str, Seen] = {}
    try:
        with opening.open_log(home) as log:
            yield check_log(log)
            seen = agents_seen(log)
        yield check_index(home)
        from prosa.projections.queries import Filters, Timeline

        with opening.open_backend(home) as backend:
            sessions = backend.timeline(Timeline(filters=Filters(), flat=True, include_empty=True)).sessions
        yield check_raw(home, sessions)
    except opening.NothingImported as nothing:
        yield Check("log", "warn", nothing.what, "prosa sync")
    except ProsaError as problem:
        yield Check("log", "fail", " ".join(filter(None, (problem.what, problem.kept))), problem.next_step)
    yield check_permissions(home)
    yield from check_agents(home, sessions, seen)
    yield from check_retention(sessions)
    yield Check("prices", "ok", opening.price_table())
    from prosa.cli import schedule_words, server_checks

    yield from server_checks.check_login(home)
    yield schedule_words.verdict(schedule_words.find(home))


def check_log(log: Log) -> Check:
    """The chain of headers; bodies are left to `prosa log verify`."""
    from prosa.events.verify import verify_log

    events, _ = log.head()
    problems = list(verify_log(log, bodies=False))
    if problems:
        first = f"{problems[0].where}: {problems[0].what}"
        return Check("log", "fail", f"{count(len(problems), 'problem')}; {first}", "prosa log verify shows them all.")
    return Check("log", "ok", f"{count(events, 'event')}, the chain of hashes is whole")


def check_index(home: Home) -> Check:
    found = opening.index_state(home)
    verdict, words, next_step = INDEX_WORDS[found.state]
    return Check("index", verdict, f"at {found.position:,} of {found.log_position:,}: {words}", next_step)


def check_raw(home: Home, sessions: list[Session]) -> Check:
    """Whether the newest copy of every session is here."""
    states = Counter(session.raw.state for session in sessions if session.raw)
    stored = sum(session.raw.stored for session in sessions if session.raw and session.raw.state == "local")
    text = f"{count(states['local'], 'preserved transcript')}, {size(stored)}"
    if states["pruned"]:
        text += f"; {states['pruned']:,} pruned"
    if states["missing"]:
        missing = f"{text}; {states['missing']:,} missing in {home.raw}"
        return Check("raw", "fail", missing, "Their turns are in the log; prosa log verify --deep names the files.")
    if here := pruned_and_here(home, sessions):
        return Check("raw", "warn", f"{text}, {here:,} of them still here", "prosa sync --verify removes them.")
    return Check("raw", "ok", text)


def pruned_and_here(home: Home, sessions: list[Session]) -> int:
    """Copies that a killed prune left behind its events, if no other session needs them."""
    from prosa.events.raw import RawStore

    store, raws = RawStore(home.raw), {"pruned": set[str](), "local": set[str](), "missing": set[str]()}
    for session in sessions:
        if session.raw:
            raws[session.raw.state].add(session.raw.sha256)
    return sum(store.has(raw) for raw in raws["pruned"] - raws["local"])


def check_permissions(home: Home) -> Check:
    """Nothing of prosa's can be read by others."""
    open_to_others = [path for path in _own_paths(home) if path.lstat().st_mode & 0o077]
    if open_to_others:
        more = f" and {len(open_to_others) - 1} more" if len(open_to_others) > 1 else ""
        return Check(
            "permissions",
            "fail",
            f"others can read {open_to_others[0]}{more}",
            f"chmod -R go= {home.data} {home.config}",
        )
    return Check("permissions", "ok", f"{home.data} is private")


def _own_paths(home: Home) -> Iterator[Path]:
    for folder in (home.data, home.config):
        for root, folders, files in os.walk(folder):
            yield from (Path(root, name) for name in files)
            yield from (Path(root, name) for name in folders)
        if folder.is_dir():
            yield folder


def agents_seen(log: Log) -> dict[str, Seen]:
    """Agent → when something of it was last parsed, and what its newest parses could not read."""
    from prosa.events import codec

    found: dict[str, Seen] = {}
    for header in log.read(bodies=False):
        if header.type not in ("session_parsed", "session_extended"):
            continue
        event = log.at(header.position)
        if event is None or event.erased:
            continue
        parsed = codec.decode_as(Parsed, event.body())
        agent = parsed.agent or header.stream.removeprefix("session-").split("/")[0]
        seen = found.setdefault(agent, Seen())
        seen.last_us = max(seen.last_us, header.at_us)
        if parsed.header is not None:
            seen.headers[header.stream] = parsed.header
    return found


def check_agents(home: Home, sessions: list[Session], seen: dict[str, Seen]) -> Iterator[Check]:
    """Each agent's homes, its sessions, and what of its files is not understood."""
    from prosa.cli.profiles import profile_homes
    from prosa.projections.zones import rfc3339

    named, numbers = opening.profiles(home), Counter(session.agent for session in sessions)
    for importer in opening.importers():
        agent = importer.AGENT
        homes = profile_homes(importer, named.get(agent, {}), os.environ)
        places = [path for paths in homes.values() for path in paths]
        here = [str(path) for path in places if path.is_dir()]
        gone = [name for name, paths in homes.items() if name != "default" and not any(p.is_dir() for p in paths)]
        parts = [f"found in {', '.join(here)}" if here else "not found", count(numbers[agent], "session")]
        said = seen.get(agent)
        if said:
            parts.append(f"last import {rfc3339(said.last_us)[:16].replace('T', ' ')} UTC")
            parts += versions(said)
            parts += troubles(said)
        if gone:
            yield Check(
                agent, "warn", "; ".join([*parts, f"no folder for profile {', '.join(gone)}"]), "prosa profiles list"
            )
        elif here and not numbers[agent]:
            yield Check(agent, "ok", "; ".join(parts), "prosa sync, if it was used")
        elif here or numbers[agent]:
            yield Check(agent, "ok", "; ".join(parts))


def versions(said: Seen) -> list[str]:
    """The versions of the client that wrote what was read, the lowest and the highest."""
    found = {client for header in said.headers.values() for client in header.clients}
    if not found:
        return []
    ordered = sorted(found, key=_by_number)
    return [f"version {ordered[0]}" if len(ordered) == 1 else f"versions {ordered[0]} to {ordered[-1]}"]


def _by_number(version: str) -> list[tuple[bool, str]]:
    """2.0.9 before 2.0.10."""
    return [(not part.isdigit(), part.zfill(12)) for part in re.split(r"[.\-+ ]", version)]


def troubles(said: Seen) -> list[str]:
    """Unknown records and malformed lines of the newest parses; they are kept in the raw copies."""
    unknown: Counter[str] = Counter()
    for header in said.headers.values():
        unknown.update({kind: number for kind, (number, _) in header.unknown.items()})
    malformed = sum(header.malformed for header in said.headers.values())
    parts = []
    if unknown:
        most = ", ".join(f"{kind or 'no kind'} {number:,}" for kind, number in unknown.most_common(3))
        parts.append(f"{count(sum(unknown.values()), 'record')} of unknown kinds ({most})")
    if malformed:
        parts.append(count(malformed, "malformed line"))
    return parts


def check_retention(sessions: list[Session]) -> Iterator[Check]:
    """How long Claude Code keeps its transcripts, and what it deletes next."""
    from prosa.cli.retention import SOON_DAYS, claude_home, cleanup_days, due_soon

    paths = [s.source.path for s in sessions if s.agent == "claude-code" and s.source.path]
    homes = sorted({home for path in paths if (home := claude_home(path)) and home.is_dir()})
    for home in homes:
        days, stated = cleanup_days(home / "settings.json")
        due = due_soon(s for s in sessions if s.source.path and claude_home(s.source.path) == home)
        how = "cleanupPeriodDays" if stated else "Claude Code's default"
        text = f"{home}: transcripts are deleted after {days:g} days ({how})"
        if due:
            yield Check(
                "retention",
                "warn",
                f"{text}; {count(len(due), 'transcript')} within {SOON_DAYS} days, all preserved here",
                f'Set "cleanupPeriodDays" in {home / "settings.json"} to keep the originals; sync often.',
            )
        else:
            yield Check("retention", "ok", text)
