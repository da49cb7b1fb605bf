"""Error groups: filtered, sorted and counted, with their history and affected tasks.

Each needs a fixed number of statements for any number of groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta

from arrester.controlplane import store
from arrester.controlplane.models.views import about
from arrester.controlplane.queries import ownership, paging, sql
from arrester.controlplane.queries.failure_history import history
from arrester.controlplane.queries.paging import Page
from arrester.controlplane.store.column_values import fit
from arrester.controlplane.views import live_checkpoints, row_mapping
from arrester.domain.errors import InvalidValue, NotFound
from arrester.domain.events import StoredEvent
from arrester.domain.identity.fingerprint import VERSION, WITHOUT_CAUSE
from arrester.domain.state.states import GroupState, GroupStatus, TaskState, if_set

#: The sort columns of a list; with `-` before the name, the largest is first.
SORTS = ("last_seen", "first_seen", "count", "exception_class")
NEWEST = "-last_seen"
#: The most ends of runs that are shown of a group.
ENDS = 20
#: The number of newest failures of a group that are read to find affected tasks.
MAX_READ = 5000
#: Searched in the JSON text: a quote in a message is escaped, so no message can look like a key.
#: First in the whole text, which contains class and message: extracting the message takes far
#: longer.
_CONTAINS = r"""strpos(lower(state), lower(%s)) > 0
    AND (strpos(lower(exception_class), lower(%s)) > 0
    OR strpos(lower(substring(state from '"message":"((?:[^"\\]|\\.)*)"')), lower(%s)) > 0)"""
_ABOUT = about("%s::timestamptz")
_KEYS: dict[str, Any] = {
    "last_seen": tuple[datetime, str, str],
    "first_seen": tuple[datetime, str, str],
    "count": tuple[int, str, str],
    "exception_class": tuple[str, str, str],
}


class GroupFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of error groups; None means any."""

    application: str | None = None
    #: A group's status.
    status: str | None = None
    stage: str | None = None
    exception_class: Annotated[str | None, Meta(description="With or without its package.")] = None
    text: Annotated[
        str | None,
        Meta(
            description="In the class, or in the message of the group's newest example: other"
            " records of the group may have failed with other values."
        ),
    ] = None
    since: Annotated[datetime | None, Meta(description="Last seen at this time or later.")] = None
    until: Annotated[datetime | None, Meta(description="First seen before this time.")] = None
    owner: Annotated[
        str | None, Meta(description="A person or a team; `none`: those without an owner.")
    ] = None


class GroupDetail(msgspec.Struct, frozen=True, kw_only=True):
    """An error group with its newest example, and the tasks of live checkpoints that it stopped."""

    state: GroupState
    example: StoredEvent | None
    #: The newest; at most `paging.MAX_ROWS`.
    stopped: tuple[TaskState, ...]
    #: The number of all of them.
    stopped_total: int
    #: The newest ends of runs and drivers that no failed record has reported.
    ends: tuple[StoredEvent, ...] = ()
    #: The newest example with lines of the author's code.
    source: StoredEvent | None = None
    #: The group of version 1 of the fingerprint that had these failures, if it exists.
    earlier: GroupState | None = None
    #: Of a group of version 1: those that have its newer failures, the last failed first.
    parts: tuple[GroupState, ...] = ()


