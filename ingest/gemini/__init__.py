"""Gemini CLI: `importer` is what sync calls; the format is in docs/formats/gemini.md."""

AGENT = "gemini"
