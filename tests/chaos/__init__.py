"""The whole product under a seeded schedule of faults; the outcome of each record is known."""
