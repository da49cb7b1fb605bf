"""Run the author's Python steps over many records; an exception fails only its record.

A step is called for all records before the next step, so that its rows can be checked column by
column. They are checked one by one only if a column deviates.
"""

from __future__ import annotations

import copy
import random
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import Row as SparkRow

from .arrow_reader import Records, Row, Unreadable
from .arrow_writer import RowWriter
from .errors import (
    RETRIABLE,
    SELF_HEALING,
    Failed,
    Rules,
    failure_from,
    in_ms,
    now_ms,
    sleep,
    text,
)
from .type_check import Check, WrongType, preview, refuse_awaitable, struct_check, type_name

UserFunction = Callable[[Row], Row | Iterable[Row] | None]


class StepFailure(NamedTuple):
    """The failure of a record: the step's index, the last exception, the number of attempts."""

    step: int
    failed: Failed
    attempts: int
    #: From the start of the first attempt; None for a row that does not conform.
    took_ms: int | None = None


class Attempted(NamedTuple):
    """The result of an operation, and the number of its attempts."""

    attempts: int
    rows: list[Row]
    failed: Failed | None = None
    #: From the start of the first attempt to the end of the last.
    took_ms: int = 0


@dataclass
class Results:
    """The results of records, which are identified by number."""

    rows: list[Row]
    #: The record of each row.
    record_of: Sequence[int]
    #: The columns of the rows.
    arrays: list[Any] = field(default_factory=list)
    failures: dict[int, StepFailure] = field(default_factory=dict)
    #: Attempts after the first, by record.
    retries: dict[int, int] = field(default_factory=dict)

    def fail(self, record: int, failure: StepFailure) -> None:
        """Record the first failure of a record, and ignore later ones."""
        self.failures.setdefault(record, failure)

    def drop_failed(self) -> None:
        """Drop all rows of failed records: a record is atomic."""
        if self.failures and not self.failures.keys().isdisjoint(self.record_of):
            passed = [n for n, record in enumerate(self.record_of) if record not in self.failures]
            self.rows = [self.rows[n] for n in passed]
            self.record_of = [self.record_of[n] for n in passed]


class _Raised(NamedTuple):
    """An exception in place of a return value, and the start of the call."""

    error: BaseException
    started_ms: int


class Steps:
    """All Python steps, one after the other."""

    def __init__(
        self,
        functions: Sequence[UserFunction],
        schemas: Sequence[Any],
        types: Sequence[pa.Schema],
        rules: Sequence[Rules],
    ) -> None:
        self._functions = functions
        self._checks = [struct_check(schema, top_level=True) for schema in schemas]
        self._writers = [
            RowWriter(schema, kinds) for schema, kinds in zip(schemas, types, strict=True)
        ]
        self._last_types = types[-1]
        self._rules = rules

    def run(self, records: Records) -> Results:
        """Call the steps; each record has rows, is filtered, or has failed."""
        results = Results(records.rows, range(len(records.rows)))
        for record, exc in records.unreadable.items():
            results.fail(record, self._mismatch(exc, 0))
        results.drop_failed()
        for number in range(len(self._functions)):
            self._run_step(number, results, records)
        return results

    def _run_step(self, number: int, results: Results, records: Records) -> None:
        rows, record_of = results.rows, results.record_of
        # A function may change its row; a further attempt gets the original row.
        saved = copy.deepcopy(rows) if number and self._rules[number].retries else rows

        def fresh(index: int) -> Row:
            return copy.deepcopy(saved[index]) if number else records.fresh(record_of[index])

        returned = self._call(number, rows)
        if set(map(type, returned)) - {dict}:
            self._expand(number, results, returned, fresh)
        else:
            results.rows = returned
        self._check(number, results, records)

    def _call(self, number: int, rows: list[Row]) -> list[Any]:
        """Call a step; return a dict, a list of dicts or an exception for each row."""
        function, timed = self._functions[number], self._rules[number].timed
        returned: list[Any] = []
        add, clock, started = returned.append, monotonic, 0.0
        for row in rows:
            if timed:
                started = clock()
            try:
                value = function(row)
                add(value if value is row else _copy(value))
            except BaseException as exc:  # the author's code may raise anything
                add(_Raised(exc, in_ms(started)))
        return returned

    def _expand(
        self, number: int, results: Results, returned: list[Any], fresh: Callable[[int], Row]
    ) -> None:
        """Process return values that are not all dicts: no rows, several rows, an exception."""
        rows: list[Row] = []
        record_of: list[int] = []
        for index, (value, record) in enumerate(zip(returned, results.record_of, strict=True)):
            if isinstance(value, _Raised):
                value = self._retry(number, results, record, value, partial(fresh, index))
            produced = [value] if type(value) is dict else value
            rows += produced
            record_of += [record] * len(produced)
        results.rows, results.record_of = rows, record_of
        results.drop_failed()

    def _retry(
        self,
        number: int,
        results: Results,
        record: int,
        raised: _Raised,
        fresh: Callable[[], Row],
    ) -> list[Row]:
        """Make further attempts at a row, if the rules allow any; return its rows."""
        operation = partial(_checked_rows, self._functions[number], self._checks[number])
        result = call_with_retries(
            operation, fresh, self._rules[number], raised=raised.error, started_ms=raised.started_ms
        )
        if result.attempts > 1:
            results.retries[record] = results.retries.get(record, 0) + result.attempts - 1
        if result.failed is not None:
            failure = StepFailure(number, result.failed, result.attempts, result.took_ms)
            results.fail(record, failure)
        return result.rows

    def _check(self, number: int, results: Results, records: Records) -> None:
        """Check the rows of a step, and make arrays from those of the last step."""
        is_last = number == len(self._functions) - 1
        writer = self._writers[number]
        try:
            if is_last:
                in_place = isinstance(results.record_of, range)
                results.arrays = writer.arrays(results.rows, records.origins if in_place else {})
            else:
                writer.check(results.rows)
            return
        except Exception:
            for row, record in zip(results.rows, results.record_of, strict=True):
                try:
                    check_row(self._checks[number], row)
                except WrongType as exc:
                    results.fail(record, self._mismatch(exc, number))
            results.drop_failed()
        if is_last:
            results.arrays = self._convert(results)

    def _convert(self, results: Results) -> list[Any]:
        """Return the columns; a row that Arrow refuses is a failure of the last step.

        This is rare: only Arrow checks values of some types.
        """
        try:
            return _arrays(results.rows, self._last_types)
        except Exception:
            for row, record in zip(results.rows, results.record_of, strict=True):
                for column in self._last_types:
                    try:
                        pa.array([row.get(column.name)], column.type)
                    except Exception as exc:
                        refusal = WrongType(f"field {column.name} is {column.type}: {text(exc)}")
                        results.fail(record, self._mismatch(refusal, len(self._functions) - 1))
            results.drop_failed()
        return _arrays(results.rows, self._last_types)

    def _mismatch(self, exc: WrongType | Unreadable, number: int) -> StepFailure:
        return StepFailure(number, failure_from(exc, self._rules[number]), 1)


