"""prosa: one local, searchable, permanent timeline of the work done through AI coding agents."""

__version__ = "0.1.0"
