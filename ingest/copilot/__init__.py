"""GitHub Copilot CLI: `importer` is what sync calls; the format is in docs/formats/copilot.md."""

AGENT = "copilot"
