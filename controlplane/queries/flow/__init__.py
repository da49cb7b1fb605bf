"""What flows through pipelines: now, over time, and by run."""