class Affected(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks with failures of one cause, and their numbers of failures."""

    tasks: tuple[tuple[TaskState, int], ...]
    #: The number of tasks of older checkpoints, which are not among them.
    older: int
    #: Whether all failures were read, not only the newest.
    complete: bool


def groups(
    wanted: GroupFilter | None = None,
    *,
    sort: str = NEWEST,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[GroupState]:
    """Return error groups, by default the last failed first."""
    column = sort.removeprefix("-")
    if column not in SORTS:
        allowed = ", ".join(f"{name}, -{name}" for name in SORTS)
        raise InvalidValue("sort", sort, allowed)
    conditions, parameters = _where(wanted or GroupFilter())
    direction, compared = ("DESC", "<") if sort.startswith("-") else ("ASC", ">")
    keys, name = [column, "application", "fingerprint"], f"error groups by {sort}"
    before = paging.unpack(cursor, _KEYS[column], of=name)
    if before is not None:
        conditions.append(f"({', '.join(keys)}) {compared} (%s, %s, %s)")
        parameters += before
        if column == "last_seen":
            conditions.append(f"seen_about {compared}= {_ABOUT}")
            parameters.append(before[0])
    # Rows that the index does not distinguish are sorted when they are read.
    columns = ["seen_about", *keys] if column == "last_seen" else keys
    order = ", ".join(f"{each} {direction}" for each in columns)
    rows = row_mapping.GROUPS.load(
        f"{' AND '.join(conditions)} ORDER BY {order} LIMIT %s",
        [*parameters, paging.checked(limit) + 1],
    )
    return paging.page(
        rows,
        of=name,
        limit=limit,
        key=lambda each: (_value(each, column), each.application, each.fingerprint),
    )


def _value(state: GroupState, column: str) -> object:
    value = getattr(state, column)
    return fit(value) if column == "exception_class" else value


def group(application: str, fingerprint: str) -> GroupDetail:
    """Return an error group; raise NotFound."""
    states = row_mapping.GROUPS.load(
        "application = %s AND fingerprint = %s", [application, fingerprint]
    )
    if not states:
        raise NotFound(f"there is no error group {application} {fingerprint!r}")
    (state,) = states
    threads = row_mapping.THREADS.load_readable("application = %s", [application])
    where = (
        f"application = %s AND fingerprint = %s AND {sql.STOPPED} AND {live_checkpoints.OF_THREADS}"
    )
    live = live_checkpoints.columns(threads)
    stopped = row_mapping.TASKS.load(
        f"{where} ORDER BY since DESC, digest DESC LIMIT %s",
        [application, fingerprint, *live, paging.MAX_ROWS],
    )
    total = len(stopped)
    if total == paging.MAX_ROWS:
        ((total,),) = sql.rows(
            f"SELECT count(*) FROM task WHERE {where}", [application, fingerprint, *live]
        )
    return GroupDetail(
        state=state,
        example=history.event_if_kept(application, state.example_sequence),
        stopped=tuple(stopped),
        stopped_total=total,
        ends=_ends(state),
        source=history.event_if_kept(application, if_set(state.source_sequence) or 0),
        earlier=_earlier(state),
        parts=_parts(state),
    )


def _earlier(state: GroupState) -> GroupState | None:
    if state.earlier_fingerprint is None:
        return None
    key = (state.application, state.earlier_fingerprint)
    return groups_by_key([key]).get(key)


def _parts(state: GroupState) -> tuple[GroupState, ...]:
    if not state.fingerprint.startswith(f"{WITHOUT_CAUSE}-"):
        return ()
    newer = row_mapping.GROUPS.load_readable(
        "application = %s AND stage = %s AND fingerprint LIKE %s ORDER BY last_seen DESC LIMIT %s",
        [state.application, fit(state.stage), f"{VERSION}-%", paging.MAX_ROWS],
    )
    return tuple(each for each in newer if each.earlier_fingerprint == state.fingerprint)


def _ends(state: GroupState) -> tuple[StoredEvent, ...]:
    # Only as many as there are: a search for more reads the whole log.
    limit = min(state.ended_runs, ENDS)
    if not limit:
        return ()
    return tuple(store.read_ends(state.application, state.fingerprint, limit=limit))


def group_counts(wanted: GroupFilter | None = None) -> Counter[str]:
    """Return the number of groups in each state, regardless of the state in `wanted`."""
    conditions, parameters = _where(msgspec.structs.replace(wanted or GroupFilter(), status=None))
    statement = (
        f"SELECT status, count(*) FROM error_group WHERE {' AND '.join(conditions)} GROUP BY 1"
    )
    return Counter(dict(sql.rows(statement, parameters)))


def _where(wanted: GroupFilter) -> tuple[list[str], list[Any]]:
    conditions = ["first_seen IS NOT NULL"]
    parameters: list[Any] = []
    equal = {"application": wanted.application, "status": wanted.status, "stage": wanted.stage}
    for column, value in equal.items():
        if value is not None:
            conditions.append(f"{column} = %s")
            parameters.append(fit(value))
    if wanted.exception_class is not None:
        # The class is given with or without its package.
        conditions.append(r"(exception_class = %s OR exception_class LIKE %s)")
        name = fit(wanted.exception_class)
        parameters += [name, f"%.{_like_literal(name)}"]
    if wanted.text is not None:
        conditions.append(_CONTAINS)
        in_json = _in_json(wanted.text)
        parameters += [in_json, fit(wanted.text), in_json]
    if wanted.since is not None:
        conditions.append(f"seen_about >= {_ABOUT} AND last_seen >= %s")
        parameters += [wanted.since, wanted.since]
    if wanted.until is not None:
        conditions.append("first_seen < %s")
        parameters.append(wanted.until)
    if wanted.owner is not None:
        owned, of_owner = ownership.owners().owned_by(wanted.owner)
        conditions.append(owned)
        parameters += of_owner
    return conditions, parameters


def _like_literal(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _in_json(text: str) -> str:
    """Return `text` as it is written inside of a JSON string."""
    return msgspec.json.encode(text).decode()[1:-1]


def stages(application: str | None = None) -> tuple[str, ...]:
    """Return the stages that any group has, by name."""
    where, parameters = sql.where({"application": application})
    rows = sql.rows(
        "SELECT DISTINCT stage FROM error_group"
        f" WHERE first_seen IS NOT NULL AND {where} ORDER BY 1 LIMIT 200",
        parameters,
    )
    return tuple(stage for (stage,) in rows)


def group_history(
    application: str, fingerprint: str, *, cursor: str | None = None, limit: int = 50
) -> Page[StoredEvent]:
    """Return the acts on a group, the ends of mutes, and its notes, newest first."""
    before = paging.unpack(cursor, int, of="acts on a group")
    events = store.read_group_actions(
        application, fingerprint, before=before, limit=paging.checked(limit) + 1
    )
    return paging.page(events, of="acts on a group", limit=limit, key=lambda each: each.sequence)


def affected(application: str, fingerprint: str, *, live: bool = True) -> Affected:
    """Return the tasks with failures of this cause, the last failed first.

    With `live` only those of live checkpoints.
    """
    counts, complete = store.count_by_task(application, fingerprint, limit=MAX_READ)
    states = {
        UUID(each.id.digest): each
        for each in row_mapping.TASKS.load("digest = ANY(%s::uuid[])", [list(counts)])
    }
    tasks = tuple((states[digest], count) for digest, count in counts.items() if digest in states)
    if not live:
        return Affected(tasks=tasks, older=0, complete=complete)
    threads = row_mapping.THREADS.load_readable("application = %s", [application])
    keys = live_checkpoints.live_keys(threads)
    shown = tuple(each for each in tasks if live_checkpoints.pipeline_key(each[0].id) in keys)
    return Affected(tasks=shown, older=len(tasks) - len(shown), complete=complete)


def groups_of(events: Iterable[StoredEvent | None]) -> dict[tuple[str, str], GroupState]:
    """Return the error groups of events, by application and fingerprint."""
    keys = {
        (each.application, fingerprint)
        for each in events
        if each is not None and (fingerprint := getattr(each.event.data, "fingerprint", None))
    }
    return groups_by_key(keys)


def groups_by_key(keys: Collection[tuple[str, str]]) -> dict[tuple[str, str], GroupState]:
    """Return those of some error groups that exist, by application and fingerprint."""
    if not keys:
        return {}
    where = "(application, fingerprint) IN (SELECT * FROM unnest(%s::text[], %s::text[]))"
    columns = [[name for name, _ in keys], [fingerprint for _, fingerprint in keys]]
    states = row_mapping.GROUPS.load_readable(where, columns)
    return {(each.application, each.fingerprint): each for each in states}


def owners_of_tasks(
    tasks: Iterable[TaskState], owners: ownership.Owners | None = None
) -> dict[str, str | None]:
    """Return the owners of tasks, by the id of the task."""
    tasks = list(tasks)
    rules = ownership.owners() if owners is None else owners
    keys = {
        (each.id.application, each.failure.fingerprint)
        for each in tasks
        if each.failure is not None
    }
    groups = groups_by_key(keys)
    return {each.id.digest: rules.of_task(each, groups) for each in tasks}


def quiet_groups(application: str | None = None) -> dict[str, int]:
    """Return the number of groups that lists omit by default, by state."""
    quiet = [GroupStatus.MUTED.value, GroupStatus.RESOLVED.value]
    where, parameters = sql.where({"application": application})
    rows = sql.rows(
        "SELECT status, count(*) FROM error_group WHERE first_seen IS NOT NULL"
        f" AND status = ANY(%s::text[]) AND {where} GROUP BY 1",
        [quiet, *parameters],
    )
    return dict.fromkeys(quiet, 0) | dict(rows)
