"""Turns as the log holds them: the tables say in which event and where, the words are only there."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec

from prosa.events import codec
from prosa.events.catalogue import SessionParsed, SessionPart
from prosa.events.facts import Turn
from prosa.events.log import LogReader

KEPT: Final = 8
"""Events kept open: hits and turns that follow each other mostly lie in one."""


class _Packed(msgspec.Struct):
    """Of a parse only the turns, each left packed until somebody asks for it: 0.1 ms a part instead of 1."""

    turns: list[msgspec.Raw] = []


_turn = msgspec.msgpack.Decoder(Turn)


class LogTurns:
    """Reads turns by position and place in the event, opening each event once."""

    def __init__(self, log: LogReader) -> None:
        self._log = log
        self._open: OrderedDict[int, Sequence[msgspec.Raw | Turn]] = OrderedDict()

    def turn(self, position: int, number: int) -> Turn | None:
        """None once the event's body was erased."""
        turns = self._open.get(position)
        if turns is None:
            turns = self._open[position] = self._read(position)
            if len(self._open) > KEPT:
                self._open.popitem(last=False)
        else:
            self._open.move_to_end(position)
        if not turns:
            return None
        turn = turns[number]
        return turn if isinstance(turn, Turn) else _turn.decode(turn)

    def _read(self, position: int) -> Sequence[msgspec.Raw | Turn]:
        recorded = self._log.at(position)
        if recorded is None or recorded.erased:
            return ()
        if recorded.version == codec.BY_TYPE[recorded.type].VERSION:
            return codec.decode_as(_Packed, recorded.body()).turns
        event = recorded.event()
        assert isinstance(event, SessionParsed | SessionPart)
        return event.turns