def call_with_retries(
    operation: Callable[[Row], list[Row]],
    fresh: Callable[[], Row],
    rules: Rules,
    *,
    raised: BaseException,
    started_ms: int,
) -> Attempted:
    """Return the final result of `operation` on a row whose first attempt has `raised`.

    Each attempt gets a `fresh` row, since the author's function may change its argument. Raises a
    self-healing exception, which Spark repairs. If a task is killed, its process ends, also in a
    wait.
    """
    attempts = 1
    while True:
        failed = failure_from(raised, rules)
        if failed.kind == SELF_HEALING:
            raise failed.error
        wait_ms = None
        if failed.kind == RETRIABLE:
            wait_ms = rules.wait_after(
                attempts, started_ms=started_ms, now_ms=now_ms(), chance=random.randrange
            )
        if wait_ms is None:
            return Attempted(attempts, [], failed, took_ms=now_ms() - started_ms)
        sleep(wait_ms)
        attempts += 1
        try:
            return Attempted(attempts, operation(fresh()))
        except BaseException as exc:  # the author's code may raise anything, SystemExit too
            raised = exc


def _arrays(rows: list[Row], types: pa.Schema) -> list[Any]:
    return [pa.array([row.get(column.name) for row in rows], column.type) for column in types]


def _checked_rows(function: UserFunction, check: Check, row: Row) -> list[Row]:
    """Return the checked rows that a step makes from one row."""
    results = _rows_in(function(row))
    for result in results:
        check_row(check, result)
    return results


def check_row(check: Check, row: Row) -> None:
    """Raise WrongType for a row that does not conform, or cannot be checked."""
    try:
        check(row, "")
    except WrongType:
        raise
    except RecursionError as exc:
        raise WrongType(f"a row is nested too deeply: {exc}") from exc
    except Exception as exc:  # of the author's own classes
        raise WrongType(f"a row cannot be checked: {type(exc).__name__}: {text(exc)}") from exc


def _copy(returned: object) -> Row | list[Row]:
    """Return a copy of a step's return value: a step may reuse one dict for all rows.

    Nested values of a row are not copied, since that would take longer than the step.
    """
    return dict(returned) if type(returned) is dict else _rows_in(returned)


def _rows_in(returned: object) -> list[Row]:
    """Return the rows in a step's return value: a dict, None or an iterable of dicts."""
    if returned is None:
        return []
    if isinstance(returned, dict):
        return [dict(returned)]
    if isinstance(returned, Awaitable | AsyncIterable):
        refuse_awaitable("the step", returned)
    if isinstance(returned, str | bytes | SparkRow) or not isinstance(returned, Iterable):
        hint = ": row.asDict(recursive=True) is one" if isinstance(returned, SparkRow) else ""
        allowed = "a step returns dict, None or an iterable of dicts"
        raise WrongType(f"{allowed}; got {preview(returned)}{hint}")
    rows = []
    for row in returned:
        if not isinstance(row, Mapping):
            raise WrongType(f"a step yields dicts; got {type_name(row)} {preview(row)}")
        # A generator may yield one dict several times, changed in between.
        rows.append(dict(row))
    return rows
