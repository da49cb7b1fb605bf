"""Decide about failed records by counting, if every handler declares a constant answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from arrester.agents.decisions.rules import FailureRules
from arrester.agents.failures.aggregate import FailureSummary
from arrester.agents.failures.failed_record import FailedRecord
from arrester.agents.failures.failure_set import FailureSet
from arrester.agents.failures.pause_offsets import cursor_column, place
from arrester.agents.journal.entries import Cursor
from arrester.agents.worker.columns import ERROR, OUTCOME, TASK
from arrester.domain.error_policy.log_levels import LogMessage
from arrester.domain.error_policy.policy import Response

#: Before all positions: the place of a record without one.
_FRONT = Cursor(entry=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Failed records of one task, step and kind; all have the same answer."""

    failures: FailureSummary
    #: Whether they have one cause too, because the step answers by class.
    by_class: bool
    answer: Response
    #: The log lines for them if this answer applies.
    log_lines: Sequence[LogMessage]

    @property
    def first(self) -> Cursor:
        """The first record; records without a position come before all others."""
        first = Cursor(entry=self.failures.entry, position=self.failures.position)
        return first if self.failures.placed else _FRONT

    @property
    def condition(self) -> Column:
        """Whether a failed row belongs to the group, in any task."""
        error = F.col(ERROR)
        same = F.col(OUTCOME) == self.failures.number
        same = same & error["kind"].eqNullSafe(F.lit(self.failures.kind))
        if not self.by_class:
            return same
        cause = self.failures.cause
        names = F.array(*[F.lit(name) for name in cause.names]).cast("array<string>")
        same = same & error["names"].eqNullSafe(names)
        return same & error["condition"].eqNullSafe(F.lit(cause.condition))


@dataclass(slots=True, kw_only=True)
class ConstantAnswers:
    """One decision about failed records that needs no call of a handler."""

    failures: FailureSet
    rules: FailureRules

    def decide(self) -> tuple[dict[str, Cursor], set[str], FailedRecord | None]:
        """Return the stops of tasks, the tasks that die there, and the record that ends the run."""
        pause_offsets: dict[str, Cursor] = {}
        dead: set[str] = set()
        now_ms = self.rules.now_ms()
        for task, groups in sorted(self._groups().items(), key=lambda each: _order(each[0])):
            pause = _first(groups, Response.PAUSE)
            fail = _first(groups, Response.FAIL)
            stop = min((each for each in (pause, fail) if each is not None), default=None)
            fatal = self._over_limit(task, groups, stop, now_ms=now_ms)
            if fatal is None and fail is not None and fail == stop:
                fatal = self._failed(task, groups, fail)
            if fatal is not None and not self.rules.ends_only_its_task(fatal):
                return pause_offsets, dead, fatal
            if fatal is not None and task is not None:
                self.rules.reset(task)
                pause_offsets[task] = Cursor(entry=fatal.entry, position=fatal.position)
                dead.add(task)
            elif task is not None and pause is not None:
                pause_offsets[task] = pause
        return pause_offsets, dead, None

    def _groups(self) -> Mapping[str | None, list[_Group]]:
        """Return the failed records of each task, by step and kind.

        Executors do not know the exception class of native steps: a native step is listed only if
        its answers differ.
        """
        stages = self.rules.stages.items()
        by_class = [n for n, stage in stages if stage.policy.by_class and not stage.native]
        groups: defaultdict[str | None, list[_Group]] = defaultdict(list)
        for each in self.failures.groups(by_class):
            # Only records of the source have no position, and PAUSE holds none of them.
            position = each.position if each.placed else None
            answer, log_lines = self.rules.respond_to_group(
                each.number, each.cause, task=each.task, position=position
            )
            groups[each.task].append(
                _Group(
                    failures=each,
                    by_class=each.number in by_class,
                    answer=answer,
                    log_lines=log_lines,
                )
            )
        return groups

    def _over_limit(
        self, task: str | None, groups: Sequence[_Group], stop: Cursor | None, *, now_ms: int
    ) -> FailedRecord | None:
        """Count the records that a task skips, and return the first record over a limit."""
        skipped = [each for each in groups if each.answer is Response.CONTINUE]
        if not self.rules.limited or not skipped:
            return None
        number = sum(each.failures.records for each in skipped)
        if stop is not None:
            number = self._rows(task, skipped).where(_is_before(stop)).count()
        counted = self.rules.count_skipped(task, number, now_ms=now_ms)
        return None if counted.exceeded is None else self._record(task, skipped, counted.tolerated)

    def _failed(self, task: str | None, groups: Sequence[_Group], fail: Cursor) -> FailedRecord:
        """Return and log the first record answered FAIL; later ones stay undecided."""
        first = next(g for g in groups if g.answer is Response.FAIL and g.first == fail)
        record = self._record(task, [first], 0)
        self.rules.log(first.log_lines, record)
        return record

    def _record(self, task: str | None, groups: Sequence[_Group], index: int) -> FailedRecord:
        """Return the record that comes after `index` others of these groups in its task."""
        one = self._rows(task, groups).orderBy(place().asc()).offset(index).limit(1)
        return self.failures.load(self.rules.pipeline, one)[0]

    def _rows(self, task: str | None, groups: Sequence[_Group]) -> DataFrame:
        in_groups = reduce(Column.__or__, [each.condition for each in groups])
        return self.failures.records.where(F.col(TASK).eqNullSafe(F.lit(task)) & in_groups)


def _first(groups: Sequence[_Group], answer: Response) -> Cursor | None:
    return min((each.first for each in groups if each.answer is answer), default=None)


def _is_before(stop: Cursor) -> Column:
    return F.lit(False) if stop == _FRONT else place() < cursor_column(stop)


def _order(task: str | None) -> tuple[bool, str]:
    """Return the sort key of tasks: NULL first, as Spark sorts them."""
    return task is not None, task or ""
