"""Run the author's Python steps record by record; whatever one raises stays with its record."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from .attempts import RETRIABLE, Failed, Rules, tried
from .columns import CARRIED, ERROR, FATE, FILTERED, INTERNAL, ORDINAL, PREFIX, RETRIES
from .conform import Check, WrongType, shown, struct_check
from .describing import described, error, text, unicode

Row = dict[str, Any]
UserFunction = Callable[[Row], Row | Iterable[Row] | None]
Operation = Callable[[Row], list[Row]]


@dataclass(frozen=True, kw_only=True)
class Step:
    """One Python step: its number in the pipeline, its function, the schema of what it returns."""

    number: int
    function: UserFunction
    schema_json: str
    #: Classes that are retriable here, whatever the rules of the pipeline say of them.
    retriable: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one record: its rows, or the step that failed and the error."""

    rows: list[Row]
    fate: int | None = None
    error: Row | None = None
    retries: int = 0


class Unreadable(ValueError):
    """A column of a record cannot be a Python value; the message names it, its type and why."""


class GuardedSteps:
    """The function for `mapInArrow`: all Python steps of a pipeline, one after the other.

    A record whose fate is decided already passes untouched. A record is all or nothing: when any
    row that it became fails in a later step, the record has failed there.
    """

    def __init__(self, steps: list[Step], *, timezone: str, rules: Rules) -> None:
        self._steps = steps
        self._rules = rules
        self._rules_of = [_rules(step, rules) for step in steps]
        self._timezone = timezone

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one batch of results per batch of records."""
        schemas = [_schema(step) for step in self._steps]
        checks = [struct_check(schema, whole=True) for schema in schemas]
        operations: list[Operation] = [
            partial(_operation, step, check)
            for step, check in zip(self._steps, checks, strict=True)
        ]
        types = to_arrow_schema(schemas[-1], timezone=self._timezone)
        for batch in batches:
            yield self._results(batch, operations, types)

    def _results(
        self, batch: pa.RecordBatch, operations: list[Operation], types: pa.Schema
    ) -> pa.RecordBatch:
        fates = batch.column(batch.schema.get_field_index(FATE)).to_pylist()
        records = iter(_records(batch, [n for n, fate in enumerate(fates) if fate is None]))
        outcomes = [
            Outcome(rows=[], fate=fate)
            if fate is not None
            else self._outcome(next(records), operations)
            for fate in fates
        ]
        try:
            return _assemble(batch, outcomes, types)
        except Exception:
            # Rare: a value of a type that `conform` leaves to Arrow. Look for the record.
            last = self._steps[-1]
            settled = [self._convertible(outcome, types, last) for outcome in outcomes]
            return _assemble(batch, settled, types)

    def _outcome(self, record: Row | Unreadable, operations: list[Operation]) -> Outcome:
        if isinstance(record, Unreadable):
            return self._misfit(record, self._steps[0])
        rows, retries = [record], 0
        for step, operation, rules in zip(self._steps, operations, self._rules_of, strict=True):
            made: list[Row] = []
            for row in rows:
                result = tried(operation, row, rules)
                retries += result.attempts - 1
                if result.failed is not None:
                    error = _error_row(result.failed, step, result.attempts)
                    return Outcome(rows=[], fate=step.number, error=error, retries=retries)
                made += result.rows
            if not made:
                return Outcome(rows=[], fate=FILTERED, retries=retries)
            rows = made
        return Outcome(rows=rows, retries=retries)

    def _convertible(self, outcome: Outcome, types: pa.Schema, last: Step) -> Outcome:
        """Return `outcome`, as a failure of the last step if Arrow cannot take one of its rows."""
        try:
            for row in outcome.rows:
                for each in types:
                    pa.array([row.get(each.name)], each.type)
        except Exception as exc:
            misfit = WrongType(f"field {each.name} is {each.type}: {text(exc)}")
            return self._misfit(misfit, last, retries=outcome.retries)
        return outcome

    def _misfit(self, exc: WrongType | Unreadable, step: Step, *, retries: int = 0) -> Outcome:
        failed = Failed(error=exc, cause=self._rules.describe(exc), kind=None)
        error = _error_row(failed, step, 1)
        return Outcome(rows=[], fate=step.number, error=error, retries=retries)


def _records(batch: pa.RecordBatch, numbers: list[int]) -> list[Row | Unreadable]:
    """Return the author's columns of some rows; those that Python cannot have are told apart."""
    theirs = batch.select([name for name in batch.schema.names if not name.startswith(PREFIX)])
    if len(numbers) < batch.num_rows:
        theirs = theirs.take(pa.array(numbers, pa.int32()))
    try:
        return list(theirs.to_pylist())
    except Exception:  # text that is not UTF-8, a date after 9999
        return [_record(theirs.slice(number, 1)) for number in range(theirs.num_rows)]


