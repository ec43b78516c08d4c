"""Claude Code: `importer` is what sync calls; the format is in docs/formats/claude-code.md."""

AGENT = "claude-code"
