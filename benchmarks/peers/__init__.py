"""Arrester beside other tools that skip malformed records of a topic."""
