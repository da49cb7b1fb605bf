"""What happened: reads of the log and of the counts per minute."""

from __future__ import annotations

from datetime import UTC, date, datetime
from uuid import UUID

from django.db.models import Max, Q, Sum

from controlplane import models, rows, store
from controlplane.columns import MOST, fit, fit_or_none
from controlplane.domain.errors import BeforeHistory, InvalidValue, NotFound
from controlplane.domain.events import StoredEvent
from controlplane.queries import cursors
from controlplane.queries.answers import MinuteCount, Page
from controlplane.queries.filters import FailureFilter

#: So many short index scans are quicker than a long one.
FEW_GROUPS = 50


def event(application: str, sequence: int) -> StoredEvent:
    """Return one event with its body; raise NotFound, or BeforeHistory when it was dropped."""
    if not 0 < sequence <= MOST:
        raise NotFound(f"there is no event {application} @ {sequence}")
    begin = store.base(application)
    if sequence <= begin.position:
        raise BeforeHistory(application, position=begin.position, moment=begin.received_at)
    return store.read_one(application, sequence)


def event_if_kept(application: str, sequence: int) -> StoredEvent | None:
    """Return one event with its body; None for position 0, and for what retention has dropped."""
    try:
        return store.read_one(application, sequence) if sequence else None
    except NotFound:
        return None


def task_history(
    digest: str, *, cursor: str | None = None, limit: int = 50, until: int = MOST
) -> Page[StoredEvent]:
    """Return what happened to a task, newest first, without bodies; commands for it included.

    Nothing that stands after position `until` is in it.
    """
    task = _uuid("task", digest)
    found = rows.TASKS.load("digest = %s", [task])
    if not found:
        raise NotFound(f"there is no task {digest!r}")
    application = found[0].id.application
    commands = rows.COMMANDS.load("application = %s AND task = %s", [application, task])
    events = store.read_about(
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
    """Return failures (RecordFailed, FailuresCounted) by when they occurred, newest first; those
    of a task by when they were told.

    `event.data.count` of all rows sums up to the failed records; bodies are left out.
    """
    names, last_day = _logs(filter)
    wanted = store.Failures(
        applications=names,
        last_day=last_day,
        groups=_groups(names, filter),
        task=None if filter.task is None else _uuid("task", filter.task),
        pipeline=filter.pipeline,
        # As lists show them: cut where they are cut.
        stage=fit_or_none(filter.stage),
        exception_class=fit_or_none(filter.exception_class),
        since=filter.since,
        until=filter.until,
        until_position=_last_of(names, filter),
        before=cursors.unpack(cursor, tuple[datetime, str, int]),
    )
    return cursors.page(
        store.read_failures(wanted, limit=cursors.bounded(limit) + 1),
        limit=limit,
        key=lambda each: (each.event.occurred_at, each.application, each.sequence),
    )


def _last_of(names: list[str], filter: FailureFilter) -> int:
    """Return a position behind which no failure of the task stands that is meant: each hour knows
    its last one, whatever failed."""
    if filter.task is None or filter.until is None:
        return MOST
    before = models.HourTotal.objects.filter(application__in=names, hour__lt=filter.until)
    found: int | None = before.aggregate(last=Max("sequence"))["last"]
    return found or 0


def _logs(filter: FailureFilter) -> tuple[list[str], date | None]:
    """Return the applications that are meant, and the day of their newest event where it is known:
    the partitions behind it are left out, which is worth most where many logs are looked into."""
    if filter.task is not None:
        found = rows.TASKS.load("digest = %s", [_uuid("task", filter.task)])
        names = [each.id.application for each in found]
        return [name for name in names if filter.application in (None, name)], None
    if filter.application is not None:
        return [filter.application], None
    logs = store.known()
    came = [each.received_at for each in logs if each.received_at is not None]
    last_day = max(came).astimezone(UTC).date() if came else None
    return [each.application for each in logs], last_day


def _groups(names: list[str], filter: FailureFilter) -> list[tuple[str, str]] | None:
    """Return the groups of a stage or class, where they are few.

    A rare one would be looked for through all that failed; of a common one, each page is full soon.
    """
    if filter.fingerprint is not None:
        return [(name, filter.fingerprint) for name in names]
    if filter.task or not (filter.stage or filter.exception_class):
        return None
    known = models.ErrorGroup.objects.filter(application__in=names)
    if filter.stage:
        known = known.filter(stage=fit(filter.stage))
    if filter.exception_class:
        # One of Spark's error conditions may come in exceptions of several classes.
        has_condition = ~Q(state__contains='"condition":null')
        known = known.filter(Q(exception_class=fit(filter.exception_class)) | has_condition)
    found = list(known.values_list("application", "fingerprint")[: FEW_GROUPS + 1])
    return found if len(found) <= FEW_GROUPS else None


def _uuid(name: str, digest: str) -> UUID:
    try:
        return UUID(hex=digest)
    except ValueError as exc:
        raise InvalidValue(name, digest, "32 hexadecimal digits") from exc


def minutes(
    application: str | None = None,
    *,
    since: datetime,
    until: datetime,
    pipeline: str | None = None,
    fingerprint: str | None = None,
) -> tuple[MinuteCount, ...]:
    """Return failed records per minute of [since, until), minutes without any left out."""
    equal = {"application": application, "pipeline": pipeline, "fingerprint": fingerprint}
    wanted = {column: value for column, value in equal.items() if value is not None}
    model: type[models.MinuteTotal] | type[models.MinuteCount] = models.MinuteTotal
    if wanted.keys() - {"application"}:
        model = models.MinuteCount
    found = model._default_manager.filter(minute__gte=since, minute__lt=until, **wanted)
    counted = found.values("minute").annotate(total=Sum("count")).order_by("minute")
    return tuple(MinuteCount(minute=each["minute"], count=int(each["total"])) for each in counted)
