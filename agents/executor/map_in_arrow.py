"""The functions for `mapInArrow`: Python steps with the fate of each record, or all or nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import StructType

from .arrow_reader import Row, Unreadable, records
from .columns import ERROR, ERROR_TYPE, FATE, FILTERED, ORDINAL, RETRIES
from .error_text import described, error, text, unicode
from .retries import RETRIABLE, Rules
from .step_runner import Failure, Ran, Steps, UserFunction
from .type_check import WrongType


@dataclass(frozen=True, kw_only=True)
class Step:
    """One Python step: its number in the pipeline, its function, the schema of its result."""

    number: int
    function: UserFunction
    schema_json: str
    #: Classes that are retriable here, regardless of the pipeline's rules.
    retriable: tuple[str, ...] = ()


class Aborted(Exception):
    """A record failed on the fast path; the text identifies the abort for the driver."""


class _Python:
    """Steps on their way to an executor, where their parts are created."""

    def __init__(self, steps: list[Step], *, timezone: str, rules: Rules) -> None:
        self._steps = steps
        self._rules = [_rules(step, rules) for step in steps]
        self._timezone = timezone

    def _made(self) -> tuple[Steps, pa.Schema]:
        schemas = [StructType.fromJson(json.loads(step.schema_json)) for step in self._steps]
        types = [to_arrow_schema(schema, timezone=self._timezone) for schema in schemas]
        functions = [step.function for step in self._steps]
        return Steps(functions, schemas, types, self._rules), types[-1]


class WholeSteps(_Python):
    """All Python steps on the fast path: the first failed attempt ends the job.

    Retries are left to the slow path, which counts them.
    """

    def __init__(self, steps: list[Step], *, timezone: str, rules: Rules, mark: str) -> None:
        rules = replace(rules, kinds={}, retries=False, timed=False)
        super().__init__(steps, timezone=timezone, rules=rules)
        self._mark = mark

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that passed, with the author's columns only."""
        steps, types = self._made()
        for batch in batches:
            ran = steps.run(records(batch))
            if ran.failures:
                raise Aborted(self._mark)
            yield pa.RecordBatch.from_arrays(ran.arrays, schema=types)


