"""Micro-batches and held records of a run: their path, their commit and their writes."""
