"""Overhead of guarding a table of PostgreSQL: `.write_jdbc` ÷ Spark's own writer."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame

from arrester import LogAndContinue
from arrester.agents.definition.builder import PipelineBuilder
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.stores.jdbc_call import JdbcCall
from arrester.agents.definition.stores.jdbc_store import JdbcStore
from arrester.agents.definition.stores.jdbc_table import DRIVER
from benchmarks import by_hand
from benchmarks.pipelines import CASTS, Flights, World, session
from benchmarks.table import Figure
from benchmarks.timed_writes import (
    AtEnd,
    run_batches,
    run_guarded,
    run_plain,
    seconds_between_writes,
    timed_table,
)
from tests import postgres_server
from tests.postgres_server import PostgresServer

_TABLE = "CREATE TABLE flights (position bigint, origin text, flight text, value text)"
_NUMBERS = "ALTER TABLE flights ADD late int, ADD flown int"


@dataclass(frozen=True, slots=True, kw_only=True)
class _TimedTable(JdbcStore):
    """A table that calls a function after each write."""

    at_end: AtEnd

    def open_call(self) -> JdbcCall:
        return _TimedCall(table=self, at_end=self.at_end)


@dataclass(slots=True, kw_only=True)
class _TimedCall(JdbcCall):
    at_end: AtEnd

    def write(self, df: DataFrame, number: int) -> None:
        JdbcCall.write(self, df, number)
        self.at_end()

    def publish(self, number: int) -> None:
        JdbcCall.publish(self, number)
        self.at_end()


def figures(folder: Path, *, rows: int, pairs: int) -> list[Figure]:
    """Return the ratios of the times of a micro-batch."""
    jars = ",".join(map(str, postgres_server.jdbc_driver()))
    spark = session(jars=jars)
    try:
        world = World(spark=spark, folder=folder, rows=rows)
        with postgres_server.running() as postgres:
            healthy = _ratio(world, postgres, Flights(rows=rows), pairs=pairs)
            one_file = Flights(rows=rows, files=1)
            refused = _ratio(world, postgres, one_file, refused=rows // 2, pairs=pairs)
            clean, dirty = (
                _ratio_by_hand(world, postgres, Flights(rows=rows, dirty_every=every), pairs=pairs)
                for every in (0, 100)
            )
    finally:
        spark.stop()
    return [
        Figure(name="Table of PostgreSQL, guarded ÷ plain", value=healthy, goal="≤ 1.10"),
        Figure(name="the same, one refused record", value=refused, goal="≤ 2.5"),
        Figure(name="casts, guarded ÷ written by hand", value=clean),
        Figure(name="the same, 1% of records fail", value=dirty, goal="≤ 0.9"),
    ]


def _ratio(
    world: World,
    postgres: PostgresServer,
    flights: Flights,
    *,
    refused: int | None = None,
    pairs: int,
) -> float:
    """Return the median of some pairs; the first one warms up."""
    found = []
    for _ in range(pairs + 1):
        postgres.execute("DROP TABLE IF EXISTS flights", _TABLE)
        plain = seconds_between_writes(lambda end: _run_plain(world, postgres, flights, end))
        postgres.execute("TRUNCATE flights")
        if refused is not None:
            postgres.execute(f"ALTER TABLE flights ADD CHECK (position <> {refused})")
        guarded = seconds_between_writes(lambda end: _run_guarded(world, postgres, flights, end))
        _check_written(postgres, flights.first_rows + flights.rows - (refused is not None))
        found.append(guarded / plain)
    return median(found[1:])


def _ratio_by_hand(
    world: World, postgres: PostgresServer, flights: Flights, *, pairs: int
) -> float:
    """Return the median of some pairs of casts, both with dead letters; the first one warms up."""
    found = []
    for _ in range(pairs + 1):
        seconds = []
        for run in (_run_by_hand, _run_casts):
            postgres.execute("DROP TABLE IF EXISTS flights", _TABLE, _NUMBERS)
            seconds.append(seconds_between_writes(partial(run, world, postgres, flights)))
            _check_written(postgres, flights.first_rows + flights.rows - flights.dirty)
        found.append(seconds[1] / seconds[0])
    return median(found[1:])


def _check_written(postgres: PostgresServer, rows: int) -> None:
    [(written,)] = postgres.rows("SELECT count(*) FROM flights")
    if written != rows:
        raise RuntimeError(f"{written} rows were written instead of {rows}")


def _append(postgres: PostgresServer, df: DataFrame) -> None:
    properties = {"driver": DRIVER, **postgres.options}
    df.write.jdbc(postgres.url, "flights", mode="append", properties=properties)


def _run_plain(world: World, postgres: PostgresServer, flights: Flights, at_end: AtEnd) -> None:
    run_plain(world, flights, partial(_append, postgres), at_end)


def _run_by_hand(world: World, postgres: PostgresServer, flights: Flights, at_end: AtEnd) -> None:
    dead_letters = world.folder / "dead-letters" / str(time.time_ns())
    write = by_hand.batch_function(by_hand.cast, lambda df, _: _append(postgres, df), dead_letters)
    run_batches(world, flights, write, at_end)


def _run_casts(world: World, postgres: PostgresServer, flights: Flights, at_end: AtEnd) -> None:
    def finish(builder: PipelineBuilder) -> Pipeline:
        options = postgres.options
        pipeline = CASTS.guarded(builder).write_jdbc("flights", url=postgres.url, options=options)
        return timed_table(pipeline, _TimedTable, at_end)

    errors = by_hand.dead_letters_in(world.folder / "dead-letters")
    run_guarded(world, flights, finish, errors=errors)


def _run_guarded(world: World, postgres: PostgresServer, flights: Flights, at_end: AtEnd) -> None:
    def finish(builder: PipelineBuilder) -> Pipeline:
        pipeline = builder.write_jdbc(
            "flights", url=postgres.url, options=postgres.options, on_error=LogAndContinue()
        )
        return timed_table(pipeline, _TimedTable, at_end)

    run_guarded(world, flights, finish)
