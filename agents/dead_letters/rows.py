"""The columns of dead letters, and the additional ones for Kafka."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.config import dotted_path
from arrester.agents.dead_letters.diagnoses import diagnosis_of
from arrester.agents.dead_letters.message_source import HEADERS, source_sql
from arrester.agents.dead_letters.row_json import row_as_json
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.stages import stages_of
from arrester.agents.failures.failed_record import FailedRecord
from arrester.agents.failures.fingerprint_sql import fingerprint_sql
from arrester.agents.failures.fingerprints import failure_of
from arrester.agents.failures.payload import Redaction
from arrester.agents.spark.frames.column_names import in_quotes, text_literal
from arrester.agents.spark.jvm.plans.try_eval import VALUE, guarded
from arrester.agents.spark.ship_worker_code import shipped
from arrester.agents.worker.columns import ERROR, OUTCOME, POSITION, PREFIX, ROW, SOURCE, TASK
from arrester.domain.python_versions import UTC

#: The columns of a dead letter. They never change; new ones are added at the end.
COLUMNS = (
    *("id", "application", "pipeline", "checkpoint", "task", "position", "stage"),
    *("exception_class", "condition", "message", "stack", "row", "reason", "actor", "at"),
    "configs",
)
#: Additional columns for Kafka, as bytes if the record has its own.
RAW = (
    *("key", "value", "has_value", "headers", "timestamp"),
    *("topic", "partition", "offset", "executing_class", "source"),
)
#: Columns for the events: the error group, and the size of the record in bytes.
INDEX = ("fingerprint", "size")
#: Whether the ID of a dead letter is that of its row, as SQL: it has no valid position.
BY_ROW = "(position IS NULL OR stage <=> 'source')"
#: The driver's diagnosis of a native failure.
_DIAGNOSIS = f"{PREFIX}diagnosis"
#: In a frame of records that an operator skipped: who skipped each of them, why and when.
SKIP, SKIP_TYPE = f"{PREFIX}skip", "struct<reason:string,actor:string,at:timestamp>"
#: The redacted texts of a dead letter.
_REDACTED = f"{PREFIX}redacted"
#: The names of types, not their classes: TIME is new in 4.1.
_TIMES = ("date", "time", "timestamp", "timestamp_ntz")
_EPOCH = datetime.fromtimestamp(0, UTC)
_KAFKA = ("topic", "partition", "offset")
#: Types whose values are text or bytes.
_TEXTUAL = (T.StringType, T.BinaryType)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterContext:
    """The name of the dead letters of one entry, and the time of those that no operator skipped."""

    name: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRows:
    """Builds the dead letters of one pipeline at one checkpoint."""

    pipeline: Pipeline
    application: str
    checkpoint: str
    #: errors.dlq.include.configs
    configs: bool
    #: errors.dlq.redact; None: the complete record.
    redaction: Redaction | None = None

    def dead_letters(
        self,
        frame: DataFrame,
        diagnosed: Sequence[FailedRecord],
        context: DeadLetterContext,
        *,
        raw: bool,
    ) -> DataFrame:
        """Return a dead letter for each record of `frame`, which `DeadLetterQueue.store` describes.

        `raw`: with the additional columns for Kafka.
        """
        added = {_DIAGNOSIS: diagnosis_of(self.pipeline, diagnosed)}
        if SKIP not in frame.columns:
            added[SKIP] = F.expr(f"CAST(NULL AS {SKIP_TYPE})")
        frame = frame.withColumns(added)
        columns = [*self._columns(context), f"{self._fingerprint(diagnosed)} AS fingerprint"]
        if raw:
            names = [name for name in frame.columns if name.startswith(PREFIX) and name != ROW]
            frame = frame.select(ROW, *names, f"{ROW}.*")
            rows = frame.select(*map(F.expr, columns), *self._raw_columns(frame))
        else:
            rows = frame.selectExpr(*columns)
        return self._redacted(rows).withColumn("size", F.octet_length("row"))

    def _redacted(self, rows: DataFrame) -> DataFrame:
        """Return the dead letters redacted, if configured.

        Of a record's original bytes, only a key that its author shows remains. Value and headers
        have no field names to redact by.
        """
        if self.redaction is None:
            return rows
        texts = ("row", "message", "stack")
        redact = F.udf(redacting(self.redaction), shipped("redactor").REDACTED, useArrow=False)
        redacted = {name: F.col(_REDACTED)[name] for name in texts}
        if "value" in rows.columns:
            redacted["value"] = F.lit(None).cast("binary")
            redacted["headers"] = F.lit(None).cast(HEADERS)
            redacted["has_value"] = F.lit(False)
            if self.redaction.shown_key is None:
                redacted["key"] = F.lit(None).cast("binary")
        return rows.withColumn(_REDACTED, redact(*texts)).withColumns(redacted).drop(_REDACTED)

    def _columns(self, context: DeadLetterContext) -> list[str]:
        # As SQL: a Column of each function would take a thousand JVM calls.
        at = f"timestamp_micros({(context.at - _EPOCH) // timedelta(microseconds=1)}L)"
        columns = {
            "id": self._id(context.name),
            "application": text_literal(self.application),
            "pipeline": text_literal(self.pipeline.name),
            "checkpoint": text_literal(self.checkpoint),
            "task": TASK,
            "position": POSITION,
            "stage": _text_of_step(self.pipeline.stages),
            "exception_class": f"coalesce({ERROR}.exception_class, {_DIAGNOSIS}.exception_class)",
            "condition": f"coalesce({ERROR}.condition, {_DIAGNOSIS}.condition)",
            "message": f"coalesce({ERROR}.message, {_DIAGNOSIS}.message)",
            "stack": f"coalesce({ERROR}.stack, {_DIAGNOSIS}.stack)",
            "row": row_as_json(ROW, self.pipeline.source.schema),
            "reason": f"{SKIP}.reason",
            "actor": f"{SKIP}.actor",
            "at": f"coalesce({SKIP}.at, {_by_reference(at)})",
            "configs": text_literal(self._configs() if self.configs else None),
        }
        return [f"{columns[name]} AS {in_quotes(name)}" for name in COLUMNS]

    def _id(self, name: str) -> str:
        """Return, as SQL, the ID of a dead letter. It is the same in every replay and run.

        A record without a position is identified by its row in this entry's dead letters.
        """
        names = (self.application, self.pipeline.name, self.checkpoint)
        parts = [*map(text_literal, names), f"coalesce('=' || {TASK}, '')", POSITION]
        by_position = f"concat_ws('/', {', '.join(parts)})"
        by_row = f"{text_literal(f'{name}/')} || CAST(monotonically_increasing_id() AS STRING)"
        no_position = f"{POSITION} IS NULL OR {OUTCOME} <=> {SOURCE}"
        text = f"CASE WHEN {no_position} THEN {by_row} ELSE {by_position} END"
        return f"substring(sha2({text}, 256), 1, 32)"

    def _fingerprint(self, diagnosed: Sequence[FailedRecord]) -> str:
        """Return, as SQL, the error group of a record.

        A failure of a native step or the source that was not diagnosed has the most frequent group
        of its step.
        """
        stage = _text_of_step(self.pipeline.stages)
        groups: defaultdict[int, Counter[str]] = defaultdict(Counter)
        for each in diagnosed:
            groups[each.number][failure_of(each).fingerprint] += 1
        most_common = [
            next((group for group, _ in groups[number].most_common(1)), None)
            if self.pipeline.is_native(number) or number == SOURCE
            else None
            for number in range(len(self.pipeline.stages))
        ]
        of_error = fingerprint_sql(stage=stage, error=ERROR)
        return f"coalesce({_DIAGNOSIS}.fingerprint, {of_error}, {_text_of_step(most_common)})"

    def _raw_columns(self, frame: DataFrame) -> list[Column]:
        """Return the additional columns for Kafka."""
        row = frame.schema[ROW].dataType
        assert isinstance(row, T.StructType)
        is_kafka = set(_KAFKA) <= set(row.names)
        key = self._original_bytes(frame, self.pipeline.key, "key" if is_kafka else None)
        if key is None and is_kafka and "key" in row.names:
            key = _text_bytes(F.col(ROW)["key"], row["key"].dataType)
        value = self._original_bytes(frame, self.pipeline.value, "value" if is_kafka else None)
        no_text = F.lit(None).cast("string")
        fields = {name: F.col(ROW)[name] for name in row.names}
        columns = {
            "key": F.lit(None).cast("binary") if key is None else key,
            "value": F.lit(None).cast("binary") if value is None else value,
            "has_value": F.lit(value is not None),
            "headers": (fields["headers"] if _has_headers(row) else F.lit(None)).cast(HEADERS),
            "timestamp": F.unix_millis(fields["timestamp"])
            if is_kafka and _has_field(row, "timestamp", T.TimestampType)
            else F.lit(None).cast("long"),
            "topic": fields["topic"].cast("string") if is_kafka else no_text,
            "partition": fields["partition"].cast("string") if is_kafka else no_text,
            "offset": (fields["offset"] if is_kafka else F.col(POSITION)).cast("string"),
            "executing_class": F.expr(_text_of_step(self._executing_classes())),
            "source": F.expr(source_sql(row)),
        }
        return [columns[name].alias(name) for name in RAW]

    def _original_bytes(
        self, frame: DataFrame, expression: Column | None, name: str | None
    ) -> Column | None:
        """Return a record's original bytes: of its field `name`, else of the author's expression.

        None: it has none, and its fields are converted instead.
        """
        row = frame.schema[ROW].dataType
        # A field with another type was parsed, so it has no original bytes.
        if name is not None and isinstance(row, T.StructType) and _has_field(row, name, *_TEXTUAL):
            return F.col(ROW)[name].cast("binary")
        if expression is None:
            return None
        value = guarded(frame, expression, unless=F.lit(False))[VALUE]
        kind = frame.select(value.alias(VALUE)).schema[0].dataType
        return value.cast("binary") if isinstance(kind, _TEXTUAL) else None

    def _executing_classes(self) -> list[str]:
        """Return for each stage the full name of its function, or its expression."""
        source = "org.apache.spark.sql.DataFrame"
        steps = [_executing_class(step) for step in self.pipeline.steps]
        return [source, *steps, dotted_path(self.pipeline.sink.function)]

    def _configs(self) -> str:
        """Return the stages in order with their configuration, without secrets."""
        stages = [
            {"stage": each.name, "class": each.kind, "config": dict(each.config)}
            for each in stages_of(self.pipeline)
        ]
        return json.dumps({"pipeline": self.pipeline.name, "stages": stages})


def is_by_row(position: int | None, stage: str | None) -> bool:
    """Whether the ID of a dead letter is that of its row, as BY_ROW."""
    return position is None or stage == "source"


def redacting(redaction: Redaction) -> Any:
    """Return the worker's function that redacts a dead letter: its row as JSON, and its texts."""
    return shipped("redactor").RedactRow(
        rules=redaction.rules,
        only=None if redaction.only is None else tuple(redaction.only),
        fields=tuple(redaction.fields),
        key=redaction.shown_key,
    )


