"""The feed of events over REST: by page, as lines of JSON, and as server-sent events."""
