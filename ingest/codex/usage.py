"""Tokens of a Codex rollout: exact records of each response, else deltas of the cumulative total."""

from __future__ import annotations

from prosa.events.facts import Usage, fact_key
from prosa.ingest.codex import AGENT
from prosa.ingest.codex.records import Payload, Tokens
from prosa.ingest.codex.state import Reading

Vector = tuple[int, int, int, int, int]
"""Uncached input, cached, cache write, output with reasoning, reasoning."""
ZERO: Vector = (0, 0, 0, 0, 0)


def usage_record(reading: Reading, p: Payload) -> None:
    """Usage of one response. It precedes the token_count that includes it, so deltas end with the first of these."""
    s = reading.s
    reading.place(p.turn_id, p.thread_id)
    if p.usage is None:
        return
    s.exact = True
    native = reading.native_of(p.turn_id)
    spent = vector(p.usage)
    if p.response_id:
        _spend(reading, fact_key(AGENT, "usage", native, p.response_id), spent)
    else:
        _spend(reading, reading.number("usage", native, str(spent)), spent)


def token_count(reading: Reading, p: Payload) -> None:
    """What the cumulative total grew by. No info is "not known yet"; an equal total is the same news again."""
    s = reading.s
    total = p.info.total_token_usage if p.info is not None else None
    if p.info is None or total is None:
        return
    if not reading.copied:
        s.has_usage = True
    last = p.info.last_token_usage
    if last is not None and last.total_tokens is not None:
        s.context = last.total_tokens
    now = vector(total)
    before = s.total
    if before is None:
        before = _inherited(now, last) if s.forked_from is not None and not reading.copied else ZERO
    s.total = now
    if s.exact or now == before:
        return
    restarted = any(new < old for new, old in zip(_counters(now), _counters(before), strict=True))
    _spend(reading, reading.number("usage", s.native, str(now)), now if restarted else _difference(now, before))


def vector(tokens: Tokens) -> Vector:
    """The client's counts as disjoint ones: its input includes cached."""
    cached = tokens.cached_input_tokens or tokens.cache_read_input_tokens or 0
    written = tokens.cache_write_input_tokens
    fresh = tokens.input_tokens - cached
    # nobody says whether a cache write is part of the input; the record's own total does
    if written and tokens.total_tokens == tokens.input_tokens + tokens.output_tokens:
        fresh -= written
    return max(fresh, 0), cached, written, tokens.output_tokens, tokens.reasoning_output_tokens


def _counters(total: Vector) -> tuple[int, int, int, int]:
    """The client's own counters: of a growing total the uncached part may shrink, the input cannot."""
    fresh, cached, written, output, reasoning = total
    return fresh + cached + written, cached, output, reasoning


def _difference(now: Vector, before: Vector) -> Vector:
    return (now[0] - before[0], now[1] - before[1], now[2] - before[2], now[3] - before[3], now[4] - before[4])


def _inherited(now: Vector, last: Tokens | None) -> Vector:
    """Total a fork without replay began with: its own first total without its own first request."""
    rest = _difference(now, vector(last)) if last is not None else ZERO
    return rest if min(rest) >= 0 else ZERO


def _spend(reading: Reading, key: int, spent: Vector) -> None:
    s = reading.s
    reading.told = True
    if not reading.copied:
        s.has_usage = True
    fresh, cached, written, output, reasoning = spent
    reading.facts.usage.append(
        Usage(
            key=key,
            at=reading.at,
            model=s.model,
            input=max(fresh, 0),
            output=output,
            cache_read=cached,
            cache_write_5m=max(written, 0),
            reasoning=reasoning,
            tier=s.tier,
            copied=reading.copied,
            copied_from=reading.copied_from,
        )
    )
