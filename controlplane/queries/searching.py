"""Where in the logs the failures can be that a filter means, as far as the views know: so that a
page reads a few short ranges, and a value that nothing has reads none."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import Q
from msgspec.structs import replace

from controlplane import models, prepared, rows, store
from controlplane.columns import ANY, MOST, fit, fit_or_none
from controlplane.domain.errors import InvalidValue, NotFound
from controlplane.queries.filters import FailureFilter, task_id

#: So many short index scans are quicker than a long one.
FEW = 50
_AN_HOUR = timedelta(hours=1)
#: No time that is asked for is an hour less than there can be.
_EARLIEST = datetime(2, 1, 1, tzinfo=UTC)
#: Each class once, by an index: from one name to the next, and of any number of groups no more.
_ENDING_SO = """
WITH RECURSIVE class (name, number) AS (
    SELECT min(exception_class), 1 FROM error_group
    UNION ALL
    SELECT (SELECT min(exception_class) FROM error_group WHERE exception_class > name), number + 1
    FROM class WHERE name IS NOT NULL AND number < 2000
)
SELECT name FROM class WHERE right(name, %s) = %s ORDER BY name LIMIT 5
"""


class _Group(NamedTuple):
    application: str
    fingerprint: str
    #: How many of its records failed: it has no more events.
    failed: int


class _Task(NamedTuple):
    application: str
    digest: UUID
    #: How many of its records failed.
    failed: int


def check_class(name: str) -> None:
    """Raise InvalidValue for a class without its package, with whole names that end so.

    Failures are found by the whole name. It is not completed here: which other classes an error
    condition came in is known of each group, and not as a list of all that there are.
    """
    if "." in name:
        return
    name = fit(name)
    groups = models.ErrorGroup.objects.all()
    # A few have no package.
    either = Q(exception_class=name), Q(other_classes__overlap=[name])
    if any(groups.filter(each).exists() for each in either):
        return
    with connection.cursor() as cursor:
        cursor.execute(_ENDING_SO, [len(name) + 1, f".{name}"])
        found = [each for (each,) in cursor.fetchall()]
    known = f": {', '.join(found)}" if found else ""
    raise InvalidValue("exception_class", name, f"the whole name, with its package{known}")


def check_group(fingerprint: str, application: str | None = None) -> None:
    """Raise NotFound for an error group that no application has, or that this one has not."""
    logs = [each.application for each in store.known()] if application is None else [application]
    groups = models.ErrorGroup.objects.filter(application__in=logs, fingerprint=fingerprint)
    if not groups.exists():
        where = "" if application is None else f"{application} "
        raise NotFound(f"there is no error group {where}{fingerprint!r}")


def wanted(filter: FailureFilter, *, before: store.Newest | None) -> store.Failures | None:
    """Return what to read for a page behind `before`; None where nothing can be meant."""
    found = store.Failures(
        pipeline=filter.pipeline,
        # As lists show them: cut where they are cut.
        stage=fit_or_none(filter.stage),
        exception_class=fit_or_none(filter.exception_class),
        since=filter.since,
        until=filter.until,
        before=before,
    )
    return _of_all(found, filter) if filter.task is None else _of_task(found, filter, filter.task)


def _of_task(found: store.Failures, filter: FailureFilter, digest: str) -> store.Failures | None:
    task = task_id(digest)
    for state in rows.TASKS.known("digest = %s", [task]):
        name = state.id.application
        if filter.application not in (None, name) or filter.pipeline not in (
            None,
            state.id.pipeline,
        ):
            return None
        groups, last = _groups([name], filter), _last_of(name, filter)
        if groups == [] or last is None:
            return None
        found = replace(found, task=task, pipeline=None, until_position=last)
        found = replace(found, groups=_keys(groups), tasks=[(name, task)])
        if groups is None:
            return found
        return replace(found, rare=True, both=_few_of_either(state.failed, groups))
    return None


def _of_all(found: store.Failures, filter: FailureFilter) -> store.Failures | None:
    one = filter.application
    names = [each.application for each in store.known()] if one is None else [one]
    if filter.pipeline is not None:
        names = _having(names, filter.pipeline)
    groups = _groups(names, filter)
    if not names or groups == []:
        return None
    found = replace(found, applications=names, groups=_keys(groups))
    if filter.pipeline is None or (tasks := _tasks(names, filter.pipeline)) is None:
        return found
    named = [(task.application, task.digest) for task in tasks]
    failed = sum(task.failed for task in tasks)
    if groups is not None and len(names) == 1 and _few_of_either(failed, groups):
        return replace(found, tasks=named, rare=True, both=True)
    if failed <= store.CANDIDATES:
        return replace(found, tasks=named, whole=True)
    return replace(found, rare=True)


def _few_of_either(failed: int, groups: Sequence[_Group]) -> bool:
    """Whether tasks of which so many records failed, or groups, have so few rows that those of
    both can be told from two indexes."""
    return min(failed, sum(group.failed for group in groups)) <= store.BOTH


def _keys(groups: Sequence[_Group] | None) -> list[tuple[str, str]] | None:
    return None if groups is None else [(each.application, each.fingerprint) for each in groups]


def _last_of(application: str, filter: FailureFilter) -> int | None:
    """Return a position behind which no failure stands that occurred when it is meant to; None
    where there is none. Each hour knows its last one, whatever failed."""
    if filter.since is None and filter.until is None:
        return MOST
    conditions = ["application = %s"]
    given: list[Any] = [application]
    if filter.since is not None:
        conditions.append("hour > %s")
        given.append(max(filter.since, _EARLIEST) - _AN_HOUR)
    if filter.until is not None:
        conditions.append("hour < %s")
        given.append(filter.until)
    where = " AND ".join(conditions)
    found = prepared.rows(f"SELECT max(sequence) FROM hour_total WHERE {where}", given)
    last: int | None = found[0][0]
    return last


def _groups(names: list[str], filter: FailureFilter) -> list[_Group] | None:
    """Return the groups of a stage or class, where they are few; None: it may be any group.

    A rare one would be looked for through all that failed; of a common one, each page is full soon.
    """
    if not (filter.fingerprint or filter.stage or filter.exception_class):
        return None
    conditions: list[str] = ["application = ANY(%s::text[])"]
    given: list[Any] = [names]
    if filter.stage:
        conditions.append("stage = %s")
        given.append(fit(filter.stage))
    if filter.fingerprint:
        # One for each application, and nothing else says which it is: all of them.
        conditions.append("fingerprint = %s")
        given.append(filter.fingerprint)
    most = "" if filter.fingerprint else f" LIMIT {FEW + 1}"
    where = " AND ".join(conditions)
    some = f"SELECT application, fingerprint, count FROM error_group WHERE {where}"
    statement = f"{some}{most}"
    if filter.exception_class:
        name = fit(filter.exception_class)
        # One of Spark's error conditions may come in exceptions of several classes. Each has its
        # index, and ends where there are enough.
        first = f"{some} AND exception_class = %s{most}"
        other = f"{some} AND other_classes && %s::text[]{most}"
        statement = f"({first}) UNION ({other}){most}"
        given = [*given, name, *given, [name, ANY]]
    found = [_Group(*row) for row in _planned_with(statement, given)]
    return found if filter.fingerprint or len(found) <= FEW else None


def _having(names: Sequence[str], pipeline: str) -> list[str]:
    """Return the applications that have tasks of a pipeline: a task that failed has a row."""
    found = prepared.rows(
        "SELECT name FROM unnest(%s::text[]) AS name CROSS JOIN LATERAL (SELECT FROM task"
        " WHERE application = name AND pipeline = %s LIMIT 1) AS one",
        [list(names), pipeline],
    )
    return [name for (name,) in found]


def _tasks(names: Sequence[str], pipeline: str) -> list[_Task] | None:
    """Return the tasks of a pipeline where it has few: little of what fails is theirs, mostly."""
    if len(names) > FEW:
        return None
    some = _planned_with(
        "SELECT application, digest, failed FROM task"
        f" WHERE application = ANY(%s::text[]) AND pipeline = %s LIMIT {FEW + 1}",
        [list(names), pipeline],
    )
    found = [_Task(*each) for each in some]
    return found if len(found) <= FEW else None


def _planned_with(statement: str, given: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return the rows of a statement that is planned with its values, each time: how rare those are
    says whether an index is asked."""
    with connection.cursor() as cursor:
        cursor.execute(statement, given)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found
