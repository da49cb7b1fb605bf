"""The only code that touches the tables event, event_body, batch_seen, stream and quarantine.

The log only grows, and only under the lock of its stream: whoever appends counts the sequence on,
so nothing ever appears behind a reader.
"""

from __future__ import annotations

from controlplane.store.appending import Batch, append, ensure_partitions, notify, remember
from controlplane.store.log import (
    Failures,
    read,
    read_about,
    read_failures,
    read_next,
    read_one,
)
from controlplane.store.quarantine import (
    KeptAside,
    count_kept_aside,
    keep_aside,
    mark_requeued,
    read_kept_aside,
    waiting_kept_aside,
)
from controlplane.store.streams import (
    BEGINNING,
    Stream,
    begin_again,
    exclusively,
    known,
    lock,
    look,
    move,
    open_stream,
    seen,
)

__all__ = [
    "BEGINNING", "Batch", "Failures", "KeptAside", "Stream", "append", "begin_again",
    "count_kept_aside", "ensure_partitions", "exclusively", "keep_aside", "known", "lock", "look",
    "mark_requeued", "move", "notify", "open_stream", "read", "read_about", "read_failures",
    "read_kept_aside", "read_next", "read_one", "remember", "seen", "waiting_kept_aside",
]  # fmt: skip
