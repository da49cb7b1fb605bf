"""The feed of events, and its cursor."""
