"""Failures as they occurred: pages of the log, error groups, causes, trends."""
