"""History: reads of the log and of the counts per minute."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Sum

from arrester.controlplane import models, store
from arrester.controlplane.domain.errors import BeforeHistory, NotFound
from arrester.controlplane.domain.events import StoredEvent
from arrester.controlplane.queries import cursors
from arrester.controlplane.queries.failure_history import search
from arrester.controlplane.queries.filters import FailureFilter, task_id
from arrester.controlplane.queries.results import MinuteCount, Page
from arrester.controlplane.store.column_limits import MOST
from arrester.controlplane.views import row_mapping


def event(application: str, sequence: int) -> StoredEvent:
    """Return one event with its body; raise NotFound, or BeforeHistory if it was dropped."""
    if not 0 < sequence <= MOST:
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
    digest: str, *, cursor: str | None = None, limit: int = 50, until: int = MOST
) -> Page[StoredEvent]:
    """Return the events of a task, newest first, without bodies, including its commands.

    Events after position `until` are left out.
    """
    task = task_id(digest)
    found = row_mapping.TASKS.known("digest = %s", [task])
    if not found:
        raise NotFound(f"there is no task {digest!r}")
    application = found[0].id.application
    commands = row_mapping.COMMANDS.known("application = %s AND task = %s", [application, task])
    events = store.read_task_history(
        application,
        task=task,
        commands=[command.id for command in commands],
        before=min(cursors.unpack(cursor, int) or MOST, until + 1),
        limit=cursors.bounded(limit) + 1,
    )
    return cursors.page(events, limit=limit, key=lambda each: each.sequence)


def group_occurrences(
    application: str, fingerprint: str, *, cursor: str | None = None, limit: int = 50
) -> Page[StoredEvent]:
    """Return the failures of a group (RecordFailed, FailuresCounted), newest first."""
    wanted = FailureFilter(application=application, fingerprint=fingerprint)
    return failures(wanted, cursor=cursor, limit=limit)


def failures(
    filter: FailureFilter, *, cursor: str | None = None, limit: int = 50
) -> Page[StoredEvent]:
    """Return failures (RecordFailed, FailuresCounted) by time of occurrence, newest first; those of
    a task by time of receipt.

    `event.data.count` of all rows sums up to the failed records; bodies are left out.

    A page reads a bounded number of rows of the log. If it ends before it is full, `searched_until`
    is the time up to which it searched, and `next` continues.
    """
    before = cursors.unpack(cursor, tuple[datetime, str, int])
    most = cursors.bounded(limit)
    wanted = search.search(filter, before=before)
    if wanted is None:
        return Page(rows=())
    found = store.read_failures(wanted, limit=most + 1)
    if len(found.events) > most or found.end is None:
        return cursors.page(found.events, limit=most, key=store.newest)
    return Page(rows=tuple(found.events), next=cursors.pack(found.end), searched_until=found.end[0])


def minutes(
    application: str | None = None,
    *,
    since: datetime,
    until: datetime,
    pipeline: str | None = None,
    fingerprint: str | None = None,
) -> tuple[MinuteCount, ...]:
    """Return failed records per minute of [since, until), without empty minutes."""
    equal = {"application": application, "pipeline": pipeline, "fingerprint": fingerprint}
    wanted = {column: value for column, value in equal.items() if value is not None}
    model: type[models.MinuteTotal] | type[models.MinuteCount] = models.MinuteTotal
    if wanted.keys() - {"application"}:
        model = models.MinuteCount
    found = model._default_manager.filter(minute__gte=since, minute__lt=until, **wanted)
    counted = found.values("minute").annotate(total=Sum("count")).order_by("minute")
    return tuple(MinuteCount(minute=each["minute"], count=int(each["total"])) for each in counted)
