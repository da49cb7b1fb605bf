"""How long a test waits for what must come.

Only a test that fails waits so long, so that none fails because the machine is busy.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_SECONDS = 300.0
PATIENCE_MS = 300_000


def wait_until(condition: Callable[[], object], *, what: str = "") -> None:
    """Return when `condition` holds; fail when it does not come true."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what or condition}"
        time.sleep(0.02)
