"""Errors a user can act on. Anything else that is raised is our bug and keeps its traceback."""

from __future__ import annotations


class ProsaError(Exception):
    """What happened, what was not lost, what to do next: at most three short lines.

    `exit_code` is the process's exit code where the error ends a command (docs/cli.md has the table).
    """

    exit_code = 1

    def __init__(self, what: str, kept: str = "", next_step: str = "") -> None:
        super().__init__("\n".join(line for line in (what, kept, next_step) if line))
        self.what, self.kept, self.next_step = what, kept, next_step


class UsageError(ProsaError):
    """A value that is not understood, or an id that matches nothing or several."""

    exit_code = 2


class ConflictError(ProsaError):
    """Evidence is missing, stale or conflicting: refused, nothing changed."""

    exit_code = 3


class LockedError(ProsaError):
    """Another process holds the lock, or the work is still pending."""

    exit_code = 5


class UpgradeError(ConflictError):
    """The file was written by a newer prosa."""


class DamageError(ProsaError):
    """Bytes on disk are not what was written."""
