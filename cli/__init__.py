"""Arguments in, text out, exit codes: one module for each command."""
