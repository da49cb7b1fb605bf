"""Benchmarks: `make bench`, described in docs/performance.md."""
