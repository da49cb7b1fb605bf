"""Spans of OpenTelemetry from events: the path of a failure, its fold and its commands."""
