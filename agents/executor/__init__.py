"""What runs on executors, as `_arrester_worker`; it needs PySpark and PyArrow, no more."""

from __future__ import annotations
