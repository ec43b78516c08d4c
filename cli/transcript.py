"""A session's turns for a reader: headings where the speaker changes, calls with their results, long output folded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

from prosa.cli import amounts
from prosa.cli.session_lines import device_label, project_name, seconds, title
from prosa.cli.text import clean, cut, one_line, wrap

if TYPE_CHECKING:
    from prosa.cli.terminal import Paint
    from prosa.projections.queries import Session, ShownTurn

CALL_LINES = 6
"""A call's input is folded at so many lines, or fewer if the user asks for fewer."""


class Transcript:
    """Lays a session out for so many cells."""

    def __init__(self, zone: tzinfo, cells: int, paint: Paint, max_output_lines: int) -> None:
        self._zone, self._cells, self._paint, self._fold = zone, cells, paint, max_output_lines
        self._today = datetime.now(zone).date()

    def lines(self, session: Session, turns: Iterable[ShownTurn]) -> Iterator[str]:
        """The head, then every turn in reading order."""
        yield from self.head(session)
        speaker: str | None = None
        tools: dict[str, str] = {}
        last_call: str | None = None
        for turn in turns:
            said = self._speaker(turn)
            if turn.kind == "tool_call":
                if turn.tool_call_id and turn.tool:
                    tools[turn.tool_call_id] = turn.tool
                yield from self._call(turn)
                last_call, speaker = turn.tool_call_id, "tool"
            elif turn.kind == "tool_result":
                name = None if turn.tool_call_id == last_call else turn.tool or tools.get(turn.tool_call_id or "")
                yield from self._result(turn, name)
                speaker = "tool"
            elif turn.kind == "compaction":
                yield ""
                yield self._paint(self._rule(f" context compacted {self._at(turn)}".rstrip() + " "), "dim")
                yield from self._body(turn.text, "  ", self._fold, dim=True)
                speaker = None
            else:
                if said != speaker:
                    yield ""
                    yield self._heading(turn, said)
                    speaker = said
                else:
                    yield ""
                quiet = turn.kind == "thinking" or not turn.counted
                yield from self._body(turn.text, "  ", self._fold if quiet else 0, dim=quiet)
            if turn.truncated:
                yield self._paint("  (longer than what the log keeps; --raw has all of it)", "dim")

    def head(self, session: Session) -> Iterator[str]:
        paint = self._paint
        yield paint(cut(title(session) or "(no prompt)", self._cells), "bold")
        names = (session.agent, project_name(session), session.branch, device_label(session))
        yield from self._facts([one_line(name) for name in names if name])
        start, end = (amounts.moment(at, self._zone) for at in (session.started_at, session.last_activity_at))
        times = [amounts.stamp(start, self._today)] if start else []
        if end and start and end > start:
            times[0] += " – " + (amounts.clock(end) if end.date() == start.date() else amounts.stamp(end, self._today))
            times.append(amounts.duration(seconds(session) or 0))
        if session.active:
            times.append("active")
        yield from self._facts(times)
        yield from self._facts(self._counts(session))
        yield from self._facts(self._tokens(session))
        yield from self._facts([one_line(session.key)])
        if session.parent_id:
            yield from self._facts([f"child of {one_line(session.parent_id)}"])
        if session.inherited:
            source = f" from {one_line(session.inherited.from_)}" if session.inherited.from_ else ""
            yield from self._facts(
                [f"{amounts.count(session.inherited.turns, 'turn')} inherited{source}, counted there"]
            )
        if session.state != "plain":
            yield from self._facts([f"{session.state}: not all of it can be read"])
        yield paint(self._rule(""), "dim")

    def _counts(self, session: Session) -> list[str]:
        turns = session.turns
        parts = [amounts.count(turns.user, "prompt"), amounts.count(turns.assistant, "answer")]
        if turns.tool_call:
            failed = f" ({session.tool_errors:,} failed)" if session.tool_errors else ""
            parts.append(amounts.count(turns.tool_call, "tool call") + failed)
        if session.compactions.count:
            parts.append(amounts.count(session.compactions.count, "compaction"))
        return parts

    def _tokens(self, session: Session) -> list[str]:
        parts = [", ".join(map(one_line, session.models))] if session.models else []
        if session.usage:
            usage = session.usage
            parts.append(f"{amounts.compact(usage.total)} tokens ({amounts.compact(usage.output)} output)")
            parts.append(amounts.money(session.cost_usd) if session.cost_usd is not None else "no price known")
        return parts

    def _facts(self, parts: list[str]) -> Iterator[str]:
        if parts:
            yield self._paint(cut(" · ".join(parts), self._cells), "dim")

    def _rule(self, text: str) -> str:
        return "──" + text + "─" * max(0, self._cells - 2 - len(text))

    def _speaker(self, turn: ShownTurn) -> str:
        if turn.role == "user":
            return "you" if turn.counted else "injected"
        return (turn.model or "agent") if turn.role == "assistant" else turn.role

    def _heading(self, turn: ShownTurn, said: str) -> str:
        name = self._paint(one_line(said), "bold", "green" if said == "you" else "cyan")
        marks = [
            mark for mark, holds in (("thinking", turn.kind == "thinking"), ("inherited", turn.inherited)) if holds
        ]
        return "  ".join(filter(None, (name, self._paint("  ".join([*marks, self._at(turn)]).strip(), "dim"))))

    def _at(self, turn: ShownTurn) -> str:
        when = amounts.moment(turn.at, self._zone)
        return amounts.stamp(when, self._today) if when else ""

    def _call(self, turn: ShownTurn) -> Iterator[str]:
        first, *rest = clean(turn.text).strip("\n").split("\n") or [""]
        name = one_line(turn.tool or "tool")
        error = self._paint(" failed", "red") if turn.is_error else ""
        left = self._cells - len(name) - 5 - (7 if error else 0)
        yield ""
        if not rest and len(first) <= left:
            yield f"  ▸ {self._paint(name, 'yellow')} {first}{error}".rstrip()
            return
        yield f"  ▸ {self._paint(name, 'yellow')}{error}"
        fold = min(self._fold, CALL_LINES) if self._fold else 0
        yield from self._body(turn.text, "    ", fold)

    def _result(self, turn: ShownTurn, name: str | None) -> Iterator[str]:
        if name:
            yield ""
            yield self._paint(f"  ◂ {one_line(name)}", "dim")
        if turn.is_error:
            yield self._paint("    failed", "red")
        yield from self._body(turn.text, "    ", self._fold, dim=True)

    def _body(self, text: str, indent: str, fold: int, *, dim: bool = False) -> Iterator[str]:
        """Wrapped lines; with a fold, the first of them and how many were left out."""
        shown = 0
        lines = clean(text).strip("\n").split("\n")
        for number, line in enumerate(lines):
            for piece in wrap(line, self._cells - len(indent)):
                if fold and shown == fold:
                    left = amounts.count(len(lines) - number, "more line")
                    yield self._paint(f"{indent}… {left} (--max-output-lines 0 shows all)", "dim")
                    return
                yield (indent + (self._paint(piece, "dim") if dim else piece)).rstrip()
                shown += 1
