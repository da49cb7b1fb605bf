"""The error policy of a pipeline as text."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple, cast

from arrester.controlplane import queries
from arrester.domain import failure_text
from arrester.domain.events import (
    PipelineDescribed,
    StageAnswer,
    StageCommanded,
    StageDescribed,
)
from arrester.domain.state.policy_overrides import policy_refusal
from arrester.domain.state.states import TaskState, ThreadState
from arrester.domain.state.uncaught_policy import UncaughtAnswer

_ORIGINS = {
    "on_error": "on_error=",
    "configuration": "configuration",
    "limit": "limit",
    "default": "default",
}
_UNCAUGHT = {answer.value for answer in UncaughtAnswer}
#: From this share of a limit on, a gauge shows that it is nearly used.
NEARLY = 0.75
_UNTIL = {"minute": "this minute", "hour": "this hour", "day": "today"}


class StageRow(NamedTuple):
    """A stage of a pipeline."""

    stage: StageDescribed
    #: The answer, or that a handler decides.
    answer: str
    origin: str
    #: The class of the handler, without its package.
    handler: str | None
    on: list[tuple[str, str]]
    #: The override of a person.
    commanded: StageCommanded | None = None


class AnswerChoice(NamedTuple):
    """An answer that a person may set; without a value it removes the override."""

    value: str
    label: str
    #: The effect of the answer.
    meaning: str


_CHOICES = (
    AnswerChoice("CONTINUE", "CONTINUE", "skip the record; store a dead letter if enabled"),
    AnswerChoice("PAUSE", "PAUSE", "pause the task at the record; FAIL if there is no task column"),
    AnswerChoice("FAIL", "FAIL", "end the run, or only the task if errors.failure.scope=task"),
)
_RETRY = AnswerChoice("RETRY", "RETRY", "retry within the budget, then FAIL")


class Meter(NamedTuple):
    """A gauge with its colour and text."""

    gauge: queries.Gauge
    look: str
    icon: str
    word: str
    #: `this hour`, `in this run`.
    span: str

    @property
    def sum(self) -> str:
        """The used part of the limit: `37 of 100 this hour`."""
        return f"{self.gauge.used:,} of {self.gauge.limit:,} {self.span.removeprefix('in ')}"


class PipelineText(NamedTuple):
    """A pipeline on the page; without rows its policy is unknown."""

    policy: queries.PipelinePolicy
    rows: list[StageRow]
    meters: list[Meter]
    #: Further settings, as pairs of a term and a sentence.
    facts: list[tuple[str, str]]


def texts(policies: Iterable[queries.PipelinePolicy]) -> list[PipelineText]:
    """Return what the page shows of pipelines."""
    return [_policy(each) for each in policies]


def meters(task: TaskState, thread: ThreadState | None, *, now: datetime) -> list[Meter]:
    """Return the gauges of one task, for the limits of its run that can be reached."""
    return [_meter(gauge) for gauge in queries.task_gauges(task, thread, now=now)]


def _policy(pipeline: queries.PipelinePolicy) -> PipelineText:
    policy = pipeline.thread.policy
    if policy is None:
        return PipelineText(pipeline, [], [], [])
    return PipelineText(
        policy=pipeline,
        rows=[_row(stage, commanded(policy, stage.name)) for stage in policy.stages],
        meters=[_meter(gauge) for gauge in pipeline.gauges],
        facts=_facts(policy),
    )


def commanded(policy: PipelineDescribed, stage: str) -> StageCommanded | None:
    """Return the override of a stage."""
    return next((each for each in policy.commanded if each.name == stage), None)


def choices(runs: Iterable[ThreadState], pipeline: str, stage: str) -> list[AnswerChoice]:
    """Return the answers that may be set for a stage; empty if none may."""
    threads = list(runs)
    offered = [
        each
        for each in (*_CHOICES, _RETRY)
        if policy_refusal(threads, pipeline, stage, cast("StageAnswer", each.value)) is None
    ]
    if policy_refusal(threads, pipeline, stage, None) is None:
        offered.append(
            AnswerChoice("", "As in the code", "as set by on=, on_error= and configuration")
        )
    return offered


def refusal(runs: Iterable[ThreadState], pipeline: str, stage: str) -> str:
    """Return why no answer may be set for a stage; empty if one may."""
    return policy_refusal(list(runs), pipeline, stage, "FAIL") or ""


def _row(stage: StageDescribed, override: StageCommanded | None) -> StageRow:
    return StageRow(
        stage=stage,
        answer=stage.answer or "HANDLER",
        origin=_ORIGINS[stage.origin],
        handler=None if stage.handler is None else failure_text.short(stage.handler),
        on=[(failure_text.short(name), answer) for name, answer in stage.on.items()],
        commanded=override,
    )


def _meter(gauge: queries.Gauge) -> Meter:
    span = "in this run" if gauge.window is None else _UNTIL[gauge.window.value]
    if gauge.used >= gauge.limit:
        word = (
            "no record may be skipped"
            if gauge.limit == 0
            else "used up: the next failure exceeds the limit"
        )
        return Meter(gauge, "is-dead", "warning", word, span)
    if gauge.share >= NEARLY:
        return Meter(gauge, "is-paused", "half", "nearly used up", span)
    return Meter(gauge, "is-running", "check", "within the limit", span)


def _facts(policy: PipelineDescribed) -> list[tuple[str, str]]:
    return [
        ("Tolerance", _tolerance(policy)),
        ("Retries", _retries(policy)),
        ("Dead letters", _dead_letters(policy)),
        ("Failure scope", "the task" if policy.scope == "task" else "the run"),
        ("Uncaught exception", _uncaught(policy.uncaught)),
        ("Outage", _outage(policy)),
        ("Sink", f"{policy.sink}{', atomic' if policy.atomic else ''}"),
    ]


def _uncaught(answer: str) -> str:
    """Return the constant answer, or the handler."""
    return answer if answer in _UNCAUGHT else f"handler {answer}"


def _tolerance(policy: PipelineDescribed) -> str:
    limits = [
        f"{limit:,} {span}"
        for limit, span in (
            (policy.tolerance_limit, "per run"),
            (policy.rate_limit, f"per {policy.rate_duration}"),
        )
        if limit is not None and limit >= 0
    ]
    return f"{' and '.join(limits)}, for each task" if limits else "no limit"


def _retries(policy: PipelineDescribed) -> str:
    if policy.retries_limit == 0:
        return "none"
    number = "any number" if policy.retries_limit < 0 else f"{policy.retries_limit:,}"
    within = "" if policy.retry_timeout_ms < 0 else f", within {_seconds(policy.retry_timeout_ms)}"
    return f"{number}{within}; waits of at most {_seconds(policy.retry_delay_max_ms)}"


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1_000:,g} s"


def _dead_letters(policy: PipelineDescribed) -> str:
    if policy.dead_letter_format is None:
        return "off: skipped records are not stored"
    return f"{policy.dead_letter_format}, {policy.dead_letter_place}"


def _outage(policy: PipelineDescribed) -> str:
    if policy.outage_share is None:
        return "off: each record is handled by itself"
    share = f"{policy.outage_share:.0%} of a micro-batch"
    least = f"at least {policy.outage_minimum:,} records"
    return f"more than {share}, {least}, that fail alike: {policy.outage_response}"
