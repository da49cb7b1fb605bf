"""The current state of applications, runs, tasks and instances."""
