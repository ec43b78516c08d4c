"""Effects outside the log: login, push, reconcile, prune, schedule. Nothing of it is built yet."""
