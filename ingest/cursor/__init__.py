"""Cursor: `importer` is what sync calls; the format is in docs/formats/cursor.md."""

AGENT = "cursor"