def _record(one: pa.RecordBatch) -> Row | Unreadable:
    row: Row = {}
    for field, column in zip(one.schema, one.columns, strict=True):
        try:
            [row[field.name]] = column.to_pylist()
        except Exception as exc:
            return Unreadable(f"column {field.name} ({field.type}) cannot be read: {text(exc)}")
    return row


def _operation(step: Step, check: Check, row: Row) -> list[Row]:
    """Return the rows that a step makes of one row, each checked."""
    rows = _made(step.function(row))
    try:
        for each in rows:
            check(each, "")
    except WrongType:
        raise
    except RecursionError as exc:
        raise WrongType(f"a row is nested too deeply: {exc}") from exc
    except Exception as exc:  # of the author's own classes
        raise WrongType(f"a row cannot be checked: {type(exc).__name__}: {text(exc)}") from exc
    return rows


def _rules(step: Step, rules: Rules) -> Rules:
    kinds = {**rules.kinds, **dict.fromkeys(step.retriable, RETRIABLE)}
    return replace(rules, kinds=kinds) if step.retriable else rules


def _schema(step: Step) -> StructType:
    return StructType.fromJson(json.loads(step.schema_json))


def _made(answer: object) -> list[Row]:
    """Return the rows in what the author's function returned: a dict, None or an iterable."""
    if answer is None:
        return []
    if isinstance(answer, dict):
        return [answer]
    if isinstance(answer, str | bytes) or not isinstance(answer, Iterable):
        raise WrongType(f"a step returns dict, None or an iterable of dicts; got {shown(answer)}")
    rows = []
    for row in answer:
        if not isinstance(row, Mapping):
            raise WrongType(f"a step yields dicts; got {type(row).__name__} {shown(row)}")
        # A generator may yield one dict again and again, changed in between.
        rows.append(dict(row))
    return rows


def _assemble(batch: pa.RecordBatch, outcomes: list[Outcome], types: pa.Schema) -> pa.RecordBatch:
    """Return the rows of all outcomes as one batch, each beside its record's carried columns."""
    origins, rows, fates, ordinals, retries = [], [], [], [], []
    errors: list[Row | None] = []
    carried_errors = batch.column(batch.schema.get_field_index(ERROR))
    # A row may be one of several of its record already.
    known_ordinals, known_retries = (
        batch.column(batch.schema.get_field_index(name)).to_pylist() for name in (ORDINAL, RETRIES)
    )
    for index, outcome in enumerate(outcomes):
        known = outcome.error
        if known is None and outcome.fate is not None:
            known = carried_errors[index].as_py()
        for number, row in enumerate(outcome.rows or [{}]):
            origins.append(index)
            rows.append(row)
            fates.append(outcome.fate)
            errors.append(known)
            ordinals.append(known_ordinals[index] + number)
            retries.append(0 if number else known_retries[index] + outcome.retries)
    take = pa.array(origins, pa.int32())
    columns = {
        name: batch.column(batch.schema.get_field_index(name)).take(take) for name in CARRIED
    }
    columns[FATE] = pa.array(fates, pa.int32())
    columns[ERROR] = pa.array(errors, batch.schema.field(ERROR).type)
    columns[ORDINAL] = pa.array(ordinals, pa.int32())
    columns[RETRIES] = pa.array(retries, pa.int64())
    ours = [columns[name] for name in INTERNAL]
    theirs = [pa.array([row.get(each.name) for row in rows], each.type) for each in types]
    return pa.RecordBatch.from_arrays(ours + theirs, names=[*INTERNAL, *types.names])


def _error_row(failed: Failed, step: Step, attempts: int) -> Row:
    """Return what is kept of a failure, as ERROR_TYPE has it."""
    exc, condition = failed.error, failed.cause.condition
    ours = isinstance(exc, WrongType | Unreadable)
    said = _misfit(exc, step) if ours else described(exc)
    return said | {
        "names": [unicode(name) for name in failed.cause.names],
        "condition": None if condition is None else unicode(condition),
        "kind": failed.kind,
        "attempts": attempts,
    }


def _misfit(exc: BaseException, step: Step) -> Row:
    """Describe a row that is not of the schema of its step; the frame is the function."""
    code = getattr(step.function, "__code__", None)
    frame = None
    if code is not None:
        name = os.path.basename(code.co_filename)
        frame = f"{name}:{code.co_firstlineno} in {code.co_name}"
    return error(type(exc).__name__, text(exc), stack=None, frame=frame)
