"""`prosa devices`: the machines of one person, what they are called, and which entries are one machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from prosa.cli import exit_codes
from prosa.cli.commands import new_app

if TYPE_CHECKING:
    from prosa.cli.known_devices import Entry
    from prosa.cli.tables import Column
    from prosa.events.home import Home
    from prosa.events.log import Log

app = new_app()

NAME_LENGTH = 100


def complete_device(incomplete: str) -> list[str]:
    """Names and fingerprints that this machine knows."""
    from prosa.cli.opening import open_local
    from prosa.events.errors import ProsaError
    from prosa.events.home import Home

    try:
        with open_local(Home.of()) as backend:
            known = {text for row in backend.devices() for text in (row.name, row.device)}
    except (ProsaError, OSError):
        return []
    return sorted(text for text in known if text.startswith(incomplete))


Device = Annotated[
    str,
    typer.Argument(metavar="DEVICE", help="A fingerprint, its beginning, or a name.", autocompletion=complete_device),
]
Into = Annotated[
    str, typer.Argument(metavar="INTO", help="The entry that is shown from then on.", autocompletion=complete_device)
]
Remote = Annotated[bool, typer.Option("--remote", help="Those that the server knows.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a device.")]


@app.callback(invoke_without_command=True, subcommand_metavar="[COMMAND]")
def devices(context: typer.Context) -> int:
    """Machines and their names. A machine whose hostname changed has two entries, which prosa merges by itself."""
    if context.invoked_subcommand is None:
        return list_devices()
    return exit_codes.DONE


@app.command("list")
def list_devices(remote: Remote = False, as_json: AsJson = False) -> int:
    """Every device, its sessions and last activity."""
    from prosa.cli.known_devices import local_devices, remote_devices
    from prosa.cli.opening import this_device
    from prosa.cli.output import lines, mode, records, rows
    from prosa.events.home import Home

    home, how = Home.of(), mode(as_json)
    found = remote_devices(home) if remote else local_devices(home)
    if how == "json":
        records(found)
    elif how == "pipe":
        rows([getattr(row, name) for name in row.__struct_fields__] for row in found)
    else:
        from prosa.cli.tables import table
        from prosa.cli.terminal import Paint, columns, has_colours

        heads, texts = table_of(found, this_device())
        lines(table(heads, texts, columns(), Paint(has_colours())))
    return exit_codes.DONE


def table_of(found: Sequence[Entry], here: str) -> tuple[list[Column], list[list[str]]]:
    """Devices by name, each with the entries that are merged into it right below."""
    from prosa.cli.amounts import UNKNOWN
    from prosa.cli.tables import Column
    from prosa.cli.text import one_line

    def text(row: Entry) -> list[str]:
        notes = ["this machine"] if row.device == here else []
        notes += [f"merged into {row.merged_into}"] if row.merged_into else []
        notes += ["revoked"] if getattr(row, "revoked", False) else []
        name = one_line(row.name)
        last = row.last_activity_at[:16].replace("T", " ") if row.last_activity_at else UNKNOWN
        return ["  " + name if row.merged_into else name, row.device, f"{row.sessions:,}", last, ", ".join(notes)]

    listed = {row.device for row in found if not row.merged_into}
    ordered = [
        row for shown in found if shown.merged_into not in listed
        for row in (shown, *(other for other in found if other.merged_into == shown.device))
    ]  # fmt: skip
    heads = [Column("name"), Column("device"), Column("sessions", True), Column("last activity (UTC)"), Column("")]
    return heads, [text(row) for row in ordered]


@app.command()
def rename(device: Device, name: Annotated[str, typer.Argument(metavar="NAME", help="Its new name.")]) -> int:
    """Give a device another name, everywhere."""
    from prosa.cli.known_devices import Known
    from prosa.cli.text import one_line
    from prosa.events.errors import UsageError
    from prosa.events.home import Home
    from prosa.sync import merging

    home, name = Home.of(), name.strip()
    if not 1 <= len(name) <= NAME_LENGTH or not name.isprintable():
        raise UsageError(f"The name of a device is 1 to {NAME_LENGTH} printable characters.", "Nothing was changed.")
    known = Known(home)
    row = known.shown(known.find(device))
    if row.name == name:
        return said(f"{row.device} is called {one_line(name)} already.")
    append(home, lambda log, by: merging.rename(log, row.device, name, by))
    return said(f"{row.device} is called {one_line(name)} now.", home)


@app.command()
def merge(device: Device, into: Into) -> int:
    """Say that two entries are one machine.

    The second is shown for both. prosa devices unmerge takes it back, exactly.
    """
    from prosa.cli.known_devices import Known
    from prosa.events.errors import UsageError
    from prosa.events.home import Home
    from prosa.sync import merging

    home = Home.of()
    known = Known(home)
    row, target = known.find(device), known.find(into)
    if row.device == target.device:
        raise UsageError(f"{device!r} and {into!r} are the same entry.", "Nothing was changed.")
    if row.merged_into and row.merged_into == (target.merged_into or target.device):
        return said(f"{row.device} is merged into {row.merged_into} already.")
    evidence = "said by the user"
    append(home, lambda log, by: merging.merge(log, row.device, target.device, by, evidence))
    return said(f"{row.name} ({row.device}) is shown as {target.name} ({target.device}) now.", home)


@app.command()
def unmerge(device: Device) -> int:
    """Take a merge back, as if it had never been."""
    from prosa.cli.known_devices import Known
    from prosa.events.home import Home
    from prosa.sync import merging

    home = Home.of()
    known = Known(home)
    row = known.find(device, merged=True)
    if row.merge is None:
        return said(f"{row.device} is not merged into another.")
    merged_by = row.merge
    append(home, lambda log, by: merging.unmerge(log, row.device, merged_by, by))
    return said(f"{row.name} ({row.device}) is a device of its own again.", home)


@app.command()
def revoke(device: Device) -> int:
    """Take a device's access to the server away.

    What it sent stays there. It may log in again if you let it.

    Exit status: 4 not logged in, or the server is unreachable.
    """
    from prosa.cli.known_devices import Known, revoke_at_server
    from prosa.events.home import Home

    home = Home.of()
    row = Known(home, remote=True).find(device)
    revoke_at_server(home, row.device)
    return said(f"{row.name} ({row.device}) cannot talk to the server any more.")


def append(home: Home, say: Callable[[Log, str], object]) -> None:
    """One event of this machine's log, said by whoever is at the keyboard."""
    from getpass import getuser

    from prosa.cli.opening import open_log_to_append

    with open_log_to_append(home) as log:
        say(log, getuser())


def said(text: str, home: Home | None = None) -> int:
    """The outcome on stderr; with `home`, how the others come to know it."""
    from prosa.cli.terminal import hint
    from prosa.cli.text import one_line

    hint(one_line(text))
    if home is not None:
        from prosa.sync import auth_file

        if auth_file.read(home) is not None:
            hint("Next: prosa sync, so that the server knows it.")
    return exit_codes.DONE
