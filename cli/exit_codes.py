"""The exit codes of every command. docs/cli.md has the same table; a test compares them.

No import of typing here: `prosa --version` would pay 5 ms for it.
"""

from __future__ import annotations

DONE = 0
FAILED = 1
USAGE = 2
CONFLICT = 3
UNREACHABLE = 4
PENDING = 5
HELD = 6
INTERRUPTED = 130

TABLE = {
    DONE: "done; also when there is nothing to list, and when the reader of a pipe has gone away",
    FAILED: "failed; also when any item failed: a partial sync is not a success",
    USAGE: "usage error, or an id that matches nothing or several",
    CONFLICT: "evidence missing, stale or conflicting: refused, nothing changed",
    UNREACHABLE: "needs login, or the server is unreachable",
    PENDING: "pending, or another process holds the lock",
    HELD: "held or halted (managed sessions)",
    INTERRUPTED: "interrupted by Ctrl-C",
}
