"""The agents prosa reads. Another one is a module here and a page in docs/formats/."""

from types import ModuleType

from prosa.ingest import claude_code, codex, copilot, gemini, grok_build, pi

IMPORTERS: tuple[ModuleType, ...] = (claude_code, codex, gemini, grok_build, pi, copilot)
