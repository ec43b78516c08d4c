"""Reports from the index's sums. A window cuts records by quarter hour; what has no time counts at its session's start.

Sessions with neither a prompt nor usage are in none of them. With a filter on the model, usage is that model's alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date
from itertools import chain, pairwise, starmap
from typing import Any, Final

import apsw

from prosa.projections.local_filters import Value, condition, device_names
from prosa.projections.local_rows import rows
from prosa.projections.queries import Report, ReportName
from prosa.projections.records import ASSISTANT, TOOL_CALL, TOOL_RESULT, USER, span
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
from prosa.projections.zones import QUARTER_US, Calendar, rfc3339, zone

CHOSEN: Final = f"""
CREATE TEMP TABLE chosen AS
    SELECT s.sid, s.key, s.agent, s.started, s.last, s.started / {QUARTER_US} AS start, s.device, s.profile, s.parent,
        s.models, s.has_usage, s.tool_errors, s.project, s.remote, s.marker, s.cwd
    FROM sessions s WHERE s.visible AND {{}}"""
FORGET: Final = "DROP TABLE IF EXISTS temp.chosen"
WHEN: Final = "iif(q.quarter < 0, c.start, q.quarter)"
INSIDE: Final = f"(:low IS NULL OR {WHEN} >= :low) AND (:high IS NULL OR {WHEN} < :high)"
ONE_MODEL: Final = "(:model IS NULL OR q.model = (SELECT number FROM names WHERE name = :model))"
SPENT: Final = """
sum(q.answers), sum(q.input), sum(q.output), sum(q.cache_read), sum(q.cache_write), sum(q.reasoning), sum(q.cost),
sum(q.unpriced)"""
OF_TURNS: Final = f"FROM chosen c CROSS JOIN turn_sums q ON q.sid = c.sid AND {INSIDE}"
OF_USAGE: Final = f"FROM chosen c CROSS JOIN usage_sums q ON q.sid = c.sid AND {INSIDE} AND {ONE_MODEL}"

SESSIONS: Final = f"""
SELECT c.agent, count(*), coalesce(sum(t.turns), 0), coalesce(sum(t.prompts), 0), coalesce(sum(t.answers), 0)
FROM chosen c LEFT JOIN (
    SELECT c.sid, sum(q.turns) AS turns, sum(iif(q.kind = {USER}, q.turns, 0)) AS prompts,
        sum(iif(q.kind = {ASSISTANT}, q.turns, 0)) AS answers
    {OF_TURNS} GROUP BY c.sid
) t ON t.sid = c.sid
GROUP BY c.agent ORDER BY 2 DESC, 1"""
TOOLS: Final = f"""
SELECT n.name, sum(uses), sum(errors), count(*) FROM (
    SELECT q.tool, sum(iif(q.kind = {TOOL_CALL}, q.turns, 0)) AS uses, sum(q.errors) AS errors
    {OF_TURNS} WHERE q.kind IN ({TOOL_CALL}, {TOOL_RESULT}) GROUP BY c.sid, q.tool
) LEFT JOIN names n ON n.number = tool
GROUP BY tool ORDER BY 2 DESC, 3 DESC, 1"""
SESSIONS_OF_MODELS: Final = f"""
SELECT m.value, count(*) FROM chosen c LEFT JOIN json_each(c.models) m
WHERE :low IS NULL AND :high IS NULL OR NOT EXISTS (SELECT 1 FROM usage_sums q WHERE q.sid = c.sid) OR EXISTS (
    SELECT 1 FROM usage_sums q JOIN names n ON n.number = q.model
    WHERE q.sid = c.sid AND n.name = m.value AND {INSIDE})
