"""Commands and requests to agents by Redis."""
