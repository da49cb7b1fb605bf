"""The functions for `mapInArrow`: Python steps of the slow path and of the fast path."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from .arrow_reader import Row, Unreadable, records
from .arrow_types import arrow_schema
from .columns import ERROR, ERROR_TYPE, FILTERED, ORDINAL, OUTCOME, PACKED, RETRIES
from .errors import RETRIABLE, Rules, bounded_fields, error_row, text
from .python_steps import Results, StepFailure, Steps, UserFunction
from .type_check import WrongType


@dataclass(frozen=True)
class WithColumnNames:
    """A function for `mapInArrow` whose batches get the names of their columns back."""

    function: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]
    names: list[str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        """Call the function with batches of named columns."""
        return self.function(
            pa.RecordBatch.from_arrays(batch.columns, names=self.names) for batch in batches
        )


@dataclass(frozen=True, kw_only=True)
class Step:
    """A Python step: its number in the pipeline, its function, the schema of its rows."""

    number: int
    function: UserFunction
    schema_json: str
    #: Classes of exceptions that are retriable in this step, regardless of the pipeline's rules.
    retriable: tuple[str, ...] = ()


class Aborted(Exception):
    """A record failed on the fast path. The message explains the abort, and has its mark."""


class _PythonSteps:
    """Python steps as they are pickled; executors build what runs them."""

    def __init__(self, steps: list[Step], *, timezone: str, rules: Rules) -> None:
        self._steps = steps
        self._rules = [_rules_of(step, rules) for step in steps]
        self._timezone = timezone

    def _build(self) -> tuple[Steps, pa.Schema]:
        schemas = [StructType.fromJson(json.loads(step.schema_json)) for step in self._steps]
        types = [arrow_schema(schema, timezone=self._timezone) for schema in schemas]
        functions = [step.function for step in self._steps]
        return Steps(functions, schemas, types, self._rules), types[-1]


class FastPathSteps(_PythonSteps):
    """All Python steps on the fast path: the first failed attempt ends the job.

    Retries are left to the slow path, which counts them.
    """

    def __init__(
        self, steps: list[Step], *, timezone: str, rules: Rules, abort_message: str
    ) -> None:
        rules = replace(rules, kinds={}, retries=False, timed=False)
        super().__init__(steps, timezone=timezone, rules=rules)
        self._abort_message = abort_message

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that passed, with the author's columns only."""
        steps, types = self._build()
        for batch in batches:
            results = steps.run(records(batch))
            if results.failures:
                raise Aborted(self._abort_message)
            yield pa.RecordBatch.from_arrays(results.arrays, schema=types)