def _by_reference(value: str) -> str:
    """Return, as SQL, a value that is not in the Java code that Spark generates for a query.

    Spark writes a time or number into the code, so that driver and executors compile anew if it
    differs in each micro-batch. It passes an array by reference. The index depends on the record:
    the optimizer would take the value out of the array otherwise.
    """
    return f"element_at(array({value}, {value}), IF({TASK} IS NULL, 1, 2))"


def _text_of_step(texts: Sequence[str | None]) -> str:
    """Return, as SQL, the text for the step in which a record failed; `texts` has one per step."""
    cases = (f"WHEN {number} THEN {text_literal(text)}" for number, text in enumerate(texts))
    return f"CASE {OUTCOME} {' '.join(cases)} END"


def _has_headers(row: T.StructType) -> bool:
    return "headers" in row.names and row["headers"].dataType.simpleString() == HEADERS


def _has_field(row: T.StructType, name: str, *kinds: type[T.DataType]) -> bool:
    return name in row.names and isinstance(row[name].dataType, kinds)


def _text_bytes(column: Column, kind: T.DataType) -> Column | None:
    """Return the bytes of a value as text, None if its type has no text."""
    if isinstance(kind, T.StructType | T.ArrayType | T.MapType):
        return F.to_json(column).cast("binary")
    is_time = kind.simpleString().partition("(")[0] in _TIMES
    has_text = is_time or isinstance(kind, T.NumericType | T.BooleanType)
    return column.cast("string").cast("binary") if has_text else None


def _executing_class(step: object) -> str:
    function = getattr(step, "function", None)
    return dotted_path(function) if function is not None else str(getattr(step, "expression", step))
