"""`prosa completion`: commands, options and values for bash, zsh and fish.

The scripts ask prosa itself with `_PROSA_COMPLETE`. What is shown comes from the command line's own definition, so
it cannot drift.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from typer._click import Command

from prosa.cli import exit_codes
from prosa.cli.commands import new_app

app = new_app()

BASH = """_prosa_completion() {
    local IFS=$'\\n'
    COMPREPLY=($(_PROSA_COMPLETE=bash prosa "$COMP_CWORD" "${COMP_WORDS[@]}" 2>/dev/null))
}
complete -o default -F _prosa_completion prosa
"""
ZSH = """#compdef prosa
_prosa() {
    local -a found
    found=("${(@f)$(_PROSA_COMPLETE=zsh prosa "$((CURRENT - 1))" "${words[@]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then _describe 'prosa' found; else _files; fi
}
if [[ "$funcstack[1]" = "_prosa" ]]; then _prosa "$@"; else compdef _prosa prosa; fi
"""
FISH = """function __prosa_complete
    set -l words (commandline -opc)
    _PROSA_COMPLETE=fish prosa (count $words) $words (commandline -ct) 2>/dev/null
end
complete -c prosa -f -a '(__prosa_complete)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}

Shell = Annotated[
    str | None,
    typer.Argument(metavar="[SHELL]", help="bash, zsh or fish; default: that of $SHELL.", show_default=False),
]


@app.callback()
def completion() -> None:
    """Completion of commands, options and values in the shell."""


@app.command()
def show(shell: Shell = None) -> int:
    """Print the script."""
    print(SCRIPTS[known_shell(shell)], end="")
    return exit_codes.DONE


@app.command()
def install(shell: Shell = None) -> int:
    """Write the script where the shell looks for it. No start-up file is changed."""
    from prosa.cli.terminal import hint

    name = known_shell(shell)
    path = place(name, os.environ)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SCRIPTS[name], encoding="utf-8")
    hint(f"Written: {path}")
    hint(
        {
            "bash": "It is loaded by the package bash-completion in the next shell.",
            "zsh": f"If ~/.zshrc does not name it yet: fpath=({path.parent} $fpath) before compinit.",
            "fish": "The next shell has it.",
        }[name]
    )
    return exit_codes.DONE


def known_shell(shell: str | None) -> str:
    """Raises UsageError for a shell without a script."""
    from prosa.events.errors import UsageError

    name = shell or Path(os.environ.get("SHELL", "")).name
    if name not in SCRIPTS:
        raise UsageError(
            f"There is no completion for {name or 'an unnamed shell'}.", "", f"Shells: {', '.join(SCRIPTS)}."
        )
    return name


def place(shell: str, env: os._Environ[str] | dict[str, str]) -> Path:
    home = Path(env.get("HOME") or Path.home())
    data = Path(env.get("XDG_DATA_HOME") or home / ".local/share")
    config = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    return {
        "bash": data / "bash-completion/completions/prosa",
        "zsh": data / "zsh/site-functions/_prosa",
        "fish": config / "fish/completions/prosa.fish",
    }[shell]


def answer(command: Command, shell: str, args: list[str]) -> int:
    """The script's question: which word is being typed (from 0, the program's name), then all words."""
    from typer._completion_classes import BashComplete

    number, words = int(args[0]), args[2:]
    before, incomplete = words[: number - 1], words[number - 1] if number <= len(words) else ""
    for item in BashComplete(command, {}, "prosa", "").get_completions(before, incomplete):
        value, text = str(item.value), (item.help or "").partition("\n")[0]
        if shell == "zsh":
            escaped = value.replace(":", "\\:")
            print(f"{escaped}:{text}" if text else escaped)
        elif shell == "fish" and text:
            print(f"{value}\t{text}")
        else:
            print(value)
    return exit_codes.DONE
