"""Decide about failed records by counting, if every handler declares a constant answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from arrester.agents.decisions.rules import Responder
from arrester.agents.executor.columns import ERROR, FATE, TASK
from arrester.agents.failures.aggregate_in_spark import FailureGroup
from arrester.agents.failures.failed_record import FailedRecord
from arrester.agents.failures.failure_set import Failures
from arrester.agents.failures.pause_offsets import place
from arrester.agents.journal.entries import Cursor
from arrester.controlplane.domain.error_policy.exception_identity import Cause
from arrester.controlplane.domain.error_policy.log_levels import Saying
from arrester.controlplane.domain.error_policy.policy import Answer

#: Before all positions: the place of a record without one.
_FRONT = Cursor(entry=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantGroup:
    """Failed records of one task, step and kind; all have the same answer."""

    task: str | None
    number: int
    kind: str | None
    #: The cause of their exception, if the step answers by class.
    cause: Cause | None
    answer: Answer
    #: The log lines for them if this answer applies.
    said: Sequence[Saying]
    count: int
    #: The first record; records without a position come before all others.
    first: Cursor

    def condition(self) -> Column:
        """Return whether a failed row belongs to the group, in any task."""
        kind = F.col(ERROR)["kind"].eqNullSafe(F.lit(self.kind))
        alike = (F.col(FATE) == self.number) & kind
        if self.cause is None:
            return alike
        names = F.array(*[F.lit(name) for name in self.cause.names]).cast("array<string>")
        condition = F.col(ERROR)["condition"].eqNullSafe(F.lit(self.cause.condition))
        return alike & F.col(ERROR)["names"].eqNullSafe(names) & condition


@dataclass(slots=True, kw_only=True)
class ConstantAnswers:
    """One decision about failed records that needs no call of a handler."""

    failures: Failures
    responder: Responder

    def decide(self) -> tuple[dict[str, Cursor], set[str], FailedRecord | None]:
        """Return the stop of each task, the tasks that die there, and the first record that
        ends the run."""
        pause_offsets: dict[str, Cursor] = {}
        dead: set[str] = set()
        now_ms = self.responder.now_ms()
        for task, groups in sorted(self._groups().items(), key=lambda each: _order(each[0])):
            pause = _first(groups, Answer.PAUSE)
            fail = _first(groups, Answer.FAIL)
            stop = min((each for each in (pause, fail) if each is not None), default=None)
            fatal = self._one_too_many(task, groups, stop, now_ms=now_ms)
            if fatal is None and fail is not None and fail == stop:
                fatal = self._failed(task, groups, fail)
            if fatal is not None and not self.responder.ends_only_its_task(fatal):
                return pause_offsets, dead, fatal
            if fatal is not None and task is not None:
                self.responder.forget(task)
                pause_offsets[task] = Cursor(entry=fatal.entry, position=fatal.position)
                dead.add(task)
            elif task is not None and pause is not None:
                pause_offsets[task] = pause
        return pause_offsets, dead, None

    def _groups(self) -> Mapping[str | None, list[ConstantGroup]]:
        """Return the failed records of each task, by step and kind."""
        groups: dict[str | None, list[ConstantGroup]] = {}
        for group in self.failures.groups(self._answering_by_class()):
            groups.setdefault(group.task, []).append(self._alike(group))
        return groups

    def _answering_by_class(self) -> tuple[int, ...]:
        """Return the steps that answer by class.

        Executors do not know the exception class of native steps: a native step is listed only if
        its answers differ.
        """
        stages = self.responder.stages.items()
        return tuple(n for n, stage in stages if stage.policy.by_class and not stage.native)

    def _alike(self, group: FailureGroup) -> ConstantGroup:
        # Only records of the source have no position, and PAUSE holds none of them.
        position = None if group.first is None else group.first.position
        answer, said = self.responder.respond_to_group(
            group.number, group.cause, task=group.task, position=position
        )
        return ConstantGroup(
            task=group.task,
            number=group.number,
            kind=group.kind,
            cause=group.cause if group.known else None,
            answer=answer,
            said=said,
            count=group.count,
            first=group.first or _FRONT,
        )

    def _one_too_many(
        self, task: str | None, groups: Sequence[ConstantGroup], stop: Cursor | None, *, now_ms: int
    ) -> FailedRecord | None:
        """Count the records that a task leaves out, and return the first record over a limit."""
        left_out = [each for each in groups if each.answer is Answer.CONTINUE]
        if not self.responder.limited or not left_out:
            return None
        number = sum(each.count for each in left_out)
        if stop is not None:
            number = self._rows(task, left_out).where(_is_before(stop)).count()
        counted = self.responder.counted(task, number, now_ms=now_ms)
        if counted.exceeded is None:
            return None
        return self._record(task, left_out, counted.tolerated)

    def _failed(
        self, task: str | None, groups: Sequence[ConstantGroup], fail: Cursor
    ) -> FailedRecord:
        """Return the record answered FAIL before all others, and log the limit that it exceeded.

        Later records are not decided and not logged.
        """
        first = next(g for g in groups if g.answer is Answer.FAIL and g.first == fail)
        record = self._record(task, [first], 0)
        self.responder.say(first.said, record)
        return record

    def _record(
        self, task: str | None, groups: Sequence[ConstantGroup], index: int
    ) -> FailedRecord:
        """Return the record that comes after `index` others of these groups in its task."""
        one = self._rows(task, groups).orderBy(place().asc()).offset(index).limit(1)
        return self.failures.load(self.responder.pipeline, one)[0]

    def _rows(self, task: str | None, groups: Sequence[ConstantGroup]) -> DataFrame:
        alike = reduce(lambda one, other: one | other, [each.condition() for each in groups])
        return self.failures.records.where(F.col(TASK).eqNullSafe(F.lit(task)) & alike)


def _first(groups: Sequence[ConstantGroup], answer: Answer) -> Cursor | None:
    return min((each.first for each in groups if each.answer is answer), default=None)


def _is_before(stop: Cursor) -> Column:
    if stop == _FRONT:
        return F.lit(False)
    entry, position = F.lit(stop.entry).alias("entry"), F.lit(stop.position).alias("position")
    return place() < F.struct(entry, position).cast("struct<entry:int,position:bigint>")


def _order(task: str | None) -> tuple[bool, str]:
    """Return the sort key of tasks: NULL first, as Spark sorts them."""
    return task is not None, task or ""
