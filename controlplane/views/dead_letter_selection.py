"""Filters of dead letters, and the dead letters that match one and wait."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Annotated, Any, NamedTuple
from uuid import UUID

import msgspec
from django.db import connection
from django.db.models import Q
from msgspec import Meta

from arrester.controlplane import models, store
from arrester.controlplane.models import OPEN, DeadLetterStatus
from arrester.controlplane.store.column_values import ANY, fit, hash_group
from arrester.domain.errors import InvalidValue
from arrester.domain.identity.names import TaskDigest

#: In place of a status: all dead letters that wait.
ALL_OPEN = "open"
#: The values of the filter by status.
STATUSES = (ALL_OPEN, *DeadLetterStatus.__members__)


class DeadLetterFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of dead letters; None means any. Times are of the decision."""

    application: str | None = None
    pipeline: str | None = None
    task: TaskDigest | None = None
    stage: str | None = None
    exception_class: Annotated[
        str | None,
        Meta(description="The full name, with its package; 400 lists full names of a short one."),
    ] = None
    fingerprint: str | None = None
    #: The name of a status, or `open` for those that wait.
    status: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def statuses(self) -> tuple[DeadLetterStatus, ...]:
        """The statuses that match; raises InvalidValue."""
        if self.status is None:
            return tuple(DeadLetterStatus)
        if self.status == ALL_OPEN:
            return OPEN
        if self.status not in DeadLetterStatus.__members__:
            raise InvalidValue("status", self.status, ", ".join(STATUSES))
        return (DeadLetterStatus[self.status],)


class OpenDeadLetter(NamedTuple):
    """A dead letter that waits for a person."""

    id: UUID
    #: The digest of its task.
    task: UUID
    pipeline: str
    checkpoint: str
    position: int | None
    occurred_at: datetime
    #: The log position of the newest event about it.
    sequence: int


def open_dead_letters(
    wanted: DeadLetterFilter, *, ids: Collection[str] | None = None, limit: int
) -> list[OpenDeadLetter]:
    """Return dead letters that match and wait, those of a task by position.

    If there are more than `limit`, those that were decided first. With `ids`, only these. Raises
    InvalidValue for an id that is none.
    """
    found = _rows(
        "each.id, each.task, task.pipeline, task.checkpoint, each.position, each.occurred_at,"
        " each.sequence",
        wanted,
        ids,
        "ORDER BY each.occurred_at, each.stream, each.sequence, each.number LIMIT %s",
        limit,
    )
    return sorted((OpenDeadLetter(*row) for row in found), key=_order)


def count_open_dead_letters(wanted: DeadLetterFilter, *, limit: int) -> int:
    """Return the number of dead letters that match and wait, at most `limit`."""
    return len(_rows("1", wanted, None, "LIMIT %s", limit))


def _rows(
    columns: str, wanted: DeadLetterFilter, ids: Collection[str] | None, order: str, limit: int
) -> list[tuple[Any, ...]]:
    conditions, parameters = totals_of(wanted)
    if conditions is None:
        return []
    conditions += ["total.waiting > 0", "each.status = ANY(%s::smallint[])"]
    parameters.append([each.value for each in OPEN if each in wanted.statuses])
    for condition, value in (
        ("each.occurred_at >= %s", wanted.since),
        ("each.occurred_at < %s", wanted.until),
        ("each.id = ANY(%s::uuid[])", None if ids is None else [_uuid("id", id) for id in ids]),
    ):
        if value is not None:
            conditions.append(condition)
            parameters.append(value)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {columns} FROM dead_letter AS each JOIN dead_letter_total AS total"
            " USING (stream, task, cause) JOIN task ON task.digest = each.task"
            f" WHERE {' AND '.join(conditions)} {order}",
            [*parameters, limit],
        )
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found


def _order(one: OpenDeadLetter) -> tuple[Any, ...]:
    return one.task, one.position is None, one.position or 0, one.occurred_at


def totals_of(wanted: DeadLetterFilter) -> tuple[list[str] | None, list[Any]]:
    """Return the SQL conditions on totals, and their parameters; None: nothing can match."""
    conditions: list[str] = ["true"]
    parameters: list[Any] = []
    if wanted.application is not None:
        conditions.append("total.stream = (SELECT id FROM stream WHERE application = %s)")
        parameters.append(wanted.application)
    if wanted.pipeline is not None:
        names = [wanted.application] if wanted.application else _applications()
        conditions.append("total.pipeline = ANY(%s::bigint[])")
        parameters.append([hash_group(name, wanted.pipeline) for name in names])
    if wanted.task is not None:
        conditions.append("total.task = %s")
        parameters.append(_uuid("task", wanted.task))
    if wanted.fingerprint or wanted.stage or wanted.exception_class:
        causes = _causes(wanted)
        if not causes:
            return None, []
        conditions.append("total.cause = ANY(%s::bigint[])")
        parameters.append(causes)
    return conditions, parameters


def _causes(wanted: DeadLetterFilter) -> list[int]:
    """Return the keys of the error groups with a fingerprint, stage and class."""
    groups = models.ErrorGroup.objects.all()
    if wanted.application:
        groups = groups.filter(application=wanted.application)
    if wanted.fingerprint:
        groups = groups.filter(fingerprint=wanted.fingerprint)
    if wanted.stage:
        groups = groups.filter(stage=fit(wanted.stage))
    if wanted.exception_class:
        # One of Spark's error conditions can be raised as several classes.
        name = fit(wanted.exception_class)
        groups = groups.filter(Q(exception_class=name) | Q(other_classes__overlap=[name, ANY]))
    return [hash_group(*key) for key in groups.values_list("application", "fingerprint")]


def _applications() -> list[str]:
    return [each.application for each in store.all_streams()]


def _uuid(name: str, text: str) -> UUID:
    try:
        return UUID(hex=text)
    except ValueError:
        raise InvalidValue(name, text, "32 hexadecimal digits") from None