GROUP BY 1"""
ANSWERS_OF_MODELS: Final = f"""
SELECT n.name, sum(q.answers) {OF_USAGE} LEFT JOIN names n ON n.number = q.model GROUP BY 1"""
PROFILES: Final = """
SELECT device, agent, profile, count(*) FROM chosen GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3"""
AGENTS: Final = "SELECT agent, count(*), sum(has_usage) FROM chosen GROUP BY 1"
USAGE: Final = f"SELECT c.agent, {SPENT} {OF_USAGE} GROUP BY 1"
UNPRICED: Final = f"""
SELECT DISTINCT c.agent, n.name {OF_USAGE} LEFT JOIN names n ON n.number = q.model
WHERE q.unpriced ORDER BY 1, 2"""
USAGE_BY_MODEL: Final = f"""
SELECT n.name, count(DISTINCT c.sid), {SPENT} {OF_USAGE} LEFT JOIN names n ON n.number = q.model GROUP BY q.model"""
ERRORS: Final = f"""
SELECT c.started, c.agent, c.project, c.key, n.name, sum(q.errors)
{OF_TURNS} LEFT JOIN names n ON n.number = q.tool WHERE c.tool_errors AND q.errors
GROUP BY c.sid, q.tool ORDER BY c.started DESC, c.key, 6 DESC, 5"""
ERRORS_OF_ONE_MODEL: Final = f"""
SELECT c.models ->> 0, sum(q.errors), count(DISTINCT c.sid)
{OF_TURNS} WHERE c.tool_errors AND q.errors AND json_array_length(c.models) < 2 GROUP BY 1"""
WITH_SEVERAL_MODELS: Final = """
SELECT sid, start, models ->> 0 FROM chosen WHERE tool_errors AND json_array_length(models) > 1"""
ERRORS_AND_MODELS: Final = f"""
SELECT n.name, t.error AND t.counted, t.at / {QUARTER_US} FROM turns t LEFT JOIN names n ON n.number = t.model
WHERE t.id BETWEEN ? AND ? AND t.own = 2 AND (t.error OR t.model IS NOT NULL) ORDER BY t.place, t.id"""
SUBAGENTS: Final = """
SELECT agent, count(*), sum(children), max(children)
FROM (SELECT agent, count(*) AS children FROM chosen WHERE parent IS NOT NULL GROUP BY agent, parent)
GROUP BY 1 ORDER BY 3 DESC, 1"""
PROJECTS: Final = "SELECT sid, agent, project, remote, marker, cwd FROM chosen"
TIMES: Final = "SELECT min(started), max(coalesce(last, started)) FROM chosen"
PROMPT_WORK: Final = f"SELECT c.sid, {{}}, sum(q.turns) {OF_TURNS} AND q.kind = {USER} GROUP BY 1, 2"
ACTIVE_WORK: Final = f"""
SELECT c.sid, {{}}, 0, sum(q.seconds) FROM chosen c CROSS JOIN active_sums q ON q.sid = c.sid AND {INSIDE}
GROUP BY 1, 2"""
ANSWER_WORK: Final = f"SELECT DISTINCT c.sid, {{}} {OF_USAGE}"
PRESENCE: Final = (PROMPT_WORK, ACTIVE_WORK, ANSWER_WORK)
"""A session is at work where it has a prompt, active time, or an answer with usage."""
USAGE_WORK: Final = f"SELECT c.sid, {{}}, {SPENT} {OF_USAGE} GROUP BY 1, 2"
UNPRICED_WORK: Final = f"""
SELECT DISTINCT c.sid, {{}}, coalesce(n.name, '') {OF_USAGE} LEFT JOIN names n ON n.number = q.model WHERE q.unpriced"""
"""Work of a session. `{{}}` is by what it is summed: NULL, the local day, the local hour."""


class Reports:
    """Makes the rows of one question."""

    def __init__(self, db: apsw.Connection, question: Report, now_us: int) -> None:
        filters = question.filters
        chosen = condition(db, filters)
        self._db, self._question, self._now_us = db, question, now_us
        self._calendar = Calendar(zone(question.zone))
        self._chosen = CHOSEN.format(chosen.sql)
        since, until = filters.since_us, filters.until_us
        self._values: dict[str, Value] = {
            **chosen.values,
            "low": None if since is None else since // QUARTER_US,
            "high": None if until is None else -(-until // QUARTER_US),
            "model": filters.model,
        }

    def rows(self) -> list[Row]:
        """All of them, in the report's order."""
        self._db.execute(FORGET)
        self._db.execute(self._chosen, self._values)
        made = MAKERS[self._question.name](self)
        self._db.execute(FORGET)
        return made

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
            for model, count in self._ask(SESSIONS_OF_MODELS)
            if only is None or model == only
        ]
        return sorted(found, key=lambda row: (-row["sessions"], row["model"] is None, row["model"] or ""))

    def projects(self) -> list[Row]:
        agents = {sid: agent for sid, agent, *_ in self._ask(PROJECTS)}
        work = chain(self._work("NULL", PROMPT_WORK, ACTIVE_WORK), self._usage("NULL"))
        return by_project(work, self._project_names(), agents)

    def profiles(self) -> list[Row]:
        names = device_names(self._db)
        return [
            {"device": device, "device_name": names.get(device), "agent": agent, "profile": profile, "sessions": count}
            for device, agent, profile, count in self._ask(PROFILES)
        ]

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
        for model, count, sids in self._ask(ERRORS_OF_ONE_MODEL):
            errors[model] += count
            sessions[model] += sids
        for sid, start, first in list(self._ask(WITH_SEVERAL_MODELS)):
            of_session: Counter[str] = Counter()
            speaking = first
            for model, failed, quarter in rows(self._db, ERRORS_AND_MODELS, span(sid)):
                speaking = model or speaking
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
        return rows(self._db, sql, self._values)

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
            return WHEN
        ahead = shifts(self._calendar, first // QUARTER_US - 96, last // QUARTER_US + 96)
        steps = [f"WHEN {WHEN} < {until} THEN {by}" for (_, by), (until, _) in pairwise(ahead)]
        return f"({WHEN} + CASE {' '.join(steps)} ELSE {ahead[-1][1]} END)" if steps else f"({WHEN} + {ahead[0][1]})"

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
        low, high = self._values["low"], self._values["high"]
        if quarter is None:
            return low is None and high is None
        return (low is None or quarter >= int(low)) and (high is None or quarter < int(high))


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


def report(db: apsw.Connection, question: Report, now_us: int) -> list[Row]:
    """The first rows of a report; all with limit 0."""
    made = Reports(db, question, now_us).rows()
    return made[: question.limit] if question.limit else made
