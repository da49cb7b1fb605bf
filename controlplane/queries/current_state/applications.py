"""Applications in one line each: their states and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from django.db.models import Count, QuerySet
from msgspec import Meta

from arrester.controlplane import models, store
from arrester.controlplane.queries import paging
from arrester.controlplane.queries.current_state import task_grid
from arrester.controlplane.queries.current_state.instances import instance_counts
from arrester.controlplane.queries.operation import health
from arrester.controlplane.queries.operation.health import Lag
from arrester.controlplane.queries.paging import Page
from arrester.controlplane.views import row_mapping
from arrester.domain.errors import NotFound
from arrester.domain.state.states import ApplicationState, CommandState, TaskStatus

#: The newest command of each application.
_LAST = """(application, id) IN (
    SELECT newest.application, newest.id FROM unnest(%s::text[]) AS name, LATERAL (
        SELECT application, id FROM command WHERE command.application = name
        ORDER BY issued_at DESC, id DESC LIMIT 1) AS newest)"""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """An application in one line: its state and counts."""

    state: ApplicationState
    running: Annotated[
        int,
        Meta(description="RUNNING tasks with failures since creation, of runs that run."),
    ]
    no_run: Annotated[
        int, Meta(description="Tasks that wait for a run: none uses their checkpoint.")
    ]
    paused: Annotated[int, Meta(description="PAUSED tasks of live checkpoints.")]
    dead: Annotated[int, Meta(description="DEAD tasks of live checkpoints.")]
    held: Annotated[int, Meta(description="Held records of live checkpoints.")]
    #: See `queries.instances`.
    instances: Annotated[int, Meta(description="Live instances.")]
    lost: Annotated[int, Meta(description="Live instances without a heartbeat.")]
    groups: int
    open_commands: int
    last_command: CommandState | None
    lag: Lag


def log_positions() -> dict[str, int]:
    """Return the newest position in the log of each application."""
    return {stream.application: stream.sequence for stream in store.all_streams()}


def application_names() -> QuerySet[models.Application, str]:
    """Return the names of all applications in order."""
    return models.Application.objects.order_by("name").values_list("name", flat=True)


def applications() -> tuple[Summary, ...]:
    """Return all applications by name."""
    states = row_mapping.APPLICATIONS.load_readable("true ORDER BY name", [])
    return _summaries(states, health.lags())


def application_page(
    lags: Sequence[Lag], *, cursor: str | None = None, limit: int = 50
) -> Page[Summary]:
    """Return applications by name, of those that have one of `lags`."""
    after = paging.unpack(cursor, str, of="applications") or ""
    wanted = [lag.application for lag in lags]
    names = application_names().filter(name__gt=after, name__in=wanted)[: paging.checked(limit) + 1]
    page = paging.page([*names], of="applications", limit=limit, key=str)
    states = row_mapping.APPLICATIONS.load_readable(
        "name = ANY(%s::text[]) ORDER BY name", [[*page.rows]]
    )
    return Page(rows=_summaries(states, lags), next=page.next)


def application(name: str, lags: Sequence[Lag] = ()) -> Summary:
    """Return one application, with its lag if it is in `lags`; raise NotFound."""
    states = row_mapping.APPLICATIONS.load("name = %s", [name])
    if not states:
        raise NotFound(f"there is no application {name!r}")
    own = [lag for lag in lags if lag.application == name] or [health.lag(name)]
    return _summaries(states, own)[0]


def _summaries(states: Sequence[ApplicationState], lags: Sequence[Lag]) -> tuple[Summary, ...]:
    names = [state.name for state in states]
    lag_of = {lag.application: lag for lag in lags}
    tasks, instances = task_grid.task_counts(names), instance_counts(names)
    groups = _count(models.ErrorGroup.objects.filter(application__in=names))
    last = {
        command.application: command
        for command in row_mapping.COMMANDS.load_readable(_LAST, [names])
    }
    waiting = _count(models.Command.objects.filter(application__in=names, open=True))
    return tuple(
        Summary(
            state=state,
            running=tasks[state.name][TaskStatus.RUNNING],
            no_run=tasks[state.name][task_grid.NO_RUN],
            paused=tasks[state.name][TaskStatus.PAUSED],
            dead=tasks[state.name][TaskStatus.DEAD],
            held=tasks[state.name]["held"],
            instances=instances[state.name]["alive"],
            lost=instances[state.name]["lost"],
            groups=groups[state.name],
            open_commands=waiting[state.name],
            last_command=last.get(state.name),
            lag=lag_of[state.name],
        )
        for state in states
    )


def _count(queryset: QuerySet[Any]) -> Counter[str]:
    """Return the number of rows by application."""
    return Counter(dict(queryset.values_list("application").annotate(number=Count("*"))))
