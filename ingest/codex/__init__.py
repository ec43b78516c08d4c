"""OpenAI Codex: `importer` is what sync calls; the format is in docs/formats/codex.md."""

AGENT = "codex"
