"""Which session owns a record that several hold: a pure function of the set of facts.

Sessions that share a key are a family. For each key its claimants are ordered by `copied` of the key, then by the
earliest time of a record that nobody else has (none first: such a session is the beginning of the others), then by
the session's key; the first owns it. Import order, device and rebuild cannot change that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prosa.events.codec import decode_as
from prosa.events.database import Database
from prosa.events.facts import PROVEN, SUGGESTED, Header, moment
from prosa.projections.records import SHIFT, Claim, drop_texts, put_texts, span

CLAIMANTS = "SELECT id, copied, source FROM claims WHERE key = ?"
PUT_CLAIM = "INSERT OR REPLACE INTO claims (key, id, copied, source) VALUES (?, ?, ?, ?)"
PUT_CONTESTED = "INSERT OR IGNORE INTO contested (id, key) VALUES (?, ?)"
CONTESTED_OF = "SELECT key FROM contested WHERE id BETWEEN ? AND ?"
FIRST_UNSHARED = """
SELECT min(at), (SELECT header FROM sessions WHERE sid = :sid) FROM (
    SELECT min(at) AS at FROM turns WHERE id BETWEEN :low AND :high
        AND id NOT IN (SELECT id FROM contested WHERE id BETWEEN :low AND :high)
    UNION ALL SELECT min(at) FROM usages WHERE id BETWEEN :low AND :high
        AND id NOT IN (SELECT id FROM contested WHERE id BETWEEN :low AND :high)
    UNION ALL SELECT min(first) FROM marks WHERE id BETWEEN :low AND :high
        AND id NOT IN (SELECT id FROM contested WHERE id BETWEEN :low AND :high)
    UNION ALL SELECT min(at) FROM compactions WHERE id BETWEEN :low AND :high
        AND id NOT IN (SELECT id FROM contested WHERE id BETWEEN :low AND :high)
)"""
SUGGESTED_OF = "SELECT key FROM claims WHERE copied = 1 AND id BETWEEN ? AND ?"
CONTEST_ALL = """
INSERT INTO contested (id, key)
SELECT id, key FROM claims WHERE key IN (SELECT key FROM claims GROUP BY key HAVING count(*) > 1)"""

TurnText = Callable[[int, int], str]
"""(position, number) → the turn's text from the log."""


