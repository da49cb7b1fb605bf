"""Commands: validation, reactions, timeouts."""
