"""The pipeline builder: an author's definition, checked step by step before it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from os import PathLike
from typing import Any, NoReturn

from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T

from arrester.agents.arguments import check_flag, check_function
from arrester.agents.definition.checks import (
    check_columns,
    check_deterministic,
    check_position,
    check_sender,
    check_source,
    empty_frame,
    names_and_paths,
    parsed_schema,
    require_arrow,
    require_frame,
    require_shippable,
)
from arrester.agents.definition.coordinates import SourceCoordinates, column_name
from arrester.agents.definition.dry_run import (
    dry_run_column,
    dry_run_native,
    dry_run_transform,
    framed_expression,
    strict_column,
)
from arrester.agents.definition.pipeline import (
    SINKS,
    Definition,
    Pipeline,
    PipelineInvalid,
    Runner,
)
from arrester.agents.definition.sinks import (
    Connect,
    Producer,
    Send,
    Sink,
    SinkFunction,
)
from arrester.agents.definition.steps import (
    Columns,
    Deserialize,
    DeserializeFramed,
    Process,
    Step,
    Transform,
    UserFunction,
)
from arrester.agents.definition.stores.delta_table import checked_delta_table
from arrester.agents.definition.stores.files import checked_files
from arrester.agents.definition.stores.iceberg_table import checked_iceberg_table
from arrester.agents.definition.stores.jdbc_store import checked_jdbc_table
from arrester.agents.definition.stores.kafka_topic import checked_topic
from arrester.agents.definition.stores.sink_store import ProbeFunction
from arrester.agents.handlers import Handler, OnClass, check_handler, checked_answers
from arrester.agents.schema_registry.framed_values import FramedValues
from arrester.agents.spark.jvm.plans.failfast import names_in
from arrester.agents.spark.jvm.plans.prepared_expressions import PreparedExpressions
from arrester.agents.spark.jvm.versions import require_supported
from arrester.agents.spark.sources.kafka_source import COORDINATES, default_task
from arrester.agents.worker.columns import PREFIX
from arrester.domain.error_policy.policy import Response
from arrester.domain.errors import InvalidValue
from arrester.domain.identity.names import check_name


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PipelineBuilder(Definition):
    """A pipeline under construction; every method returns a new one."""

    #: An empty frame with the columns so far. The next step is checked against it.
    shape: DataFrame

    def deserialize(
        self,
        name: str,
        expr: Column | FramedValues,
        *,
        strict: bool = False,
        on_error: Handler | None = None,
        on: OnClass | None = None,
    ) -> PipelineBuilder:
        """Add the column `name`, a native expression over the columns so far.

        `SchemaRegistry` gives the expression of values that a schema registry frames.

        It stays in the JVM. `from_csv`, `from_json` and `from_xml` are set to FAILFAST. Another
        explicit mode, Python functions, aggregates and generators are refused. `on` maps exception
        classes or error conditions to responses, before `on_error` is called. RETRY is not allowed:
        an expression that raised raises again.

        With `strict`, a record fails too if the text of `from_json` is not exactly one JSON
        document, has no value in a field that the schema declares NOT NULL, or has a date or time
        in another format.
        """
        answers = self._checked_answers(name, on_error, on, native=True)
        check_flag("strict", strict)
        if isinstance(expr, FramedValues):
            if strict:
                raise PipelineInvalid(f"deserialize {name!r}: strict=True is for from_json")
            framed = framed_expression(name, expr, self.shape)
            shape = dry_run_native(self.shape, f"deserialize {name!r}", {name: framed.column})
            framed.prepare()
            step: Step = DeserializeFramed(
                name=name, expression=str(expr), framed=framed, on_error=on_error, on=answers
            )
            return self._with_step(step, shape)
        shape = dry_run_native(self.shape, f"deserialize {name!r}", {name: expr})
        if strict:
            expr = strict_column(self.shape, f"deserialize {name!r}", expr)
        prepared = PreparedExpressions.of(self.shape, {name: expr})
        step = Deserialize(
            name=name, expression=expr, on_error=on_error, on=answers, prepared=prepared
        )
        return self._with_step(step, shape)

    def columns(
        self,
        name: str,
        /,
        *,
        on_error: Handler | None = None,
        on: OnClass | None = None,
        **expressions: Column,
    ) -> PipelineBuilder:
        """Add several columns at once, native expressions over the columns so far.

        None of them can use another one, and they replace columns of the same name. If one of them
        raises for a record (ANSI cast, division by zero, overflow), the record fails with all of
        them. The refusals and `on` are those of `deserialize`.
        """
        answers = self._checked_answers(name, on_error, on, native=True)
        if not expressions:
            raise PipelineInvalid(f"columns {name!r}: no column is given; write column=expression")
        check_columns(f"columns {name!r}", list(expressions))
        shape = dry_run_native(self.shape, f"columns {name!r}", expressions)
        prepared = PreparedExpressions.of(self.shape, expressions)
        step = Columns(
            name=name, expressions=expressions, on_error=on_error, on=answers, prepared=prepared
        )
        return self._with_step(step, shape)

    def process(
        self,
        name: str,
        fn: UserFunction,
        *,
        on_error: Handler | None = None,
        on: OnClass | None = None,
        schema: str | T.StructType | None = None,
    ) -> PipelineBuilder:
        """Add a Python function that is called with each row as a dict.

        It returns a dict, None (the record produces no row) or an iterable of dicts. The result has
        the same columns as the input, unless `schema` (DDL text or StructType) names others. Every
        value is checked against the schema: a wrong type, a missing or an unknown field is a
        failure of the record, whose message names field and type. `on` maps exception classes to
        responses, before `on_error` is called. RETRY makes a class retriable at this step, within
        `errors.retries.limit` and `errors.retry.timeout`.
        """
        answers = self._checked_answers(name, on_error, on)
        check_function(f"process {name!r}: fn", fn, "a function of one row, a dict", arguments=1)
        spark = self.source.sparkSession
        require_shippable(spark, f"process {name!r}: fn", fn)
        returned = self.shape.schema if schema is None else parsed_schema(name, schema)
        require_arrow(spark, f"process {name!r}", self.shape.schema, returned)
        step = Process(name=name, function=fn, schema=returned, on_error=on_error, on=answers)
        return self._with_step(step, self._empty_frame(returned))

    def transform(
        self,
        name: str,
        fn: Callable[[DataFrame], DataFrame],
        *,
        stateful: bool = False,
        on_error: Handler | None = None,
        on: OnClass | None = None,
    ) -> PipelineBuilder:
        """Add a function of a DataFrame that works row by row: native, UDFs, mapInPandas, ….

        It is called once now with an empty DataFrame, and once for each micro-batch. If it fails
        there, the failing records are isolated and handled as failed records; if there are none, it
        failed as a whole and the run ends. A plan that is not row by row (aggregate, window, sort,
        limit) is refused unless `stateful`: then the pipeline has no task=, the step is the last
        one, and any failure ends the run. A function whose plan hides which row became which, as
        mapInPandas does, must be the last step too.
        """
        answers = self._checked_answers(name, on_error, on)
        check_flag(f"transform {name!r}: stateful", stateful)
        check_function(f"transform {name!r}: fn", fn, "a function of a DataFrame", arguments=1)
        if stateful and self.task is not None:
            # Positions are unique within a task only, not in the global task.
            raise PipelineInvalid(
                f"transform {name!r}: a stateful one needs a pipeline without task=, whose "
                "positions are unique in all of its records"
            )
        result, carries = dry_run_transform(name, fn, self.shape, stateful=stateful)
        step = Transform(
            name=name,
            function=fn,
            schema=result.schema,
            stateful=stateful,
            carries=carries,
            on_error=on_error,
            on=answers,
        )
        return self._with_step(step, self._empty_frame(result.schema))

    def write(
        self,
        fn: SinkFunction,
        *,
        atomic: bool = False,
        partial: bool = False,
        probe: ProbeFunction | None = None,
        on_error: Handler | None = None,
        on: OnClass | None = None,
    ) -> Pipeline:
        """Finish with a sink that is called as `fn(df, number)` with the rows that passed all
        steps.

        Numbers strictly increase and are the same on every replay. A sink that is idempotent by
        number has exactly-once results, any other at-least-once.

        `fn` must read all rows of `df`, once or more, before it returns; otherwise the run ends
        with RowsUnread. `partial` allows it to read a part, or nothing.

        `atomic` promises that a call that raises leaves nothing behind, and that `fn` writes all
        rows and columns of `df` and evaluates it once. Healthy micro-batches then take the fast
        path, at almost no cost. After a failure the write is aborted, and the micro-batch is
        processed again on the slow path.

        `on_error` is called once for a micro-batch at which the sink failed (KIP-210): CONTINUE
        skips all its records, PAUSE holds each of their tasks at its first record. `on` maps
        exception classes to responses, before `on_error`. RETRY makes a class retriable, within the
        limits.

        `probe(df)` raises where `fn` would, and leaves nothing visible: it writes to a staging
        table. After a failure of the sink, at most 400 calls of `probe` isolate the failing
        records. Then `fn` gets the other records under the same number.
        """
        check_flag("write: atomic", atomic)
        check_function("write: fn", fn, "a function of a DataFrame and a number", arguments=2)
        if probe is not None:
            check_function("write: probe", probe, "a function of a DataFrame", arguments=1)
        answers = checked_answers("write", on_error, on)
        return self._finished(
            Sink(
                function=fn,
                atomic=atomic,
                partial=partial,
                probe=probe,
                on_error=on_error,
                on=answers,
            )
        )

    def write_files(
        self,
        path: str | PathLike[str],
        *,
        format: str = "parquet",
        partition_by: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        number_column: str | None = None,
        on_error: Handler | None = None,
        on: OnClass | None = None,
    ) -> Pipeline:
        """Finish with files below `path`, all or nothing by Spark's commit protocol.

        Files are appended: at least once, since a replay writes again. With `number_column`, each
        number has a folder `<number_column>=<number>` below `path`, which a replay replaces:
        exactly once. `options` are those of the format; `on_error` and `on` as in `write`.
        """
        answers = checked_answers("write_files", on_error, on)
        files = checked_files(
            self.shape.columns,
            path=path,
            format=format,
            partition_by=partition_by,
            options=options,
            number_column=number_column,
        )
        return self._finished(Sink(function=files, atomic=True, on_error=on_error, on=answers))

    def write_delta(
        self,
        table: str,
        *,
        options: Mapping[str, Any] | None = None,
        on_error: Handler | None = None,
        on: OnClass | None = None,
    ) -> Pipeline:
        """Finish with an existing Delta table, exactly once by Delta's idempotent writes.

        `table` is a path, if it has a slash, or a name in a catalog. Rows are appended. `options`
        are those of Delta's writer, such as `mergeSchema`.

        Records that the table refuses (NOT NULL, CHECK, length) are failed records, answered one by
        one by `on_error`. A conflict with another writer is retried within the limits. Any other
        failure of the table ends the run. `on` maps classes and conditions to responses.
        """
        answers = checked_answers("write_delta", on_error, on)
        function = checked_delta_table(self.shape.schema, table=table, options=options)
        return self._finished(Sink(function=function, atomic=True, on_error=on_error, on=answers))

    def write_iceberg(
        self,
        table: str,
        *,
        options: Mapping[str, Any] | None = None,
        on_error: Handler | None = None,
        on: OnClass | None = None,
    ) -> Pipeline:
        """Finish with an existing Iceberg table, exactly once: snapshots store the numbers.

        `table` is its name with catalog and database. Rows are appended. `options` are those of
        Iceberg's writer, such as `fanout-enabled`.

        Records that the table refuses (NOT NULL, range of a type) are failed records, answered one
        by one by `on_error`. A conflict with another writer is retried within the limits. Any other
        failure of the table ends the run. `on` maps classes and conditions to responses.
        """
        answers = checked_answers("write_iceberg", on_error, on)
        function = checked_iceberg_table(self.shape.schema, table=table, options=options)
        return self._finished(Sink(function=function, atomic=True, on_error=on_error, on=answers))

    def write_jdbc(
        self,
        table: str,
        *,
        url: str,
        key: str | Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        on_error: Handler | None = None,
        on: OnClass | None = None,
    ) -> Pipeline:
        """Finish with a table of PostgreSQL, exactly once: rows and number in one transaction.

        Rows are inserted. With `key`, columns with a unique index, a row replaces the columns of
        the row with the same key; of several in one micro-batch, the last one is written.
        `options` are those of Spark's JDBC writer and of the driver, with `user` and `password`.

        Records that the table refuses (NOT NULL, CHECK, type, length, UNIQUE, foreign key, trigger)
        are failed records, answered one by one by `on_error`. `on` maps classes to responses, also
        SQLSTATEs: `{"23505": CONTINUE, "22": PAUSE}`. Any other failure of the database is
        retried within the limits, then it ends the run.
        """
        answers = checked_answers("write_jdbc", on_error, on)
        function = checked_jdbc_table(
            self.shape.schema, table=table, url=url, key=key, options=options
        )
        return self._finished(Sink(function=function, atomic=True, on_error=on_error, on=answers))

    def write_kafka(
        self,
        topic: str,
        *,
        options: Mapping[str, Any] | None = None,
        on_error: Handler | None = None,
        on: OnClass | None = None,
    ) -> Pipeline:
        """Finish with a Kafka topic, written by Spark's own writer: at least once.

        It writes the columns `value`, and if present `key`, `headers` and `partition`. `options`
        are those of Spark's Kafka writer. Without `kafka.bootstrap.servers`, servers and security
        are those of the source. The topic must exist at the start of the run.

        `on_error` and `on` answer for a whole micro-batch, as in `write`: a topic has no probe.
        `.produce` finds the failing record, and is slower.
        """
        answers = checked_answers("write_kafka", on_error, on)
        function = checked_topic(self.source, self.shape.schema, topic=topic, options=options)
        # Spark's own writer reads all rows, or raises.
        return self._finished(Sink(function=function, partial=True, on_error=on_error, on=answers))

    def produce(
        self,
        send: Send | None = None,
        *,
        connect: Connect | None = None,
        on_error: Handler | None = None,
        on: OnClass | None = None,
    ) -> Pipeline:
        """Finish by sending each row that passed all steps, strictly in order within its task.

        `send(row)` is called on executors with a dict. An exception of it, or of the future that it
        returns, is the failure of the record. The next row of a task is sent after its last one has
        arrived. Rows of other tasks do not wait for it.

        If `send` needs a client, give `connect` instead: a function without arguments that returns
        a context manager, which gives the `send`. It is opened once per Spark partition with rows.
        An exception of `connect` is a failure of the pipeline; no handler is called.

        Delivery is at least once: a replay of a micro-batch sends it again, in order. `on_error`
        decides about a record that could not be sent after the retries: CONTINUE, PAUSE or FAIL.
        After PAUSE and FAIL, no later record of its task has been sent. `on` maps exception classes
        to responses, before `on_error`; RETRY makes a class retriable. A `transform` before it is
        refused: its rows have no order to be sent in.
        """
        check_sender(self.source.sparkSession, send, connect)
        transforms = [step.name for step in self.steps if isinstance(step, Transform)]
        if transforms:
            # Its rows have no order to be sent in.
            raise PipelineInvalid(
                f"produce: it cannot follow transform {transforms[0]!r}, whose rows have no order "
                "within their record; use .columns and .process before it, or .write"
            )
        answers = checked_answers("produce", on_error, on)
        require_arrow(self.source.sparkSession, "produce", self.shape.schema)
        producer = Producer(send=send, connect=connect, on_error=on_error, on=answers)
        return self._finished(producer)

    def start(self, *args: object, **kwargs: object) -> NoReturn:
        """Raise PipelineInvalid: there is no sink yet."""
        raise PipelineInvalid(
            f"pipeline {self.name} has no sink: finish it with {SINKS}, and start what that returns"
        )

    run = start

    def _checked_answers(
        self, name: Any, on_error: Handler | None, on: OnClass | None, *, native: bool = False
    ) -> Mapping[str, Response]:
        """Return `on` by full names; raise if no step of this name can follow."""
        if not isinstance(name, str) or not name or name.startswith(PREFIX):
            raise InvalidValue("step", name, f"a text that does not begin with {PREFIX}")
        if any(step.name == name for step in self.steps):
            raise PipelineInvalid(f"step {name!r} is there twice; names are unique in a pipeline")
        last = self.steps[-1] if self.steps else None
        if isinstance(last, Transform) and not last.carries:
            why = "is stateful" if last.stateful else "hides which row became which"
            raise PipelineInvalid(
                f"step {name!r} cannot follow transform {last.name!r}, which {why}; "
                "put it before that one, or into its function"
            )
        answers = checked_answers(f"step {name!r}", on_error, on)
        if native and Response.RETRY in answers.values():
            raise InvalidValue(f"step {name!r}: on", "RETRY", "CONTINUE, PAUSE or FAIL")
        return answers

    def _with_step(self, step: Step, shape: DataFrame) -> PipelineBuilder:
        return replace(self, steps=(*self.steps, step), shape=shape)

    def _empty_frame(self, schema: T.StructType) -> DataFrame:
        return self.source.sparkSession.createDataFrame([], schema)

    def _finished(self, sink: Sink | Producer) -> Pipeline:
        definition: dict[str, Any] = {
            field.name: getattr(self, field.name) for field in fields(Definition)
        }
        coordinates = SourceCoordinates.of(self.source, task=self.task, position=self.position)
        columns = tuple(self.shape.columns)
        return Pipeline(**definition, columns=columns, sink=sink, source_coordinates=coordinates)


def define(
    name: str,
    source: DataFrame,
    *,
    task: str | Column | None = None,
    position: str | Column | None = None,
    key: str | Column | None = None,
    value: str | Column | None = None,
    on_error: Handler | None = None,
    redact: Sequence[str] = (),
    show: Sequence[str] | None = None,
    runner: Runner | None = None,
) -> PipelineBuilder:
    """Begin a pipeline over `source`, with the arguments of `Agent.pipeline`."""
    check_name("pipeline", name)
    require_frame(source)
    require_supported(source.sparkSession)
    check_source(source)
    columns = {"task": task, "position": position, "key": key, "value": value}
    columns |= _kafka_defaults(source, columns)
    if on_error is not None:
        check_handler("on_error", on_error)
    shape = empty_frame(source)
    resolved = {kind: dry_run_column(shape, kind, given) for kind, given in columns.items()}
    checked_position = check_position(shape, columns["position"], resolved["position"])
    for kind, given in columns.items():
        check_deterministic(source, kind, given, resolved[kind])
    return PipelineBuilder(
        name=name,
        source=source,
        task=resolved["task"],
        position=checked_position,
        key=resolved["key"],
        value=resolved["value"],
        key_name=_key_name(shape, key, resolved["key"]),
        key_names=names_in(shape, resolved["key"]),
        on_error=on_error,
        shape=shape,
        runner=runner,
        redact=names_and_paths("redact", redact),
        show=None if show is None else names_and_paths("show", show),
    )


def _kafka_defaults(
    source: DataFrame, given: Mapping[str, str | Column | None]
) -> dict[str, str | Column]:
    """Return the columns that a source from Kafka has by default, without the `given` ones."""
    if not set(source.columns) >= COORDINATES:
        return {}
    defaults: dict[str, str | Column] = {}
    if given["task"] is None:
        defaults["task"] = default_task(source)
    if given["position"] is None:
        defaults["position"] = "offset"
    # The key has no default: it is shown only if the author declares it, since it may be a name.
    if given["value"] is None and "value" in source.columns:
        defaults["value"] = "value"
    return defaults


def _key_name(shape: DataFrame, given: str | Column | None, resolved: Column | None) -> str | None:
    """Return the column name of a key that is `given` by its name."""
    if not isinstance(given, str) or resolved is None:
        return None
    return column_name(shape, resolved) or given
