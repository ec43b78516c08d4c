"""Raws folded without a log or an index: what the tests of the importers say of one fold and of a home.

`owned` and `reckon` are a second, small telling of what the projections make of the facts. Tests of rules ask the
product itself (`told`, `rules_home`).
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

from prosa.events.facts import PROVEN, SUGGESTED, Compaction, Facts, Header, Mark, Turn, Usage
from prosa.ingest.clock import parse_iso
from prosa.ingest.importer import Fold, Identity, Trouble

CORPUS = Path(__file__).parents[1].parent / "shared" / "corpus"

Fact = Turn | Usage | Compaction | Mark
Json = dict[str, Any]


class Folded:
    """One raw as an index would see it: facts by key, the later in place of the earlier, and the header.

    What asides say may be put in place of the title, the folder, the branch and the parent.
    """

    def __init__(self, identity: Identity, header: Header, takes: Iterable[Facts], surface: str = "") -> None:
        self.identity, self.header, self.surface = identity, header, surface
        self.title, self.cwd, self.branch, self.parent = header.title, header.cwd, header.branch, header.parent
        self.facts: dict[int, Fact] = {}
        for fact in told(takes):
            assert fact.key is not None
            self.facts[fact.key] = fact

    @property
    def turns(self) -> list[Turn]:
        return [fact for fact in self.facts.values() if isinstance(fact, Turn)]

    @property
    def usage(self) -> list[Usage]:
        return [fact for fact in self.facts.values() if isinstance(fact, Usage)]

    @property
    def compactions(self) -> list[Compaction]:
        return [fact for fact in self.facts.values() if isinstance(fact, Compaction)]

    def texts(self, role: str = "user", kind: str = "message", counted: bool = True) -> list[str]:
        return [t.text for t in self.turns if t.role == role and t.kind == kind and t.counted == counted]

    @property
    def prompts(self) -> int:
        return len(self.texts("user"))


def told(takes: Iterable[Facts]) -> list[Fact]:
    """The facts as they came, told again or not."""
    facts: list[Fact] = []
    for take in takes:
        facts += [*take.turns, *take.usage, *take.compactions, *take.marks]
    return facts


def fold_bytes(
    start: Callable[[Identity, bytes | None], Fold],
    identity: Identity,
    data: bytes,
    cuts: Iterable[int] = (),
    save: bool = False,
    whole: bool = False,
) -> tuple[Header, list[Facts]]:
    """Header and takes: at each cut the facts are taken and, with `save`, a new fold goes on from the state, if any.

    A second end must say nothing more, but of a format that is parsed as a whole at each one.
    """
    folding = start(identity, None)
    takes, place = [], 0
    for cut in (*cuts, len(data)):
        folding.feed(data[place:cut])
        takes.append(folding.take())
        place = cut
        state = folding.state() if save else None
        if state is not None:
            folding = start(identity, state)
    folding.end()
    takes.append(folding.take())
    header = folding.header()
    if not whole:
        folding.end()
        assert (told([folding.take()]), folding.header()) == ([], header)
    return header, takes


def assert_same(one: Folded, other: Folded) -> None:
    assert one.facts == other.facts
    for kind in ("turns", "usage", "compactions"):
        assert getattr(one, kind) == getattr(other, kind)
    assert one.header == other.header


# --- a home


def owned(sessions: dict[str, Folded]) -> dict[str, list[Fact]]:
    """The facts that count, for each session in its reading order."""
    claims: dict[int, list[str]] = defaultdict(list)
    for name, session in sessions.items():
        for key in session.facts:
            claims[key].append(name)
    alone = {
        name: min((at for key, fact in one.facts.items() if len(claims[key]) == 1 for at in times(fact)), default=0)
        for name, one in sessions.items()
    }
    natives = {one.identity.id for one in sessions.values()}
    result: dict[str, list[Fact]] = {name: [] for name in sessions}
    for name, session in sessions.items():
        for key, fact in session.facts.items():
            owner = min((sessions[one].facts[key].copied, alone[one], one) for one in claims[key])[2]
            absent = fact.copied == SUGGESTED and fact.copied_from not in natives
            if owner == name and fact.copied != PROVEN and not absent:
                result[name].append(fact)
    return result


def times(fact: Fact) -> list[int]:
    found = [fact.first, fact.last] if isinstance(fact, Mark) else [fact.at]
    return [at for at in found if at is not None]


def reckon(session: Folded, facts: list[Fact]) -> Json:
    """A session's row, in the words of the corpus; times in milliseconds."""
    header = session.header
    turns = [fact for fact in facts if isinstance(fact, Turn) and fact.counted]
    usage = [fact for fact in facts if isinstance(fact, Usage)]
    compactions = [fact.id for fact in facts if isinstance(fact, Compaction)]
    kinds = Counter((turn.kind, turn.role) for turn in turns)
    told = [at for fact in facts for at in times(fact)]
    told += [at for at in (header.started_at, header.last_activity_at) if at is not None]
    models = list(dict.fromkeys(fact.model for fact in facts if isinstance(fact, Turn | Usage) and fact.model))
    models = models or list(header.models)
    prompts = [turn.text for turn in turns if turn.kind == "message" and turn.role == "user" and turn.text]
    reasoning = [one.reasoning for one in usage if one.reasoning is not None]
    spent = {
        "input": sum(one.input for one in usage),
        "output": sum(one.output for one in usage),
        "cache_read": sum(one.cache_read for one in usage),
        "cache_creation": sum(one.cache_write_5m + one.cache_write_1h for one in usage),
        "reasoning": sum(reasoning) if reasoning else None,
    }
    return {
        "turns": {
            "user": kinds["message", "user"],
            "assistant": kinds["message", "assistant"],
            "thinking": kinds["thinking", "assistant"],
            "tool_result": kinds["tool_result", "tool"],
        },
        "tools": dict(sorted(Counter(turn.tool for turn in turns if turn.kind == "tool_call" and turn.tool).items())),
        "tool_errors": sum(turn.is_error for turn in turns),
        "usage": spent if header.has_usage else None,
        "models": models,
        "model": models[0] if models else None,
        "started_at": min(told) // 1000 if told else None,
        "last_activity_at": max(told) // 1000 if told else None,
        "compactions": len(compactions) if header.compactions_known else None,
        "compaction_ids": sorted(compactions),
        "first_prompt": squeezed(prompts[0] if prompts else header.objective),
        "parent_session_id": session.parent,
        "lineage": {
            "forked_from": header.forked_from,
            "cleared_from": header.cleared_from,
            "resumed_from": header.resumed_from,
        },
        "cwd": session.cwd,
        "git_branch": session.branch,
        "title": session.title,
        "kinds": list(header.kinds),
    }


