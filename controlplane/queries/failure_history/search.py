"""Where in the logs the failures of a filter can be, according to groups and tasks of the views.

A value without any failure is found in a view, without reading the log.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.db import connection
from django.db.models import Max, Q
from msgspec.structs import replace

from arrester.controlplane import models, store
from arrester.controlplane.domain.errors import InvalidValue, NotFound
from arrester.controlplane.queries.filters import FailureFilter, task_id
from arrester.controlplane.store import prepared_statements
from arrester.controlplane.store.column_limits import ANY, MOST, fit, fit_or_none
from arrester.controlplane.views import row_mapping

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
    with connection.cursor() as cursor:
        cursor.execute(_CLASSES_ENDING, [len(name) + 1, f".{name}"])
        found = [each for (each,) in cursor.fetchall()]
    known = f": {', '.join(found)}" if found else ""
    raise InvalidValue("exception_class", name, f"the whole name, with its package{known}")


def check_group(fingerprint: str, application: str | None = None) -> None:
    """Raise NotFound for an error group that does not exist, in any or in one application."""
    logs = (
        [each.application for each in store.all_streams()] if application is None else [application]
    )
    groups = models.ErrorGroup.objects.filter(application__in=logs, fingerprint=fingerprint)
    if not groups.exists():
        where = "" if application is None else f"{application} "
        raise NotFound(f"there is no error group {where}{fingerprint!r}")


def search(filter: FailureFilter, *, before: store.Newest | None) -> store.FailureQuery | None:
    """Return what to read for the page after `before`; None if no failure can match."""
    found = store.FailureQuery(
        pipeline=filter.pipeline,
        # Columns and lists have these cut to the same length.
        stage=fit_or_none(filter.stage),
        exception_class=fit_or_none(filter.exception_class),
        since=filter.since,
        until=filter.until,
        before=before,
    )
    return _in_logs(found, filter) if filter.task is None else _in_task(found, filter, filter.task)


def _in_task(
    found: store.FailureQuery, filter: FailureFilter, digest: str
) -> store.FailureQuery | None:
    task = task_id(digest)
    for state in row_mapping.TASKS.known("digest = %s", [task]):
        name, pipeline = state.id.application, state.id.pipeline
        if filter.application not in (None, name) or filter.pipeline not in (None, pipeline):
            return None
        groups, last = _groups([name], filter), _last_position(name, filter)
        if groups == [] or last is None:
            return None
        found = replace(found, task=(name, task), pipeline=None, until_position=last)
        return _of_groups(found, groups)
    return None


def _in_logs(found: store.FailureQuery, filter: FailureFilter) -> store.FailureQuery | None:
    names = _applications(filter)
    groups = _groups(names, filter) if names else None
    if not names or groups == []:
        return None
    return _of_groups(replace(found, applications=names), groups)


def _of_groups(
    found: store.FailureQuery, groups: list[tuple[str, str]] | None
) -> store.FailureQuery:
    # Each of the groups has the stage asked for.
    return found if groups is None else replace(found, groups=groups, stage=None)


def _applications(filter: FailureFilter) -> list[str]:
    """Return the applications that can have the failures; every failed task has a row."""
    names = [each.application for each in store.all_streams()]
    if filter.application is not None:
        names = [name for name in names if name == filter.application]
    if filter.pipeline is None:
        return names
    found = prepared_statements.rows(
        "SELECT name FROM unnest(%s::text[]) AS log (name) CROSS JOIN LATERAL ("
        "SELECT FROM task WHERE application = name AND pipeline = %s LIMIT 1) AS task",
        [names, filter.pipeline],
    )
    return [name for (name,) in found]


def _groups(names: list[str], filter: FailureFilter) -> list[tuple[str, str]] | None:
    """Return the groups of a fingerprint, stage and class; None if they are many, or any."""
    if not (filter.fingerprint or filter.stage or filter.exception_class):
        return None
    groups = models.ErrorGroup.objects.filter(application__in=names)
    if filter.fingerprint:
        groups = groups.filter(fingerprint=filter.fingerprint)
    if filter.stage:
        groups = groups.filter(stage=fit(filter.stage))
    if filter.exception_class:
        # One of Spark's error conditions can be raised as several classes.
        name = fit(filter.exception_class)
        groups = groups.filter(Q(exception_class=name) | Q(other_classes__overlap=[name, ANY]))
    keys = groups.values_list("application", "fingerprint")
    # A fingerprint has at most one group in each application.
    found = list(keys if filter.fingerprint else keys[: FEW + 1])
    return found if filter.fingerprint or len(found) <= FEW else None


def _last_position(application: str, filter: FailureFilter) -> int | None:
    """Return a position that no failure in the filter's time range follows; None if none is in it.

    Each hour's total has the position of the hour's last failure.
    """
    if filter.since is None and filter.until is None:
        return MOST
    hours = models.HourTotal.objects.filter(application=application)
    if filter.since is not None:
        hours = hours.filter(hour__gt=max(filter.since, _EARLIEST) - _AN_HOUR)
    if filter.until is not None:
        hours = hours.filter(hour__lt=filter.until)
    last: int | None = hours.aggregate(last=Max("sequence"))["last"]
    return last
