"""Steps over rows, and isolation of failing records by bisection."""
