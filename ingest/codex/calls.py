"""Tool calls of a Codex rollout, their results, and the events that say a call failed.

Such an event comes before its call, between call and result, or long after the result (a command that went on in
the background). Whichever comes last tells the result again, so a failed call counts once.
"""

from __future__ import annotations

from prosa.events.facts import fact_key
from prosa.ingest.codex import AGENT
from prosa.ingest.codex.records import (
    Line,
    Payload,
    ThreadItem,
    action_text,
    arguments_text,
    is_empty,
    mcp_result,
    output_text,
    raw_text,
    raw_value,
    readable,
)
from prosa.ingest.codex.state import WITNESS, Call, Reading

CALLS_KEPT = 256
"""Calls that are remembered for a result or for late word of a failure."""


FAILED = "failed"
"""Text of a result that only an event without output tells."""


def call(reading: Reading, p: Payload, native: str, record: Line | None) -> None:
    """A call by its recorded name; calls without one are named by their kind of record."""
    kind = p.type or ""
    if kind == "custom_tool_call":
        text = p.input or ""
    elif kind in ("function_call", "tool_search_call"):
        text = arguments_text(p.arguments)
    elif kind == "image_generation_call":
        text = p.revised_prompt or ""
    else:
        text = action_text(p.action)
    tool = p.name or kind.removesuffix("_call")
    model = reading.s.model
    call_id = p.call_id or p.id
    if not call_id:
        key = reading.number("tool_call", native, f"{tool}\0{text[:WITNESS]}")
        reading.say(key, "tool_call", "assistant", text, tool=tool, model=model)
        return
    known = _remember(reading, call_id, native)
    if known.seen and known.answered:
        # an id that comes again behind its result is another call; before it, the same line twice
        known.number += 1
        known.answered = known.failed = False
    known.seen, known.tool = True, tool
    key = fact_key(AGENT, "tool_call", known.native, f"{call_id}\0{known.number}")
    reading.say(key, "tool_call", "assistant", text, tool=tool, tool_call_id=call_id, model=model)
    if known.failed and not known.answered:
        _result(reading, call_id, known, FAILED)


def output(reading: Reading, p: Payload, native: str, record: Line | None) -> None:
    """A result, also one whose call is not in the file."""
    call_id = p.call_id or p.id or ""
    known = reading.s.calls.get(call_id) or _remember(reading, call_id, native)
    text, failed = output_text(p.output)
    if not text and not is_empty(p.tools):
        text = readable(raw_value(p.tools))
    known.answered = True
    known.failed = known.failed or failed
    _result(reading, call_id, known, text)


def command_end(reading: Reading, p: Payload) -> None:
    """`exec_command_end`."""
    if p.exit_code:
        text = raw_text(p.aggregated_output) or raw_text(p.stdout) + raw_text(p.stderr)
        _failure(reading, p.call_id, text or f"exit code {p.exit_code}")


def patch_end(reading: Reading, p: Payload) -> None:
    """`patch_apply_end`."""
    if p.success is False:
        _failure(reading, p.call_id, raw_text(p.stdout) + raw_text(p.stderr))


def mcp_end(reading: Reading, p: Payload) -> None:
    """`mcp_tool_call_end`."""
    text, failed = mcp_result(p.result)
    if failed:
        _failure(reading, p.call_id, text)


def item_end(reading: Reading, item: ThreadItem) -> None:
    """`item_completed` of a command, patch or MCP call; in code mode its id is no call's."""
    if item.status in ("failed", "declined") or item.exit_code:
        _failure(reading, item.id, raw_text(item.aggregated_output) or raw_text(item.error))


def _failure(reading: Reading, call_id: str | None, text: str) -> None:
    if not call_id:
        return
    known = reading.s.calls.get(call_id) or _remember(reading, call_id, reading.s.native)
    if known.failed:
        return
    known.failed = True
    if known.seen:
        _result(reading, call_id, known, text or FAILED)


def _remember(reading: Reading, call_id: str, native: str) -> Call:
    """The call of this id in this turn; ids of some providers are unique within a turn only."""
    calls = reading.s.calls
    known = calls.get(call_id)
    if known is None or (known.seen and known.native != native):
        calls.pop(call_id, None)
        if len(calls) >= CALLS_KEPT:
            del calls[next(iter(calls))]
        known = calls[call_id] = Call(native)
    elif not known.seen:
        known.native = native
    return known


def _result(reading: Reading, call_id: str, known: Call, text: str) -> None:
    key = fact_key(AGENT, "tool_result", known.native, f"{call_id}\0{known.number}")
    reading.say(key, "tool_result", "tool", text, tool=known.tool, tool_call_id=call_id, is_error=known.failed)
