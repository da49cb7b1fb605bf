"""Overhead of guarding Delta and Iceberg tables: the sinks ÷ the formats' own writers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester import LogAndContinue
from arrester.agents.definition.builder import PipelineBuilder
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.stores.delta_table import DeltaTable, StagedDeltaAppend
from arrester.agents.definition.stores.iceberg_table import IcebergTable, StagedAppend
from benchmarks.pipelines import Flights, World, session
from benchmarks.table import Figure
from benchmarks.timed_writes import (
    AtEnd,
    run_guarded,
    run_plain,
    seconds_between_writes,
    timed_table,
)
from tests import delta_lake, iceberg

#: Adds a step to a pipeline.
_Step = Callable[[PipelineBuilder], PipelineBuilder]
_COLUMNS = "position BIGINT, origin STRING, flight STRING NOT NULL, value STRING"


@dataclass(frozen=True, slots=True, kw_only=True)
class _TimedDeltaTable(DeltaTable):
    """A table that calls a function after each write."""

    at_end: AtEnd

    def __call__(self, df: DataFrame, number: int) -> None:
        DeltaTable.__call__(self, df, number)
        self.at_end()

    def open_staged_write(self, spark: SparkSession) -> _TimedDeltaAppend:
        return _TimedDeltaAppend(table=self, at_end=self.at_end)


@dataclass(slots=True, kw_only=True)
class _TimedDeltaAppend(StagedDeltaAppend):
    at_end: AtEnd

    def publish(self, number: int) -> None:
        StagedDeltaAppend.publish(self, number)
        self.at_end()


@dataclass(slots=True, kw_only=True)
class _TimedIcebergTable(IcebergTable):
    """The same for Iceberg."""

    at_end: AtEnd

    def __call__(self, df: DataFrame, number: int) -> None:
        IcebergTable.__call__(self, df, number)
        self.at_end()

    def open_staged_write(self, spark: SparkSession) -> _TimedAppend:
        return _TimedAppend(table=self, spark=spark, at_end=self.at_end)


@dataclass(slots=True, kw_only=True)
class _TimedAppend(StagedAppend):
    at_end: AtEnd

    def publish(self, number: int) -> None:
        StagedAppend.publish(self, number)
        self.at_end()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Format:
    """A format of tables; each run has a new table."""

    name: str
    #: Before the number of a table: its path, or its name.
    prefix: str
    timed: type[_TimedDeltaTable] | type[_TimedIcebergTable]
    #: Returns what writes a micro-batch into a table.
    plain: Callable[[str], Callable[[DataFrame], None]]
    #: The same, where a repeated micro-batch writes nothing; None: the format has no such write.
    idempotent: Callable[[str], Callable[[DataFrame], None]] | None = None
    guarded: Callable[[PipelineBuilder, str], Pipeline]

    def create(self, spark: SparkSession) -> str:
        """Create a table without rows, and return its path or name."""
        table = f"{self.prefix}{time.time_ns()}"
        spark.sql(f"CREATE TABLE {self.in_sql(table)} ({_COLUMNS}) USING {self.name.lower()}")
        return table

    def in_sql(self, table: str) -> str:
        """Return the name of a table in SQL."""
        return f"delta.`{table}`" if "/" in table else table


def has_formats() -> bool:
    """Whether both formats have archives for this Spark."""
    return bool(delta_lake.archives() and iceberg.archives())


def figures(folder: Path, *, rows: int, pairs: int) -> list[Figure]:
    """Return the ratios of the times of a micro-batch."""
    settings = {**delta_lake.configuration(), **iceberg.catalog("lake", folder / "lake")}
    jars = ",".join(map(str, (*delta_lake.archives(), *iceberg.archives())))
    spark = session(jars=jars, settings=settings)
    found: list[Figure] = []
    try:
        world = World(spark=spark, folder=folder, rows=rows)
        for each in _formats(folder):
            healthy = _ratio(world, each, Flights(rows=rows), pairs=pairs)
            one_file = Flights(rows=rows, files=1)
            failed, refused = (
                _ratio(world, each, one_file, step=step(rows // 2), pairs=pairs)
                for step in (_failing, _refused)
            )
            found += [
                Figure(name=f"{each.name} table, guarded ÷ plain", value=healthy, goal="≤ 1.06"),
                Figure(name="the same, one failed record", value=failed, goal="≤ 1.15"),
                Figure(name="the same, one refused record", value=refused, goal="≤ 2.5"),
            ]
            if each.idempotent is not None:
                same = replace(each, plain=each.idempotent)
                healthy = _ratio(world, same, Flights(rows=rows), pairs=pairs)
                name = f"{each.name} table, guarded ÷ plain idempotent writes"
                found.append(Figure(name=name, value=healthy, goal="≤ 1.06"))
    finally:
        spark.stop()
    return found


def _formats(folder: Path) -> Sequence[_Format]:
    return (
        _Format(
            name="Delta",
            prefix=str(folder / "delta-"),
            timed=_TimedDeltaTable,
            plain=lambda table: lambda df: df.write.format("delta").mode("append").save(table),
            idempotent=_idempotent_delta_writes,
            guarded=lambda it, table: it.write_delta(table, on_error=LogAndContinue()),
        ),
        _Format(
            name="Iceberg",
            prefix="lake.db.flights",
            timed=_TimedIcebergTable,
            plain=lambda table: lambda df: df.writeTo(table).append(),
            guarded=lambda it, table: it.write_iceberg(table, on_error=LogAndContinue()),
        ),
    )


def _idempotent_delta_writes(table: str) -> Callable[[DataFrame], None]:
    numbers = count()

    def write(df: DataFrame) -> None:
        options = {"txnAppId": "plain", "txnVersion": str(next(numbers))}
        df.write.format("delta").mode("append").options(**options).save(table)

    return write


def _failing(position: int) -> _Step:
    """Return a step that fails at a position."""
    value = F.expr(f"if(position = {position}, string(int(origin)), value)")
    return lambda builder: builder.columns("failing", value=value, on_error=LogAndContinue())


def _refused(position: int) -> _Step:
    """Return a step after which the table refuses the row of a position."""
    flight = F.when(F.col("position") != position, F.col("flight"))
    return lambda builder: builder.columns("refused", flight=flight)


def _ratio(
    world: World, of: _Format, flights: Flights, *, step: _Step | None = None, pairs: int
) -> float:
    """Return the median of some pairs; the first one warms up. `step` leaves one record out."""
    found = []
    for _ in range(pairs + 1):
        plain = seconds_between_writes(lambda at_end: _run_plain(world, of, flights, at_end))
        table = of.create(world.spark)
        run = partial(_run_guarded, world, of, flights, table, step)
        guarded = seconds_between_writes(run)
        # The session has a table of Iceberg in its cache.
        world.spark.sql(f"REFRESH TABLE {of.in_sql(table)}")
        written = world.spark.table(of.in_sql(table)).count()
        if written != flights.first_rows + flights.rows - (step is not None):
            raise RuntimeError(f"{written} rows were written, of {flights}")
        found.append(guarded / plain)
    return median(found[1:])


def _run_plain(world: World, of: _Format, flights: Flights, at_end: AtEnd) -> None:
    table = of.create(world.spark)
    run_plain(world, flights, of.plain(table), at_end)


def _run_guarded(
    world: World, of: _Format, flights: Flights, table: str, step: _Step | None, at_end: AtEnd
) -> None:
    def finish(builder: PipelineBuilder) -> Pipeline:
        if step is not None:
            builder = step(builder)
        return timed_table(of.guarded(builder, table), of.timed, at_end)

    run_guarded(world, flights, finish)
