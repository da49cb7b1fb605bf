"""REST: the same reads and actions as the pages, for programs."""
