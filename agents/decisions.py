"""From failed records to decisions: handlers are asked, paused tasks cut, counts made exact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from agents.entries import Cursor
from agents.failed import FailedRecord, bring
from agents.handlers import (
    ErrorContext,
    Handler,
    Record,
    RecordError,
    ask,
    constant_answer,
    effective,
)
from agents.held import cut_of, place
from agents.pipeline import Pipeline
from agents.worker.columns import ERROR, FATE, ORDINAL, POSITION, SOURCE, TASK
from controlplane.domain.events import Response

#: How many failed records are brought to the driver at a time when a handler must be asked.
_PAGE = 200
_RANK = "__arrester_rank"

#: A task and a position in it.
Coordinates = tuple[str | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Failed records of one task and cause that are counted, not described."""

    task: str | None
    number: int
    exception_class: str | None
    frame: str | None
    count: int
    first: int | None
    last: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is decided about a micro-batch or chunk."""

    #: By task: the place that it pauses at.
    cuts: Mapping[str, Cursor] = field(default_factory=dict)
    #: The first record that was answered FAIL; then nothing else is decided.
    fatal: FailedRecord | None = None
    paused: Sequence[FailedRecord] = ()
    examples: Sequence[FailedRecord] = ()
    rest: Sequence[Rest] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Decides about failed records by the handlers of a pipeline's steps."""

    application: str
    pipeline: Pipeline
    #: By step number; 0 is the source.
    handlers: Mapping[int, Handler]
    examples_limit: int

    def decide(self, frame: DataFrame, blamed: Sequence[Coordinates]) -> Decision:
        """Return the decision about the failed records in `frame`.

        `blamed` are coordinates that were reported before: always among the examples, so that
        nobody counts them twice.
        """
        failed = frame.where((F.col(ORDINAL) == 0) & (F.col(FATE) >= SOURCE))
        summary = (
            failed.groupBy(TASK, FATE)
            .agg(
                F.min(F.when(F.col(POSITION).isNotNull(), place())).alias("first"),
                F.count_if(F.col(POSITION).isNull()).alias("without"),
            )
            .collect()
        )
        if any(constant_answer(self.handlers[row[FATE]]) is None for row in summary):
            cuts, fatal = self._ask_each(failed)
        else:
            cuts, fatal = self._by_declaration(failed, summary)
        if fatal is not None:
            return Decision(fatal=fatal)
        return self._described(failed, cuts, blamed)

    def _by_declaration(
        self, failed: DataFrame, summary: Sequence[Row]
    ) -> tuple[dict[str, Cursor], FailedRecord | None]:
        """Decide without asking: every handler declares its only answer."""
        cuts: dict[str, Cursor] = {}
        deadly: list[Coordinates] = []
        for row in summary:
            task, first = row[TASK], _cursor(row["first"])
            answer = constant_answer(self.handlers[row[FATE]])
            if answer is Response.PAUSE and task is not None and first is not None:
                cuts[task] = min(first, cuts.get(task, first))
        for row in summary:
            task, first = row[TASK], _cursor(row["first"])
            answer = constant_answer(self.handlers[row[FATE]])
            if answer is None or answer is Response.CONTINUE:
                continue
            if row["without"]:
                deadly.append((task, None))
            if first is None or (task in cuts and first > cuts[task]):
                continue
            if effective(answer, task=task, position=first.position) is Response.FAIL:
                deadly.append((task, first.position))
        if not deadly:
            return cuts, None
        first_of_all = min(deadly, key=_order)
        numbers = [n for n, each in self.handlers.items() if _may_fail(each, first_of_all)]
        one = failed.where(_at([first_of_all]) & F.col(FATE).isin(numbers)).limit(1)
        return cuts, bring(self.pipeline, one)[0]

    def _ask_each(self, failed: DataFrame) -> tuple[dict[str, Cursor], FailedRecord | None]:
        """Ask the handlers record by record, in (task, position) order, page by page."""
        cuts: dict[str, Cursor] = {}
        last: tuple[str | None, int, int | None] | None = None
        for page in self._pages(failed):
            for each in page:
                if each.task is not None and each.task in cuts:
                    continue
                where = (each.task, each.entry, each.position)
                if each.position is not None and where == last:
                    continue  # Two rows at one position are asked about once.
                last = where
                answer = self._ask(each)
                if answer is Response.FAIL:
                    return cuts, each
                if answer is Response.PAUSE and each.task is not None:
                    cuts[each.task] = Cursor(entry=each.entry, position=each.position)
        return cuts, None

    def _ask(self, failed: FailedRecord) -> Response:
        if failed.problem.fatal:
            return Response.FAIL
        context = ErrorContext(
            application=self.application,
            pipeline=self.pipeline.name,
            stage=failed.stage,
            task=failed.task,
            position=failed.position,
        )
        row = failed.row.asDict(recursive=True)
        record = Record(key=failed.key, value=failed.value, row=row)
        problem = failed.problem
        error = RecordError(
            problem.exception_class,
            problem.message,
            condition=problem.condition,
            stack=problem.stack,
        )
        return ask(self.handlers[failed.number], context, record, error)

    def _pages(self, failed: DataFrame) -> Iterator[list[FailedRecord]]:
        order = Window.orderBy(F.col(TASK).asc_nulls_first(), place().asc())
        ranked = failed.withColumn(_RANK, F.row_number().over(order)).localCheckpoint(eager=True)
        for first in range(1, ranked.count() + 1, _PAGE):
            page = ranked.where(F.col(_RANK).between(first, first + _PAGE - 1))
            yield bring(self.pipeline, page.orderBy(_RANK).drop(_RANK))

    def _described(
        self, failed: DataFrame, cuts: Mapping[str, Cursor], blamed: Sequence[Coordinates]
    ) -> Decision:
        """Bring the examples, and count the rest exactly."""
        cut = cut_of(cuts)
        standing = failed.where(cut.isNull() | (place() <= cut))
        cause = [F.col(FATE), F.col(ERROR)["exception_class"], F.col(ERROR)["frame"]]
        order = Window.partitionBy(*cause).orderBy(F.col(TASK).asc_nulls_first(), place().asc())
        always = _at(blamed) | F.coalesce(place() == cut, F.lit(False))
        is_example = (F.col(_RANK) <= self.examples_limit) | always
        ranked = standing.withColumn(_RANK, F.row_number().over(order)).withColumn(
            _RANK, F.when(is_example, 0).otherwise(1)
        )
        ranked = ranked.localCheckpoint(eager=True)
        brought = bring(self.pipeline, ranked.where(F.col(_RANK) == 0).drop(_RANK))
        brought.sort(key=lambda each: _order((each.task, each.position)))
        fatal = next((each for each in brought if each.problem.fatal), None)
        if fatal is not None:
            return Decision(fatal=fatal)
        paused = [each for each in brought if _is_cut(each, cuts)]
        return Decision(
            cuts=cuts,
            paused=paused,
            examples=[each for each in brought if not _is_cut(each, cuts)],
            rest=_counted(ranked.where(F.col(_RANK) == 1), cause),
        )


