"""Grok Build: `importer` is what sync calls; the format is in docs/formats/grok-build.md."""

AGENT = "grok-build"
