"""Identifiers, names, keys and fingerprints."""
