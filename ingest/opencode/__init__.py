"""OpenCode: `importer` is what sync calls; the format is in docs/formats/opencode.md."""

AGENT = "opencode"
