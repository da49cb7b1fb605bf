"""Run events of OpenLineage: which data a pipeline reads and writes, and how many records fail."""
