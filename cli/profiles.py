"""`prosa profiles`: several homes of one agent, each under a name of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prosa.cli import exit_codes
from prosa.cli.commands import new_app

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prosa.events.home import Home
    from prosa.ingest.importer import Importer

app = new_app()

DEFAULT = "default"


def complete_agent(incomplete: str) -> list[str]:
    from prosa.cli.opening import agent_names

    return [name for name in agent_names() if name.startswith(incomplete)]


Agent = Annotated[str, typer.Argument(metavar="AGENT", help="claude-code, codex, …", autocompletion=complete_agent)]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The profile's name.")]
Folder = Annotated[Path, typer.Argument(metavar="PATH", help="The agent's home there, such as ~/.claude.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a profile.")]


@app.callback(invoke_without_command=True, subcommand_metavar="[COMMAND]")
def profiles(context: typer.Context) -> int:
    """Several locations of one agent. Every agent has the profile `default`: the place where it keeps its files."""
    if context.invoked_subcommand is None:
        return list_profiles(as_json=False)
    return exit_codes.DONE


@app.command("list")
def list_profiles(as_json: AsJson = False) -> int:
    """Every profile, where it lies, and how many sessions it has."""
    from prosa.cli.output import lines, mode, records, rows
    from prosa.events.home import Home

    found = every_profile(Home.of())
    how = mode(as_json)
    if how == "json":
        records(found)
    elif how == "pipe":
        rows(row.values() for row in found)
    else:
        from prosa.cli.output import cell
        from prosa.cli.tables import Column, table
        from prosa.cli.terminal import Paint, columns, has_colours

        heads = [
            Column("agent"),
            Column("profile"),
            Column("path", path=True),
            Column(""),
            Column("sessions", right=True),
        ]
        states = {"found": "", "missing": "not there", "not configured": "not configured"}
        texts = [
            [*map(cell, (row["agent"], row["profile"], row["path"])), states[str(row["state"])], f"{row['sessions']:,}"]
            for row in found
        ]
        lines(table(heads, texts, columns(), Paint(has_colours())))
    return exit_codes.DONE


def every_profile(home: Home) -> list[dict[str, object]]:
    """Default and configured profiles, and names that only sessions have."""
    import os

    from prosa.cli.opening import importers
    from prosa.cli.opening import profiles as configured

    named, counts = configured(home), session_counts(home)
    rows: list[dict[str, object]] = []
    for importer in importers():
        agent = importer.AGENT
        homes = profile_homes(importer, named.get(agent, {}), os.environ)
        for profile, paths in homes.items():
            for path in paths:
                state = "found" if path.is_dir() else "missing"
                rows.append(_row(agent, profile, str(path), state, counts.pop((agent, profile), 0)))
    rows += [_row(agent, profile, None, "not configured", n) for (agent, profile), n in sorted(counts.items())]
    return rows


def profile_homes(importer: Importer, named: Mapping[str, Path], env: Mapping[str, str]) -> dict[str, list[Path]]:
    """Profile → its homes; `default` is where the agent keeps its files unless the user says otherwise."""
    homes = {DEFAULT: [named[DEFAULT]] if DEFAULT in named else importer.homes(env, Path.home())}
    return homes | {name: [path] for name, path in sorted(named.items()) if name != DEFAULT}


def session_counts(home: Home) -> dict[tuple[str, str], int]:
    from collections import Counter

    from prosa.cli.opening import NothingImported, open_backend
    from prosa.projections.queries import Filters, Timeline

    try:
        with open_backend(home) as backend:
            page = backend.timeline(Timeline(filters=Filters(), flat=True, include_empty=True))
    except NothingImported:
        return {}
    return Counter((session.agent, session.profile) for session in page.sessions)


def _row(agent: str, profile: str, path: str | None, state: str, sessions: int) -> dict[str, object]:
    return {"agent": agent, "profile": profile, "path": path, "state": state, "sessions": sessions}


@app.command()
def add(agent: Agent, name: Name, path: Folder) -> int:
    """Add a profile. The next sync reads it."""
    return change(agent, name, path, exists=False)


@app.command("set-path")
def set_path(agent: Agent, name: Name, path: Folder) -> int:
    """Change where a profile lies; `default` too."""
    return change(agent, name, path, exists=True)


@app.command()
def remove(agent: Agent, name: Name) -> int:
    """Remove a profile. Its sessions stay."""
    return change(agent, name, None, exists=True)


def change(agent: str, name: str, path: Path | None, *, exists: bool) -> int:
    """Write one profile; says on stderr what was done. Raises UsageError."""
    from prosa.cli.config import check_name, read, set_profile
    from prosa.cli.opening import agent_names
    from prosa.cli.terminal import hint
    from prosa.events.errors import UsageError
    from prosa.events.home import Home

    home = Home.of()
    if agent not in agent_names():
        raise UsageError(
            f"There is no agent {agent!r}.", "Nothing was changed.", f"Agents: {', '.join(agent_names())}."
        )
    check_name(name)
    named = read(home).profiles.get(agent, {})
    if not exists and (name in named or name == DEFAULT):
        raise UsageError(
            f"{agent} has a profile {name!r} already.",
            "Nothing was changed.",
            f"prosa profiles set-path {agent} {name} …",
        )
    if exists and name not in named and (name != DEFAULT or path is None):
        known = ", ".join(sorted(named)) or "none"
        raise UsageError(
            f"{agent} has no configured profile {name!r}.", "Nothing was changed.", f"Configured: {known}."
        )
    absolute = path.expanduser().absolute() if path else None
    set_profile(home, agent, name, absolute)
    if absolute is None:
        hint(f"Removed the profile {name} of {agent}. Its sessions stay in the log.")
    elif absolute.is_dir():
        hint(f"{agent} {name}: {absolute}. Next: prosa sync")
    else:
        hint(f"{agent} {name}: {absolute}. There is no such folder yet.")
    return exit_codes.DONE
