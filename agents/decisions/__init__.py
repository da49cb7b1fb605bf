"""Decide the response to failed records: CONTINUE, RETRY, PAUSE or FAIL."""
