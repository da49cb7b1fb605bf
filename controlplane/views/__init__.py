"""The read tables derived from the log."""
