"""Sources: their identity, topics and folders, and how many of their records a write reads."""
