"""What happens to a failed record: classification, retry, tolerance, settings."""
