"""One run of one pipeline: streaming query, micro-batch loop, commit, publish."""
