"""The agents prosa reads. Another one is a module here and a page in docs/formats/."""

from types import ModuleType

from prosa.ingest import claude_code, codex

IMPORTERS: tuple[ModuleType, ...] = (claude_code, codex)