def _counted(failed: DataFrame, cause: Sequence[Column]) -> list[Rest]:
    """Count failed records by task and cause, exactly."""
    rows = (
        failed.groupBy(TASK, *[each.alias(f"cause{n}") for n, each in enumerate(cause)])
        .agg(
            F.count(F.lit(1)).alias("n"),
            F.min(POSITION).alias("first"),
            F.max(POSITION).alias("last"),
        )
        .collect()
    )
    return [
        Rest(
            task=row[TASK],
            number=row["cause0"],
            exception_class=row["cause1"],
            frame=row["cause2"],
            count=row["n"],
            first=row["first"],
            last=row["last"],
        )
        for row in rows
    ]


def _may_fail(handler: Handler, where: Coordinates) -> bool:
    answer = constant_answer(handler) or Response.CONTINUE
    return effective(answer, task=where[0], position=where[1]) is Response.FAIL


def _is_cut(each: FailedRecord, cuts: Mapping[str, Cursor]) -> bool:
    where = Cursor(entry=each.entry, position=each.position)
    return each.task is not None and cuts.get(each.task) == where


def _cursor(row: Row | None) -> Cursor | None:
    return None if row is None else Cursor(entry=row["entry"], position=row["position"])


def _at(places: Sequence[Coordinates]) -> Column:
    """Return whether a row is at one of `places`."""
    conditions = [
        F.col(TASK).eqNullSafe(F.lit(task)) & F.col(POSITION).eqNullSafe(F.lit(position))
        for task, position in places
    ]
    return reduce(lambda one, other: one | other, conditions, F.lit(False))


def _order(where: Coordinates) -> tuple[bool, str, bool, int]:
    """The order of tasks and positions: NULL first, as Spark sorts them."""
    task, position = where
    return (task is not None, task or "", position is not None, position or 0)