class GuardedSteps(_Python):
    """All Python steps of a pipeline; the fate of each record accompanies its rows.

    A record that is already decided passes unchanged. A record is atomic: if any of its rows fails
    in a later step, the record has failed there. `carried` are columns that accompany their record,
    and their later names.
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
        steps, types = self._made()
        for batch in batches:
            yield self._results(batch, steps, types)

    def _results(self, batch: pa.RecordBatch, steps: Steps, types: pa.Schema) -> pa.RecordBatch:
        responder = batch.column(batch.schema.get_field_index(FATE))
        open_ones = None
        if responder.null_count < len(responder):
            open_ones = [
                number for number, fate in enumerate(responder.to_pylist()) if fate is None
            ]
        ran = steps.run(records(batch, open_ones))
        if open_ones is None and isinstance(ran.of, range):
            told = _untouched(batch, ran)
            return self._assembled(batch, told, ran.arrays, types, None)
        return self._mixed(batch, ran, types, responder.to_pylist(), open_ones)

    def _mixed(
        self,
        batch: pa.RecordBatch,
        ran: Ran,
        types: pa.Schema,
        responder: list[int | None],
        open_ones: list[int] | None,
    ) -> pa.RecordBatch:
        """Return the rows of all records in order; one without rows has an empty one."""
        known = _column(batch, ERROR, None)
        # A row may already be one of several of its record.
        ordinals, retries = _column(batch, ORDINAL, 0), _column(batch, RETRIES, 0)
        numbers = range(batch.num_rows) if open_ones is None else open_ones
        became: list[list[int]] = [[] for _ in numbers]
        for row, record in enumerate(ran.of):
            became[record].append(row)
        told: dict[str, list[Any]] = {FATE: [], ERROR: [], ORDINAL: [], RETRIES: []}
        origins: list[int] = []
        places: list[int | None] = []
        record_of = {number: record for record, number in enumerate(numbers)}
        for number, fate in enumerate(responder):
            mine: int | None = record_of.get(number)
            made: list[int] = [] if mine is None else became[mine]
            says: tuple[int | None, Row | None] = (fate, known[number])
            if mine is not None:
                says = self._said(ran.failures.get(mine), passed=bool(made))
            times = len(made) or 1
            origins += [number] * times
            places += made or [None]
            told[FATE] += [says[0]] * times
            told[ERROR] += [says[1]] * times
            told[ORDINAL] += range(ordinals[number], ordinals[number] + times)
            more = 0 if mine is None else ran.retries.get(mine, 0)
            told[RETRIES] += [retries[number] + more, *[0] * (times - 1)]
        take = pa.array(places, pa.int32())
        arrays = [column.take(take) for column in ran.arrays]
        return self._assembled(batch, told, arrays, types, pa.array(origins, pa.int32()))

    def _said(self, failure: Failure | None, *, passed: bool) -> tuple[int | None, Row | None]:
        if failure is not None:
            step = self._steps[failure.step]
            return step.number, _error_row(failure, step)
        return (None if passed else FILTERED), None

    def _assembled(
        self,
        batch: pa.RecordBatch,
        told: dict[str, Any],
        arrays: list[Any],
        types: pa.Schema,
        origins: Any,
    ) -> pa.RecordBatch:
        error_type = to_arrow_type(ERROR_TYPE)
        kinds = {FATE: pa.int32(), ERROR: error_type, ORDINAL: pa.int32(), RETRIES: pa.int64()}
        carried = [batch.column(batch.schema.get_field_index(name)) for name, _ in self._carried]
        if origins is not None:
            carried = [column.take(origins) for column in carried]
        ours = [pa.array(told[name], kind) for name, kind in kinds.items()]
        names = [name for _, name in self._carried]
        return pa.RecordBatch.from_arrays(
            [*carried, *ours, *arrays], names=[*names, *kinds, *types.names]
        )


def _untouched(batch: pa.RecordBatch, ran: Ran) -> dict[str, list[Any]]:
    """Return the columns of rows that each became exactly one row."""
    retries = _column(batch, RETRIES, 0)
    for record, more in ran.retries.items():
        retries[record] += more
    nothing = [None] * batch.num_rows
    return {FATE: nothing, ERROR: nothing, ORDINAL: _column(batch, ORDINAL, 0), RETRIES: retries}


def _column(batch: pa.RecordBatch, name: str, otherwise: object) -> list[Any]:
    """Return a column of ours; not all of them exist from the beginning."""
    at = batch.schema.get_field_index(name)
    return [otherwise] * batch.num_rows if at < 0 else list(batch.column(at).to_pylist())


def _rules(step: Step, rules: Rules) -> Rules:
    if not rules.retries or not step.retriable:
        return rules
    return replace(rules, kinds={**rules.kinds, **dict.fromkeys(step.retriable, RETRIABLE)})


def _error_row(failure: Failure, step: Step) -> Row:
    """Return a failure as ERROR_TYPE has it."""
    exc, cause = failure.failed.error, failure.failed.cause
    ours = isinstance(exc, WrongType | Unreadable)
    said = _misfit(exc, step) if ours else described(exc)
    return said | {
        "names": [unicode(name) for name in cause.names],
        "condition": None if cause.condition is None else unicode(cause.condition),
        "kind": failure.failed.kind,
        "attempts": failure.attempts,
        "took_ms": failure.took_ms,
    }


def _misfit(exc: BaseException, step: Step) -> Row:
    """Describe a row that does not have the schema of its step; the frame is the function."""
    code = getattr(step.function, "__code__", None)
    frame = None
    if code is not None:
        name = os.path.basename(code.co_filename)
        frame = f"{name}:{code.co_firstlineno} in {code.co_name}"
    return error(type(exc).__name__, text(exc), stack=None, frame=frame)
