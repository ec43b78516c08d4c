"""Antigravity: `importer` is what sync calls; the format is in docs/formats/antigravity.md."""

AGENT = "antigravity"
