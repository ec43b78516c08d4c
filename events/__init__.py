"""The event log and the raw store: the truth that everything else is made from."""
