"""Prices for usage records as they are projected: each model's tariff is asked for once and kept in the index."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from prosa.events.database import Database
from prosa.events.facts import Usage
from prosa.projections import prices
from prosa.projections.prices import Overrides
from prosa.projections.records import Names

USAGES = """
SELECT u.id, u.at, n.name, u.input, u.output, u.cache_read, u.cache_write_5m, u.cache_write_1h, u.reasoning, t.name,
    u.cost
FROM usages u LEFT JOIN names n ON n.number = u.model LEFT JOIN names t ON t.number = u.tier"""


COST_LIMIT = 10**16
"""$10,000 for one answer is no price; sums of it would leave 64 bits."""


class Pricer:
    """Costs in pico-dollars; None where the model has no price."""

    def __init__(self, db: Database, names: Names, overrides: Overrides) -> None:
        self._db, self._names, self._overrides = db, names, overrides
        self._tariffs: dict[str, prices.Tariff | None] = {}

    def __call__(self, usage: Usage) -> int | None:
        tariff = self._tariff(usage.model) if usage.model else None
        if tariff is None:
            return None
        cost = prices.price(
            tariff,
            usage.at,
            input=usage.input,
            output=usage.output,
            cache_read=usage.cache_read,
            cache_write_5m=usage.cache_write_5m,
            cache_write_1h=usage.cache_write_1h,
            reasoning=usage.reasoning,
            tier=usage.tier,
        )
        return None if cost is not None and cost > COST_LIMIT else cost

    def _tariff(self, model: str) -> prices.Tariff | None:
        if model not in self._tariffs:
            number = self._names.number(model)
            row = self._db.execute("SELECT tariff FROM tariffs WHERE model = ?", (number,)).fetchone()
            if row is None:
                found = prices.find(model, self._overrides)
                body = msgspec.msgpack.encode(found) if found else None
                self._db.execute("INSERT INTO tariffs VALUES (?, ?)", (number, body))
            else:
                found = msgspec.msgpack.decode(row[0], type=prices.Tariff) if row[0] is not None else None
            self._tariffs[model] = found
        return self._tariffs[model]


def pricer(db: Database, overrides: Overrides) -> Callable[[Names], Pricer]:
    return lambda names: Pricer(db, names, overrides)


def reprice(db: Database, overrides: Overrides) -> set[int]:
    """Ask for every tariff again and change what costs something else now. Returns the sessions concerned."""
    db.execute("DELETE FROM tariffs")
    ask = Pricer(db, Names(db), overrides)
    changed: list[tuple[int | None, int]] = []
    for fact_id, at, model, *counts, tier, old in db.execute(USAGES).fetchall():
        fresh, output, read, short, long, reasoning = counts
        cost = ask(
            Usage(
                key=0, at=at, model=model, input=fresh, output=output, cache_read=read, cache_write_5m=short,
                cache_write_1h=long, reasoning=reasoning, tier=tier,
            )
        )  # fmt: skip
        if cost != old:
            changed.append((cost, fact_id))
    db.executemany("UPDATE usages SET cost = ? WHERE id = ?", changed)
    return {fact_id >> 24 for _, fact_id in changed}
