"""From Redis to the log: fold the entries of streams."""
