"""The error policy: classification, retry, tolerance, settings."""
