"""Run the author's Python steps over many records; an exception fails only its record.

A step is called for all records before the next step, so that its results can be checked column by
column: only deviating ones are checked one by one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import Row as SparkRow

from .arrow_reader import Records, Row, Unreadable
from .arrow_writer import Writer
from .error_text import text
from .retries import Failed, Rules, call_with_retries, failure_from, now_ms
from .type_check import Check, WrongType, shown, struct_check

UserFunction = Callable[[Row], Row | Iterable[Row] | None]


class Failure(NamedTuple):
    """The failure of a record: the step's index, the last exception, the attempts."""

    step: int
    failed: Failed
    attempts: int
    #: From the start of the first attempt; None for a row that does not fit.
    took_ms: int | None = None


@dataclass
class Ran:
    """The results of records, identified by number."""

    rows: list[Row]
    #: The record of each row.
    of: Sequence[int]
    #: The columns of the rows.
    arrays: list[Any] = field(default_factory=list)
    failures: dict[int, Failure] = field(default_factory=dict)
    #: Attempts after the first.
    retries: dict[int, int] = field(default_factory=dict)

    def fail(self, record: int, failure: Failure) -> None:
        """Keep the first failure of a record."""
        self.failures.setdefault(record, failure)

    def drop_failed(self) -> None:
        """Drop all rows of failed records: a record is atomic."""
        if self.failures and not self.failures.keys().isdisjoint(self.of):
            left = [n for n, record in enumerate(self.of) if record not in self.failures]
            self.rows, self.of = [self.rows[n] for n in left], [self.of[n] for n in left]


class _Raised(NamedTuple):
    """In place of an answer: the exception, and when the call began."""

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
        self._checks: list[Check] = [struct_check(schema, whole=True) for schema in schemas]
        self._writers = [
            Writer(schema, kinds) for schema, kinds in zip(schemas, types, strict=True)
        ]
        self._last = types[-1]
        self._rules = rules

    def run(self, records: Records) -> Ran:
        """Call the steps; each record leaves rows, or nothing, or has failed."""
        ran = Ran(records.rows, range(len(records.rows)))
        if records.unreadable:
            for record, exc in records.unreadable.items():
                ran.fail(record, self._misfit(exc, 0))
            ran.drop_failed()
        for number in range(len(self._functions)):
            self._step(number, ran, records)
        return ran

    def _step(self, number: int, ran: Ran, records: Records) -> None:
        given, of = ran.rows, ran.of
        # A function may change its row; a further attempt gets the original row.
        again = number and self._rules[number].retries
        saved = copy.deepcopy(given) if again else given

        def fresh(index: int) -> Callable[[], Row]:
            if number:
                return lambda: copy.deepcopy(saved[index])
            return records.from_here(of[index])

        answers = self._called(number, given)
        if set(map(type, answers)) - {dict}:
            self._expand(number, ran, answers, fresh)
        else:
            ran.rows = answers
        self._check(number, ran, records)

    def _called(self, number: int, rows: list[Row]) -> list[Any]:
        """Return a dict, a list of dicts or an exception for each row."""
        function = self._functions[number]
        answers: list[Any] = []
        add = answers.append
        if not self._rules[number].timed:
            for row in rows:
                try:
                    out = function(row)
                    add(out if out is row else _own(out))
                except BaseException as exc:  # the author's code may raise anything
                    add(_Raised(exc, 0))
            return answers
        for row in rows:
            started_ms = now_ms()
            try:
                out = function(row)
                add(out if out is row else _own(out))
            except BaseException as exc:
                add(_Raised(exc, started_ms))
        return answers

    def _expand(
        self,
        number: int,
        ran: Ran,
        answers: list[Any],
        fresh: Callable[[int], Callable[[], Row]],
    ) -> None:
        """Process answers that are not all dicts: nothing, several rows, an exception."""
        rows: list[Row] = []
        of: list[int] = []
        for index, (answer, record) in enumerate(zip(answers, ran.of, strict=True)):
            try:
                if isinstance(answer, _Raised):
                    raise answer.error
                made = [answer] if type(answer) is dict else answer
            except BaseException as exc:
                started_ms = answer.started_ms if isinstance(answer, _Raised) else now_ms()
                made = self._again(number, ran, record, exc, fresh(index), started_ms)
            rows += made
            of += [record] * len(made)
        ran.rows, ran.of = rows, of
        ran.drop_failed()

    def _again(
        self,
        number: int,
        ran: Ran,
        record: int,
        raised: BaseException,
        fresh: Callable[[], Row],
        started_ms: int,
    ) -> list[Row]:
        operation = partial(_operation, self._functions[number], self._checks[number])
        result = call_with_retries(
            operation, fresh, self._rules[number], raised=raised, started_ms=started_ms
        )
        if result.attempts > 1:
            ran.retries[record] = ran.retries.get(record, 0) + result.attempts - 1
        if result.failed is not None:
            failure = Failure(number, result.failed, result.attempts, result.took_ms)
            ran.fail(record, failure)
        return result.rows

    def _check(self, number: int, ran: Ran, records: Records) -> None:
        """Check the rows of a step, and make arrays of the last one's."""
        is_last = number == len(self._functions) - 1
        writer = self._writers[number]
        in_place = isinstance(ran.of, range)
        try:
            if is_last:
                ran.arrays = writer.arrays(ran.rows, records.origins if in_place else {})
            else:
                writer.check(ran.rows)
            return
        except Exception:
            self._look_at_each(number, ran)
        if is_last:
            ran.arrays = self._converted(ran)

    def _look_at_each(self, number: int, ran: Ran) -> None:
        check = self._checks[number]
        for row, record in zip(ran.rows, ran.of, strict=True):
            try:
                checked(check, row)
            except WrongType as exc:
                ran.fail(record, self._misfit(exc, number))
        ran.drop_failed()

    def _converted(self, ran: Ran) -> list[Any]:
        """Return the columns; a row that Arrow refuses is a failure of the last step.

        Rare: a value of a type that `conform` leaves to Arrow.
        """
        try:
            return _arrays(ran.rows, self._last)
        except Exception:
            for row, record in zip(ran.rows, ran.of, strict=True):
                for each in self._last:
                    try:
                        pa.array([row.get(each.name)], each.type)
                    except Exception as exc:
                        misfit = WrongType(f"field {each.name} is {each.type}: {text(exc)}")
                        ran.fail(record, self._misfit(misfit, len(self._functions) - 1))
            ran.drop_failed()
        return _arrays(ran.rows, self._last)

    def _misfit(self, exc: WrongType | Unreadable, number: int) -> Failure:
        return Failure(number, failure_from(exc, self._rules[number]), 1)