def squeezed(text: str | None) -> str | None:
    return None if text is None else " ".join(text.split())[:200].strip()


# --- what a case of the corpus expects of a row


def matches(row: Json, want: Json, ids: bool = True) -> None:
    """A row is to the millisecond what a case expects of the session, or accepts; `ids`: of its compactions too."""
    usage = want["usage"]
    usage = usage and {name: count for name, count in usage.items() if name != "total"}
    expected = {
        "turns": want["turns"],
        "tools": dict(sorted(want["tools"].items())),
        "tool_errors": want["tool_errors"],
        "usage": row["usage"] if row["usage"] in want.get("accept", {}).get("usage", ()) else usage,
        "models": want["models"],
        "model": want.get("model", row["model"]),
        "started_at": (parse_iso(want["started_at"]) or 0) // 1000,
        "last_activity_at": (parse_iso(want["last_activity_at"]) or 0) // 1000,
        "compactions": want["compactions"],
        "compaction_ids": sorted((want if ids and "compaction_ids" in want else row)["compaction_ids"]),
        "first_prompt": squeezed(want["first_prompt"]),
        "parent_session_id": want["parent_session_id"],
        "lineage": row["lineage"] | want["lineage"],
        "cwd": want["cwd"],
        "git_branch": want["git_branch"],
        "title": want["title"],
        "kinds": [kind for kind in want["kinds"] if kind != "orchestrator"],
    }
    assert row == expected


