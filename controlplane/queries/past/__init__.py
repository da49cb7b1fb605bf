"""States as of a position or a time in the past."""
