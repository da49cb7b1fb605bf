"""Measurements, each beside yardsticks of the same run: `make bench`, described in
docs/performance.md."""
