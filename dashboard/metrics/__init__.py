"""`/metrics`: the state of all applications and of the server, for Prometheus.

`docs/reference/metrics.md` lists each metric.
"""

from __future__ import annotations

from arrester.dashboard.metrics.view import MetricsView

__all__ = ["MetricsView"]
