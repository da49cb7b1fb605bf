"""The commands of `arrester` that use a server through its REST API."""
