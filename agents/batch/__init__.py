"""One micro-batch: fast path, slow path, record columns."""
