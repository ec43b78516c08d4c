"""Whether a folder lies on a file system where SQLite's WAL is unsafe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

NETWORK = frozenset(
    (
        "nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "afs", "ncpfs", "9p", "ceph", "glusterfs", "fuse.sshfs",
        "fuse.glusterfs", "fuse.rclone", "lustre", "beegfs", "gpfs", "afpfs", "webdav", "davfs", "fuse.davfs2",
    )
)  # fmt: skip
"""Types as /proc/mounts and `mount` name them: shared memory or POSIX locks are not coherent between hosts."""


def mount_type(path: Path, mounts: str) -> str | None:
    """The type of the file system that holds a path, from text in the form of /proc/mounts."""
    best, kind = "", None
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        where = fields[1].encode().decode("unicode_escape", "replace") if "\\" in fields[1] else fields[1]
        inside = str(path) == where or str(path).startswith(where.rstrip("/") + "/")
        if inside and len(where) >= len(best):
            best, kind = where, fields[2]
    return kind


def network_type(path: Path) -> str | None:
    """The type of the network file system below a path, or None on a local or unknown one."""
    while not path.exists() and path != path.parent:
        path = path.parent
    path = Path(os.path.realpath(path))
    try:
        if sys.platform == "darwin":
            kind = _darwin_type(path)
        else:
            kind = mount_type(path, Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return kind if kind in NETWORK else None


def _darwin_type(path: Path) -> str | None:
    """`mount` prints `//host/share on /Volumes/share (smbfs, nodev)`."""
    done = subprocess.run(["/sbin/mount"], capture_output=True, text=True, timeout=2, check=False)
    rows = []
    for line in done.stdout.splitlines():
        what, _, rest = line.partition(" on ")
        where, _, options = rest.rpartition(" (")
        rows.append(f"{what.replace(' ', '_')} {where} {options.split(',')[0].rstrip(')')}")
    return mount_type(path, "\n".join(rows))
