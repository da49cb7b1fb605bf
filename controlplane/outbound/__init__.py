"""Commands and requests to agents by Redis, and the heartbeats that they are based on."""
