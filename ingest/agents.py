"""The agents prosa reads. Another one is a module here and a page in docs/formats/."""

from types import ModuleType

from prosa.ingest import (
    antigravity,
    claude_code,
    codex,
    copilot,
    cursor,
    gemini,
    grok_build,
    hermes,
    opencode,
    pi,
)

IMPORTERS: tuple[ModuleType, ...] = (
    claude_code, codex, cursor, gemini, antigravity, hermes, grok_build, pi, opencode, copilot,
)  # fmt: skip
