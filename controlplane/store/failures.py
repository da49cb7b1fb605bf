"""Reading failures: of applications, groups or a task, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from uuid import UUID

import msgspec
from msgspec.structs import replace

from controlplane.columns import MOST, fit
from controlplane.domain.events import StoredEvent
from controlplane.store import marks
from controlplane.store.batches import PLACE
from controlplane.store.log import Newest, Parameter, fetch, filled, newest, select


class Failures(msgspec.Struct, frozen=True, kw_only=True):
    """Which failures to read; what is None does not matter."""

    #: With a task, its application.
    applications: Sequence[str]
    #: (application, fingerprint) of the groups that it can only be; None: it may be any.
    groups: Sequence[tuple[str, str]] | None = None
    task: UUID | None = None
    pipeline: str | None = None
    stage: str | None = None
    exception_class: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    #: No failure of a task that occurred before `until` stands behind this position.
    until_position: int = MOST
    #: None of their events came after this day.
    last_day: date | None = None
    #: The row that the page before this one ended with: occurred_at, application, sequence.
    before: Newest | None = None

    def has(self, stored: StoredEvent) -> bool:
        """Return whether an event is one of these, where its row's numbers say so."""
        event = stored.event
        failure = getattr(event.data, "failure", None)
        return (
            event.run is not None
            and failure is not None
            and self.pipeline in (None, event.run.pipeline)
            and self.stage in (None, fit(failure.stage))
            and self.exception_class in (None, fit(failure.exception_class))
        )


def read_failures(wanted: Failures, *, limit: int) -> list[StoredEvent]:
    """Return failures without bodies, those that occurred last first; of a task those that were
    told last, which is the order that its index has."""
    if not wanted.applications:
        return []
    read = _of_task if wanted.task is not None and wanted.groups is None else _all
    return filled(
        lambda before: read(replace(wanted, before=before), limit),
        wanted.has,
        key=newest,
        before=wanted.before,
        limit=limit,
    )


def _all(wanted: Failures, limit: int) -> list[StoredEvent]:
    scans, given = _scans(wanted)
    conditions, parameters = _conditions(wanted)
    conditions.append("stream = log.id" if wanted.groups is None else "cause = log.cause")
    if wanted.before is not None:
        # The first condition is what the index begins at, the second is exact.
        conditions.append("occurred_at <= %s AND (occurred_at, log.name, sequence) < (%s, %s, %s)")
        parameters += [wanted.before[0], *wanted.before]
    # One short index scan for each application or group, whatever the others' size.
    return fetch(
        f"SELECT {PLACE} FROM {scans} CROSS JOIN LATERAL ("
        f"SELECT * FROM event WHERE {' AND '.join(conditions)}"
        " ORDER BY occurred_at DESC, sequence DESC LIMIT %s) AS event"
        " ORDER BY occurred_at DESC, log.name DESC, sequence DESC LIMIT %s",
        [*given, *parameters, limit, limit],
    )


def _of_task(wanted: Failures, limit: int) -> list[StoredEvent]:
    conditions, parameters = _conditions(wanted)
    end = min(wanted.until_position + 1, MOST if wanted.before is None else wanted.before[2])
    # Nothing is said of the stream, which the task says: to the planner that would leave so few
    # that it sorts all of a task's.
    return select(
        f"WHERE {' AND '.join(conditions)} AND sequence < %s ORDER BY sequence DESC LIMIT %s",
        [*parameters, end, limit],
    )


def _conditions(wanted: Failures) -> tuple[list[str], list[Parameter]]:
    """Return what holds of each, whichever way they are read, and the parameters of that."""
    numbers = {
        "task": wanted.task,
        "pipeline": _mark(wanted.pipeline),
        "stage": _mark(wanted.stage),
        "exception_class": _mark(wanted.exception_class),
    }
    given: dict[str, Parameter] = {f"{name} = %s": value for name, value in numbers.items()}
    given |= {"occurred_at >= %s": wanted.since, "occurred_at < %s": wanted.until}
    given["day <= %s"] = wanted.last_day
    meant = {condition: value for condition, value in given.items() if value is not None}
    return ["count IS NOT NULL", *meant], [*meant.values()]


def _mark(text: str | None) -> int | None:
    return None if text is None else marks.of_text(text)


def _scans(wanted: Failures) -> tuple[str, list[Parameter]]:
    if wanted.groups is None:
        names = list(wanted.applications)
        return (
            "(SELECT application AS name, id FROM stream WHERE application = ANY(%s::text[]))"
            " AS log",
            [names],
        )
    names = [application for application, _ in wanted.groups]
    causes = [marks.of_cause(*group) for group in wanted.groups]
    return "unnest(%s::text[], %s::bigint[]) AS log (name, cause)", [names, causes]
