"""What on the user's side of a Gemini chat was typed by a person, and what the client says there itself."""

from __future__ import annotations

SNAPSHOT = "<state_snapshot>"
"""Begins the summary that completes a compression."""
INJECTED = (
    "<session_context>",
    "<hook_context>",
    "This is the Gemini CLI. We are setting up the context for our chat.",
    "System: Potential loop detected. Details:",
    "You have stopped calling tools without finishing",
    "I ran the following shell command:\n```",  # a !command and its output (0.61.0)
)
COMMANDS = ("/", "?")
"""What the agent itself takes for no prompt."""
ACKNOWLEDGED = (
    "Got it. Thanks for the additional context!",
    "Got it. Thanks for the context!",
    "[The previous response was interrupted before it completed.]",  # behind a cancelled tool (0.61.0)
)


def is_prompt(text: str) -> bool:
    """The agent's own rule for what a person typed to the model."""
    start = text.lstrip()
    return bool(start) and not start.startswith((*COMMANDS, *INJECTED, SNAPSHOT))


def is_acknowledgement(text: str) -> bool:
    """An answer that the client put there itself: behind a summary, or in the place of an interrupted one."""
    return text.strip() in ACKNOWLEDGED