class Ownership:
    """Collects what changed and settles it once; `affected` then has the sessions whose own records changed."""

    def __init__(self, db: Database, turn_text: TurnText) -> None:
        self._db, self._turn_text = db, turn_text
        self._keys: set[int] = set()
        self._sids: set[int] = set()
        self._members: dict[int, tuple[str, str, str]] = {}
        self._present: dict[tuple[str, str], bool] = {}

    def pending(self) -> tuple[set[int], set[int]]:
        """What is still to be settled, for `forget`."""
        return set(self._keys), set(self._sids)

    def forget(self, pending: tuple[set[int], set[int]] | None) -> None:
        """The transaction went back: what was read in it may be wrong, and only `pending` is to be settled."""
        self._members.clear()
        self._present.clear()
        if pending is not None:
            self._keys, self._sids = pending

    def appeared(self, sid: int, agent: str, native: str) -> None:
        """A session is here for the first time: what suggested to be copied from it is looked at again."""
        self._present.pop((agent, native), None)
        for (other,) in self._db.execute("SELECT sid FROM suggestions WHERE source = ?", (native,)).fetchall():
            if other != sid:
                self._keys.update(key for (key,) in self._db.execute(SUGGESTED_OF, span(other)))

    def changed(self, sid: int, claims: dict[int, Claim], gone: Iterable[tuple[int, int]]) -> None:
        """The claims of a session that are new, and those that are no more."""
        db = self._db
        self._sids.add(sid)
        for key, fact_id in gone:
            db.execute("DELETE FROM claims WHERE key = ? AND id = ?", (key, fact_id))
            if db.execute("SELECT 1 FROM contested WHERE id = ?", (fact_id,)).fetchone():
                db.execute("DELETE FROM contested WHERE id = ?", (fact_id,))
                self._release(key)
        rows = sorted((key, claim.id, claim.copied, claim.source) for key, claim in claims.items())
        db.executemany(PUT_CLAIM, rows)
        for key, _, copied, _ in rows:
            held = db.execute(CLAIMANTS, (key,)).fetchall()
            if len(held) > 1:
                db.executemany(PUT_CONTESTED, [(other, key) for other, _, _ in held])
                self._sids.update(other >> SHIFT for other, _, _ in held)
                self._keys.add(key)
            elif copied:
                self._keys.add(key)
        self.suggest(sid, claims.values())

    def suggest(self, sid: int, claims: Iterable[Claim]) -> None:
        """Remember which session a session's copies may be from."""
        sources = {claim.source for claim in claims if claim.copied == SUGGESTED and claim.source is not None}
        for source in sources:
            self._db.execute(
                "INSERT OR IGNORE INTO suggestions SELECT name, ? FROM names WHERE number = ?", (sid, source)
            )

    def _release(self, key: int) -> None:
        """A claim on a contested key went; with one claimant left nothing is contested."""
        self._keys.add(key)
        left = self._db.execute(CLAIMANTS, (key,)).fetchall()
        self._sids.update(other >> SHIFT for other, _, _ in left)
        if len(left) == 1:
            self._db.execute("DELETE FROM contested WHERE id = ?", (left[0][0],))

    def contest_all(self) -> None:
        """After a bulk load: find every shared key at once."""
        self._db.execute(CONTEST_ALL)
        self._sids.update(sid for (sid,) in self._db.execute(f"SELECT DISTINCT id >> {SHIFT} FROM contested"))
        self._keys.update(key for (key,) in self._db.execute("SELECT key FROM claims WHERE copied > 0"))
        self._keys.update(key for (key,) in self._db.execute("SELECT DISTINCT key FROM contested"))

    def settle(self) -> set[int]:
        """Work out the owners of every key that may have changed. Returns the sessions whose own records changed."""
        affected: set[int] = set()
        for sid in sorted(self._sids):
            self._measure(sid, affected)
        for key in sorted(self._keys):
            self._decide(key, affected)
        self._sids.clear()
        self._keys.clear()
        return affected

    def _measure(self, sid: int, affected: set[int]) -> None:
        """The session's place in the order of its families; where it moved, all its contested keys are decided anew."""
        low, high = span(sid)
        keys = [key for (key,) in self._db.execute(CONTESTED_OF, (low, high))]
        if not keys:
            if self._db.execute("DELETE FROM families WHERE sid = ? RETURNING sid", (sid,)).fetchall():
                affected.add(sid)
            return
        first, header = self._db.execute(FIRST_UNSHARED, {"low": low, "high": high, "sid": sid}).fetchone()
        # by a record that no turn is made of, so nobody shares it
        stated = moment(decode_as(Header, header).started_at)
        if stated is not None and (first is None or stated < first):
            first = stated
        row = self._db.execute("SELECT first_unshared FROM families WHERE sid = ?", (sid,)).fetchone()
        if row is None or row[0] != first:
            self._db.execute("INSERT OR REPLACE INTO families VALUES (?, ?)", (sid, first))
            self._keys.update(keys)

    def _member(self, sid: int) -> tuple[str, str, str]:
        """Key, agent and native id of a session."""
        found = self._members.get(sid)
        if found is None:
            row = self._db.execute("SELECT key, agent, id FROM sessions WHERE sid = ?", (sid,)).fetchone()
            found = self._members[sid] = (row[0], row[1], row[2])
        return found

    def _order(self, claimant: tuple[int, int, int | None]) -> tuple[int, int, str]:
        fact_id, copied, _ = claimant
        sid = fact_id >> SHIFT
        row = self._db.execute("SELECT first_unshared FROM families WHERE sid = ?", (sid,)).fetchone()
        first = row[0] if row and row[0] is not None else -1
        return copied, first, self._member(sid)[0]

    def _source_is_here(self, agent: str, source: int | None) -> bool:
        if source is None:
            return False
        (name,) = self._db.execute("SELECT name FROM names WHERE number = ?", (source,)).fetchone()
        found = self._present.get((agent, name))
        if found is None:
            row = self._db.execute("SELECT 1 FROM sessions WHERE id = ? AND agent = ?", (name, agent)).fetchone()
            found = self._present[agent, name] = row is not None
        return found

    def _decide(self, key: int, affected: set[int]) -> None:
        claimants = self._db.execute(CLAIMANTS, (key,)).fetchall()
        if not claimants:
            return
        owner = claimants[0] if len(claimants) == 1 else min(claimants, key=self._order)
        changed = False
        for claimant in claimants:
            fact_id, copied, source = claimant
            own = 0
            if claimant is owner:
                agent = self._member(fact_id >> SHIFT)[1]
                copy = copied == PROVEN or (copied == SUGGESTED and not self._source_is_here(agent, source))
                own = 1 if copy else 2
            changed |= self._set(fact_id, own)
        if changed:  # also for those who had nothing and have nothing: they inherit it from somebody else now
            affected.update(fact_id >> SHIFT for fact_id, _, _ in claimants)

    def _set(self, fact_id: int, own: int) -> bool:
        db = self._db
        row = db.execute("SELECT own, kind, counted, position, number FROM turns WHERE id = ?", (fact_id,)).fetchone()
        if row is not None:
            old, kind, counted, position, number = row
            if old == own:
                return False
            db.execute("UPDATE turns SET own = ? WHERE id = ?", (own, fact_id))
            if own == 0:
                drop_texts(db, fact_id, kind, bool(counted))
            elif old == 0:
                put_texts(db, fact_id, kind, bool(counted), self._turn_text(position, number))
            return True
        for table in ("usages", "marks", "compactions"):
            if db.execute(
                f"UPDATE {table} SET own = ? WHERE id = ? AND own <> ? RETURNING id", (own, fact_id, own)
            ).fetchall():
                return True
        return False
