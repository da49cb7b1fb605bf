"""All access to the JVM of a session: its classes, plans, exceptions, jobs and file systems."""
