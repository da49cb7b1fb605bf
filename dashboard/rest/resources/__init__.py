"""REST: a module for each resource."""
