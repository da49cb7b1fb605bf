"""The wire format of events and batches."""
