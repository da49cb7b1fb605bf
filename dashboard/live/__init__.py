"""Live pages: the stream of server-sent events and its hub."""
