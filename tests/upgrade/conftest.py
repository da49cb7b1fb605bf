from __future__ import annotations

from tests.agents.conftest import bench

__all__ = ["bench"]
