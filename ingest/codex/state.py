"""One rollout being read: what later lines need of earlier ones, whose the record at hand is, and its key.

Keys are made of (turn id, kind, first words or call id or response id, how many-th of these): a fork replays its
parent's history re-stamped and thinned out, so times and plain numbers would not do. Turn ids that are no UUID, and
records without any, are unique in their session only and get its id in front.
"""

from __future__ import annotations

from typing import Literal, Unpack

import msgspec

from prosa.events.facts import (
    NOT_COPIED,
    PROVEN,
    SUGGESTED,
    Facts,
    Kind,
    Mark,
    Role,
    Turn,
    fact_key,
)
from prosa.ingest.codex import AGENT
from prosa.ingest.tally import Tally
from prosa.ingest.turn import About, turn_of

BURST_US = 1_000_000
"""Lines of a replay are written in one go; a longer pause ends it where turn ids do not tell."""
RUN_US = 3600 * 1_000_000
"""Records that are no turn are one run until a pause of an hour."""
TURNS_KEPT = 16
"""Turns whose keys are remembered; records of older ones no longer come."""

ITEM, EVENT = 1, 2
"""Sources of one and the same thing; each numbers its own repetitions, so its copies in the others get equal keys."""

WITNESS = 32
"""First characters of a text that name it."""


class Call(msgspec.Struct, array_like=True):
    """A tool call until its result, and a while longer for late word of a failure."""

    native: str
    number: int = 0
    tool: str | None = None
    seen: bool = False
    """The call itself was read; an event can come before it."""
    answered: bool = False
    failed: bool = False


class State(msgspec.Struct, omit_defaults=True):
    """All that later lines need of earlier ones; small, whatever the size of the rollout."""

    rest: bytes = b""
    begun: bool = False
    flat: bool = False
    met: bool = False
    """The own session_meta was read."""

    cwd: str | None = None
    branch: str | None = None
    title: str | None = None
    objective: str | None = None
    goal: bool = False
    parent: str | None = None
    forked_from: str | None = None
    clients: list[str] = []
    models: list[str] = []
    started_at: int | None = None
    last_activity_at: int | None = None
    has_usage: bool = False
    tally: Tally = msgspec.field(default_factory=Tally)

    turn: str = ""
    native: str = ""
    """The turn as keys name it."""
    nameless: int = 0
    """Turns without id so far."""
    model: str | None = None
    tier: str | None = None
    seen: dict[str, dict[int, int]] = {}
    """How often each key was given in the last turns."""

    apart: bool = False
    """Its turns have the ids of another session's and are none of that session's."""
    fork: bool = False
    """The file can hold replayed records."""
    replay: bool = False
    burst_at: int | None = None
    born_ms: int = 0
    scope: str | None = None
    """Session whose records are replayed, as its session_meta says."""

    prompts: Literal["", "events", "items"] = ""
    """Which records hold this file's prompts, once that is known."""
    pending: list[Turn] = []
    """Prompts counted from response items while no event was seen."""
    prompt_native: str = ""
    prompt_event: str = ""
    """The kind of event that told the last prompt, and its turn."""
    answer_key: int = 0
    answer_head: str = ""
    answer_size: int = 0
    """The last answer: it may turn out to be a compaction's summary."""
    calls: dict[str, Call] = {}

    total: tuple[int, int, int, int, int] | None = None
    exact: bool = False
    """token_usage_records were seen: deltas are no longer needed."""
    context: int | None = None
    compacted: bool = False
    """`compacted` lines were seen: events of compactions are copies."""
    window: str | None = None
    """The last one's."""

    mark_first: int | None = None
    mark_last: int = 0


