"""The only code that touches the tables of the log: event, event_body, batch_seen, stream,
quarantine, snapshot, base and base_state.

The log only grows, and only under the lock of its stream: whoever appends counts the sequence on,
so nothing ever appears behind a reader.
"""

from __future__ import annotations

from controlplane.store.appending import (
    Batch,
    Dropped,
    append,
    drop_days,
    ensure_partitions,
    notify,
    remember,
)
from controlplane.store.bodies import erase_body, vacuum
from controlplane.store.kept import (
    Base,
    Kept,
    base,
    keep_base,
    kept,
    kept_in_base,
    kept_of,
    nearest,
    replace_snapshots,
    snapshot_views,
)
from controlplane.store.lists import (
    Acts,
    DeadLetters,
    count_by_task,
    read_acts,
    read_acts_on_group,
    read_dead_letters,
    read_examples,
    read_notes_on_command,
)
from controlplane.store.log import (
    Failures,
    follow,
    last_before,
    position_at,
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
    maintaining,
    move,
    open_stream,
    seen,
)

__all__ = [
    "BEGINNING", "Acts", "Base", "Batch", "DeadLetters", "Dropped", "Failures", "Kept",
    "KeptAside", "Stream", "append", "base", "begin_again", "count_by_task", "count_kept_aside",
    "drop_days", "ensure_partitions", "erase_body", "exclusively", "follow", "keep_aside",
    "keep_base", "kept", "kept_in_base", "kept_of", "known", "last_before", "lock", "look",
    "maintaining", "mark_requeued", "move", "nearest", "notify", "open_stream", "position_at",
    "read", "read_about", "read_acts", "read_acts_on_group", "read_dead_letters", "read_examples",
    "read_failures", "read_kept_aside", "read_next", "read_notes_on_command", "read_one",
    "remember", "replace_snapshots", "seen", "snapshot_views", "vacuum", "waiting_kept_aside",
]  # fmt: skip
