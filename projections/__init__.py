"""Everything that can be thrown away: read models made from the log, and the queries they answer."""
