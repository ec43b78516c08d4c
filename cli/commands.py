"""How commands are found and how options stand: a command's module is imported only when it is asked for.

Options may stand before the command: `prosa --last 3d search x` is `prosa search --last 3d x`, so a command takes
what it knows and refuses the rest by name.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

import typer
from typer._click import Command, Context
from typer.core import TyperGroup
from typer.main import get_command

from prosa.cli.filters import Given, options

COMMANDS = (
    "sync", "search", "show", "analytics", "why", "log", "rebuild", "profiles", "storage", "doctor", "resume",
    "login", "logout", "prune", "devices", "schedule", "setup",
    "completion",
)  # fmt: skip
"""Each is a module of this room with an `app`, in the order of the help."""


class Group(TyperGroup):
    """Takes options that stand before a command as the command's own."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._arrange(ctx, args))

    def _arrange(self, ctx: Context, args: list[str]) -> list[str]:
        takes_value = {
            name for param in self.get_params(ctx) if not getattr(param, "is_flag", True) for name in param.opts
        }
        place = 0
        while place < len(args):
            word = args[place]
            if word == "--":
                break
            if not word.startswith("-"):
                if place and word in self.list_commands(ctx):
                    return [word, *args[:place], *args[place + 1 :]]
                break
            place += 2 if word in takes_value else 1
        return args


class Root(Group):
    """The group of all commands; their modules are imported one by one."""

    def list_commands(self, ctx: Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = get_command(import_module(f"prosa.cli.{cmd_name}").app)
        command.name = cmd_name
        return command


def new_app(**settings: Any) -> typer.Typer:
    """A Typer that neither loads rich nor looks for a shell."""
    return typer.Typer(
        add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, cls=Group, **settings
    )


def filtered(command: Callable[..., int]) -> Callable[..., int]:
    """Gives a command the global filters as options, and passes them as its argument `given`."""

    @functools.wraps(command)
    def run(**values: Any) -> int:
        given = Given(**{name: values.pop(name) for name in Given._fields})
        return command(given=given, **values)

    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "given"]
    parameters = own + list(inspect.signature(options, eval_str=True).parameters.values())
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run
