"""Texts for people: events, policies, audit entries, records."""
