"""Pi: `importer` is what sync calls; the format is in docs/formats/pi.md."""

AGENT = "pi"
