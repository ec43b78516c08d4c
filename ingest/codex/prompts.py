"""Which user text of a Codex transcript a person typed, and which the client put there.

A response item of role user mixes both, one block each. Newer clients name each block (`content_item_kinds`); of
older ones only the first words tell.
"""

from __future__ import annotations

import re

from prosa.ingest.codex.records import IMAGE, Block

INJECTED = (
    "# AGENTS.md instructions",
    "<user_instructions>",
    "<environment_context>",
    "<INSTRUCTIONS>",
    "<recommended_plugins>",
    "<turn_aborted>",
    "<user_shell_command>",
    "<user_action>",
    "<skill>",
    "<subagent_notification>",
    "<model_switch>",
    "<hook_prompt",
    "<codex_internal_context",
    "<goal_context>",
    "<permissions instructions>",
    "<collaboration_mode>",
    "<multi_agent_mode>",
    "<apps_instructions>",
    "<skills_instructions>",
    "<plugins_instructions>",
    "You are Codex",
    "Another language model started to solve this problem",
)
"""First words of blocks that no person typed; the last is the preface of a compaction's summary."""

BLOCK = re.compile(r"\s*<(\w+)\b[^>]*>.*?</\1\b[^>]*>\s*", re.DOTALL)
"""One of these with its end; a prompt may follow in the same text."""
GOALS = ('<codex_internal_context source="goal"', "<goal_context>")
OBJECTIVE = re.compile(r"<objective>\s*(.*?)\s*</objective>", re.DOTALL)
CWD = re.compile(r"<cwd>\s*(/.*?|[A-Za-z]:.*?|\\\\.*?)\s*</cwd>|^Current working directory:\s*(.+?)\s*$", re.MULTILINE)
REQUEST = "## My request for Codex:"
"""What an editor puts before the prompt; above it are its open files."""


def parted(text: str) -> tuple[str, str]:
    """What the client put at the head of a text, and what was typed below it; mostly one of them is empty."""
    typed = text
    while typed.lstrip().startswith(INJECTED):
        block = BLOCK.match(typed)
        if block is None:
            return text, ""
        typed = typed[block.end() :]
    return text[: len(text) - len(typed)], typed


def unwrapped(text: str) -> str:
    """The prompt without an editor's context around it."""
    text = text.strip()
    head, found, request = text.partition(REQUEST)
    return request.strip() if found and (head.endswith("\n") or not head) else text


def sorted_out(content: str | list[Block] | None, kinds: list[str] | None) -> tuple[str, list[str]]:
    """The typed text of a response item of role user, `[image]` for images alone, and the injected blocks."""
    blocks = [Block("input_text", content)] if isinstance(content, str) else content or []
    named = kinds if kinds is not None and len(kinds) == len(blocks) else [""] * len(blocks)
    typed, put_there, image = [], [], False
    for block, kind in zip(blocks, named, strict=True):
        text = block.text
        if text is None:
            image = image or "image" in block.type
        elif text.startswith(("<image", "</image>")):
            continue  # the client's label around an attached image
        elif kind.startswith("user."):
            typed.append(text)
        else:
            head, rest = parted(text) if kind in ("", "unknown") else (text, "")
            put_there.extend([head] if head.strip() else [])
            typed.extend([rest] if rest else [])
    prompt = unwrapped("\n".join(typed))
    return prompt or (IMAGE if image else ""), put_there


def objective_of(text: str) -> str | None:
    """The objective in a goal's injected context; empty if it is a goal's context without one; None otherwise."""
    if not text.lstrip().startswith(GOALS):
        return None
    found = OBJECTIVE.search(text)
    return found[1] if found else ""


def cwd_of(text: str) -> str | None:
    """Working directory that an environment block names (the flat era records it nowhere else)."""
    found = CWD.search(text)
    return (found[1] or found[2]) if found else None
