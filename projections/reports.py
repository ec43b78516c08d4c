"""Reports from sums. A window cuts records by quarter hour; what has no time counts at its session's start.

Sessions with neither a prompt nor usage are in none of them. With a filter on the model, usage is that model's alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from itertools import chain, groupby, pairwise, starmap
from operator import itemgetter
from typing import Any, Final

from prosa.projections.filtering import condition, texts
from prosa.projections.named_devices import Devices
from prosa.projections.queries import Report, ReportName
from prosa.projections.records import ASSISTANT, MASK, SHIFT, TOOL_CALL, TOOL_RESULT, USER
from prosa.projections.report_rows import (
    NO_ANSWERS,
    Row,
    Spent,
    Work,
    by_project,
    days,
    first_of_heatmap,
    heatmap,
    hours,
    identity,
    project_names,
    shifts,
    spent_columns,
)
from prosa.projections.tables import Tables, Value
from prosa.projections.zones import QUARTER_US, Calendar, rfc3339, zone

CHOSEN: Final = f"""
SELECT s.sid, s.key, s.agent, s.started, s.last, s.started / {QUARTER_US} AS start, s.device, s.profile, s.parent,
    s.models, s.has_usage, s.tool_errors, s.project, s.remote, s.marker, s.cwd
FROM sessions s WHERE s.visible <> 0 AND {{}}"""
NO_MODEL: Final[tuple[str | None, ...]] = (None,)
EVER: Final = 1 << 62
"""Quarter hours: no record is so far away."""
WHEN: Final = "CASE WHEN q.quarter < 0 THEN c.start ELSE q.quarter END"
INSIDE: Final = f"(:any_time <> 0 OR ({WHEN}) >= :low AND ({WHEN}) < :high)"
"""What has no time at all is in no window."""
ONE_MODEL: Final = "(:any_model <> 0 OR q.model = (SELECT number FROM names WHERE name = :model))"
SPENT: Final = """
sum(q.answers), sum(q.input), sum(q.output), sum(q.cache_read), sum(q.cache_write), sum(q.reasoning), sum(q.cost),
sum(q.unpriced)"""
OF_TURNS: Final = f"""
FROM chosen c CROSS JOIN turn_sums q LEFT JOIN names n ON n.number = q.tool WHERE q.sid = c.sid AND {INSIDE}"""
OF_USAGE: Final = f"""
FROM chosen c CROSS JOIN usage_sums q LEFT JOIN names n ON n.number = q.model
WHERE q.sid = c.sid AND {INSIDE} AND {ONE_MODEL}"""
SEVERAL: Final = """replace(c.models, '", "', '') <> c.models"""
"""Models, a list as JSON: between two items, and nowhere else, stands this."""

SESSIONS: Final = f"""
SELECT c.agent, count(*), coalesce(sum(t.turns), 0), coalesce(sum(t.prompts), 0), coalesce(sum(t.answers), 0)
FROM chosen c LEFT JOIN (
    SELECT c.sid, sum(q.turns) AS turns, sum(CASE q.kind WHEN {USER} THEN q.turns ELSE 0 END) AS prompts,
        sum(CASE q.kind WHEN {ASSISTANT} THEN q.turns ELSE 0 END) AS answers
    {OF_TURNS} GROUP BY c.sid
) t ON t.sid = c.sid
GROUP BY c.agent ORDER BY 2 DESC, 1"""
TOOLS: Final = f"""
SELECT n.name, sum(t.uses), sum(t.errors), count(*) FROM (
    SELECT q.tool, sum(CASE q.kind WHEN {TOOL_CALL} THEN q.turns ELSE 0 END) AS uses, sum(q.errors) AS errors
    {OF_TURNS} AND q.kind IN ({TOOL_CALL}, {TOOL_RESULT}) GROUP BY c.sid, q.tool
) t LEFT JOIN names n ON n.number = t.tool
GROUP BY t.tool, n.name ORDER BY 2 DESC, 3 DESC, 1 NULLS FIRST"""
LISTS_OF_MODELS: Final = "SELECT c.models, count(*) FROM chosen c GROUP BY c.models"
MODELS_INSIDE: Final = f"SELECT DISTINCT c.sid, n.name {OF_USAGE}"
MODELS_OF_SESSIONS: Final = """
SELECT c.sid, c.models, EXISTS (SELECT 1 FROM usage_sums q WHERE q.sid = c.sid) FROM chosen c"""
ANSWERS_OF_MODELS: Final = f"SELECT n.name, sum(q.answers) {OF_USAGE} GROUP BY n.name"
PROFILES: Final = "SELECT device, agent, profile, count(*) FROM chosen GROUP BY device, agent, profile"
AGENTS: Final = "SELECT agent, count(*), sum(has_usage) FROM chosen GROUP BY agent"
USAGE: Final = f"SELECT c.agent, {SPENT} {OF_USAGE} GROUP BY c.agent"
UNPRICED: Final = f"SELECT DISTINCT c.agent, n.name {OF_USAGE} AND q.unpriced <> 0 ORDER BY 1, 2 NULLS FIRST"
USAGE_BY_MODEL: Final = f"SELECT n.name, count(DISTINCT c.sid), {SPENT} {OF_USAGE} GROUP BY n.name"
ERRORS: Final = f"""
SELECT c.started, c.agent, c.project, c.key, n.name, sum(q.errors)
{OF_TURNS} AND c.tool_errors <> 0 AND q.errors <> 0
GROUP BY c.key, c.started, c.agent, c.project, n.name
ORDER BY c.started DESC NULLS LAST, c.key, 6 DESC, 5 NULLS FIRST"""
ERRORS_OF_ONE_MODEL: Final = f"""
SELECT c.models, sum(q.errors), count(DISTINCT c.sid)
{OF_TURNS} AND c.tool_errors <> 0 AND q.errors <> 0 AND NOT {SEVERAL} GROUP BY c.models"""
ERRORS_AND_MODELS: Final = f"""
SELECT c.sid, c.start, c.models, n.name, t.error * t.counted, t.at / {QUARTER_US}
FROM chosen c CROSS JOIN turns t LEFT JOIN names n ON n.number = t.model
WHERE c.tool_errors <> 0 AND {SEVERAL} AND t.id BETWEEN (c.sid << {SHIFT}) AND ((c.sid << {SHIFT}) | {MASK})
    AND +t.own = 2 AND (t.error <> 0 OR t.model IS NOT NULL) ORDER BY c.sid, t.place, t.id"""
"""`+`: SQLite would make an index of all turns by `own`, 100 times as slow."""
SUBAGENTS: Final = """
SELECT p.agent, count(*), sum(p.children), max(p.children)
FROM (SELECT agent, count(*) AS children FROM chosen WHERE parent IS NOT NULL GROUP BY agent, parent) p
GROUP BY p.agent ORDER BY 3 DESC, 1"""
PROJECTS: Final = "SELECT sid, agent, project, remote, marker, cwd FROM chosen"
TIMES: Final = "SELECT min(started), max(coalesce(last, started)) FROM chosen"
PROMPT_WORK: Final = f"SELECT c.sid, {{}}, sum(q.turns) {OF_TURNS} AND q.kind = {USER} GROUP BY 1, 2"
ACTIVE_WORK: Final = f"""
SELECT c.sid, {{}}, 0, sum(q.seconds) FROM chosen c CROSS JOIN active_sums q WHERE q.sid = c.sid AND {INSIDE}
GROUP BY 1, 2"""
ANSWER_WORK: Final = f"SELECT DISTINCT c.sid, {{}} {OF_USAGE}"
PRESENCE: Final = (PROMPT_WORK, ACTIVE_WORK, ANSWER_WORK)
"""A session is at work where it has a prompt, active time, or an answer with usage."""
USAGE_WORK: Final = f"SELECT c.sid, {{}}, {SPENT} {OF_USAGE} GROUP BY 1, 2"
UNPRICED_WORK: Final = f"SELECT DISTINCT c.sid, {{}}, coalesce(n.name, '') {OF_USAGE} AND q.unpriced <> 0"
"""Work of a session. `{{}}` is by what it is summed: NULL, the local day, the local hour."""


class Reports:
    """Makes the rows of one question."""

    def __init__(self, tables: Tables, question: Report, now_us: int) -> None:
        filters = question.filters
        chosen = condition(tables, filters)
        self._tables, self._question, self._now_us = tables, question, now_us
        self._calendar = Calendar(zone(question.zone))
        self._chosen = CHOSEN.format(chosen.sql)
        since, until = filters.since_us, filters.until_us
        self._any_time = since is None and until is None
        self._low = -EVER if since is None else since // QUARTER_US
        self._high = EVER if until is None else -(-until // QUARTER_US)
        self._values: dict[str, Value] = {
            **chosen.values,
            "any_time": int(self._any_time),
            "low": self._low,
            "high": self._high,
            "any_model": int(filters.model is None),
            "model": filters.model or "",
        }

    def rows(self) -> list[Row]:
        """All of them, in the report's order."""
        with self._tables.named("chosen", self._chosen, self._values):
            return MAKERS[self._question.name](self)

    def sessions(self) -> list[Row]:
        names = ("agent", "sessions", "turns", "prompts", "answers")
        return [dict(zip(names, row, strict=True)) for row in self._ask(SESSIONS)]

    def tools(self) -> list[Row]:
        names = ("tool", "uses", "errors", "sessions")
        return [dict(zip(names, row, strict=True)) for row in self._ask(TOOLS)]

    def models(self) -> list[Row]:
        answers = dict(self._ask(ANSWERS_OF_MODELS))
        only = self._question.filters.model
        found = [
            {"model": model, "sessions": count, "answers": answers.get(model) or 0}
            for model, count in self._sessions_of_models().items()
            if only is None or model == only
        ]
        return sorted(found, key=lambda row: (-row["sessions"], row["model"] is None, row["model"] or ""))

    def _sessions_of_models(self) -> Counter[str | None]:
        """A session counts for the models it answered with in the window, one without usage for all of its models."""
        found: Counter[str | None] = Counter()
        if self._any_time:
            for models, count in self._ask(LISTS_OF_MODELS):
                for model in texts(models) or NO_MODEL:
                    found[model] += count
            return found
        inside = set(self._ask(MODELS_INSIDE))
        lists: dict[str, Sequence[str | None]] = {}
        for sid, models, has_sums in self._ask(MODELS_OF_SESSIONS):
            for model in lists.get(models) or lists.setdefault(models, texts(models) or NO_MODEL):
                if not has_sums or (sid, model) in inside:
                    found[model] += 1
        return found

    def projects(self) -> list[Row]:
        agents = {sid: agent for sid, agent, *_ in self._ask(PROJECTS)}
        work = chain(self._work("NULL", PROMPT_WORK, ACTIVE_WORK), self._usage("NULL"))
        return by_project(work, self._project_names(), agents)

    def profiles(self) -> list[Row]:
        devices = Devices(self._tables)
        counts: Counter[tuple[str | None, str, str]] = Counter()
        for device, agent, profile, count in self._ask(PROFILES):
            counts[None if device is None else devices.shown(device), agent, profile] += count
        found = [
            {
                "device": device,
                "device_name": devices.name(device),
                "agent": agent,
                "profile": profile,
                "sessions": count,
            }
            for (device, agent, profile), count in counts.items()
        ]
        found.sort(key=lambda row: (row["device"] is not None, row["device"] or "", row["agent"], row["profile"]))
        return sorted(found, key=lambda row: -row["sessions"])

    def usage(self) -> list[Row]:
        spent = {agent: Spent(*sums) for agent, *sums in self._ask(USAGE)}
        unpriced: dict[str, list[str]] = {}
        for agent, model in self._ask(UNPRICED):
            unpriced.setdefault(agent, []).append(model or "")
        found = [
            {
                "agent": agent,
                "sessions": count,
                "measured": measured,
                **spent_columns(spent.get(agent, NO_ANSWERS) if measured else None),
                "unpriced_models": unpriced.get(agent, []),
            }
            for agent, count, measured in self._ask(AGENTS)
        ]
        return sorted(found, key=lambda row: (-(row["total"] or 0), row["agent"]))

    def usage_by_model(self) -> list[Row]:
        found = [
            {"model": model, "sessions": count, **spent_columns(Spent(*sums))}
            for model, count, *sums in self._ask(USAGE_BY_MODEL)
        ]
        return sorted(found, key=lambda row: (-row["total"], row["model"] is None, row["model"] or ""))

    def errors(self) -> list[Row]:
        return [
            {
                "started_at": None if started is None else rfc3339(started),
                "agent": agent,
                "project": project,
                "session": key,
                "tool": tool,
                "errors": errors,
            }
            for started, agent, project, key, tool, errors in self._ask(ERRORS)
        ]

    def errors_by_model(self) -> list[Row]:
        """An error belongs to the model that spoke last before it, else to the session's first."""
        errors: Counter[str | None] = Counter()
        sessions: Counter[str | None] = Counter()
        for models, count, sids in self._ask(ERRORS_OF_ONE_MODEL):
            model = next(iter(texts(models)), None)
            errors[model] += count
            sessions[model] += sids
        for _, of_sid in groupby(self._ask(ERRORS_AND_MODELS), key=itemgetter(0)):
            of_session: Counter[str] = Counter()
            speaking = None
            for _, start, models, model, failed, quarter in of_sid:
                speaking = model or speaking or texts(models)[0]
                of_session[speaking] += bool(failed) and self._inside(start if quarter is None else quarter)
            errors += of_session
            sessions.update(model for model, count in of_session.items() if count)
        only = self._question.filters.model
        found = [
            {"model": model, "errors": errors[model], "sessions": sessions[model]}
            for model in errors
            if only is None or model == only
        ]
        return sorted(found, key=lambda row: (-row["errors"], row["model"] is None, row["model"] or ""))

    def subagents(self) -> list[Row]:
        names = ("agent", "parents", "children", "max_fanout")
        return [dict(zip(names, row, strict=True)) for row in self._ask(SUBAGENTS)]

    def days(self) -> list[Row]:
        unit = f"{self._local()} / 96"
        return days(chain(self._work(unit, PROMPT_WORK, ACTIVE_WORK), self._usage(unit)), self._project_names())

    def hours(self) -> list[Row]:
        return hours(self._work(f"{self._local()} % 96 / 4", *PRESENCE))

    def heatmap(self) -> list[Row]:
        filters = self._question.filters
        last = self._day(self._now_us if filters.until_us is None else filters.until_us - 1)
        first = first_of_heatmap(last) if filters.since_us is None else self._day(filters.since_us)
        return heatmap(self._work(f"{self._local()} / 96", *PRESENCE), first, last)

    def _ask(self, sql: str) -> Iterator[Any]:
        return self._tables.execute(sql, self._values)

    def _work(self, unit: str, *statements: str) -> Iterator[Work]:
        return starmap(Work, chain.from_iterable(self._ask(sql.format(unit)) for sql in statements))

    def _usage(self, unit: str) -> Iterator[Work]:
        """Answers with usage: tokens, cost, and the models that have no price."""
        for sid, at, *sums in self._ask(USAGE_WORK.format(unit)):
            yield Work(sid, at, spent=Spent._make(sums))
        for sid, at, model in self._ask(UNPRICED_WORK.format(unit)):
            yield Work(sid, at, unpriced=model)

    def _local(self) -> str:
        """Quarters on the wall's clock, as SQL: what the zone is ahead of UTC changes twice a year."""
        ((first, last),) = self._ask(TIMES)
        if first is None:
            return f"({WHEN})"
        ahead = shifts(self._calendar, first // QUARTER_US - 96, last // QUARTER_US + 96)
        steps = [f"WHEN ({WHEN}) < {until} THEN {by}" for (_, by), (until, _) in pairwise(ahead)]
        by = f"CASE {' '.join(steps)} ELSE {ahead[-1][1]} END" if steps else str(ahead[0][1])
        return f"(({WHEN}) + {by})"

    def _day(self, at_us: int) -> date:
        return self._calendar.day(at_us // QUARTER_US)

    def _project_names(self) -> dict[int, str | None]:
        """Session → the name its project is shown by."""
        project_of = {
            sid: (identity(remote, marker, cwd), project)
            for sid, _, project, remote, marker, cwd in self._ask(PROJECTS)
        }
        names = project_names(project_of.values())
        return {sid: names[project] for sid, (project, _) in project_of.items()}

    def _inside(self, quarter: int | None) -> bool:
        if quarter is None:
            return self._any_time
        return self._low <= quarter < self._high


MAKERS: Final[dict[ReportName, Callable[[Reports], list[Row]]]] = {
    "sessions": Reports.sessions,
    "tools": Reports.tools,
    "models": Reports.models,
    "projects": Reports.projects,
    "profiles": Reports.profiles,
    "heatmap": Reports.heatmap,
    "usage": Reports.usage,
    "errors": Reports.errors,
    "hours": Reports.hours,
    "usage_by_model": Reports.usage_by_model,
    "errors_by_model": Reports.errors_by_model,
    "subagents": Reports.subagents,
    "days": Reports.days,
}


def report(tables: Tables, question: Report, now_us: int) -> list[Row]:
    """The first rows of a report; all with limit 0."""
    made = Reports(tables, question, now_us).rows()
    return made[: question.limit] if question.limit else made
