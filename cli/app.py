"""The program: arguments in, an exit code out.

`--version` is answered before anything is imported. Every error ends here: three lines at most on stderr, and a
traceback only with `--debug`.
"""

from __future__ import annotations

import gc
import sys

from prosa.cli import exit_codes

COLLECT_EVERY = 50_000
"""Objects between collections: what imports make stays anyway (7 ms of 82 for a timeline)."""


def main() -> None:
    """The entry point of the `prosa` command."""
    gc.set_threshold(COLLECT_EVERY)
    code = run(sys.argv[1:])
    gc.freeze()  # the interpreter's last collections would look at everything once more: 9 ms
    sys.exit(code)


def run(args: list[str]) -> int:
    """Run one command line and return its exit code."""
    if args == ["--version"]:
        from prosa import __version__

        print(f"prosa {__version__}")
        return exit_codes.DONE
    args, debug = take_switches(args)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        code = dispatch(args)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        leave_pipe()
        return exit_codes.DONE
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    except Exception as error:
        if debug:
            raise
        return report(error)


def take_switches(args: list[str]) -> tuple[list[str], bool]:
    """Take out `--no-color` and `--debug`, which every command has, wherever they stand before `--`."""
    end = args.index("--") if "--" in args else len(args)
    given = set(args[:end])
    if "--no-color" in given:
        import os

        os.environ["NO_COLOR"] = "1"
    kept = [word for word in args[:end] if word not in ("--no-color", "--debug")]
    return kept + args[end:], "--debug" in given


def dispatch(args: list[str]) -> int:
    import os

    from typer.main import get_command

    from prosa.cli.timeline import app

    command = get_command(app)
    if os.environ.get("_PROSA_COMPLETE"):
        from prosa.cli.completion import answer

        return answer(command, os.environ["_PROSA_COMPLETE"], args)
    from typer import Exit

    try:
        with command.make_context("prosa", list(args)) as context:
            return command.invoke(context) or exit_codes.DONE
    except Exit as end:
        return end.exit_code


def report(error: Exception) -> int:
    """Print an error and return its exit code. Only what was printed before it stands on stdout."""
    import contextlib

    from prosa.cli.terminal import say
    from prosa.events.errors import ProsaError

    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    if isinstance(error, ProsaError):
        say(str(error))
        return error.exit_code
    if hasattr(error, "format_message"):
        say(usage_text(error))
        return exit_codes.USAGE
    if text := sqlite_text(error):
        say(text)
        return exit_codes.FAILED
    if isinstance(error, OSError):
        where = f": {error.filename}" if error.filename else ""
        say(f"{error.strerror or error}{where}.\nWhat was stored before is still there.")
        return exit_codes.FAILED
    say(
        f"prosa has a bug: {type(error).__name__}: {str(error)[:200]}\n"
        "Nothing that was stored is lost: the log is append-only.\n"
        "Run it again with --debug and report what it prints."
    )
    return exit_codes.FAILED


def sqlite_text(error: Exception) -> str | None:
    """What the disk or a damaged file did to us, in words; None for all that is our own fault."""
    apsw = sys.modules.get("apsw")
    if apsw is None or not isinstance(error, apsw.Error):
        return None
    kept = "What was stored before is still there."
    if isinstance(error, apsw.FullError):
        return f"The disk is full.\n{kept}\nFree some space and run it again."
    if isinstance(error, apsw.IOError):
        return f"The disk could not be read or written: {error}.\n{kept}\nIs it full? Free some space and run it again."
    if isinstance(error, apsw.ReadOnlyError | apsw.CantOpenError):
        return f"A file of prosa's cannot be written: {error}.\n{kept}\nCheck the owner and permissions of its folder."
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return (
            "A database of prosa's is damaged.\n"
            "The preserved transcripts are files of their own and were not touched.\n"
            "If prosa log verify finds the log whole, prosa rebuild makes the rest again."
        )
    return None


def usage_text(error: Exception) -> str:
    """A usage error of the command line parser in our words."""
    from prosa.cli.filters import Given
    from prosa.cli.timeline import COMMANDS

    context = getattr(error, "ctx", None)
    path = context.command_path if context else "prosa"
    option = getattr(error, "option_name", None)
    filters = {"--all"} | {f"--{name}" for name in Given._fields if name not in ("everywhere", "remote")}
    message = error.format_message()  # type: ignore[attr-defined]
    if type(error).__name__ == "NoSuchOption" and option in filters:
        return f"{path} does not take {option}: it works on everything.\nNothing was done.\nSee {path} --help."
    if type(error).__name__ == "NoSuchOption":
        possible = getattr(error, "possibilities", None)
        near = f" Did you mean {possible[0]}?" if possible else ""
        return f"{path} has no option {option}.{near}\nSee {path} --help."
    if message.startswith("No such command"):
        import difflib

        word = message.split("'")[1]
        close = difflib.get_close_matches(word, COMMANDS, 1)
        next_step = f"Did you mean {path} {close[0]}?" if close and path == "prosa" else f"See {path} --help."
        return f"{path} has no command {word!r}.\n{next_step}"
    return f"{message}\nSee {path} --help."


def leave_pipe() -> None:
    """The reader has gone away: what is left in the buffers goes nowhere, and nobody is told."""
    import os

    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
