"""Dead letters at a position, also those that were only counted: the log lacks their records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from arrester.controlplane.queries import sql
from arrester.controlplane.queries.failure_history.dead_letters import DeadLetter, read_dead_letters
from arrester.controlplane.store import RecordQuery
from arrester.controlplane.store.column_values import MAX_BIGINT
from arrester.domain.identity.dead_letter_ids import dead_letter_ids

#: The tasks whose dead letters are looked up; those that failed last come first.
_TASKS = 20_000


def dead_letters_at(query: RecordQuery, *, application: str | None, limit: int) -> list[DeadLetter]:
    """Return the dead letters at the position that a query asks for, newest first.

    There are none if it asks for more than a position and a task: an id has only these.
    """
    wanted = dict(query.fields)
    position, key = wanted.get("position", ""), wanted.get("task")
    is_about_position = wanted.keys() <= {"position", "task"} and not query.phrases
    # Two values of one field match no record.
    is_about_position = is_about_position and len(set(query.fields)) == len(wanted)
    if (
        not is_about_position
        or not (position.isascii() and position.isdecimal())
        or int(position) > MAX_BIGINT
    ):
        return []
    ids = [
        UUID(bytes=id)
        for name, pipeline, checkpoint, task in _tasks(application, key)
        for id in dead_letter_ids(name, pipeline, checkpoint, task, [int(position)])
    ]
    return read_dead_letters(ids, limit=limit)


def _tasks(application: str | None, key: str | None) -> Sequence[tuple[Any, ...]]:
    """Return application, pipeline, checkpoint and key of tasks."""
    conditions, parameters = ["true"], []
    for column, value in (("application", application), ("key", key)):
        if value is not None:
            conditions.append(f"{column} = %s")
            parameters.append(value)
    return sql.rows(
        f"SELECT application, pipeline, checkpoint, key FROM task WHERE {' AND '.join(conditions)}"
        f" ORDER BY since DESC NULLS LAST LIMIT {_TASKS}",
        parameters,
    )
