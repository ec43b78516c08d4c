"""What of Hermes' user rows a person typed: rows of the harness are none, and a slash skill wraps the typed line."""

from __future__ import annotations

import re
from typing import NamedTuple

from prosa.ingest.hermes.rows import Message

STEER = "steer"
"""The one display kind that a person typed: while the agent ran."""
HARNESS = (
    "[IMPORTANT: Background process", "[SYSTEM: Background process", "[IMPORTANT: MCP servers have been reloaded",
    "[ASYNC DELEGATION", "A background subagent", "[System:", "[CONTEXT", "[PRIOR CONTEXT", "[Your active task list",
    "[Planning state preserved", "[Continuing toward", "Cronjob Response:", "Review the conversation above and ",
    "Continue from the compressed conversation context above.",
    "You've reached the maximum number of tool-calling iterations allowed.",
)  # fmt: skip
GOAL = "[Continuing toward your standing goal"
NOTE = re.compile(r"\[(?:System note|Note): [^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]\s*")
"""Put in front of what was typed."""
INTERRUPTED = "Operation interrupted"
"""The client's own notice where an answer should be (0.19: conversation_loop.py)."""

SKILL = re.compile(r'\[(?:SYSTEM|IMPORTANT): The user has invoked the "([^"]*)"')
SKILL_TYPED = "The user has provided the following instruction alongside the skill invocation: "
BUNDLE = " skill bundle,"
BUNDLE_TYPED = "\nUser instruction: "
BUNDLE_REST = "\n\n[Loaded as part of the "
AUTO = re.compile(r'\[(?:SYSTEM|IMPORTANT): The "([^"]*)" skill is auto-loaded\.')
AUTO_END = "using the absolute path."
"""Last words of the footer that every auto-loaded skill ends with."""
RUNTIME_NOTE = "\n\n[Runtime note:"
STEER_OPEN = re.compile(r"\s*\[OUT-OF-BAND USER MESSAGE[^\]]*\]")
STEER_CLOSE = "[/OUT-OF-BAND USER MESSAGE]"


class Prompt(NamedTuple):
    """The text to show, and whether a person typed it."""

    text: str
    counted: bool


def prompt_of(message: Message, text: str) -> Prompt:
    """A user row as its author saw it."""
    if message.observed or (message.display is not None and message.display != STEER):
        return Prompt(text, False)
    if text.startswith(HARNESS):
        return Prompt(text, False)
    typed = _unwrapped(text)
    noted = NOTE.match(typed)
    while noted is not None:
        typed = typed[noted.end() :]
        noted = NOTE.match(typed)
    return Prompt(typed, True) if typed.strip() else Prompt(text, False)


def _unwrapped(text: str) -> str:
    opened = STEER_OPEN.match(text)
    if opened is not None:
        return text[opened.end() :].split(STEER_CLOSE, 1)[0].strip()
    skill = SKILL.match(text)
    if skill is not None:
        if BUNDLE in text[: skill.end() + 200] and BUNDLE_TYPED in text:
            return text.split(BUNDLE_TYPED, 1)[1].split(BUNDLE_REST, 1)[0].strip() or f"[Skill: {skill[1]}]"
        _, marker, typed = text.rpartition(SKILL_TYPED)
        typed = typed.split(RUNTIME_NOTE, 1)[0].strip() if marker else ""
        return typed or f"[Skill: {skill[1]}]"
    auto = AUTO.match(text)
    if auto is not None:
        typed = text.rpartition(AUTO_END)[2].strip() if AUTO_END in text else ""
        return typed or f"[Skill: {auto[1]}]"
    return text
