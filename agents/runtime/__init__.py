"""The instance: start, commands, uncaught exceptions, heartbeat, shutdown."""
