"""The only code that touches the tables of the log: batch, event, batch_seen, stream,
ids_kept, quarantine, limit_reached, snapshot, base, base_state, record_block, record_group and
record_index.

The log is append-only. Appends hold the row lock of the stream and number events without gaps, so
a reader never misses an event.
"""

from __future__ import annotations

from arrester.controlplane.store.appending import (
    Dropped,
    NewBatch,
    advance_stream,
    append,
    bytes_by_day,
    copying,
    drop_days,
    ensure_partitions,
    lay_out_rows,
    notify,
    record_batches,
)
from arrester.controlplane.store.audit_reads import (
    ActionQuery,
    begin_of_log,
    count_by_task,
    read_actions,
    read_events,
    read_examples,
    read_examples_before,
    read_group_actions,
    read_notes_on_command,
    read_of_task,
)
from arrester.controlplane.store.batches import (
    erase_body,
    heads_of_batches,
    read_failed_records,
    vacuum,
    with_bodies,
)
from arrester.controlplane.store.failures import CANDIDATES, FailureQuery, read_failures
from arrester.controlplane.store.limit_counts import Limit, count_reached
from arrester.controlplane.store.log import (
    Newest,
    last_before,
    newest,
    position_at,
    read,
    read_batch,
    read_following,
    read_next,
    read_next_of_task,
    read_one,
    read_positions,
    read_stored,
    read_task_history,
)
from arrester.controlplane.store.quarantine import (
    INVALID_ENTRIES,
    EntrySelection,
    QuarantinedEntry,
    WaitingEntries,
    add_to_quarantine,
    count_waiting_entries,
    delete_old_entries,
    dismiss_entries,
    mark_requeued,
    quarantined_batches,
    read_quarantine,
    read_quarantined_entry,
    read_waiting_entries,
)
from arrester.controlplane.store.record_index.blocks import (
    RecordBlock,
    RecordKey,
    forget_blocks,
    index_again,
    index_records,
    indexed_positions,
)
from arrester.controlplane.store.record_index.candidates import candidate_blocks
from arrester.controlplane.store.record_index.read_blocks import HeadFilter, read_blocks
from arrester.controlplane.store.record_index.terms import RecordQuery, fields_of, record_fields
from arrester.controlplane.store.snapshot_rows import (
    LogBeginning,
    StoredState,
    base,
    base_states,
    bases,
    delete_base_buckets,
    delete_old_states,
    delete_snapshots,
    nearest_snapshot,
    next_snapshot,
    save_base,
    snapshot_states,
    snapshot_views,
    states_at,
)
from arrester.controlplane.store.state_changes import (
    RunEnd,
    count_replaced_threads,
    read_ends,
    read_next_stops,
    read_runs,
    read_state_changes,
    read_task_state_changes,
    run_ends,
)
from arrester.controlplane.store.streams import (
    BEGINNING,
    LogStream,
    StreamLocked,
    all_streams,
    batch_ids_since,
    copy_in,
    limit_statements,
    lock,
    maintenance_lock,
    move_cursor,
    open_stream,
    read_stream,
    reset_cursor,
    seen_batches,
    send_lock,
    send_seen_batches,
    terminate_stuck_fold,
    try_alert_lock,
    try_fold_lock,
    try_housekeeping_lock,
    try_maintenance_lock,
    try_snapshot_lock,
    wait_for_agent_user_lock,
    wait_for_snapshot_lock,
    waiting_at_most,
)

__all__ = [
    "BEGINNING", "CANDIDATES", "INVALID_ENTRIES", "ActionQuery", "Dropped", "EntrySelection",
    "FailureQuery", "HeadFilter", "Limit", "LogBeginning", "LogStream", "NewBatch", "Newest",
    "QuarantinedEntry", "RecordBlock", "RecordKey", "RecordQuery", "RunEnd", "StoredState",
    "StreamLocked", "WaitingEntries", "add_to_quarantine", "advance_stream", "all_streams",
    "append", "base", "base_states", "bases", "batch_ids_since", "begin_of_log", "bytes_by_day",
    "candidate_blocks", "copy_in", "copying", "count_by_task", "count_reached",
    "count_replaced_threads", "count_waiting_entries", "delete_base_buckets",
    "delete_old_entries", "delete_old_states", "delete_snapshots", "dismiss_entries",
    "drop_days", "ensure_partitions", "erase_body", "fields_of", "forget_blocks",
    "heads_of_batches", "index_again", "index_records", "indexed_positions", "last_before",
    "lay_out_rows", "limit_statements", "lock", "maintenance_lock", "mark_requeued",
    "move_cursor", "nearest_snapshot", "newest", "next_snapshot", "notify", "open_stream",
    "position_at", "quarantined_batches", "read", "read_actions", "read_batch", "read_blocks",
    "read_ends", "read_events", "read_examples", "read_examples_before", "read_failed_records",
    "read_failures", "read_following", "read_group_actions", "read_next", "read_next_of_task",
    "read_next_stops", "read_notes_on_command", "read_of_task", "read_one", "read_positions",
    "read_quarantine", "read_quarantined_entry", "read_runs", "read_state_changes",
    "read_stored", "read_stream", "read_task_history", "read_task_state_changes",
    "read_waiting_entries", "record_batches", "record_fields", "reset_cursor", "run_ends",
    "save_base", "seen_batches", "send_lock", "send_seen_batches", "snapshot_states",
    "snapshot_views", "states_at", "terminate_stuck_fold", "try_alert_lock", "try_fold_lock",
    "try_housekeeping_lock", "try_maintenance_lock", "try_snapshot_lock", "vacuum",
    "wait_for_agent_user_lock", "wait_for_snapshot_lock", "waiting_at_most", "with_bodies",
]  # fmt: skip
