"""Tools of the repository, run by the Makefile."""
