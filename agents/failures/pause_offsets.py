"""Pause offsets: from there on, the records of a task are held."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache

from pyspark.sql import Column
from pyspark.sql import functions as F

from arrester.agents.executor.columns import DECIDED, ENTRY, FATE, HELD, POSITION, TASK
from arrester.agents.journal.entries import Cursor

_PLACE = "struct<entry:int,position:bigint>"


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


def is_one_of(task: Column, keys: Collection[str | None]) -> Column:
    """Return whether a task is one of some; None stands for records without a task."""
    named = [key for key in keys if key is not None]
    found = task.isin(named) if named else F.lit(False)
    return F.when(task.isNull(), F.lit(None in keys)).otherwise(found)


def pause_offset_of(pause_offsets: Mapping[str, Cursor]) -> Column:
    """Return, for each row, the pause offset of its task, NULL if the task does not pause."""
    if not pause_offsets:
        return _nowhere()
    pairs: list[Column] = []
    for key, cut in pause_offsets.items():
        entry, position = F.lit(cut.entry).alias("entry"), F.lit(cut.position).alias("position")
        pairs += [F.lit(key), F.struct(entry, position).cast(_PLACE)]
    return F.try_element_at(F.create_map(*pairs), F.col(TASK))


def must_hold(cut: Column) -> Column:
    """Return whether a row is held: its task is blocked, or pauses at or before it."""
    if cut is _nowhere():
        return _is_blocked()
    behind = F.coalesce(place() >= cut, F.lit(False))
    decided = F.coalesce(F.col(FATE) == DECIDED, F.lit(False))
    return (_is_blocked() | behind) & ~decided


def held_after(pause_offsets: Mapping[str, Cursor]) -> Column | None:
    """Return whether a successful record is held after its task's pause offset; None: none is."""
    return must_hold(pause_offset_of(pause_offsets)) if pause_offsets else None


@cache
def _nowhere() -> Column:
    return F.lit(None).cast(_PLACE)


@cache
def _is_blocked() -> Column:
    return F.coalesce(F.col(FATE) == HELD, F.lit(False))