def differences(want: Json, row: Json) -> Json:
    """Fields in which a session is not what the case expects or accepts, within its tolerance of times."""
    found = {}
    accept = want.get("accept", {})
    tolerance = want.get("time_tolerance_s", 0) * 1000
    for name, value in row.items():
        if name not in want:
            continue
        allowed = [want[name], *accept.get(name, [])]
        if name in ("started_at", "last_activity_at"):
            expected = [None if one is None else (parse_iso(one) or 0) // 1000 for one in allowed]
            if any(one is not None and abs(one - value) <= max(1, tolerance) for one in expected):
                continue
        if name == "kinds":
            allowed = [[kind for kind in one if kind != "orchestrator"] for one in allowed]
        if name == "first_prompt":
            allowed = [squeezed(one) for one in allowed]
        if name == "tools":
            allowed = [dict(sorted(one.items())) for one in allowed]
        if name == "usage":
            allowed = [one and {key: count for key, count in one.items() if key != "total"} for one in allowed]
        if name == "lineage":
            allowed = [value | one for one in allowed]
        if value not in allowed:
            found[name] = (want[name], value)
    return found


def is_empty(row: Json) -> bool:
    return not any(row["turns"].values()) and not any((row["usage"] or {}).values())


def checked(folder: Path, sessions: dict[str, Folded], troubles: list[Trouble]) -> list[str]:
    """What the corpus's own comparison finds wrong in a case, its sessions as `prosa --json` shows them."""
    check = checker()
    case = check.Case(folder, json.loads((folder / "expected.json").read_text()))
    counted = owned(sessions)
    records = [_record(one, reckon(one, counted[name])) for name, one in sessions.items()]
    for record in records:
        if any(record["id"] == other["parent_id"] for other in records):
            record["kinds"].append("orchestrator")
    pairs, problems = check.pair_up(case, records)
    result = check.Result(case)
    for session, record in pairs:
        check.compare_session(result, session, record, set(check.SESSION_FIELDS))
    said = " ".join(f"{trouble.path} {trouble.reason}" for trouble in troubles)
    problems += [f"not named: {name}" for name in case.expected.get("expected_errors", []) if name not in said]
    if troubles and not (case.expected.get("damaged") or case.expected.get("expected_errors")):
        problems.append(said)
    return [*map(str, problems), *map(str, result.differences)]


def _record(session: Folded, row: Json) -> Json:
    same = ("lineage", "title", "first_prompt", "model", "models", "turns", "tools", "tool_errors", "usage", "kinds")
    return {name: row[name] for name in same} | {
        "agent": session.identity.agent,
        "id": session.identity.id,
        "parent_id": row["parent_session_id"],
        "project": {"path": row["cwd"]},
        "branch": row["git_branch"],
        "started_at": _time(row["started_at"]),
        "last_activity_at": _time(row["last_activity_at"]),
        "compactions": {"count": len(row["compaction_ids"]), "known": session.header.compactions_known},
    }


def _time(ms: int | None) -> str | None:
    return None if ms is None else stamp(ms * 1000)


def stamp(us: int | None) -> str | None:
    return None if us is None else (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)).isoformat()


def checker() -> ModuleType:
    """The corpus's own comparison."""
    spec = importlib.util.spec_from_file_location("corpus_check", CORPUS / "check.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["corpus_check"] = module
    spec.loader.exec_module(module)
    return module


def copied_home(source: Path, tmp_path: Path, want: Json) -> Path:
    """A case's home where it may be read and written, with the times that the case gives its files."""
    home = tmp_path / "home"
    shutil.copytree(source, home, symlinks=True)
    for path in (home, *home.rglob("*")):
        path.chmod(path.stat().st_mode | (0o700 if path.is_dir() else 0o600))
    for name, when in want.get("mtimes", {}).items():
        ns = (parse_iso(when) or 0) * 1000
        os.utime(home / name, ns=(ns, ns))
    return home


def snapshot(home: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()}
