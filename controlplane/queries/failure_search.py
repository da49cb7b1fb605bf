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

from arrester.controlplane import models, store
from arrester.controlplane.domain.errors import InvalidValue, NotFound
from arrester.controlplane.queries.filters import FailureFilter, task_id
from arrester.controlplane.store import prepared_statements
from arrester.controlplane.store.column_limits import ANY, MOST, fit, fit_or_none
from arrester.controlplane.views import row_mapping

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
#: A row that an index leads to costs as much as so many entries of it.
_ROW = 10
#: The columns of `_Group`, as SQL.
_GROUP = "application, fingerprint, count, other_classes IS NULL"


class _Group(NamedTuple):
    application: str
    fingerprint: str
    #: How many of its records failed: it has no more events.
    failed: int
    #: Whether all came in the class that it is shown with.
    has_one_class: bool


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
    for state in row_mapping.TASKS.known("digest = %s", [task]):
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
        found = _of_groups(replace(found, tasks=[(name, task)]), groups)
        if groups is None:
            return found
        return _whole(found, state.failed) or replace(found, rare=True)
    return None


def _of_all(found: store.Failures, filter: FailureFilter) -> store.Failures | None:
    names = None if filter.application is None else [filter.application]
    tasks = None
    if filter.pipeline is not None:
        tasks = _tasks(names, filter.pipeline)
        has_some = {task.application for task in tasks or ()}
        names = _having(names, filter.pipeline) if tasks is None else sorted(has_some)
    groups = _groups(names, filter)
    if names is None and groups is None:
        names = [each.application for each in store.known()]
    if names == [] or groups == []:
        return None
    found = _of_groups(replace(found, applications=names or ()), groups)
    if tasks is None:
        return found
    named = [(task.application, task.digest) for task in tasks]
    failed = sum(task.failed for task in tasks)
    return _whole(replace(found, tasks=named), failed) or replace(found, rare=True)


def _whole(found: store.Failures, failed: int) -> store.Failures | None:
    """Return how to look at all that these tasks have, of which so many records failed, or at all
    that these groups have; None where both is too much."""
    # No index has classes.
    most = store.ENTRIES if found.exception_class is None else store.CANDIDATES
    if found.groups is None:
        return replace(found, whole=True) if failed <= most else None
    # The index of groups has their pipelines, and not their tasks.
    of_groups = found.failed if found.task is None else _ROW * found.failed
    if min(failed, of_groups) > most:
        return None
    found = replace(found, whole=True, rare=True)
    return found if failed <= of_groups else replace(found, tasks=None)


def _of_groups(found: store.Failures, groups: Sequence[_Group] | None) -> store.Failures:
    """Return the same, of these groups only; None: of any."""
    if groups is None:
        return found
    if all(each.has_one_class for each in groups):
        # It was looked for by that.
        found = replace(found, exception_class=None)
    keys = [(each.application, each.fingerprint) for each in groups]
    return replace(found, groups=keys, failed=sum(group.failed for group in groups))


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
    found = prepared_statements.rows(f"SELECT max(sequence) FROM hour_total WHERE {where}", given)
    last: int | None = found[0][0]
    return last


def _groups(names: list[str] | None, filter: FailureFilter) -> list[_Group] | None:
    """Return the groups of a stage or class, where they are few; None: it may be any group.

    A rare one would be looked for through all that failed; of a common one, each page is full soon.
    """
    if not (filter.fingerprint or filter.stage or filter.exception_class):
        return None
    # Of one stage, or of one class, there is an index over all logs, in their order.
    is_one = not filter.fingerprint and not (filter.stage and filter.exception_class)
    at_once = names is None and is_one
    conditions = [] if at_once else ["application = log.name"]
    given: list[Any] = []
    if filter.stage:
        conditions.append("stage = %s")
        given.append(fit(filter.stage))
    if filter.fingerprint:
        # One for each application, and nothing else says which it is: all of them.
        conditions.append("fingerprint = %s")
        given.append(filter.fingerprint)
    most = "ALL" if filter.fingerprint else FEW + 1
    end = f"ORDER BY application LIMIT {most}" if at_once else f"LIMIT {most}"

    def some(*more: str) -> str:
        return f"SELECT {_GROUP} FROM error_group WHERE {' AND '.join([*conditions, *more])}"

    statement = f"{some()} {end}"
    if filter.exception_class:
        name = fit(filter.exception_class)
        # One of Spark's error conditions may come in exceptions of several classes. Each has its
        # index, and ends where there are enough.
        first, other = some("exception_class = %s"), some("other_classes && %s::text[]")
        statement = f"({first} {end}) UNION ({other} LIMIT {most})"
        given = [*given, name, *given, [name, ANY]]
    if at_once:
        found = prepared_statements.rows(statement, given)
    else:
        found = _of_each(names, statement, given, most=most)
    groups = [_Group(*row) for row in found]
    return groups if filter.fingerprint or len(groups) <= FEW else None


def _tasks(names: list[str] | None, pipeline: str) -> list[_Task] | None:
    """Return the tasks of a pipeline where it has few: little of what fails is theirs, mostly."""
    some = (
        "SELECT application, digest, failed FROM task"
        f" WHERE application = log.name AND pipeline = %s LIMIT {FEW + 1}"
    )
    found = [_Task(*row) for row in _of_each(names, some, [pipeline], most=FEW + 1)]
    return found if len(found) <= FEW else None


def _having(names: list[str] | None, pipeline: str) -> list[str]:
    """Return the applications that have tasks of a pipeline: a task that failed has a row."""
    one = "SELECT application FROM task WHERE application = log.name AND pipeline = %s LIMIT 1"
    return [name for (name,) in _of_each(names, one, [pipeline])]


def _of_each(
    names: list[str] | None, statement: str, given: Sequence[Any], *, most: int | str = "ALL"
) -> list[tuple[Any, ...]]:
    """Return at most so many of the rows that a statement gives of each application, `log.name`;
    where names are None, of all that there are.

    It is planned once, when nobody knows how rare its values are: it is to have an index that
    begins with what it asks.
    """
    logs = "(SELECT application FROM stream)" if names is None else "unnest(%s::text[])"
    return prepared_statements.rows(
        f"SELECT found.* FROM {logs} AS log (name) CROSS JOIN LATERAL ({statement}) AS found"
        f" LIMIT {most}",
        [*([] if names is None else [names]), *given],
    )
