"""The agents prosa reads. Another one is a folder here, its importer in this tuple, and a page in docs/formats/."""

from types import ModuleType

from prosa.ingest.antigravity import importer as antigravity
from prosa.ingest.claude_code import importer as claude_code
from prosa.ingest.codex import importer as codex
from prosa.ingest.copilot import importer as copilot
from prosa.ingest.cursor import importer as cursor
from prosa.ingest.gemini import importer as gemini
from prosa.ingest.grok_build import importer as grok_build
from prosa.ingest.hermes import importer as hermes
from prosa.ingest.opencode import importer as opencode
from prosa.ingest.pi import importer as pi

IMPORTERS: tuple[ModuleType, ...] = (
    claude_code, codex, cursor, gemini, antigravity, hermes, grok_build, pi, opencode, copilot,
)  # fmt: skip
