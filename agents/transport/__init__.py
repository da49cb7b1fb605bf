"""Events to the server and commands back: spool, Redis, confirmations."""
