"""Exceptions of the JVM: their causes, and the problems that tables list."""
