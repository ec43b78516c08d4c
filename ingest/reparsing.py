"""What parsing the preserved raws again would change: a session in a few numbers, before and after. Appends nothing."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from types import ModuleType

from prosa.events.catalogue import SessionExtended, SessionParsed, SessionPart
from prosa.events.facts import Facts
from prosa.events.log import Log
from prosa.events.raw import RawStore
from prosa.ingest.history import History
from prosa.ingest.importing import Reparse
from prosa.ingest.report import Outline, Reparsed


class Tally:
    """Counts facts by key, so that one that is stated again counts once."""

    def __init__(self) -> None:
        self._turns: dict[int, bool] = {}
        self._tokens: dict[int, int] = {}

    def add(self, facts: Facts | SessionParsed | SessionPart) -> None:
        if isinstance(facts, SessionExtended):
            for key in facts.gone:
                self._turns.pop(key, None)
                self._tokens.pop(key, None)
        for turn in facts.turns:
            self._turns[turn.key] = turn.counted
        for item in facts.usage:
            parts = (item.input, item.output, item.cache_read, item.cache_write_5m, item.cache_write_1h)
            self._tokens[item.key] = sum(parts)

    def outline(self, title: str | None) -> Outline:
        return Outline(turns=sum(self._turns.values()), tokens=sum(self._tokens.values()), title=title)


def changes(
    jobs: Iterable[Reparse], importers: Mapping[str, ModuleType], log: Log, store: RawStore
) -> Generator[Reparsed, None, int]:
    """Sessions of which a new parse says something else; those whose raw is not here are passed over.

    Returns the number of pruned ones among them.
    """
    pruned = 0
    for job in jobs:
        history = History(log, job.identity.key)
        base = history.revisions.get(job.revision)
        if base is None or base.raw not in history.raws or base.raw in history.pruned or not store.has(base.raw):
            pruned += base is not None and history.was_pruned(base.raw)
            continue
        before, after, title = Tally(), Tally(), None
        for event in history.facts(base):
            before.add(event)
            if isinstance(event, SessionParsed):
                title = event.header.title
        fold = importers[job.identity.agent].fold(job.identity)
        for piece in store.read(base.raw, history.raws[base.raw].size):
            fold.feed(piece)
            after.add(fold.take())
        fold.end()
        after.add(fold.take())
        old, new = before.outline(title), after.outline(fold.header().title)
        if old != new:
            yield Reparsed(key=job.identity.key, before=old, after=new)
    return pruned
