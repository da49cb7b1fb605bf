"""The commands: a module for each, or for those of one subject."""