def _arrays(rows: list[Row], types: pa.Schema) -> list[Any]:
    return [pa.array([row.get(each.name) for row in rows], each.type) for each in types]


def _operation(function: UserFunction, check: Check, row: Row) -> list[Row]:
    """Return the rows that a step makes of one row, each checked."""
    rows = _made(function(row))
    for each in rows:
        checked(check, each)
    return rows


def checked(check: Check, row: Row) -> None:
    """Raise WrongType for a row that does not conform, or that cannot be checked."""
    try:
        check(row, "")
    except WrongType:
        raise
    except RecursionError as exc:
        raise WrongType(f"a row is nested too deeply: {exc}") from exc
    except Exception as exc:  # of the author's own classes
        raise WrongType(f"a row cannot be checked: {type(exc).__name__}: {text(exc)}") from exc


def _own(answer: object) -> Row | list[Row]:
    """Return a copy of an answer: a function may reuse one buffer for all rows.

    Nested values of a row are not copied: that would cost more than the step.
    """
    return dict(answer) if type(answer) is dict else _made(answer)


def _made(answer: object) -> list[Row]:
    """Return the rows in what the author's function returned: a dict, None or an iterable."""
    if answer is None:
        return []
    if isinstance(answer, dict):
        return [dict(answer)]
    if isinstance(answer, str | bytes | SparkRow) or not isinstance(answer, Iterable):
        hint = ": row.asDict(recursive=True) is one" if isinstance(answer, SparkRow) else ""
        allowed = "a step returns dict, None or an iterable of dicts"
        raise WrongType(f"{allowed}; got {shown(answer)}{hint}")
    rows = []
    for row in answer:
        if not isinstance(row, Mapping):
            raise WrongType(f"a step yields dicts; got {type(row).__name__} {shown(row)}")
        # A generator may yield one dict again and again, changed in between.
        rows.append(dict(row))
    return rows
