"""Causes of failures with their fingerprints, also for records that are not reported in full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.failures.aggregate import FailureSummary
from arrester.agents.failures.failed_record import FailedRecord
from arrester.agents.spark.errors import Problem
from arrester.agents.spark.worker_tracebacks import MESSAGE_CHARACTERS
from arrester.domain.events import Failure
from arrester.domain.identity.fingerprint import fingerprint


class CountedCauses:
    """The causes in the examples, for failures that are counted only."""

    def __init__(self, pipeline: Pipeline, examples: Sequence[FailedRecord]) -> None:
        self._pipeline = pipeline
        self._examples = [(each, failure_of(each)) for each in examples]
        self._known: dict[object, tuple[dict[str, Failure], Counter[str]]] = {}

    def split(self, counted: FailureSummary) -> list[tuple[Failure, int]]:
        """Split counted failures among the causes in the examples of their step."""
        causes, weights = self._of(counted)
        return [(causes[name], count) for name, count in shares(counted.records, weights).items()]

    def most_common(self, failure: FailureSummary) -> Failure:
        """Return the most frequent cause in the examples of its step and class."""
        causes, weights = self._of(failure)
        return causes[weights.most_common(1)[0][0]]

    def _of(self, failure: FailureSummary) -> tuple[dict[str, Failure], Counter[str]]:
        """Return the causes by fingerprint, and how many examples have each."""
        if failure.counted_with not in self._known:
            examples = self._examples_of(failure) or [self._without_example(failure)]
            causes = {each.fingerprint: each for each in reversed(examples)}
            weights = Counter(each.fingerprint for each in examples)
            self._known[failure.counted_with] = causes, weights
        return self._known[failure.counted_with]

    def _examples_of(self, failure: FailureSummary) -> list[Failure]:
        native = self._pipeline.is_native(failure.number)
        cause = (failure.exception_class, failure.frame)
        # Retried failures keep their own number of attempts.
        return [
            replace(example, attempts=failure.attempts)
            for record, example in self._examples
            if record.number == failure.number
            and (native or (record.problem.exception_class, record.problem.frame) == cause)
        ]

    def _without_example(self, failure: FailureSummary) -> Failure:
        problem = Problem(
            exception_class=failure.exception_class or "NotEvaluated",
            message="",
            frame=failure.frame,
            attempts=failure.attempts,
        )
        return failure_at(self._pipeline.stages[failure.number], problem)


def failure_of(each: FailedRecord) -> Failure:
    """Return the failure of a record, with the fingerprint of its cause."""
    return failure_at(each.stage, each.problem)


def failure_at(stage: str, problem: Problem) -> Failure:
    """Return a problem of a stage as a failure, with a message that the server accepts."""
    message = problem.message[:MESSAGE_CHARACTERS]
    return Failure(
        stage=stage,
        exception_class=problem.exception_class,
        condition=problem.condition,
        message=message,
        frame=problem.frame,
        attempts=problem.attempts,
        inner_class=problem.inner_class,
        inner_condition=problem.inner_condition,
        field=problem.field,
        fingerprint=fingerprint(
            stage=stage,
            exception_class=problem.exception_class,
            condition=problem.condition,
            frame=problem.frame,
            message=message,
            inner_class=problem.inner_class,
            inner_condition=problem.inner_condition,
            field=problem.field,
        ),
    )


def shares(count: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Split `count` in proportion to `weights`, by largest remainder. The sum is exact."""
    total = sum(weights.values())
    split = {name: count * weight // total for name, weight in weights.items()}
    remainder = count - sum(split.values())
    by_remainder = sorted(weights, key=lambda name: count * weights[name] % total, reverse=True)
    for name in by_remainder[:remainder]:
        split[name] += 1
    return {name: part for name, part in split.items() if part}
