"""From Redis to the log: drain streams and fold their entries."""
