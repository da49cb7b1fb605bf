"""The error policy of a pipeline as text."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple, cast

from arrester.controlplane import queries
from arrester.controlplane.domain.events import (
    PipelineDescribed,
    StageAnswer,
    StageCommanded,
    StageDescribed,
)
from arrester.controlplane.domain.state.policy_overrides import policy_refusal
from arrester.controlplane.domain.state.states import TaskState, ThreadState
from arrester.controlplane.domain.state.uncaught_policy import UncaughtAnswer
from arrester.dashboard.text import event_text

_ORIGINS = {
    "on_error": "on_error=",
    "configuration": "configuration",
    "limit": "a limit alone",
    "default": "default",
}
_UNCAUGHT = {answer.value for answer in UncaughtAnswer}
#: From this share of a limit on, a gauge shows that it is nearly used.
NEARLY = 0.75
_UNTIL = {"minute": "this minute", "hour": "this hour", "day": "today"}


class Row(NamedTuple):
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


class Choice(NamedTuple):
    """An answer that a person may set; without a value it removes the override."""

    value: str
    word: str
    #: The effect of the answer.
    meaning: str


_CHOICES = (
    Choice("CONTINUE", "CONTINUE", "skip the record; store a dead letter if enabled"),
    Choice("PAUSE", "PAUSE", "pause the task at the record; FAIL if there is no task column"),
    Choice("FAIL", "FAIL", "end the run, or only the task if errors.failure.scope=task"),
)
_RETRY = Choice("RETRY", "RETRY", "retry within the budget, then FAIL")


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


class Shown(NamedTuple):
    """A pipeline on the page; without rows its policy is unknown."""

    policy: queries.PipelinePolicy
    rows: list[Row]
    meters: list[Meter]
    #: Further settings, as pairs of a term and a sentence.
    facts: list[tuple[str, str]]


def shown(application: str, *, now: datetime) -> list[Shown]:
    """Return what the page shows of each pipeline of an application."""
    return [_shown(each) for each in queries.policies(application, now=now)]


def meters(task: TaskState, thread: ThreadState | None, *, now: datetime) -> list[Meter]:
    """Return the gauges of one task, for the limits of its run that can be reached."""
    return [_meter(gauge) for gauge in queries.task_gauges(task, thread, now=now)]


def _shown(found: queries.PipelinePolicy) -> Shown:
    told = found.thread.policy
    if told is None:
        return Shown(found, [], [], [])
    return Shown(
        policy=found,
        rows=[_row(stage, commanded(told, stage.name)) for stage in told.stages],
        meters=[_meter(gauge) for gauge in found.gauges],
        facts=_facts(told),
    )


def commanded(told: PipelineDescribed, stage: str) -> StageCommanded | None:
    """Return the override of a stage."""
    return next((each for each in told.commanded if each.name == stage), None)


def choices(runs: Iterable[ThreadState], pipeline: str, stage: str) -> list[Choice]:
    """Return the answers that may be set for a stage; empty if none may."""
    found = list(runs)
    offered = [
        each
        for each in (*_CHOICES, _RETRY)
        if policy_refusal(found, pipeline, stage, cast("StageAnswer", each.value)) is None
    ]
    if policy_refusal(found, pipeline, stage, None) is None:
        offered.append(Choice("", "As in the code", "as set by on=, on_error= and configuration"))
    return offered


def why_not(runs: Iterable[ThreadState], pipeline: str, stage: str) -> str:
    """Return why no answer may be set for a stage; empty if one may."""
    return policy_refusal(list(runs), pipeline, stage, "FAIL") or ""


def _row(stage: StageDescribed, said: StageCommanded | None) -> Row:
    return Row(
        stage=stage,
        answer=stage.answer or "HANDLER",
        origin=_ORIGINS[stage.origin],
        handler=None if stage.handler is None else event_text.short(stage.handler),
        on=[(event_text.short(name), answer) for name, answer in stage.on.items()],
        commanded=said,
    )


def _meter(gauge: queries.Gauge) -> Meter:
    span = "in this run" if gauge.window is None else _UNTIL[gauge.window.value]
    if gauge.used >= gauge.limit:
        word = (
            "no record may be skipped"
            if gauge.limit == 0
            else "used up: the next failure exceeds it"
        )
        return Meter(gauge, "is-dead", "warning", word, span)
    if gauge.share >= NEARLY:
        return Meter(gauge, "is-paused", "half", "nearly used up", span)
    return Meter(gauge, "is-running", "check", "within the limit", span)


def _facts(told: PipelineDescribed) -> list[tuple[str, str]]:
    return [
        ("Tolerance", _tolerance(told)),
        ("Retries", _retries(told)),
        ("Dead letters", _dead_letters(told)),
        ("FAIL ends", "only its task" if told.scope == "task" else "the run"),
        ("Failure scope", _uncaught(told.uncaught)),
        ("Outage", _outage(told)),
        ("Ends in", f"{told.sink}{', all or nothing' if told.atomic else ''}"),
    ]


def _uncaught(said: str) -> str:
    """Return the constant answer, or the handler."""
    return said if said in _UNCAUGHT else f"handler {said}"


def _tolerance(told: PipelineDescribed) -> str:
    limits = [
        f"{limit:,} {span}"
        for limit, span in (
            (told.tolerance_limit, "per run"),
            (told.rate_limit, f"per {told.rate_duration}"),
        )
        if limit is not None and limit >= 0
    ]
    return f"{' and '.join(limits)}, for each task" if limits else "no limit"


def _retries(told: PipelineDescribed) -> str:
    if told.retries_limit == 0:
        return "none"
    number = "any number" if told.retries_limit < 0 else f"{told.retries_limit:,}"
    within = "" if told.retry_timeout_ms < 0 else f", within {_seconds(told.retry_timeout_ms)}"
    return f"{number}{within}; waits of at most {_seconds(told.retry_delay_max_ms)}"


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1_000:,g} s"


def _dead_letters(told: PipelineDescribed) -> str:
    if told.dead_letter_format is None:
        return "off: skipped records are not stored"
    return f"{told.dead_letter_format}, {told.dead_letter_place}"


def _outage(told: PipelineDescribed) -> str:
    if told.outage_share is None:
        return "off: each record is handled by itself"
    share = f"{told.outage_share:.0%} of a micro-batch"
    least = f"at least {told.outage_minimum:,} records"
    return f"more than {share}, {least}, that fail alike: {told.outage_response}"
