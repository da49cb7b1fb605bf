"""Causes of failures with their fingerprints, also for records that are not reported in full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.failures.aggregate_in_spark import CountedFailures, StoppedTask
from arrester.agents.failures.failed_record import FailedRecord, is_native, stage_of
from arrester.agents.spark.errors import Problem
from arrester.controlplane.domain.events import Failure
from arrester.controlplane.domain.identity.fingerprint import fingerprint


class Causes:
    """The causes in the examples, for the records that are counted only."""

    def __init__(self, pipeline: Pipeline, told: Sequence[FailedRecord]) -> None:
        self._pipeline = pipeline
        self._told = [(each, failure_of(each)) for each in told]
        self._found: dict[object, tuple[dict[str, Failure], Counter[str]]] = {}

    def split(self, rest: CountedFailures) -> list[tuple[Failure, int]]:
        """Split counted records among the causes in the examples of their step."""
        known, weights = self._of(rest)
        return [(known[name], count) for name, count in shares(rest.count, weights).items()]

    def commonest(self, each: StoppedTask) -> Failure:
        """Return the most frequent cause in the examples of its step and class."""
        known, weights = self._of(each)
        return known[weights.most_common(1)[0][0]]

    def _of(self, each: CountedFailures | StoppedTask) -> tuple[dict[str, Failure], Counter[str]]:
        kind = (each.number, each.exception_class, each.frame, each.attempts)
        if kind not in self._found:
            self._found[kind] = self._causes(each)
        return self._found[kind]

    def _causes(
        self, each: CountedFailures | StoppedTask
    ) -> tuple[dict[str, Failure], Counter[str]]:
        native = is_native(self._pipeline, each.number)
        # Retried failures keep their own number of attempts.
        found = [
            replace(failure, attempts=each.attempts)
            for record, failure in self._told
            if record.number == each.number and (native or _is_alike(record.problem, each))
        ] or [_unseen(stage_of(self._pipeline, each.number), each)]
        known = {failure.fingerprint: failure for failure in reversed(found)}
        return known, Counter(failure.fingerprint for failure in found)


def failure_of(each: FailedRecord) -> Failure:
    """Return the failure of a record, with the fingerprint of its cause."""
    return failure(each.stage, each.problem)


def failure(stage: str, problem: Problem) -> Failure:
    """Return a problem of a stage as a failure."""
    return Failure(
        stage=stage,
        exception_class=problem.exception_class,
        condition=problem.condition,
        message=problem.message,
        frame=problem.frame,
        attempts=problem.attempts,
        fingerprint=fingerprint(
            stage=stage,
            exception_class=problem.exception_class,
            condition=problem.condition,
            frame=problem.frame,
            message=problem.message,
        ),
    )


def shares(count: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Split `count` in proportion to `weights`, by largest remainder. The sum is exact."""
    total = sum(weights.values())
    split = {name: count * weight // total for name, weight in weights.items()}
    left = count - sum(split.values())
    by_remainder = sorted(weights, key=lambda name: count * weights[name] % total, reverse=True)
    for name in by_remainder[:left]:
        split[name] += 1
    return {name: part for name, part in split.items() if part}


def _is_alike(problem: Problem, rest: CountedFailures | StoppedTask) -> bool:
    return (problem.exception_class, problem.frame) == (rest.exception_class, rest.frame)


def _unseen(stage: str, rest: CountedFailures | StoppedTask) -> Failure:
    problem = Problem(
        exception_class=rest.exception_class or "NotEvaluated",
        message="",
        frame=rest.frame,
        attempts=rest.attempts,
    )
    return failure(stage, problem)