class GuardedSteps(_PythonSteps):
    """All Python steps of a pipeline; the outcome of each record accompanies its rows.

    A record that is already decided passes unchanged. A record is atomic: if any of its rows fails
    in a later step, the record has failed there. `carried` has the columns that accompany their
    record, with their names in the result.
    """

    def __init__(
        self,
        steps: list[Step],
        *,
        timezone: str,
        rules: Rules,
        carried: list[tuple[str, str]],
    ) -> None:
        super().__init__(steps, timezone=timezone, rules=rules)
        self._carried = carried

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one batch of results per batch of records."""
        steps, types = self._build()
        for batch in batches:
            yield self._results(batch, steps, types)

    def _results(self, batch: pa.RecordBatch, steps: Steps, types: pa.Schema) -> pa.RecordBatch:
        outcomes = batch.column(batch.schema.get_field_index(OUTCOME))
        undecided = None
        if outcomes.null_count < len(outcomes):
            undecided = [n for n, outcome in enumerate(outcomes.to_pylist()) if outcome is None]
        results = steps.run(records(batch, undecided))
        if undecided is None and isinstance(results.record_of, range):
            internal = _internal_columns(batch, results)
            return self._result_batch(batch, internal, results.arrays, types, None)
        numbers = range(batch.num_rows) if undecided is None else undecided
        return self._rows_of_all(batch, results, types, outcomes.to_pylist(), numbers)

    def _rows_of_all(
        self,
        batch: pa.RecordBatch,
        results: Results,
        types: pa.Schema,
        outcomes: list[int | None],
        numbers: Iterable[int],
    ) -> pa.RecordBatch:
        """Return the rows of all records in order; a record without rows has an empty row.

        `numbers` are the indexes in the batch of the records that the steps were called with.
        """
        errors = _column(batch, ERROR, None)
        # A row may already be one of several of its record.
        ordinals, retries = _column(batch, ORDINAL, 0), _column(batch, RETRIES, 0)
        record_at = {number: record for record, number in enumerate(numbers)}
        rows_of: dict[int, list[int]] = {record: [] for record in record_at.values()}
        for row, record in enumerate(results.record_of):
            rows_of[record].append(row)
        internal: dict[str, list[Any]] = {OUTCOME: [], ERROR: [], ORDINAL: [], RETRIES: []}
        origins: list[int] = []
        indexes: list[int | None] = []
        for number, outcome in enumerate(outcomes):
            error, new_retries, rows = errors[number], 0, []
            if number in record_at:
                record = record_at[number]
                rows, new_retries = rows_of[record], results.retries.get(record, 0)
                outcome, error = self._outcome(results.failures.get(record), passed=bool(rows))
            count = len(rows) or 1
            origins += [number] * count
            indexes += rows or [None]
            internal[OUTCOME] += [outcome] * count
            internal[ERROR] += [error] * count
            internal[ORDINAL] += range(ordinals[number], ordinals[number] + count)
            internal[RETRIES] += [retries[number] + new_retries, *[0] * (count - 1)]
        take = pa.array(indexes, pa.int32())
        arrays = [column.take(take) for column in results.arrays]
        return self._result_batch(batch, internal, arrays, types, pa.array(origins, pa.int32()))

    def _outcome(
        self, failure: StepFailure | None, *, passed: bool
    ) -> tuple[int | None, Row | None]:
        if failure is None:
            return (None if passed else FILTERED), None
        step = self._steps[failure.step]
        return step.number, _error_row(failure, step)

    def _result_batch(
        self,
        batch: pa.RecordBatch,
        internal: dict[str, Any],
        arrays: list[Any],
        types: pa.Schema,
        origins: Any,
    ) -> pa.RecordBatch:
        error_type = to_arrow_type(ERROR_TYPE)
        kinds = {OUTCOME: pa.int32(), ERROR: error_type, ORDINAL: pa.int32(), RETRIES: pa.int64()}
        carried = [batch.column(batch.schema.get_field_index(name)) for name, _ in self._carried]
        if origins is not None:
            carried = [column.take(origins) for column in carried]
        added = [pa.array(internal[name], kind) for name, kind in kinds.items()]
        names = [name for _, name in self._carried]
        return pa.RecordBatch.from_arrays(
            [*carried, *added, *arrays], names=[*names, *kinds, *types.names]
        )


class StagedSteps(GuardedSteps):
    """All Python steps on the staged path: only rows for the sink leave one by one.

    A further row of each batch has the records that failed, are decided already, or took more than
    one attempt, with the `carried` columns. So records that pass carry nothing.
    """

    def _results(self, batch: pa.RecordBatch, steps: Steps, types: pa.Schema) -> pa.RecordBatch:
        outcomes = batch.column(batch.schema.get_field_index(OUTCOME))
        undecided: Sequence[int] = range(len(outcomes))
        given = None
        if outcomes.null_count < len(outcomes):
            pairs = enumerate(outcomes.to_pylist())
            undecided = given = [n for n, outcome in pairs if outcome is None]
        results = steps.run(records(batch, given))
        packed = None
        if given is not None or results.failures or results.retries:
            packed = self._packed(batch, results, outcomes.to_pylist(), undecided)
        columns = [pa.nulls(len(results.record_of), pa.binary()), *results.arrays]
        if packed is not None:
            more = [pa.array([packed], pa.binary())]
            more += [pa.nulls(1, column.type) for column in results.arrays]
            columns = [pa.concat_arrays(pair) for pair in zip(columns, more, strict=True)]
        return pa.RecordBatch.from_arrays(columns, names=[PACKED, *types.names])

    def _packed(
        self,
        batch: pa.RecordBatch,
        results: Results,
        outcomes: list[int | None],
        undecided: Sequence[int],
    ) -> bytes:
        """Return the records that did not simply pass, as an Arrow stream."""
        errors = _column(batch, ERROR, None)
        decided: dict[int, tuple[int | None, Row | None, int]] = {
            number: (outcome, errors[number], 0)
            for number, outcome in enumerate(outcomes)
            if outcome is not None
        }
        for record in {*results.failures, *results.retries}:
            retries = results.retries.get(record, 0)
            # One that passed or has no rows was only repeated.
            outcome, error = self._outcome(results.failures.get(record), passed=True)
            decided[undecided[record]] = outcome, error, retries
        numbers = pa.array(sorted(decided), pa.int32())
        carried = [
            batch.column(batch.schema.get_field_index(name)).take(numbers)
            for name, _ in self._carried
        ]
        kinds = {OUTCOME: pa.int32(), ERROR: to_arrow_type(ERROR_TYPE), RETRIES: pa.int64()}
        values = zip(*[decided[number] for number in sorted(decided)], strict=True)
        added = [pa.array(each, kind) for each, kind in zip(values, kinds.values(), strict=True)]
        names = [*[name for _, name in self._carried], *kinds]
        packed = pa.RecordBatch.from_arrays([*carried, *added], names=names)
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, packed.schema) as writer:
            writer.write_batch(packed)
        return bytes(stream.getvalue())


def _internal_columns(batch: pa.RecordBatch, results: Results) -> dict[str, list[Any]]:
    """Return the internal columns of records that each became exactly one row."""
    retries = _column(batch, RETRIES, 0)
    for record, new_retries in results.retries.items():
        retries[record] += new_retries
    nulls = [None] * batch.num_rows
    return {OUTCOME: nulls, ERROR: nulls, ORDINAL: _column(batch, ORDINAL, 0), RETRIES: retries}


def _column(batch: pa.RecordBatch, name: str, default: object) -> list[Any]:
    """Return an internal column, or its default for each row if the batch lacks it."""
    index = batch.schema.get_field_index(name)
    return [default] * batch.num_rows if index < 0 else list(batch.column(index).to_pylist())


def _rules_of(step: Step, rules: Rules) -> Rules:
    if not rules.retries or not step.retriable:
        return rules
    return replace(rules, kinds={**rules.kinds, **dict.fromkeys(step.retriable, RETRIABLE)})


def _error_row(failure: StepFailure, step: Step) -> Row:
    exc, fields = failure.failed.error, None
    if isinstance(exc, WrongType | Unreadable):
        # No code of the author raised: the frame is the step's function.
        code = getattr(step.function, "__code__", None)
        frame = None
        if code is not None:
            name = os.path.basename(code.co_filename)
            frame = f"{name}:{code.co_firstlineno} in {code.co_name}"
        fields = bounded_fields(type(exc).__name__, text(exc), stack=None, frame=frame)
    return error_row(failure.failed, failure.attempts, took_ms=failure.took_ms, fields=fields)
