"""The session's row: sums over its own records, and what headers, other files, sources and projects say about it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

from prosa.events.codec import decode_as
from prosa.events.database import Database
from prosa.events.facts import Header, moment
from prosa.projections.records import (
    ASSISTANT,
    THINKING,
    TOOL_CALL,
    TOOL_RESULT,
    USER,
    put_texts,
    span,
)

QUARTER_US = 900_000_000
PAUSE_US = 5 * 60 * 1_000_000
"""A longer gap between two records is no work: it counts as this long."""
PROMPT_LENGTH = 200

TurnText = Callable[[int, int], str]

SESSION = """
SELECT key, id, header, raw, title FROM sessions WHERE sid = ?"""
TURN_SUMS = f"""
INSERT INTO turn_sums
SELECT :sid, coalesce(at / {QUARTER_US}, -1), kind, coalesce(tool, 0), count(*), sum(error)
FROM turns WHERE id BETWEEN :low AND :high AND own = 2 AND counted GROUP BY 2, 3, 4"""
USAGE_SUMS = f"""
INSERT INTO usage_sums
SELECT :sid, coalesce(at / {QUARTER_US}, -1), coalesce(model, 0), count(*), sum(input), sum(output), sum(cache_read),
    sum(cache_write_5m + cache_write_1h), sum(reasoning), coalesce(sum(cost), 0), sum(cost IS NULL)
FROM usages WHERE id BETWEEN :low AND :high AND own = 2 GROUP BY 2, 3"""
COUNTS = "SELECT kind, sum(turns), sum(errors) FROM turn_sums WHERE sid = ? GROUP BY kind"
TOOLS = f"""
SELECT name, sum(turns) FROM turn_sums JOIN names ON number = tool WHERE sid = ? AND kind = {TOOL_CALL}
GROUP BY tool ORDER BY 2 DESC, 1"""
USAGE = """
SELECT sum(input), sum(output), sum(cache_read), sum(cache_write), sum(reasoning), sum(cost) FROM usage_sums
WHERE sid = ?"""
UNPRICED = """
SELECT DISTINCT coalesce(name, '') FROM usage_sums LEFT JOIN names ON number = model
WHERE sid = ? AND unpriced ORDER BY 1"""
MODELS = """
SELECT name FROM (
    SELECT model, at, id FROM usages WHERE id BETWEEN :low AND :high AND own = 2 AND NOT apart AND model IS NOT NULL
    UNION ALL SELECT model, at, id FROM turns WHERE id BETWEEN :low AND :high AND own = 2 AND model IS NOT NULL
) JOIN names ON number = model GROUP BY model ORDER BY min(at) IS NULL, min(at), min(id)"""
TIMES = """
SELECT min(a), max(b) FROM (
    SELECT min(at) AS a, max(at) AS b FROM turns WHERE id BETWEEN :low AND :high AND own >= :own
    UNION ALL SELECT min(at), max(at) FROM usages WHERE id BETWEEN :low AND :high AND own >= :own
    UNION ALL SELECT min(first), max(last) FROM marks WHERE id BETWEEN :low AND :high AND own >= :own
    UNION ALL SELECT min(at), max(at) FROM compactions WHERE id BETWEEN :low AND :high AND own >= :own
)"""
FIRST_PROMPT = f"""
SELECT position, number FROM turns
WHERE id BETWEEN ? AND ? AND kind = {USER} AND counted AND own = 2 ORDER BY place LIMIT 50"""
INHERITED = "SELECT count(*) FROM turns WHERE id BETWEEN ? AND ? AND own < 2 AND counted"
COMPACTIONS = "SELECT count(*) FROM compactions WHERE id BETWEEN ? AND ? AND own = 2"
HOLDER_OF_COPIES = """
SELECT o.id FROM contested mine
JOIN turns t ON t.id = mine.id AND t.own = 0
JOIN contested other ON other.key = mine.key AND other.id <> mine.id
JOIN turns theirs ON theirs.id = other.id
JOIN sessions o ON o.sid = other.id >> 24
WHERE mine.id BETWEEN ? AND ? AND o.id <> ? GROUP BY o.sid
ORDER BY count(*) DESC, sum(theirs.own > 0) DESC, o.key LIMIT 1"""
STATED_TITLE = """
SELECT f.text FROM foreign_titles f JOIN sessions s USING (sid) WHERE f.leaf = ? AND f.sid <> ?
ORDER BY s.key LIMIT 1"""
DESCRIBED = """
SELECT field, value, rank FROM described WHERE session = ? ORDER BY rank, at_us, origin, origin_position"""
TIMES_ACTIVE = """
SELECT at FROM turns WHERE id BETWEEN ? AND ? AND own = 2 AND at IS NOT NULL ORDER BY at"""
FIRST_REPLICA = """
SELECT r.origin, (SELECT device FROM devices d WHERE d.origin = r.origin AND d.position <= r.first
    ORDER BY d.position DESC LIMIT 1)
