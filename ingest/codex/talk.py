"""What was said in a Codex rollout: prompts, answers, thinking, summaries.

A prompt stands there as a response item and again as an event (`user_message`, or `item_completed` since 2026).
Events hold prompts only, items hold injected text too: a file that has any event is counted by its events. Both
give a prompt the same key, so an event confirms the item before it; items that no event confirmed stop counting.
"""

from __future__ import annotations

import msgspec

from prosa.events.facts import Compaction
from prosa.ingest.codex.calls import item_end
from prosa.ingest.codex.prompts import cwd_of, objective_of, parted, sorted_out, unwrapped
from prosa.ingest.codex.records import IMAGE, Line, Payload, is_empty, joined, raw_blocks, raw_text
from prosa.ingest.codex.state import EVENT, ITEM, WITNESS, Reading

SHORT = 4_000
"""Injected text up to this many characters is shown; longer is system material."""
PENDING_KEPT = 32
PENDING_TEXT = 256_000
"""With more prompts than this and no event, a file is one that has none."""


def message(reading: Reading, p: Payload, native: str, record: Line | None) -> None:
    """A response item of any role."""
    if p.role == "assistant":
        _answer(reading, p, native, record)
    elif p.role == "user":
        _user_item(reading, p, native)
    else:
        _aside(reading, joined(p.content), native, "system")


def _answer(reading: Reading, p: Payload, native: str, record: Line | None) -> None:
    s = reading.s
    text = joined(p.content)
    if not text or text.isspace():
        return
    key = reading.number("message", native, f"assistant\0{text[:WITNESS]}")
    bare = text.strip()
    s.answer_key, s.answer_head, s.answer_size = key, bare[:64], len(bare)
    if record is not None and record.metadata is not None and record.metadata.compaction_output:
        reading.say(key, "compaction", "system", text, counted=False)
    else:
        reading.say(key, "message", "assistant", text, model=s.model)


def _user_item(reading: Reading, p: Payload, native: str) -> None:
    s = reading.s
    prompt, put_there = sorted_out(p.content, p.passthrough.content_item_kinds if p.passthrough else None)
    for text in put_there:
        _put_there(reading, text, native)
    if not prompt:
        return
    witness = f"user\0{prompt[:WITNESS]}"
    key = reading.number("message", native, witness, ITEM)
    if s.prompts == "events":
        told = reading.given("message", native, witness, EVENT) >= reading.given("message", native, witness, ITEM)
        if not told:
            reading.say(key, "message", "user", prompt, counted=False)
        return
    turn = reading.say(key, "message", "user", prompt, model=s.model)
    if not s.prompts:
        s.pending.append(turn)
        if len(s.pending) > PENDING_KEPT or sum(len(one.text) for one in s.pending) > PENDING_TEXT:
            s.prompts, s.pending = "items", []


def user_message(reading: Reading, p: Payload) -> None:
    """`user_message`: a prompt, in 2025 also an injected block."""
    image = not (is_empty(p.images) and is_empty(p.local_images))
    _told(reading, raw_text(p.message), image, reading.s.native, "user_message")


def item_completed(reading: Reading, p: Payload) -> None:
    """`item_completed`: a prompt, a compaction, the end of a call; answers and thinking are copies."""
    item = p.item
    if item is None:
        return
    if item.type == "UserMessage":
        blocks = raw_blocks(item.content)
        image = any("image" in block.type.lower() for block in blocks)
        text = "\n".join(block.text for block in blocks if block.text)
        _told(reading, text, image, reading.native_of(p.turn_id), "item_completed")
    elif item.type == "ContextCompaction":
        context_compacted(reading, p)
    else:
        item_end(reading, item)


def _told(reading: Reading, text: str, image: bool, native: str, event: str) -> None:
    """A prompt as an event tells it. Within a turn the first kind of event serves, the other is its copy."""
    s = reading.s
    put_there, typed = parted(text)
    if put_there:
        _put_there(reading, put_there, native)
        if not typed:
            return
    prompt = unwrapped(typed) or (IMAGE if image else "")
    if not prompt or (s.prompt_native == native and s.prompt_event != event):
        return
    s.prompt_native, s.prompt_event = native, event
    key = reading.number("message", native, f"user\0{prompt[:WITNESS]}", EVENT)
    if not s.prompts:
        s.prompts = "events"
        unconfirmed = [turn for turn in s.pending if turn.key != key]
        reading.facts.turns.extend(msgspec.structs.replace(turn, counted=False) for turn in unconfirmed)
        s.pending = []
    # an unanswered turn has no other fact that tells its model
    reading.say(key, "message", "user", prompt, model=s.model)


def _put_there(reading: Reading, text: str, native: str) -> None:
    """An injected block: a goal and the working directory can be read from it."""
    s = reading.s
    if not reading.copied:
        objective = objective_of(text)
        if objective is not None:
            s.goal = True
            s.objective = s.objective or objective or None
        if s.cwd is None:
            s.cwd = cwd_of(text)
    _aside(reading, text, native, "user")


def _aside(reading: Reading, text: str, native: str, role: str) -> None:
    if len(text) <= SHORT and text.strip():
        key = reading.number("injected", native, text[:WITNESS])
        reading.say(key, "message", "user" if role == "user" else "system", text, counted=False)


def agent_message(reading: Reading, p: Payload, native: str, record: Line | None) -> None:
    """What another agent sent: mostly encrypted, never a prompt and never an answer."""
    text = joined(p.content)
    if text.strip():
        key = reading.number("injected", native, text[:WITNESS])
        reading.say(key, "message", "user", text, counted=False)


def reasoning(reading: Reading, p: Payload, native: str, record: Line | None) -> None:
    """Readable thinking; one turn for each item, its summary parts together."""
    parts = [joined(part) for part in (p.summary, p.content)]
    text = "\n\n".join(part for part in parts if part and not part.isspace())
    if text:
        key = reading.number("thinking", native, text[:WITNESS])
        reading.say(key, "thinking", "assistant", text, model=reading.s.model)


def error(reading: Reading, p: Payload) -> None:
    """`error`: shown, nothing else."""
    _aside(reading, raw_text(p.message), reading.s.native, "system")


def compacted(reading: Reading, p: Payload) -> None:
    """The new history is in force. A local compaction asked for its summary as for any answer, just before."""
    s = reading.s
    reading.place(p.turn_id, None)
    s.compacted = True
    if p.window_id is not None and p.window_id == s.window:
        return  # the same line again
    s.window = p.window_id
    _compaction(reading, reading.number("compaction", s.native, "", ITEM), p.window_id)
    summary = raw_text(p.message).strip()
    if not summary:
        return
    size = s.answer_size
    if 0 < size <= len(summary) and summary[-size:].startswith(s.answer_head):
        key = s.answer_key
    else:
        key = reading.number("summary", s.native, "")
    reading.say(key, "compaction", "system", summary, counted=False)


def context_compacted(reading: Reading, p: Payload) -> None:
    """The same compaction as a `compacted` line; clients of late 2025 write only this."""
    key = reading.number("compaction", reading.s.native, "", EVENT)
    if not reading.s.compacted:
        _compaction(reading, key, None)


def _compaction(reading: Reading, key: int, window: str | None) -> None:
    reading.told = True
    reading.facts.compactions.append(
        Compaction(
            key=key,
            id=window or f"{reading.id}:{reading.stamp or ''}",
            at=reading.at,
            size_before=reading.s.context,
            copied=reading.copied,
            copied_from=reading.copied_from,
        )
    )
