"""The history in the log: one event, the events of a task, and changes of states."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from arrester.controlplane import store
from arrester.controlplane.queries import paging
from arrester.controlplane.queries.paging import Page, task_id
from arrester.controlplane.store.column_values import MAX_BIGINT
from arrester.controlplane.views import row_mapping
from arrester.domain.errors import BeforeHistory, NotFound
from arrester.domain.events import StoredEvent


class Neighbours(msgspec.Struct, frozen=True, kw_only=True):
    """The previous and the next occurrence of the same error, by sequence."""

    older: int | None = None
    newer: int | None = None


def event(application: str, sequence: int) -> StoredEvent:
    """Return one event with its body; raise NotFound, or BeforeHistory if it was dropped."""
    if not 0 < sequence <= MAX_BIGINT:
        raise NotFound(f"there is no event {application} @ {sequence}")
    begin = store.base(application)
    if sequence <= begin.position:
        raise BeforeHistory(application, position=begin.position, moment=begin.received_at)
    return store.read_one(application, sequence)


def event_if_kept(application: str, sequence: int) -> StoredEvent | None:
    """Return one event with its body; None for position 0, and for dropped events."""
    try:
        return store.read_one(application, sequence) if sequence else None
    except NotFound:
        return None


def task_history(
    digest: str, *, cursor: str | None = None, limit: int = 50, until: int = MAX_BIGINT
) -> Page[StoredEvent]:
    """Return the events of a task, newest first, without bodies, including its commands.

    Events after position `until` are left out.
    """
    task = task_id(digest)
    tasks = row_mapping.TASKS.load_prepared("digest = %s", [task])
    if not tasks:
        raise NotFound(f"there is no task {digest!r}")
    application = tasks[0].id.application
    commands = row_mapping.COMMANDS.load_prepared(
        "application = %s AND task = %s", [application, task]
    )
    events = store.read_task_history(
        application,
        task=task,
        commands=[command.id for command in commands],
        before=min(paging.unpack(cursor, int, of=paging.OF_TASK) or MAX_BIGINT, until + 1),
        limit=paging.checked(limit) + 1,
    )
    return _page(events, limit, of=paging.OF_TASK)


def state_changes(
    application: str, *, cursor: str | None = None, limit: int = 50
) -> Page[StoredEvent]:
    """Return the events that changed a state in an application, newest first: its timeline.

    Failed records are in the lists of errors; here are their consequences.
    """
    before = paging.unpack(cursor, int, of="state changes")
    events = store.read_state_changes(application, before=before, limit=paging.checked(limit) + 1)
    return _page(events, limit, of="state changes")


def task_state_changes(
    digest: str, *, cursor: str | None = None, limit: int = 50
) -> Page[StoredEvent]:
    """Return the events that changed a task's state, and its commands, newest first."""
    before = paging.unpack(cursor, int, of=paging.OF_TASK)
    events = store.read_task_state_changes(
        task_id(digest), before=before, limit=paging.checked(limit) + 1
    )
    return _page(events, limit, of=paging.OF_TASK)


def neighbours(stored: StoredEvent) -> Neighbours:
    """Return the occurrences of the same group before and after one that was reported in full."""
    return Neighbours(
        older=store.read_next(stored, newer=False), newer=store.read_next(stored, newer=True)
    )


def _page(events: Sequence[StoredEvent], limit: int, *, of: str) -> Page[StoredEvent]:
    return paging.page(events, of=of, limit=limit, key=lambda each: each.sequence)