FROM revisions r JOIN origins o ON o.number = r.origin WHERE r.sid = ? ORDER BY r.first_at, o.origin, r.first LIMIT 1"""
PROJECT = """
SELECT p.remote, p.marker FROM projects p JOIN origins o ON o.number = p.origin
WHERE p.path = ? ORDER BY p.origin <> ?, p.remote IS NULL, o.origin LIMIT 1"""
SOURCE = """
SELECT s.path, s.state FROM source_sessions m JOIN sources s ON s.origin = m.origin AND s.path = m.path
WHERE m.session = ? ORDER BY s.state <> 'present', s.path LIMIT 1"""
PUT = """
UPDATE sessions SET device = :device, visible = :visible,
    started = :started, last = :last, title = :title, first_prompt = :first_prompt,
    models = :models, tools = :tools, users = :users, assistants = :assistants, thinkings = :thinkings,
    tool_calls = :tool_calls, tool_results = :tool_results, tool_errors = :tool_errors, has_usage = :has_usage,
    input = :input, output = :output, cache_read = :cache_read, cache_write = :cache_write, reasoning = :reasoning,
    cost = :cost, unpriced = :unpriced, compactions = :compactions, compactions_known = :compactions_known,
    compactions_reason = :compactions_reason, inherited = :inherited, inherited_from = :inherited_from,
    parent = :parent, forked_from = :forked_from, cleared_from = :cleared_from, resumed_from = :resumed_from,
    cwd = :cwd, branch = :branch, kinds = :kinds, state = :state, state_reason = :state_reason, project = :project,
    remote = :remote, marker = :marker, raw_size = :raw_size, raw_stored = :raw_stored, raw_verbatim = :raw_verbatim,
    source = :source, source_state = :source_state
WHERE sid = :sid"""


def refresh(db: Database, sid: int, turn_text: TurnText) -> None:
    """Make the session's row and sums from its facts and from what is said about it."""
    key, native, header_body, raw, old_title = db.execute(SESSION, (sid,)).fetchone()
    header = decode_as(Header, header_body)
    row: dict[str, object] = {"sid": sid}
    _sum(db, sid, header, row)
    said = _described(db, key)
    _edges(db, sid, native, header, said, row)
    _texts(db, sid, header, said, old_title, row, turn_text)
    origin, row["device"] = db.execute(FIRST_REPLICA, (sid,)).fetchone()
    _place(db, key, origin, header, said, row)
    stored = db.execute(
        "SELECT size, stored, verbatim FROM raws WHERE sha256 = ? AND session = ?", (raw, key)
    ).fetchone()
    row["raw_size"], row["raw_stored"], row["raw_verbatim"] = stored or (None, None, 1)
    db.execute(PUT, row)


def _sum(db: Database, sid: int, header: Header, row: dict[str, object]) -> None:
    low, high = span(sid)
    bounds = {"sid": sid, "low": low, "high": high}
    for table in ("turn_sums", "usage_sums", "active_sums"):
        db.execute(f"DELETE FROM {table} WHERE sid = ?", (sid,))
    db.execute(TURN_SUMS, bounds)
    db.execute(USAGE_SUMS, bounds)
    _sum_activity(db, sid)
    counts = {kind: (turns, errors) for kind, turns, errors in db.execute(COUNTS, (sid,))}
    for name, kind in (
        ("users", USER),
        ("assistants", ASSISTANT),
        ("thinkings", THINKING),
        ("tool_calls", TOOL_CALL),
        ("tool_results", TOOL_RESULT),
    ):
        row[name] = counts.get(kind, (0, 0))[0]
    row["tool_errors"] = sum(errors for _, errors in counts.values())
    row["tools"] = json.dumps(dict(db.execute(TOOLS, (sid,))), ensure_ascii=False)
    models = [name for (name,) in db.execute(MODELS, bounds)]
    row["models"] = json.dumps(models or list(header.models), ensure_ascii=False)
    sums = db.execute(USAGE, (sid,)).fetchone()
    row["has_usage"] = header.has_usage or sums[0] is not None
    for name, value in zip(("input", "output", "cache_read", "cache_write"), sums, strict=False):
        row[name] = value or 0
    row["reasoning"], row["cost"] = sums[4], sums[5] or 0
    row["unpriced"] = json.dumps([name for (name,) in db.execute(UNPRICED, (sid,))], ensure_ascii=False)
    row["compactions"] = db.execute(COMPACTIONS, (low, high)).fetchone()[0]
    row["compactions_known"], row["compactions_reason"] = header.compactions_known, header.compactions_reason
    row["visible"] = bool(row["users"] or sums[0] is not None)
    started, last = db.execute(TIMES, bounds | {"own": 2}).fetchone()
    if started is None:
        started, last = db.execute(TIMES, bounds | {"own": 0}).fetchone()
    stated, stated_last = moment(header.started_at), moment(header.last_activity_at)
    row["started"] = min((at for at in (started, stated) if at is not None), default=None)
    row["last"] = max((at for at in (last, stated_last, stated) if at is not None), default=None)


