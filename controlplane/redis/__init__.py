"""The Redis of the server: client, streams of events, heartbeats, since when it is reachable."""
