"""Hermes: `importer` is what sync calls; the format is in docs/formats/hermes.md."""

AGENT = "hermes"
