"""Deliberate faults, each of which the default suite must detect."""
