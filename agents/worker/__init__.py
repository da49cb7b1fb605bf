"""Code that runs on executors, as `_arrester_worker`; it needs only PySpark and PyArrow."""

from __future__ import annotations
