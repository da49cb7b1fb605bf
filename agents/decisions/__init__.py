"""From failed records to CONTINUE, RETRY, PAUSE or FAIL."""
