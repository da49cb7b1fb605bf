"""The filters of lists, read from the URL in the same way for a page, its export and its links."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from arrester.controlplane import queries
from arrester.dashboard.components import time_range
from arrester.domain.errors import InvalidValue
from arrester.domain.state.live_runs import RunStatus
from arrester.domain.state.states import CommandStatus, GroupStatus

#: In place of a state: all of them.
ALL = "all"
#: In place of a command's state: all that are not final.
OPEN = "open"
GROUP_FIELDS = (
    *("state", "application", "stage", "class", "text", "owner", "range", "from", "to", "sort"),
)
AUDIT_FIELDS = ("actor", "kind", "application", "range", "from", "to")
TASK_FIELDS = ("state", "application", "pipeline", "key", "cause", "owner", "checkpoints", "sort")
#: The values of `checkpoints`; the first is the default.
CHECKPOINTS = ("live", ALL)
DEAD_LETTER_FIELDS = (
    *("view", "application", "pipeline", "task", "stage", "class", "cause", "status"),
    *("range", "from", "to"),
)


def field_values(parameters: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """Return the fields of a form as filled in, including empty ones."""
    return {name: parameters.get(name, "") for name in names}


def of_groups(parameters: Mapping[str, str], *, now: datetime) -> queries.GroupFilter:
    """Return the filter of error groups: by default those that are UNRESOLVED."""
    state = parameters.get("state") or GroupStatus.UNRESOLVED.value
    if state not in (ALL, *GroupStatus):
        raise InvalidValue("state", state, ", ".join([*GroupStatus, ALL]))
    return queries.GroupFilter(
        **_given(parameters, "application", "stage", "text", "owner"),
        **_times(parameters, now),
        status=None if state == ALL else state,
        exception_class=parameters.get("class") or None,
    )


def sort_of_groups(parameters: Mapping[str, str]) -> str:
    """Return the sort order of error groups."""
    return parameters.get("sort") or queries.NEWEST


def of_commands(parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return the filter of commands, as arguments of `queries.commands`."""
    state = parameters.get("state") or None
    if state not in (None, OPEN, *CommandStatus):
        raise InvalidValue("state", state, ", ".join([*CommandStatus, OPEN]))
    rollout = uuid("rollout", parameters)
    return {
        "application": parameters.get("application") or None,
        "status": None if state == OPEN else state,
        "part_of": rollout,
        "open": state == OPEN,
        "parts": rollout is not None,
    }


def uuid(name: str, parameters: Mapping[str, str]) -> UUID | None:
    """Return the id in a parameter, None without one; raises InvalidValue."""
    text = parameters.get(name, "")
    try:
        return UUID(text) if text else None
    except ValueError:
        raise InvalidValue(name, text[:50], f"the id of a {name}") from None


def of_audit(parameters: Mapping[str, str], *, now: datetime) -> queries.AuditFilter:
    """Return the filter of the audit; log-ins only with their kind, or with all kinds."""
    given = _given(parameters, "actor", "application")
    kind = parameters.get("kind") or None
    return queries.AuditFilter(
        **given,
        **_times(parameters, now),
        kind=None if kind == ALL else kind,
        logins=kind is not None,
    )


def of_dead_letters(parameters: Mapping[str, str], *, now: datetime) -> queries.DeadLetterFilter:
    """Return the filter of dead letters."""
    return queries.DeadLetterFilter(
        **_given(parameters, "application", "pipeline", "task", "stage", "status"),
        **_times(parameters, now),
        exception_class=parameters.get("class") or None,
        fingerprint=parameters.get("cause") or None,
    )


def of_known_dead_letters(
    parameters: Mapping[str, str], *, now: datetime
) -> tuple[queries.DeadLetterFilter, dict[str, str]]:
    """Return the filter without later dead letters, and the parameters that give it again.

    A dialog that shows a number acts on no other dead letters.
    """
    wanted = of_dead_letters(parameters, now=now)
    wanted = replace(wanted, until=wanted.until or now)
    names = ("application", "pipeline", "task", "stage", "class", "cause", "status")
    times = {"from": wanted.since, "to": wanted.until}
    kept = {name: parameters.get(name, "") for name in names}
    kept |= {name: moment.isoformat() for name, moment in times.items() if moment}
    return wanted, {name: value for name, value in kept.items() if value}


def refuse_more_dead_letters(form: Mapping[str, str], found: int) -> None:
    """Raise InvalidValue if there are more dead letters than the dialog has shown.

    Some that are older than the dialog were received after it opened.
    """
    shown = form.get("shown", "")
    if shown.isdecimal() and found > int(shown):
        allowed = f"{found:,}: more were received since then; check the number, and confirm again"
        raise InvalidValue("number of dead letters", int(shown), allowed)


def of_pipelines(parameters: Mapping[str, str]) -> queries.PipelineFilter:
    """Return the filter of pipelines."""
    given = _given(parameters, "application", "run")
    if given["run"] not in (None, *RunStatus):
        raise InvalidValue("run", given["run"], ", ".join(RunStatus))
    run = None if given["run"] is None else RunStatus(given["run"])
    return queries.PipelineFilter(application=given["application"], run=run)


def of_tasks(parameters: Mapping[str, str]) -> queries.TaskFilter:
    """Return the filter of tasks: by default those of live checkpoints."""
    state = parameters.get("state") or None
    if state not in (None, *queries.TASK_STATES):
        raise InvalidValue("state", state, ", ".join(queries.TASK_STATES))
    return queries.TaskFilter(
        **_given(parameters, "application", "pipeline", "key", "cause", "owner"),
        status=state,
        live=live_only(parameters),
    )


def live_only(parameters: Mapping[str, str]) -> bool:
    """Return whether a list has only tasks of live checkpoints, as by default; raise
    InvalidValue."""
    checkpoints = parameters.get("checkpoints") or CHECKPOINTS[0]
    if checkpoints not in CHECKPOINTS:
        raise InvalidValue("checkpoints", checkpoints, ", ".join(CHECKPOINTS))
    return checkpoints != ALL


def _given(parameters: Mapping[str, str], *names: str) -> dict[str, Any]:
    return {name: parameters.get(name) or None for name in names}


def _times(parameters: Mapping[str, str], now: datetime) -> dict[str, Any]:
    span = time_range.read(parameters, now=now)
    return {"since": span.since, "until": span.until}


def form(parameters: Mapping[str, str], names: tuple[str, ...]) -> dict[str, Any]:
    """Return the context of a filter form's templates."""
    filled = field_values(parameters, names)
    return {
        "requested": filled,
        "filtered": any(filled.values()),
        "names": sorted(queries.log_positions()),
        "range_words": time_range.WORDS.items(),
    }
