"""Plans and expressions of Catalyst: what they read, guards around them, counters of rows."""