class Reading:
    """The record at hand between what was read and what is told of it."""

    def __init__(self, native: str, state: State) -> None:
        self.id = native
        self.s = state
        self.s.native = self.s.native or self.native_of("")
        self.facts = Facts([], [], [], [])
        self.at: int | None = None
        self.stamp: str | None = None
        self.told = False
        """The record at hand became a fact: no mark is needed for its time."""
        self.copied: int = NOT_COPIED
        self.copied_from: str | None = None
        self._marked = False

    # --- turns and their keys

    def enter(self, turn: str | None) -> None:
        """A turn begins; `task_started` and `turn_context` both say so, with the same id."""
        s = self.s
        if not turn:
            s.nameless += 1
            turn = f"#{s.nameless}"
        if turn != s.turn:
            s.turn = turn
            s.native = self.native_of(turn)

    def native_of(self, turn: str | None) -> str:
        """A turn as keys name it; None is the current one."""
        if turn is None:
            return self.s.native
        return turn if _is_uuid(turn) and not self.s.apart else f"{self.s.scope or self.id}/{turn}"

    def number(self, kind: str, native: str, witness: str, source: int = 0) -> int:
        """Key of the next record of this kind, turn and witness that this source has."""
        key = fact_key(AGENT, kind, native, witness)
        counts = self._counts(native)
        slot = key ^ source
        number = counts.get(slot, 0)
        counts[slot] = number + 1
        return key if number == 0 else fact_key(AGENT, kind, native, f"{witness}\0{number}")

    def given(self, kind: str, native: str, witness: str, source: int) -> int:
        """How many keys `number` has given this source."""
        return self._counts(native).get(fact_key(AGENT, kind, native, witness) ^ source, 0)

    def _counts(self, native: str) -> dict[int, int]:
        seen = self.s.seen
        counts = seen.get(native)
        if counts is None:
            if len(seen) >= TURNS_KEPT:
                del seen[next(iter(seen))]
            counts = seen[native] = {}
        return counts

    # --- whose record

    def place(self, turn: str | None, thread: str | None) -> None:
        """Decides whether the record at hand was copied from the session this one was forked from."""
        s = self.s
        self.copied, self.copied_from = NOT_COPIED, None
        if not s.fork:
            return
        pause = False
        if s.replay and self.at is not None:
            pause = s.burst_at is not None and self.at - s.burst_at >= BURST_US
            s.burst_at = self.at
        if thread is not None:
            if thread != self.id:
                self.copied, self.copied_from = PROVEN, thread
            return
        born = uuid_ms(turn or s.turn)
        if born is not None:
            if born < s.born_ms:
                # a turn that began before this thread was made
                self.copied, self.copied_from = PROVEN, s.forked_from
            else:
                self._end_replay()
        elif pause:
            self._end_replay()
        elif s.replay:
            # in the replay of a fork nothing says where its ancestor's turns end: keys cannot be held against anybody's
            self.copied = SUGGESTED
            self.copied_from = s.forked_from if s.scope in (None, s.forked_from) else None

    def _end_replay(self) -> None:
        s = self.s
        if s.replay:
            s.replay = False
            s.model = None
            s.scope = None
            s.native = self.native_of(s.turn)

    def replaying(self, thread: str) -> None:
        """Another session's session_meta stands in a replay: what follows is that session's."""
        self.s.scope = thread
        self.s.native = self.native_of(self.s.turn)

    # --- what is told

    def say(self, key: int, kind: Kind, role: Role, text: str, **about: Unpack[About]) -> Turn:
        """Tells a turn, or tells it again: the later one replaces it in its place."""
        turn = turn_of(key, kind, role, text, self.at, self.copied, self.copied_from, **about)
        self.facts.turns.append(turn)
        self.told = True
        return turn

    def mark(self, at: int) -> None:
        """Notes the time of an own record that is no turn. A run keeps its first time: its key is made of it."""
        s = self.s
        if s.mark_first is None or not s.mark_first <= at <= s.mark_last + RUN_US:
            self.close_mark()
            s.mark_first = s.mark_last = at
            self._marked = True
        elif at > s.mark_last:
            s.mark_last = at
            self._marked = True

    def close_mark(self) -> None:
        """Tells the run as it is now; replayed records have no marks, so no other session has these keys."""
        s = self.s
        if self._marked and s.mark_first is not None:
            key = fact_key(AGENT, "mark", self.id, str(s.mark_first))
            self.facts.marks.append(Mark(first=s.mark_first, last=s.mark_last, key=key))
        self._marked = False

    def take(self) -> Facts:
        """What is new since the last take."""
        self.close_mark()
        facts, self.facts = self.facts, Facts([], [], [], [])
        return facts


def _is_uuid(text: str) -> bool:
    return len(text) == 36 and text[8] == text[13] == text[18] == text[23] == "-"


def uuid_ms(text: str) -> int | None:
    """Milliseconds since 1970 in a UUIDv7."""
    if len(text) != 36 or text[14] != "7" or text[8] != "-":
        return None
    try:
        return int(text[:8] + text[9:13], 16)
    except ValueError:
        return None
