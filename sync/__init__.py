"""Effects outside the log: login, push, reconcile, prune, schedule, and the queries asked of a server."""