def _sum_activity(db: Database, sid: int) -> None:
    seconds: Counter[int] = Counter()
    before: int | None = None
    for (at,) in db.execute(TIMES_ACTIVE, span(sid)):
        if before is not None:
            seconds[at // QUARTER_US] += min(at - before, PAUSE_US)
        before = at
    db.executemany(
        "INSERT INTO active_sums VALUES (?, ?, ?)",
        [(sid, quarter, us // 1_000_000) for quarter, us in sorted(seconds.items()) if us >= 1_000_000],
    )


Said = dict[str, tuple[str, int]]
"""Field → value and rank."""


def _described(db: Database, key: str) -> Said:
    """What other files say, by field: of the highest rank, then the latest."""
    return {field: (value, rank) for field, value, rank in db.execute(DESCRIBED, (key,)) if value is not None}


def _best(own: str | None, said: Said, field: str) -> str | None:
    """The session's own raw has rank 0."""
    value, rank = said.get(field, (None, 0))
    return value if value is not None and (own is None or rank > 0) else own


def _edges(db: Database, sid: int, native: str, header: Header, said: Said, row: dict[str, object]) -> None:
    """Edges to itself are dropped; what no file names as a fork's origin is who holds most of what it copied.

    Of equal holders the owner of most: a fork of a fork holds the records of both.
    """
    low, high = span(sid)
    edges = {
        "parent": _best(header.parent, said, "parent"),
        "forked_from": _best(header.forked_from, said, "forked_from"),
        "cleared_from": _best(header.cleared_from, said, "cleared_from"),
        "resumed_from": _best(header.resumed_from, said, "resumed_from"),
    }
    row["inherited"] = db.execute(INHERITED, (low, high)).fetchone()[0]
    row["inherited_from"] = None
    if row["inherited"]:
        owner = db.execute(HOLDER_OF_COPIES, (low, high, native)).fetchone()
        if edges["forked_from"] is None and owner and owner[0] != edges["parent"]:
            edges["forked_from"] = owner[0]
        row["inherited_from"] = edges["forked_from"] or (owner[0] if owner else None)
        if edges["forked_from"] is not None:  # the record of a /clear was copied like the others
            edges["cleared_from"] = _best(None, said, "cleared_from")
    for name, other in edges.items():
        row[name] = None if other == native else other


def _texts(
    db: Database,
    sid: int,
    header: Header,
    said: Said,
    old_title: str | None,
    row: dict[str, object],
    turn_text: TurnText,
) -> None:
    low, high = span(sid)
    prompts = (turn_text(*place) for place in db.execute(FIRST_PROMPT, (low, high)))
    prompt = next((text for text in prompts if text.strip()), header.objective)
    line = " ".join(prompt[: 20 * PROMPT_LENGTH].replace("\0", " ").split()) if prompt else None
    row["first_prompt"] = None if line is None else line[:PROMPT_LENGTH].rstrip()
    title = _best(header.title, said, "title")
    if title is None and header.leaf:
        stated = db.execute(STATED_TITLE, (header.leaf, sid)).fetchone()
        title = stated[0] if stated else None
    row["title"] = title
    row["kinds"] = json.dumps(list(header.kinds))
    row["state"], row["state_reason"] = header.state, header.state_reason
    if title != old_title:
        db.execute("DELETE FROM text_prompt WHERE rowid = ?", (low,))
        if title:
            put_texts(db, low, USER, True, title)


def _place(db: Database, key: str, origin: int, header: Header, said: Said, row: dict[str, object]) -> None:
    cwd = _best(header.cwd, said, "cwd")
    row["cwd"], row["branch"] = cwd, _best(header.branch, said, "branch")
    remote, marker = (db.execute(PROJECT, (cwd, origin)).fetchone() or (None, None)) if cwd else (None, None)
    row["remote"], row["marker"] = remote, marker
    row["project"] = None
    if remote:
        row["project"] = remote.split("/", 1)[-1]
    elif marker:
        row["project"] = marker
    elif cwd:
        row["project"] = cwd.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1] or cwd
    source = db.execute(SOURCE, (key,)).fetchone()
    row["source"] = source[0] if source else None
    row["source_state"] = "present" if source and source[1] == "present" else "orphaned"
