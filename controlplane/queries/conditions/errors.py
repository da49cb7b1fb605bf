"""New and recurred error groups, and high failure rates."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from arrester.controlplane.queries import sql
from arrester.controlplane.queries.conditions import condition
from arrester.controlplane.queries.conditions.causes import AlertCause, AllLimits
from arrester.controlplane.queries.conditions.condition import (
    Condition,
    application_path,
    error_path,
    shortened,
)
from arrester.controlplane.views import row_mapping
from arrester.domain import failure_text
from arrester.domain.plural import plural
from arrester.domain.state.states import GroupState

#: How long an error is new, and the minutes of the failure rate.
NEW_FOR = timedelta(hours=24)
RATE_MINUTES = 5
NEW = frozenset({AlertCause.ERROR_NEW, AlertCause.ERROR_RECURRED})
RATES = frozenset({AlertCause.FAILURE_RATE})
#: The index has times rounded down to ten seconds.
_ROUNDING = timedelta(seconds=10)
_NEW = """seen_about >= %s AND status = 'UNRESOLVED'
    AND (first_seen >= %s OR state LIKE '%%"recurred":true%%')"""
_OLDEST = f"""(application, fingerprint) IN (
    SELECT application, fingerprint FROM (
        SELECT application, fingerprint, row_number() OVER (
            PARTITION BY application ORDER BY first_seen, fingerprint
        ) AS place FROM error_group WHERE {_NEW}
    ) AS new WHERE place <= %s)"""
_MANY = f"""
SELECT application, count(*) FROM error_group WHERE {_NEW} GROUP BY 1 HAVING count(*) > %s
"""


def new(*, now: datetime) -> Iterator[Condition]:
    """Yield the error groups that are new or failed after their resolution."""
    since = now - NEW_FOR
    parameters = [since - _ROUNDING, since, condition.MOST]
    for group in row_mapping.GROUPS.load_readable(_OLDEST, parameters):
        yield _group(group, now)
    for application, number in sql.rows(_MANY, parameters):
        yield condition.rest(application, "new errors", number - condition.MOST, now=now)


def _group(group: GroupState, now: datetime) -> Condition:
    cause = AlertCause.ERROR_RECURRED if group.recurred else AlertCause.ERROR_NEW
    words = "resolved error failed again" if group.recurred else "new error"
    # Without a condition the title is the class: here with its package.
    title = failure_text.title(group) if group.condition else group.exception_class
    began = group.since if group.recurred else group.first_seen
    return Condition(
        cause=cause,
        application=group.application,
        subject=group.fingerprint,
        name=title,
        title=f"{group.application}: {words}: {title}",
        detail=shortened(f"{group.stage}: {group.message}"),
        path=error_path(group.application, group.fingerprint),
        count=group.count,
        since=began or group.last_seen or now,
        pipeline=group.pipeline,
        fingerprint=group.fingerprint,
    )


def rates(limits: AllLimits, *, now: datetime) -> Iterator[Condition]:
    """Yield the applications in which records fail at a high rate."""
    rows = sql.rows(
        "SELECT application, sum(count) FROM minute_total WHERE minute > %s GROUP BY 1 ORDER BY 1",
        [now - timedelta(minutes=RATE_MINUTES)],
    )
    for application, count in rows:
        limit = limits.of(application).failures_per_minute
        rate = round(int(count) / RATE_MINUTES)
        if limit is None or rate <= limit:
            continue
        yield Condition(
            cause=AlertCause.FAILURE_RATE,
            application=application,
            subject="",
            name=application,
            summary=f"{plural(rate, 'failed record')} a minute; the limit is {limit:,}",
            title=f"{application}: {plural(rate, 'failed record')} a minute",
            detail=f"Average of {RATE_MINUTES} minutes; the limit is {limit:,}.",
            path=application_path(application, "errors"),
            count=rate,
            since=now,
        )
