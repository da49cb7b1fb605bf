"""From the server to the agents: commands, backpressure, heartbeats, drift checks."""
