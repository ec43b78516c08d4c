"""The global filters: the options, what they mean together, and how they are said in a line.

The window is local: `--since 2026-06-01` begins at midnight where the user is. An unknown agent, device, profile,
model or kind is an error of the back end, which names the known ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from typer import BadParameter, Option

if TYPE_CHECKING:
    from datetime import tzinfo

    from prosa.projections.queries import Backend, Filters

Choosable = Literal["agent", "device", "profile", "model", "project"]


class Given(NamedTuple):
    """The filters as they were typed."""

    last: str | None = None
    since: str | None = None
    between: str | None = None
    project: str | None = None
    agent: str | None = None
    device: str | None = None
    profile: str | None = None
    model: str | None = None
    kind: str | None = None
    everywhere: bool = False
    remote: bool = False
    tz: str | None = None

    @property
    def has_window(self) -> bool:
        return bool(self.last or self.since or self.between)


def not_negative(value: int) -> int:
    """Checks a number where 0 means all."""
    if value < 0:
        raise BadParameter(f"{value} is less than 0.")
    return value


def complete(what: Choosable, incomplete: str) -> list[str]:
    """Known values of a filter, for the shell. Without a log there are none."""
    from prosa.cli.opening import open_backend
    from prosa.events.errors import ProsaError
    from prosa.events.home import Home

    try:
        with open_backend(Home.of()) as backend:
            return [value for value in backend.values(what) if value.startswith(incomplete)]
    except (ProsaError, OSError):
        return []


def complete_agent(incomplete: str) -> list[str]:
    return complete("agent", incomplete)


def complete_device(incomplete: str) -> list[str]:
    return complete("device", incomplete)


def complete_profile(incomplete: str) -> list[str]:
    return complete("profile", incomplete)


def complete_model(incomplete: str) -> list[str]:
    return complete("model", incomplete)


def complete_project(incomplete: str) -> list[str]:
    return complete("project", incomplete)


def complete_kind(incomplete: str) -> list[str]:
    from prosa.projections.queries import KINDS

    return [kind for kind in KINDS if kind.startswith(incomplete)]


def options(
    last: Annotated[str | None, Option(metavar="LENGTH", help="Sessions active in the last 12h, 7d or 4w.")] = None,
    since: Annotated[str | None, Option(metavar="DATE", help="Sessions active since a date or a time.")] = None,
    between: Annotated[
        str | None, Option(metavar="A..B", help="Sessions active between two dates, B included.")
    ] = None,
    project: Annotated[
        str | None,
        Option(metavar="TEXT", help="Part of a project's name, remote or path.", autocompletion=complete_project),
    ] = None,
    agent: Annotated[str | None, Option(metavar="NAME", help="One agent.", autocompletion=complete_agent)] = None,
    device: Annotated[
        str | None,
        Option(metavar="NAME", help="One machine: its name or fingerprint.", autocompletion=complete_device),
    ] = None,
    profile: Annotated[
        str | None, Option(metavar="NAME", help="One profile of an agent.", autocompletion=complete_profile)
    ] = None,
    model: Annotated[
        str | None, Option(metavar="NAME", help="Sessions that used a model.", autocompletion=complete_model)
    ] = None,
    kind: Annotated[
        str | None,
        Option(
            metavar="KIND", help="orchestrator, subagent, goal, workflow or ralph-loop.", autocompletion=complete_kind
        ),
    ] = None,
    everywhere: Annotated[bool, Option("--all", help="All projects, not only the current one.")] = False,
    remote: Annotated[bool, Option("--remote", help="Ask the server: the sessions of all machines.")] = False,
    tz: Annotated[
        str | None, Option(metavar="ZONE", help="Time zone of days and dates (default: the system's).")
    ] = None,
) -> None:
    """The options; `commands.filtered` puts them behind a command's own."""


class Asked(NamedTuple):
    """What the filters come to."""

    filters: Filters
    zone: tzinfo
    zone_name: str | None
    window: str
    """As words: `last 7 days`, `all time`."""
    scope: str | None
    """Name of the current project, if it alone was asked for without the user saying so."""


def ask(backend: Backend, given: Given, default_last: str | None = None) -> Asked:
    """The question's filters. `default_last` is the window where none is given. Raises UsageError."""
    from prosa.cli.scope import current_project
    from prosa.events.clock import now_us
    from prosa.projections.queries import Filters
    from prosa.projections.zones import window, zone

    local = zone(given.tz)
    last = given.last if given.has_window else default_last
    span = window(now_us(), local, last=last, since=given.since, between=given.between)
    current = None if given.everywhere or given.project else current_project(backend)
    filters = Filters(
        since_us=span.since_us if span else None,
        until_us=span.until_us if span else None,
        project=given.project,
        scope=current[0] if current else None,
        agent=given.agent,
        device=given.device,
        profile=given.profile,
        model=given.model,
        kind=given.kind,
    )
    words = window_words(given._replace(last=last))
    return Asked(filters, local, given.tz, words, current[1] if current else None)


def window_words(given: Given) -> str:
    if given.last:
        unit = {"m": "minute", "h": "hour", "d": "day", "w": "week"}[given.last.strip()[-1]]
        number = int(given.last.strip()[:-1])
        return f"last {unit}" if number == 1 else f"last {number} {unit}s"
    if given.since:
        return f"since {given.since}"
    if given.between:
        return "between {} and {}".format(*given.between.split("..", 1))
    return "all time"
