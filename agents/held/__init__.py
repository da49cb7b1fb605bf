"""Records held for paused and dead tasks."""
