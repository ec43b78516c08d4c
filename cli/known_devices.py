"""From what the user typed to one device: of this machine's log, and, where that does not know it, of the server."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from prosa.events.errors import UsageError
from prosa.events.home import Home

if TYPE_CHECKING:
    from prosa.events.messages import DeviceRow
    from prosa.projections.device_list import ListedDevice
    from prosa.sync.http import Connection

    Entry = ListedDevice | DeviceRow

LISTED = 10


def local_devices(home: Home) -> Sequence[Entry]:
    from prosa.cli.opening import open_local

    with open_local(home) as backend:
        return backend.devices()


def remote_devices(home: Home) -> Sequence[Entry]:
    """Raises NotLoggedIn where this machine is not."""
    from prosa.events.messages import Devices

    with closing(connection(home)) as server:
        return server.ask("/v1/devices", Devices).devices


def revoke_at_server(home: Home, device: str) -> None:
    from prosa.events.messages import Done

    with closing(connection(home)) as server:
        server.post(f"/v1/devices/{device}/revoke", None, Done)


def connection(home: Home) -> Connection:
    from prosa.sync.http import Connection, NotLoggedIn

    found = Connection.of(home)
    if found is None:
        raise NotLoggedIn
    return found


class Known:
    """The devices that a name can mean."""

    def __init__(self, home: Home, *, remote: bool = False) -> None:
        """`remote`: only those of the server; else the server is asked for what this machine does not know."""
        self._home, self._asked = home, remote
        self._rows: dict[str, Entry] = {row.device: row for row in (remote_devices if remote else local_devices)(home)}

    def find(self, text: str, *, merged: bool = False) -> Entry:
        """The one device it fits: a fingerprint, else a name, else a beginning. `merged`: it should be a merged one.

        Raises UsageError where none or several fit.
        """
        found = self._fitting(text)
        if not found or (merged and not any(row.merge for row in found)):
            self._ask_server()
            found = self._fitting(text)
        if merged and len(found) > 1:
            found = [row for row in found if row.merge] or found
        if len(found) == 1:
            return found[0]
        listed = found or sorted(self._rows.values(), key=lambda row: (row.name.casefold(), row.device))
        lines = [f"  {row.device}  {row.name}" for row in listed[:LISTED]]
        lines += [f"  … and {len(listed) - LISTED} more"] if len(listed) > LISTED else []
        if not found:
            raise UsageError(f"There is no device {text!r}.", "Nothing was changed.", "Known:\n" + "\n".join(lines))
        raise UsageError(f"{text!r} fits {len(found)} devices:", "\n".join(lines), "Give more of the fingerprint.")

    def shown(self, row: Entry) -> Entry:
        """The entry that is shown for this one."""
        return self._rows.get(row.merged_into or row.device, row)

    def _fitting(self, text: str) -> list[Entry]:
        rows = list(self._rows.values())
        named = [row for row in rows if text in (row.name, row.hostname)]
        return (
            [row for row in rows if row.device == text]
            or [row for row in named if not row.merged_into]
            or named
            or [row for row in rows if text and row.device.startswith(text)]
        )

    def _ask_server(self) -> None:
        """Its entries, too, where this machine is logged in. What is said here is known here at once."""
        from prosa.sync import auth_file

        if not self._asked and auth_file.read(self._home) is not None:
            self._asked = True
            for row in remote_devices(self._home):
                mine = self._rows.get(row.device)
                if mine is None or (mine.merge is None and row.merge is not None):
                    self._rows[row.device] = row
