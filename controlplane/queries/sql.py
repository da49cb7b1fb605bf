"""The SQL that the queries share: rows of a statement, and conditions on columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import connection

#: Whether a task is stopped.
STOPPED = "status IN ('PAUSED', 'DEAD')"


def rows(statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Return the rows of a statement, planned for the given values."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        result: list[tuple[Any, ...]] = cursor.fetchall()
        return result


def where(
    equal: Mapping[str, str | UUID | None], order: str = "", before: Sequence[object] | None = None
) -> tuple[str, list[Any]]:
    """Return the condition for equal values unless None, and for rows before a key of `order`."""
    given = {column: value for column, value in equal.items() if value is not None}
    conditions = [f"{column} = %s" for column in given]
    if before is not None:
        conditions.append(f"({order}) < ({', '.join(['%s'] * len(before))})")
    return " AND ".join(conditions) or "true", [*given.values(), *(before or ())]
