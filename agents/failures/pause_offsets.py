"""Pause offsets: from there on, the records of a task are held."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import cache
from typing import Final
from zlib import crc32

from pyspark.sql import Column
from pyspark.sql import functions as F

from arrester.agents.journal.entries import Cursor
from arrester.agents.worker.columns import DECIDED, ENTRY, HELD, OUTCOME, POSITION, TASK

FIRST_POSITION: Final = -(2**63)
LAST_POSITION: Final = 2**63 - 1
_PLACE = "struct<entry:int,position:bigint>"
_TASKS_PER_MAP = 8


# Cached: making a Column takes many calls to the JVM.
@cache
def place() -> Column:
    """Return the order of a record in its task: by entry, then by position."""
    return F.struct(F.col(ENTRY).alias("entry"), F.col(POSITION).alias("position"))


def is_record(task: str | None, entry: int, position: int | None) -> Column:
    """Return whether a row is of the record at these coordinates."""
    return (
        F.col(TASK).eqNullSafe(F.lit(task))
        & (F.col(ENTRY) == entry)
        & F.col(POSITION).eqNullSafe(F.lit(position))
    )


def is_task_in(task: Column, keys: Collection[str | None]) -> Column:
    """Return whether a task is one of some; None represents records without a task."""
    named = [key for key in keys if key is not None]
    is_named = task.isin(named) if named else F.lit(False)
    return F.when(task.isNull(), F.lit(None in keys)).otherwise(is_named)


def cursor_column(cursor: Cursor) -> Column:
    """Return a cursor as a value that is compared with `place`."""
    entry, position = F.lit(cursor.entry).alias("entry"), F.lit(cursor.position).alias("position")
    return F.struct(entry, position).cast(_PLACE)


def cursor_after(entry: int, position: int | None) -> Cursor:
    """Return the cursor just after a row. A position of None precedes all numbers."""
    if position is None:
        return Cursor(entry=entry, position=FIRST_POSITION)
    if position == LAST_POSITION:
        return Cursor(entry=entry + 1)
    return Cursor(entry=entry, position=position + 1)


def pause_offset_of(pause_offsets: Mapping[str, Cursor]) -> Column:
    """Return, for each row, the pause offset of its task, NULL if the task does not pause."""
    return cursor_of_task(pause_offsets) if pause_offsets else _no_offset()


def cursor_of_task(cursors: Mapping[str, Cursor]) -> Column:
    """Return, for each row, the cursor of its task, NULL for a task without one."""
    places = {task: {"entry": at.entry, "position": at.position} for task, at in cursors.items()}
    return value_of_task(places, _PLACE)


def value_of_task(values: Mapping[str, object], kind: str) -> Column:
    """Return, for each row, the value of its task, NULL for a task without one.

    The values, of the type `kind`, are one literal, as JSON that Spark reads once for each query: a
    Column of each would take a dozen JVM calls. Spark searches a map from its beginning, so the
    tasks are in several maps, by their checksum.
    """
    number = max(1, len(values) // _TASKS_PER_MAP)
    maps: list[dict[str, object]] = [{} for _ in range(number)]
    for task, value in values.items():
        maps[crc32(task.encode()) % number][task] = value
    index = (F.crc32(F.col(TASK).cast("binary")) % number + 1).cast("int")
    by_task = F.from_json(F.lit(json.dumps(maps)), f"array<map<string,{kind}>>")
    return F.try_element_at(F.element_at(by_task, index), F.col(TASK))


def is_held(pause_offset: Column) -> Column:
    """Return whether a row is held: its task is blocked, or pauses at or before it."""
    if pause_offset is _no_offset():
        return _is_blocked()
    after = F.coalesce(place() >= pause_offset, F.lit(False))
    decided = F.coalesce(F.col(OUTCOME) == DECIDED, F.lit(False))
    return (_is_blocked() | after) & ~decided


def held_after(pause_offsets: Mapping[str, Cursor]) -> Column | None:
    """Return whether a successful record is held after its task's pause offset; None: none is."""
    return is_held(pause_offset_of(pause_offsets)) if pause_offsets else None


@cache
def _no_offset() -> Column:
    return F.lit(None).cast(_PLACE)


@cache
def _is_blocked() -> Column:
    return F.coalesce(F.col(OUTCOME) == HELD, F.lit(False))
