"""Commands of a run: for its tasks and policies, and for dead letters to process once more."""
