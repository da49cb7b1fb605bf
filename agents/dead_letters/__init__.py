"""Skipped records, stored with their errors in files or Kafka."""
