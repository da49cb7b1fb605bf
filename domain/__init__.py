"""The shared core: events, states and rules. It does not use Django, Spark or Redis."""
