"""Which entries of the list of devices are one machine, and what it is called. Worked out when asked, never stored.

Merges are taken in the order of their time, whatever order they arrived in, and a reverted one as if it had never
been. Each puts the group of its device into the other's group, whose shown entry stays the shown one. A merge inside
one group, of the entry that is shown, shows the other from then on: so two that name each other end with the last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

SAME_MACHINE: Final = "same machine id"
"""Evidence of a merge that prosa made by itself: the machine's hostname changed."""


class Merge(NamedTuple):
    """A row of the table merges."""

    id: str
    """Of its event, as hex."""
    device: str
    into: str
    evidence: str
    at_us: int
    reverted: bool


class Aliases:
    """Every device that some merge names, and the entry that is shown for it."""

    def __init__(self, merges: Iterable[Merge]) -> None:
        holding = sorted((m for m in merges if m.device and not m.reverted), key=lambda m: (m.at_us, m.id))
        self._shown, self.merged_by = _shown(holding)
        """merged_by: device → id of the last merge that took it from the list."""
        self._machine, _ = _shown([m for m in holding if m.evidence == SAME_MACHINE])

    @property
    def named(self) -> set[str]:
        """Every device that a merge names."""
        return set(self._shown)

    def canonical(self, device: str) -> str:
        """The fingerprint that is shown for this one."""
        return self._shown.get(device, device)

    def members(self, device: str) -> list[str]:
        """Every entry that is shown as the same device, in order."""
        shown = self.canonical(device)
        return sorted({shown, *(other for other, name in self._shown.items() if name == shown)})

    def name(self, device: str, names: Mapping[str, tuple[str, int]]) -> str | None:
        """The name the device was given last; None: only its hostname is known. `names`: device → name, when.

        One that was given before the machine's hostname changed holds on after it.
        """
        shown = self.canonical(device)
        if shown in names:
            return names[shown][0]
        machine = self._machine.get(shown, shown)
        same = [names[other] for other in self.members(device) if other in names and self._is(other, machine)]
        return max(same, key=lambda given: given[1])[0] if same else None

    def _is(self, device: str, machine: str) -> bool:
        return self._machine.get(device, device) == machine


def _shown(merges: list[Merge]) -> tuple[dict[str, str], dict[str, str]]:
    """Device → entry shown for it, of every device that is named; device → merge by which it is not shown."""
    shown: dict[str, str] = {}
    groups: defaultdict[str, set[str]] = defaultdict(set)
    merged_by: dict[str, str] = {}
    for merge in merges:
        for device in (merge.device, merge.into):
            groups[shown.setdefault(device, device)].add(device)
        old, new = shown[merge.device], shown[merge.into]
        if old == new:
            if old != merge.device:
                continue
            new = merge.into
        group = groups.pop(old) | groups[new]
        groups[new] = group
        shown.update(dict.fromkeys(group, new))
        merged_by[old] = merge.id
        merged_by.pop(new, None)
    return shown, merged_by
