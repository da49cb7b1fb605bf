"""Time to encode a batch and to write it to the spool, on the thread of the pipeline."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from uuid import UUID

from arrester.agents.transport.spool import Spool
from benchmarks.events import batches


def microseconds_per_event(*, events: int) -> float:
    """Return the time of `put` per event, in batches of 100."""
    prepared = list(batches("spool", events))
    with tempfile.TemporaryDirectory(prefix="arrester-bench-") as folder:
        spool = Spool(Path(folder) / "spool.db", id=UUID(int=1), limit_bytes=2**30)
        begin = time.perf_counter()
        for batch, some in prepared:
            spool.put(batch, some)
        seconds = time.perf_counter() - begin
        spool.close()
    return seconds / events * 1e6
