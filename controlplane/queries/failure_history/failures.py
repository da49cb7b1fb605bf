"""Failures by their filter: pages of the log, limited by the groups and tasks of the views.

A value without any failure is found in a view, without reading the log.
"""

from __future__ import annotations

from collections.abc import Set
from datetime import UTC, datetime, timedelta
from typing import Annotated
from uuid import UUID

import msgspec
from django.db.models import Max, Q
from msgspec import Meta
from msgspec.structs import replace

from arrester.controlplane import models, store
from arrester.controlplane.queries import paging, sql
from arrester.controlplane.queries.paging import Page
from arrester.controlplane.store import prepared_statements
from arrester.controlplane.store.column_values import ANY, MAX_BIGINT, fit, fit_or_none
from arrester.controlplane.views import row_mapping
from arrester.domain.errors import InvalidValue, NotFound
from arrester.domain.events import FinalResponse, StoredEvent
from arrester.domain.identity.names import TaskDigest, TaskId

#: The name of the list in cursors.
FAILURES = "failures"
#: Up to this many error groups are scanned one by one. A stage or class of more groups is frequent
#: enough to fill a page from the log in order.
FEW = 50
_AN_HOUR = timedelta(hours=1)
#: The smallest time from which an hour can be subtracted.
_EARLIEST = datetime(2, 1, 1, tzinfo=UTC)
#: Step from one class to the next in the index, so that the number of groups does not matter.
_CLASSES_ENDING = """
WITH RECURSIVE class (name, number) AS (
    SELECT min(exception_class), 1 FROM error_group
    UNION ALL
    SELECT (SELECT min(exception_class) FROM error_group WHERE exception_class > name), number + 1
    FROM class WHERE name IS NOT NULL AND number < 2000
)
SELECT name FROM class WHERE right(name, %s) = %s ORDER BY name LIMIT 5
"""


class FailureFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of failures; None means any. Times are of occurrence."""

    application: str | None = None
    pipeline: str | None = None
    task: TaskDigest | None = None
    stage: str | None = None
    exception_class: Annotated[
        str | None,
        Meta(description="The full name, with its package; 400 lists full names of a short one."),
    ] = None
    fingerprint: str | None = None
    response: Annotated[FinalResponse | None, Meta(description="The response of the agent.")] = None
    instance: Annotated[UUID | None, Meta(description="The instance that reported it.")] = None
    key: Annotated[str | None, Meta(description="The key of the record's task.")] = None
    record_key: Annotated[
        str | None,
        Meta(description="The key of the record. Of failures that were reported in full."),
    ] = None
    text: Annotated[
        str | None,
        Meta(
            description="Words of the message in their order. Failures that were only counted have"
            " no message. Newest receipt first."
        ),
    ] = None
    #: Application and fingerprint of the error groups.
    groups: Set[tuple[str, str]] | None = None
    since: datetime | None = None
    until: datetime | None = None


def indexed_failures(
    wanted: FailureFilter, *, cursor: str | None = None, limit: int = 50
) -> Page[StoredEvent]:
    """Return failures as `filtered_failures.failures`, by the filters that have an index."""
    before, limit = (
        paging.unpack(cursor, tuple[datetime, str, int], of=FAILURES),
        paging.checked(limit),
    )
    query = query_of(wanted, before=before)
    if query is None:
        return Page(rows=())
    portion = store.read_failures(query, limit=limit + 1)
    if len(portion.events) > limit or portion.end is None:
        page = paging.page(portion.events, of=FAILURES, limit=limit, key=store.newest)
    else:
        page = Page(
            rows=tuple(portion.events),
            next=paging.pack(portion.end, of=FAILURES),
            searched_until=portion.end[0],
        )
    return replace(page, rows=tuple(each for each in page.rows if _is_of(each, wanted.groups)))


def _is_of(stored: StoredEvent, groups: Set[tuple[str, str]] | None) -> bool:
    """Whether a failure is of one of the groups; None means any."""
    failure = getattr(stored.event.data, "failure", None)
    return groups is None or (
        failure is not None and (stored.application, failure.fingerprint) in groups
    )


def query_of(wanted: FailureFilter, *, before: store.Newest | None) -> store.FailureQuery | None:
    """Return what to read for the page after `before`; None if no failure can match."""
    query = store.FailureQuery(
        pipeline=wanted.pipeline,
        # Columns and lists have these cut to the same length.
        stage=fit_or_none(wanted.stage),
        exception_class=fit_or_none(wanted.exception_class),
        since=wanted.since,
        until=wanted.until,
        before=before,
    )
    if wanted.task is None:
        names = _applications(wanted)
        if wanted.key is not None:
            names = _with_key(names, wanted.key)
        query = replace(query, applications=names)
    else:
        digest = paging.task_id(wanted.task)
        tasks = row_mapping.TASKS.load_prepared("digest = %s", [digest])
        if not tasks or not _may_match(tasks[0].id, wanted):
            return None
        names = [tasks[0].id.application]
        last = _last_log_position(names[0], wanted)
        if last is None:
            return None
        query = replace(query, task=(names[0], digest), pipeline=None, until_sequence=last)
    groups = _groups(names, wanted) if names else []
    if groups == []:
        return None
    # Each of the groups has the requested stage.
    return query if groups is None else replace(query, groups=groups, stage=None)


def _may_match(task: TaskId, wanted: FailureFilter) -> bool:
    return wanted.application in (None, task.application) and wanted.pipeline in (
        None,
        task.pipeline,
    )


def _applications(wanted: FailureFilter) -> list[str]:
    """Return the applications that can have the failures; every failed task has a row."""
    names = (
        [each.application for each in store.all_streams()]
        if wanted.application is None
        else [wanted.application]
    )
    if wanted.pipeline is None:
        return names
    rows = prepared_statements.rows(
        "SELECT name FROM unnest(%s::text[]) AS log (name) CROSS JOIN LATERAL ("
        "SELECT FROM task WHERE application = name AND pipeline = %s LIMIT 1) AS task",
        [names, wanted.pipeline],
    )
    return [name for (name,) in rows]


def _with_key(names: list[str], key: str) -> list[str]:
    """Return the applications that have a task of the key."""
    tasks = models.Task.objects.filter(application__in=names, key=key)
    return [*tasks.values_list("application", flat=True).distinct()]


def _groups(names: list[str], wanted: FailureFilter) -> list[tuple[str, str]] | None:
    """Return the groups of a fingerprint, stage and class; None if they are many, or any."""
    if wanted.groups is not None:
        return sorted(wanted.groups) if len(wanted.groups) <= FEW else None
    if not (wanted.fingerprint or wanted.stage or wanted.exception_class):
        return None
    groups = models.ErrorGroup.objects.filter(application__in=names)
    if wanted.fingerprint:
        groups = groups.filter(fingerprint=wanted.fingerprint)
    if wanted.stage:
        groups = groups.filter(stage=fit(wanted.stage))
    if wanted.exception_class:
        # One of Spark's error conditions can be raised as several classes.
        name = fit(wanted.exception_class)
        groups = groups.filter(Q(exception_class=name) | Q(other_classes__overlap=[name, ANY]))
    keys = groups.values_list("application", "fingerprint")
    # A fingerprint has at most one group in each application.
    group_keys = list(keys if wanted.fingerprint else keys[: FEW + 1])
    return group_keys if wanted.fingerprint or len(group_keys) <= FEW else None


def _last_log_position(application: str, wanted: FailureFilter) -> int | None:
    """Return a log position after which no failure is in the filter's time range; None if none is.

    Each hour's total has the log position of the hour's last failure.
    """
    if wanted.since is None and wanted.until is None:
        return MAX_BIGINT
    hours = models.HourTotal.objects.filter(application=application)
    if wanted.since is not None:
        hours = hours.filter(hour__gt=max(wanted.since, _EARLIEST) - _AN_HOUR)
    if wanted.until is not None:
        hours = hours.filter(hour__lt=wanted.until)
    last: int | None = hours.aggregate(last=Max("sequence"))["last"]
    return last


def check_class(name: str) -> None:
    """Raise InvalidValue for a class without its package, naming the full names that end with it.

    Failures are found by the full name only: the other classes of an error condition are stored
    with each group, so no list of all classes exists to complete the name from.
    """
    if "." in name:
        return
    name = fit(name)
    groups = models.ErrorGroup.objects.all()
    # A class defined in the main module has no package.
    either = Q(exception_class=name), Q(other_classes__overlap=[name])
    if any(groups.filter(each).exists() for each in either):
        return
    full_names = [each for (each,) in sql.rows(_CLASSES_ENDING, [len(name) + 1, f".{name}"])]
    suggestion = f": {', '.join(full_names)}" if full_names else ""
    raise InvalidValue("exception_class", name, f"the whole name, with its package{suggestion}")


def check_pipeline(application: str, pipeline: str) -> None:
    """Raise NotFound for a pipeline that had neither a run nor a failure."""
    of_pipeline = {"application": application, "pipeline": pipeline}
    if not any(
        model._default_manager.filter(**of_pipeline).exists()
        for model in (models.Thread, models.FailureTotal)
    ):
        raise NotFound(f"there is no pipeline {pipeline!r} in {application!r}")


def check_group(fingerprint: str, application: str | None = None) -> None:
    """Raise NotFound for an error group that does not exist, in any or in one application."""
    logs = (
        [each.application for each in store.all_streams()] if application is None else [application]
    )
    groups = models.ErrorGroup.objects.filter(application__in=logs, fingerprint=fingerprint)
    if not groups.exists():
        where = "" if application is None else f"{application} "
        raise NotFound(f"there is no error group {where}{fingerprint!r}")
